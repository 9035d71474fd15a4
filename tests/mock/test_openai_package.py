"""Tests that OpenAI's own package reads the mock server, one helper after another.

Its clients validate every answer and event strictly here, which they do not do by default.
"""

import msgspec
import pydantic
import pytest

from gymcli.mock import Faults, MockAnswer, MockServer
from gymcli.mock.process import serving
from gymcli.types import Request, Usage

openai = pytest.importorskip("openai", reason="needs the package openai, of the extra dev")

pytestmark = pytest.mark.slow

TEXT = "an answer of more than one piece, to be streamed"
ADD = {"name": "add", "description": "Add.", "parameters": {"type": "object"}, "strict": False}
ADD_IN = {
    "chat": [{"type": "function", "function": ADD}],
    "responses": [{"type": "function", **ADD}],
}
LOGPROBS = {
    "chat": {"logprobs": True, "top_logprobs": 2},
    "responses": {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
}


class Total(pydantic.BaseModel):
    """A structured output, and the arguments of a tool."""

    total: int
    terms: list[int]


TOTAL = Total(total=5, terms=[2, 3])

ANSWERS = {
    "plain": MockAnswer(text=TEXT),
    "thought": MockAnswer(text=TEXT, reasoning="two and two, which are four"),
    "structured": MockAnswer(text=TOTAL.model_dump_json()),
    "calls": MockAnswer(tool_calls=[("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})]),
    "totals": MockAnswer(text="I call.", tool_calls=[("Total", TOTAL.model_dump())]),
    "refused": MockAnswer(refusal="I would rather not."),
    "cut": MockAnswer(text="half", finish_reason="length"),
    "filtered": MockAnswer(finish_reason="content_filter"),
    "failed": MockAnswer(finish_reason="failed"),
    "empty": MockAnswer(),
    "uncounted": MockAnswer(text=TEXT, has_usage=False),
    "counted": MockAnswer(
        text=TEXT,
        usage=Usage(prompt_tokens=9, completion_tokens=7, cached_tokens=4, reasoning_tokens=3),
    ),
    "summary": MockAnswer(
        response_items=[
            {
                "type": "reasoning",
                "id": "rs",
                "summary": [{"type": "summary_text", "text": "a summary of two pieces"}],
                "encrypted_content": "x",
            },
            {"type": "custom_tool_call", "id": "c", "call_id": "d", "name": "run", "input": "ls"},
            {
                "type": "message",
                "id": "m",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": TEXT, "annotations": []}],
            },
        ]
    ),
}


def behave(request: Request) -> MockAnswer:
    return ANSWERS[request.messages[-1].text]


@pytest.fixture(scope="module")
def server():
    with serving(MockServer(behave, models=["m"])) as server:
        yield server


def options(server: MockServer) -> dict:
    return {
        "base_url": server.base_url,
        "api_key": "sk-none",
        "max_retries": 0,
        "_strict_response_validation": True,
    }


def without_proxy(server: MockServer):
    """Return a client that ignores the proxy of the environment."""
    return openai.OpenAI(**options(server), http_client=openai.DefaultHttpxClient(trust_env=False))


@pytest.fixture(scope="module")
def client(server):
    with without_proxy(server) as client:
        yield client


def chat(text: str, **fields: object) -> dict:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **fields}


def response(text: str, **fields: object) -> dict:
    return {"model": "m", "input": text, **fields}


@pytest.mark.parametrize("name", [name for name in ANSWERS if name not in ("failed", "summary")])
def test_chat(client, name):
    completion = client.chat.completions.create(**chat(name, tools=ADD_IN["chat"]))
    [choice], answer = completion.choices, ANSWERS[name]
    assert choice.message.content == answer.text
    assert choice.message.refusal == answer.refusal
    assert choice.finish_reason == (
        answer.finish_reason or ("tool_calls" if answer.tool_calls else "stop")
    )
    calls = [
        (call.function.name, msgspec.json.decode(call.function.arguments))
        for call in choice.message.tool_calls or []
    ]
    assert calls == [*answer.tool_calls]
    assert (completion.usage is None) == (not answer.has_usage)


@pytest.mark.parametrize("name", [name for name in ANSWERS if name not in ("failed", "summary")])
def test_chat_stream(client, name):
    """The helper builds up what the plain answer says."""
    plain = client.chat.completions.create(**chat(name, **LOGPROBS["chat"]))
    asked = chat(name, **LOGPROBS["chat"], stream_options={"include_usage": True})
    with client.chat.completions.stream(**asked) as stream:
        events = [event.type for event in stream]
        # `get_final_completion` refuses one that was cut or filtered.
        streamed = stream.current_completion_snapshot
    assert streamed.usage == plain.usage
    message, expected = streamed.choices[0].message, plain.choices[0].message
    assert (message.content or None) == expected.content
    assert (message.refusal, message.role) == (expected.refusal, "assistant")
    assert [call.function.arguments for call in message.tool_calls or []] == [
        call.function.arguments for call in expected.tool_calls or []
    ]
    assert streamed.choices[0].finish_reason == plain.choices[0].finish_reason
    logprobs = plain.choices[0].logprobs
    if logprobs is None:
        assert streamed.choices[0].logprobs is None
    else:
        assert streamed.choices[0].logprobs.content == logprobs.content
    answer = ANSWERS[name]
    assert ("content.done" in events) == bool(answer.text)
    assert ("refusal.done" in events) == bool(answer.refusal)
    assert ("logprobs.content.done" in events) == bool(answer.text)
    assert events.count("tool_calls.function.arguments.done") == len(answer.tool_calls)


def test_chat_chunks(client):
    chunks = [*client.chat.completions.create(**chat("plain", stream=True))]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == TEXT
    assert all(chunk.usage is None for chunk in chunks)
    counted = chat("counted", stream=True, stream_options={"include_usage": True})
    *others, last = client.chat.completions.create(**counted)
    assert all(chunk.usage is None for chunk in others)
    assert (last.choices, last.usage.total_tokens) == ([], 16)
    assert last.usage.prompt_tokens_details.cached_tokens == 4
    assert last.usage.completion_tokens_details.reasoning_tokens == 3


def test_choices(client):
    completion = client.chat.completions.create(**chat("plain", n=3))
    assert [choice.index for choice in completion.choices] == [0, 1, 2]
    assert {choice.message.content for choice in completion.choices} == {TEXT}
    alone = client.chat.completions.create(**chat("plain"))
    assert completion.usage.completion_tokens == 3 * alone.usage.completion_tokens
    assert completion.usage.prompt_tokens == alone.usage.prompt_tokens
    with client.chat.completions.stream(**chat("plain", n=3)) as stream:
        streamed = stream.get_final_completion()
    assert [choice.message.content for choice in streamed.choices] == [TEXT] * 3


def test_structured_outputs_of_chat(client):
    completion = client.chat.completions.parse(**chat("structured", response_format=Total))
    assert completion.choices[0].message.parsed == TOTAL
    with client.chat.completions.stream(**chat("structured", response_format=Total)) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == TOTAL
    tools = [openai.pydantic_function_tool(Total)]
    completion = client.chat.completions.parse(**chat("totals", tools=tools))
    assert completion.choices[0].message.tool_calls[0].function.parsed_arguments == TOTAL
    for name, error in (
        ("cut", openai.LengthFinishReasonError),
        ("filtered", openai.ContentFilterFinishReasonError),
    ):
        with pytest.raises(error):
            client.chat.completions.parse(**chat(name, response_format=Total))


@pytest.mark.parametrize("name", ANSWERS)
def test_responses(client, name):
    got = client.responses.create(**response(name, tools=ADD_IN["responses"]))
    answer = ANSWERS[name]
    statuses = {"cut": "incomplete", "filtered": "incomplete", "failed": "failed"}
    assert got.status == statuses.get(name, "completed")
    assert got.output_text == (TEXT if name == "summary" else answer.text or "")
    calls = [
        (item.name, msgspec.json.decode(item.arguments))
        for item in got.output
        if item.type == "function_call"
    ]
    assert calls == [*answer.tool_calls]
    assert [tool.name for tool in got.tools] == ["add"]
    assert (got.error is None) == (name != "failed")
    if name == "counted":
        assert (got.usage.input_tokens, got.usage.output_tokens) == (9, 7)
        assert got.usage.input_tokens_details.cached_tokens == 4
        assert got.usage.output_tokens_details.reasoning_tokens == 3


@pytest.mark.parametrize("name", ANSWERS)
def test_responses_stream(client, name):
    asked = response(name, tools=ADD_IN["responses"], **LOGPROBS["responses"])
    plain = client.responses.create(**asked)
    raw = [*client.responses.create(**asked, stream=True)]
    assert [event.sequence_number for event in raw] == [*range(len(raw))]
    assert raw[-1].type == f"response.{plain.status}"
    assert raw[-1].response.output == plain.output
    with client.responses.stream(**asked) as stream:
        snapshots = {}
        for event in stream:
            if event.type == "response.output_text.delta":
                snapshots[event.output_index, event.content_index] = event.snapshot
        if plain.status == "completed":
            assert stream.get_final_response().output_text == plain.output_text
    assert "".join(snapshots.values()) == plain.output_text


def test_structured_outputs_of_responses(client):
    assert (
        client.responses.parse(**response("structured", text_format=Total)).output_parsed == TOTAL
    )
    with client.responses.stream(**response("structured", text_format=Total)) as stream:
        assert stream.get_final_response().output_parsed == TOTAL
    tools = [openai.pydantic_function_tool(Total)]
    flat = [{"type": "function", **tool["function"]} for tool in tools]
    got = client.responses.parse(**response("totals", tools=flat))
    assert Total(**got.output[-1].parsed_arguments) == TOTAL


def test_logprobs(client):
    entries = (
        client.chat.completions.create(**chat("plain", **LOGPROBS["chat"])).choices[0].logprobs
    )
    assert "".join(entry.token for entry in entries.content) == TEXT
    assert {len(entry.top_logprobs) for entry in entries.content} == {2}
    got = client.responses.create(**response("plain", **LOGPROBS["responses"]))
    entries = got.output[0].content[0].logprobs
    assert "".join(entry.token for entry in entries) == TEXT
    deltas = [
        event
        for event in client.responses.create(
            **response("plain", **LOGPROBS["responses"]), stream=True
        )
        if event.type == "response.output_text.delta"
    ]
    for delta in deltas:
        assert "".join(entry.token for entry in delta.logprobs) == delta.delta


def test_raw_responses(client):
    raw = client.chat.completions.with_raw_response.create(**chat("plain"))
    assert (raw.status_code, raw.headers["content-type"]) == (200, "application/json")
    assert raw.parse().choices[0].message.content == TEXT
    raw = client.responses.with_raw_response.create(**response("plain"))
    assert raw.parse().output_text == TEXT
    with client.responses.with_streaming_response.create(**response("plain")) as streaming:
        assert streaming.parse().output_text == TEXT


def test_models(client):
    assert [model.id for model in client.models.list()] == ["m"]
    assert client.models.retrieve("m").owned_by == "gymcli"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


@pytest.mark.parametrize(
    ("fault", "error", "code", "kind"),
    [
        ("401", "AuthenticationError", "invalid_api_key", "invalid_request_error"),
        ("403", "PermissionDeniedError", "forbidden", "permission_error"),
        ("404", "NotFoundError", "model_not_found", "invalid_request_error"),
        ("422-echo", "UnprocessableEntityError", None, None),
        ("429", "RateLimitError", "rate_limit_exceeded", "requests"),
        ("500", "InternalServerError", None, "server_error"),
        ("502", "InternalServerError", None, None),
        ("503", "InternalServerError", None, "server_error"),
        ("529", "InternalServerError", None, "overloaded_error"),
        ("reset", "APIConnectionError", None, None),
    ],
)
def test_errors(fault, error, code, kind):
    with (
        serving(MockServer(faults=Faults.parse([fault]))) as server,
        without_proxy(server) as client,
    ):
        for ask in (
            lambda: client.chat.completions.create(**chat("hello")),
            lambda: client.chat.completions.create(**chat("hello", stream=True)),
            lambda: client.responses.create(**response("hello")),
        ):
            with pytest.raises(getattr(openai, error)) as caught:
                ask()
            assert (caught.value.code, caught.value.type) == (code, kind)


def test_error_of_no_request(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**chat("plain", n=0))
    assert (caught.value.type, caught.value.param) == ("invalid_request_error", None)


async def test_async_client(server):
    http_client = openai.DefaultAsyncHttpxClient(trust_env=False)
    async with openai.AsyncOpenAI(**options(server), http_client=http_client) as client:
        completions, responses = client.chat.completions, client.responses
        assert [model.id async for model in client.models.list()] == ["m"]
        completion = await completions.create(**chat("plain"))
        assert completion.choices[0].message.content == TEXT
        pieces = [
            chunk.choices[0].delta.content or ""
            async for chunk in await completions.create(**chat("plain", stream=True))
        ]
        assert "".join(pieces) == TEXT
        tools = [openai.pydantic_function_tool(Total)]
        async with completions.stream(**chat("totals", tools=tools)) as stream:
            completion = await stream.get_final_completion()
        assert completion.choices[0].message.tool_calls[0].function.parsed_arguments == TOTAL
        completion = await completions.parse(**chat("structured", response_format=Total))
        assert completion.choices[0].message.parsed == TOTAL
        raw = await completions.with_raw_response.create(**chat("plain"))
        assert raw.parse().choices[0].message.content == TEXT
        assert (await responses.create(**response("plain"))).output_text == TEXT
        async with responses.stream(**response("thought")) as stream:
            assert (await stream.get_final_response()).output_text == TEXT
        parsed = await responses.parse(**response("structured", text_format=Total))
        assert parsed.output_parsed == TOTAL
