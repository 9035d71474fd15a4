"""What a conversation's requests say is the same, whether it is written anew each time or not."""

import copy

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymcli.models.dialect import Transcript
from gymcli.models.dialects import DIALECTS
from gymcli.models.emulated_tools import emulate
from gymcli.types import FunctionCall, Message, Request, ToolCall
from tests.models.test_round_trips import prompts, results, texts, turns

TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}

growing = st.lists(st.lists(prompts | results | turns, max_size=3), min_size=2, max_size=5)
changes = st.none() | st.tuples(
    st.integers(0, 20), st.sampled_from(["replace", "remove", "text", "call", "part"]), texts
)


def change(messages: list[Message], place: int, how: str, text: str) -> None:
    """Do to a conversation what an environment might, some of it without a new message."""
    message = messages[place % len(messages)]
    if how == "replace":
        messages[place % len(messages)] = Message(role="user", content=text)
    elif how == "remove":
        messages.remove(message)
    elif how == "call" and message.tool_calls:
        message.tool_calls[0].function.arguments = text
    elif how == "part" and isinstance(message.content, list):
        message.content.append({"type": "text", "text": text})
    else:
        message.content = text


@settings(max_examples=150, deadline=None)
@given(
    steps=growing,
    changed=st.lists(changes, min_size=5, max_size=5),
    dialect=st.sampled_from(["chat", "responses", "pooling", "score"]),
    send_reasoning=st.sampled_from([None, "reasoning"]),
    params=st.sampled_from([{}, {"instructions": "be brief"}, {"temperature": 0}]),
    emulates=st.booleans(),
)
def test_payload_is_that_of_the_whole_conversation(
    steps, changed, dialect, send_reasoning, params, emulates
):
    form = DIALECTS[dialect]
    transcript = Transcript()
    messages: list[Message] = []
    for added, changing in zip(steps, changed, strict=False):
        messages += copy.deepcopy(added)
        if changing is not None and messages:
            change(messages, *changing)
        request = Request(messages=messages, tools=[TOOL], params=params)
        asked = emulate(request) if emulates else request
        body = form.body(asked, "m", send_reasoning=send_reasoning, transcript=transcript)
        whole = form.body(asked, "m", send_reasoning=send_reasoning)
        assert transcript.payload(body) == msgspec.json.encode(whole)


def test_written_writes_only_what_is_new():
    asked: list[int] = []

    def items(messages: list[Message], start: int) -> list[Message]:
        asked.append(start)
        return messages[start:]

    transcript = Transcript()
    messages = [Message(role="user", content="\0 is escaped")]
    for number in range(4):
        body = {"messages": transcript.written(messages, items)}
        assert transcript.payload(body) == msgspec.json.encode({"messages": messages})
        call = ToolCall("a", FunctionCall("add", str(number)))
        messages.append(Message(role="assistant", tool_calls=[call]))
    assert asked == [0, 0, 2, 3]


def test_written_is_asked_again_after_what_cannot_be_encoded():
    def items(messages: list[Message], start: int) -> list[Message]:
        return messages[start:]

    transcript = Transcript()
    messages = [Message(role="user", content="hi")]
    transcript.payload({"messages": transcript.written(messages, items)})
    messages.append(Message(role="user", content=[{"type": object()}]))
    with pytest.raises(TypeError):
        transcript.written(messages, items)
    messages[1] = Message(role="user", content="again")
    body = {"messages": transcript.written(messages, items)}
    assert transcript.payload(body) == msgspec.json.encode({"messages": messages})
