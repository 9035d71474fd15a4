"""Tool calls that are emulated by constrained text."""

import json

import jsonschema
import pytest

from gymcli.models.emulated_tools import emulate, may_call, restore
from gymcli.types import (
    JSON,
    Answer,
    FinishReason,
    FunctionCall,
    JSONObject,
    Message,
    Request,
    ToolCall,
)

ADD: JSONObject = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
            "additionalProperties": False,
        },
    },
}
STOP: JSONObject = {"type": "function", "function": {"name": "stop"}}
USER = Message(role="user", content="1 + 2?")


def emulated(*, tools: list[JSONObject] | None = None, **params: object) -> Request:
    return emulate(Request(messages=[USER], tools=tools or [ADD, STOP], params=params))


def schema_of(request: Request) -> JSONObject:
    """Return the schema that constrains the answer, and check that it is valid."""
    schema = request.params["response_format"]["json_schema"]["schema"]  # type: ignore[index]
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema  # type: ignore[no-any-return]


def allows(request: Request, value: JSON) -> bool:
    return jsonschema.Draft202012Validator(schema_of(request)).is_valid(value)


CALL_ADD = {"tool": "add", "arguments": {"a": 1, "b": 2}}
CALL_STOP: JSONObject = {"tool": "stop", "arguments": {}}
ANSWER = {"answer": "3"}


def test_emulate_without_tools_gives_the_request_back() -> None:
    request = Request(messages=[USER], params={"tool_choice": "auto"})
    assert emulate(request) is request
    hosted = Request(messages=[USER], tools=[{"type": "web_search"}])
    assert emulate(hosted) is hosted


@pytest.mark.parametrize(
    ("tools", "params", "expected"),
    [
        ([ADD], {}, True),
        ([ADD], {"tool_choice": "required"}, True),
        ([ADD], {"tool_choice": "none"}, False),
        ([{"type": "web_search"}], {}, False),
        ([], {}, False),
    ],
)
def test_may_call(tools: list[JSONObject], params: JSONObject, expected: bool) -> None:
    request = Request(messages=[USER], tools=tools, params=params)
    assert may_call(request) is expected
    assert ("response_format" in emulate(request).params) is expected


def test_emulate_lists_the_tools_in_a_system_message() -> None:
    request = emulated(parallel_tool_calls=True, tool_choice="auto", temperature=0)
    assert request.tools == []
    assert request.params.keys() == {"temperature", "response_format"}
    assert request.messages == [
        Message(
            role="system",
            content=(
                "Tools:\n"
                'add: Add two numbers. {"properties":{"a":{"type":"integer"},'
                '"b":{"type":"integer"}},"required":["a","b"]}\n'
                'stop: {"properties":{}}\n'
                "Reply with JSON only.\n"
                'To use a tool: {"tool": "<name>", "arguments": {…}}\n'
                'To answer: {"answer": "<text>"}'
            ),
        ),
        USER,
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("Be brief.", "Be brief.\n\nTools:"),
        (None, "Tools:"),
        ([{"type": "text", "text": "Be brief."}], "Be brief.Tools:"),
    ],
)
def test_emulate_adds_to_the_system_message(content: str | None, expected: str) -> None:
    given = Message(role="developer", content=content)
    request = emulate(Request(messages=[given, USER], tools=[ADD]))
    assert request.messages[0].role == "developer"
    assert request.messages[0].text.startswith(expected)
    assert request.messages[1:] == [USER]
    assert given.content == content


@pytest.mark.parametrize(
    ("choice", "allowed"),
    [
        ("auto", [CALL_ADD, CALL_STOP, ANSWER]),
        (None, [CALL_ADD, CALL_STOP, ANSWER]),
        ("required", [CALL_ADD, CALL_STOP]),
        ({"type": "function", "function": {"name": "add"}}, [CALL_ADD]),
        ({"type": "function", "function": {"name": "gone"}}, [CALL_ADD, CALL_STOP]),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [STOP]}},
         [CALL_STOP, ANSWER]),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [STOP]}},
         [CALL_STOP]),
    ],
)  # fmt: skip
def test_emulate_constrains_to_the_tool_choice(choice: JSON, allowed: list[JSON]) -> None:
    request = emulated(tool_choice=choice)
    assert [v for v in (CALL_ADD, CALL_STOP, ANSWER) if allows(request, v)] == allowed
    assert ('"answer"' in request.messages[0].text) == (ANSWER in allowed)


@pytest.mark.parametrize(
    "value",
    [
        "3",
        {},
        {"tool": "add", "arguments": {"a": 1}},
        {"tool": "add"},
        {"tool": "sub", "arguments": {}},
        {"answer": 3},
        {"answer": "3", "tool": "add"},
    ],
)
def test_emulate_allows_nothing_else(value: JSON) -> None:
    assert not allows(emulated(), value)


def test_emulate_of_no_choice_only_rewrites_the_conversation() -> None:
    request = emulated(tool_choice="none", temperature=0)
    assert request == Request(messages=[USER], params={"temperature": 0})


def test_emulate_keeps_the_asked_format_for_answers() -> None:
    wanted = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    named = {"name": "n", "schema": wanted}
    request = emulated(response_format={"type": "json_schema", "json_schema": named})
    assert allows(request, {"answer": {"sum": 3}})
    assert not allows(request, ANSWER)


@pytest.mark.parametrize("place", ["$defs", "definitions"])
def test_emulate_moves_definitions_to_the_root(place: str) -> None:
    parameters = {
        "type": "object",
        "properties": {"points": {"type": "array", "items": {"$ref": f"#/{place}/Point"}}},
        place: {
            "Point": {
                "type": "object",
                "properties": {"x": {"type": "integer"}, "next": {"$ref": f"#/{place}/Point"}},
                "required": ["x"],
            }
        },
    }
    draw: JSONObject = {"type": "function", "function": {"name": "draw", "parameters": parameters}}
    request = emulated(tools=[ADD, draw])
    assert allows(request, {"tool": "draw", "arguments": {"points": [{"x": 1, "next": {"x": 2}}]}})
    assert not allows(request, {"tool": "draw", "arguments": {"points": [{"next": {"x": 2}}]}})


def test_emulate_writes_the_history_as_text() -> None:
    image: JSONObject = {"type": "image_url", "image_url": {"url": "u"}}
    calls = [
        ToolCall("c", FunctionCall("add", '{"a": 1}')),
        ToolCall("d", FunctionCall("stop", "")),
        ToolCall("e", FunctionCall("add", "{bad")),
    ]
    history = [
        USER,
        Message(role="assistant", content="Let me see.", reasoning="r", tool_calls=calls),
        Message(role="tool", tool_call_id="c", content="3"),
        Message(role="tool", tool_call_id="d", content=[image]),
        Message(role="tool", tool_call_id="x"),
        Message(role="assistant", content="Three."),
    ]
    request = emulate(Request(messages=history, tools=[ADD]))
    assert request.messages[1:] == [
        USER,
        Message(
            role="assistant",
            content="Let me see.\n"
            '{"tool":"add","arguments":{"a":1}}\n'
            '{"tool":"stop","arguments":{}}\n'
            '{"tool":"add","arguments":"{bad"}',
            reasoning="r",
        ),
        Message(role="user", content="Result of add: 3"),
        Message(role="user", content=[{"type": "text", "text": "Result of stop:"}, image]),
        Message(role="user", content="Result of the tool: "),
        Message(role="assistant", content="Three."),
    ]


def restored(text: str, finish_reason: FinishReason = "stop") -> Answer:
    message = Message(role="assistant", content=text, reasoning="r")
    return restore(Answer(message=message, finish_reason=finish_reason), id_prefix="turn2")


def test_restore_of_a_call() -> None:
    answer = restored(' {"tool": "add", "arguments": {"a": 1}} ')
    call = ToolCall("turn2_0", FunctionCall("add", '{"a":1}'))
    assert answer.message == Message(role="assistant", reasoning="r", tool_calls=[call])
    assert answer.finish_reason == "tool_calls"
    assert restored('{"tool": "f"}').message.tool_calls[0].arguments == "{}"


def test_restore_of_an_answer() -> None:
    assert restored('{"answer": "Three.\\n"}').message.content == "Three.\n"
    answer = restored(json.dumps({"answer": {"sum": 3}}))
    assert answer.message == Message(role="assistant", reasoning="r", content='{"sum":3}')
    assert answer.finish_reason == "stop"


@pytest.mark.parametrize(
    "text",
    [
        "Three.",
        '{"tool": "add", "argu',
        '{"tool": 3, "arguments": {}}',
        '{"tool": "add", "answer": "x"}',
        '{"arguments": {}}',
        '["answer"]',
        "{}",
        "",
        pytest.param("[" * 100_000, id="deep"),
    ],
)
def test_restore_leaves_other_text(text: str) -> None:
    assert restored(text) == Answer(message=Message(role="assistant", content=text, reasoning="r"))


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ('{"answer": "Yes, it', "Yes, it"),
        (' { "answer" : "Yes."', "Yes."),
        ('{"answer": "Say \\"', 'Say "'),
        ('{"answer": "two\\nlines\\', "two\nlines"),
        ('{"answer": "\\u00e9\\u00', "é"),
        ('{"answer": "\\ud83d\\ude0', ""),
        ('{"answer": {"sum": 3', '{"sum": 3'),
        ('{"answer": "', ""),
        ('{"answer"', ""),
        ('{"ans', None),
        ("{", None),
        ('{"tool": "add", "argu', None),
        ('{"tool": "add", "arguments": {"a": 1}', None),
        ('{"sum": 3', '{"sum": 3'),
        ("Three, and", "Three, and"),
    ],
)
@pytest.mark.parametrize("finish_reason", ["length", "content_filter"])
def test_restore_leaves_no_form_that_was_cut_off(
    text: str, content: str | None, finish_reason: FinishReason
) -> None:
    assert restored(text, finish_reason) == Answer(
        message=Message(role="assistant", content=content, reasoning="r"),
        finish_reason=finish_reason,
    )


def test_restore_of_a_whole_call_at_the_limit() -> None:
    answer = restored('{"tool": "add", "arguments": {}}', "length")
    assert [call.name for call in answer.message.tool_calls] == ["add"]
