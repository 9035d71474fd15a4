"""Laws that hold for every conversation and every answer."""

import json

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gymcli.models.chat import decode
from gymcli.models.dialects import DIALECTS, Dialect
from gymcli.nemo_gym.responses_items import items_from_messages, messages_from_items
from gymcli.types import Answer, FunctionCall, JSONObject, Message, ToolCall, Usage

CHAT, RESPONSES = DIALECTS["chat"], DIALECTS["responses"]

few = settings(max_examples=60, deadline=None)

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<"), max_size=12)
words = st.text("abcdef", min_size=1, max_size=6)
scalars = st.none() | st.booleans() | st.integers(-9, 9) | texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2),
    max_leaves=4,
)
objects = st.dictionaries(words, values, max_size=3)

text_parts = st.builds(lambda text: {"type": "text", "text": text}, texts)
image_parts = st.builds(
    lambda url, more: {"type": "image_url", "image_url": {"url": url, **more}},
    texts,
    st.sampled_from([{}, {"detail": "low"}]),
)
file_parts = st.builds(
    lambda name: {"type": "file", "file": {"filename": name, "file_data": "d"}}, texts
)
audio_parts = st.just({"type": "input_audio", "input_audio": {"data": "d", "format": "wav"}})
contents = texts | st.lists(text_parts | image_parts | file_parts | audio_parts, max_size=3)
calls = st.builds(ToolCall, words, st.builds(FunctionCall, words, texts))
prompts = st.builds(
    Message, role=st.sampled_from(["system", "developer", "user"]), content=contents
)
results = st.builds(Message, role=st.just("tool"), tool_call_id=words, content=contents)
turns = st.builds(
    Message,
    role=st.just("assistant"),
    content=texts,
    reasoning=st.none() | texts.filter(bool),
    refusal=st.none() | texts.filter(bool),
    tool_calls=st.lists(calls, max_size=2),
)


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """Draw a conversation without two consecutive assistant messages."""
    messages: list[Message] = []
    for message in draw(st.lists(prompts | results | turns, max_size=6)):
        if messages and messages[-1].role == message.role == "assistant":
            continue
        messages.append(message)
    return messages


def without_items(message: Message) -> Message:
    """Return a message as the chat format preserves it: empty content and no content are equal."""
    return msgspec.structs.replace(message, response_items=[], content=message.content or None)


@given(conversations())
@few
def test_messages_survive_as_items(messages: list[Message]) -> None:
    items = items_from_messages(messages)
    back = messages_from_items(items)
    assert [without_items(m) for m in back] == [without_items(m) for m in messages]
    assert items_from_messages(back) == items


item_parts = st.one_of(
    st.builds(lambda text: {"type": "input_text", "text": text}, texts),
    st.builds(lambda text: {"type": "output_text", "text": text, "annotations": []}, texts),
    st.builds(lambda url: {"type": "input_image", "image_url": url, "detail": None}, texts),
    st.just({"type": "input_image", "file_id": "i"}),
    st.just({"type": "refusal", "refusal": "no"}),
    st.builds(lambda more: {**more, "type": "odd"}, objects),
)
items = st.one_of(
    st.builds(
        lambda role, content, more: {**more, "role": role, "content": content},
        st.sampled_from(["system", "developer", "user", "assistant"]),
        texts | st.lists(item_parts, max_size=3),
        st.sampled_from([{}, {"type": "message"}, {"id": "m", "status": "completed"}]),
    ),
    st.builds(
        lambda arguments, more: {
            **more,
            "type": "function_call",
            "call_id": "c",
            "name": "f",
            "arguments": arguments,
        },
        texts | objects,
        st.sampled_from([{}, {"id": "fc"}]),
    ),
    st.builds(
        lambda output: {"type": "function_call_output", "call_id": "c", "output": output},
        texts | st.lists(item_parts, max_size=2),
    ),
    st.builds(lambda more: {**more, "type": "reasoning"}, objects),
    st.builds(lambda more: {**more, "type": "web_search_call"}, objects),
)


@given(st.lists(items, max_size=6))
@few
def test_items_survive_as_messages(given_items: list[JSONObject]) -> None:
    messages = messages_from_items(given_items)
    assert items_from_messages(messages) == given_items
    assert items_from_messages(messages, with_reasoning=False) == given_items


usages = st.fixed_dictionaries({"prompt": st.integers(0, 99), "completion": st.integers(1, 99)})
finishes = st.sampled_from(["stop", "length", "content_filter"])


def chat_body(message: Message, finish: str, usage: dict[str, int]) -> JSONObject:
    """Write an answer as an endpoint with the chat format does."""
    calls = [{"index": n, **msgspec.to_builtins(c)} for n, c in enumerate(message.tool_calls)]
    return {
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish,
                "message": {
                    "role": "assistant",
                    "content": message.content,
                    "reasoning_content": message.reasoning,
                    "refusal": message.refusal,
                    "tool_calls": calls or None,
                },
            }
        ],
        "usage": {
            "prompt_tokens": usage["prompt"],
            "completion_tokens": usage["completion"],
            "prompt_tokens_details": None,
        },
    }


def responses_body(message: Message, finish: str, usage: dict[str, int]) -> JSONObject:
    """Write the same answer as an endpoint with the Responses format does."""
    reasons = {"length": "max_output_tokens", "content_filter": "content_filter"}
    output: list[JSONObject] = []
    if message.reasoning:
        output.append({"type": "reasoning", "id": "r", "summary": [{"text": message.reasoning}]})
    parts: list[JSONObject] = [{"type": "output_text", "text": message.content, "annotations": []}]
    if message.refusal:
        parts.append({"type": "refusal", "refusal": message.refusal})
    output.append({"type": "message", "id": "m", "role": "assistant", "content": parts})
    output += [
        {
            "type": "function_call",
            "id": "f",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
        }
        for call in message.tool_calls
    ]
    return {
        "model": "m",
        "status": "incomplete" if finish in reasons else "completed",
        "incomplete_details": {"reason": reasons[finish]} if finish in reasons else None,
        "output": output,
        "usage": {"input_tokens": usage["prompt"], "output_tokens": usage["completion"]},
    }


def answered(dialect: Dialect, body: JSONObject) -> Answer:
    return dialect.answer(decode(json.dumps(body).encode()))


@given(turns, finishes, usages)
@few
def test_answers_are_equal_in_both_dialects(
    message: Message, finish: str, usage: dict[str, int]
) -> None:
    chat = answered(CHAT, chat_body(message, finish, usage))
    assert answered(RESPONSES, responses_body(message, finish, usage)) == chat
    assert without_items(chat.message) == without_items(message)
    assert (chat.finish_reason == "tool_calls") == (finish == "stop" and bool(message.tool_calls))
    assert chat.usage == Usage(prompt_tokens=usage["prompt"], completion_tokens=usage["completion"])


@st.composite
def pieces(draw: st.DrawFn, text: str) -> list[str]:
    """Draw a way to split a text."""
    cuts = sorted(draw(st.sets(st.integers(0, len(text)), max_size=3)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@st.composite
def chunked(draw: st.DrawFn, message: Message, finish: str, usage: dict[str, int]) -> list[bytes]:
    """Draw a way to stream an answer."""
    deltas: list[JSONObject] = [{"role": "assistant", "content": ""}]
    said = {
        "reasoning_content": message.reasoning,
        "content": message.content,
        "refusal": message.refusal,
    }
    for key, text in said.items():
        deltas += [{key: piece} for piece in draw(pieces(str(text or "")))]
    opened: list[list[JSONObject]] = []
    for index, call in enumerate(message.tool_calls):
        first, *rest = draw(pieces(call.arguments))
        function = {"name": call.name, "arguments": first}
        opened.append([{"index": index, "id": call.id, "type": "function", "function": function}])
        opened[-1] += [{"index": index, "function": {"arguments": piece}} for piece in rest]
    while opened:
        position = draw(st.integers(0, len(opened) - 1))
        deltas.append({"tool_calls": [opened[position].pop(0)]})
        opened = [call for call in opened if call]
    chunks: list[JSONObject] = [
        {"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        for delta in deltas
    ]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    chunks.append({"choices": [], "usage": chat_body(message, finish, usage)["usage"]})
    return [json.dumps(chunk).encode() for chunk in chunks] + [b"[DONE]"]


@given(st.data(), turns, finishes, usages)
@few
def test_streamed_answers_are_equal_to_whole_ones(
    data: st.DataObject, message: Message, finish: str, usage: dict[str, int]
) -> None:
    events = data.draw(chunked(message, finish, usage))
    assert CHAT.answer(CHAT.assemble(events)) == answered(CHAT, chat_body(message, finish, usage))


@given(turns, finishes, usages)
@few
def test_streamed_responses_are_equal_to_whole_ones(
    message: Message, finish: str, usage: dict[str, int]
) -> None:
    body = responses_body(message, finish, usage)
    event = {"type": f"response.{body['status']}", "response": body}
    assembled = RESPONSES.assemble([b'{"type": "response.created"}', json.dumps(event).encode()])
    assert RESPONSES.answer(assembled) == answered(RESPONSES, body)
