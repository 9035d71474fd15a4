"""What the mock server answers: a fixed text, an echo, or answers in their order.

A behaviour is a function from a request to an answer. It sees the request in no wire format, so
one script serves every dialect. All but `in_order` look at the request alone: they give the same
answers however many conversations run at once.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, TypeAlias

import msgspec

from gymcli.mock.faults import Cut
from gymcli.types import JSON, JSONObject, Request, Usage

__all__ = [
    "Behaviour",
    "MockAnswer",
    "argument_text",
    "echo",
    "fixed",
    "in_order",
    "last_user_text",
    "num_turns",
    "refusal_of",
    "scripted",
]


class MockAnswer(
    msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One answer in no wire format; its fields are the keys of a script file's answers."""

    text: str | None = None
    reasoning: str | None = None
    tool_calls: Sequence[tuple[str, str | JSONObject]] = ()
    """Pairs of a tool's name and its arguments: an object, or text that is sent as it stands."""
    call_ids: Sequence[str] = ()
    """The ids of the calls, in their order; those that are missing are `call_<turn>_<place>`."""
    refusal: str | None = None
    finish_reason: str | None = None
    """The chat word; None: `tool_calls` where there are calls, else `stop`; empty: null is sent.

    In the Responses format a word that it has no place for makes an incomplete response.
    """
    usage: Usage | None = None
    """None: four characters count as a token."""
    logprobs: JSON = None
    """In chat shape: `{"content": [...]}`."""
    response_items: Sequence[JSONObject] = ()
    """The output of a response, word for word, in place of what the fields above make."""
    has_choices: bool = True
    """False: the answer has no choice, no output, no data."""
    has_message: bool = True
    """False: the choice has an empty object in place of its message."""
    body: str | None = None
    """Sent instead of a rendered answer, byte for byte."""
    status: Annotated[int, msgspec.Meta(ge=200, le=599)] = 200
    """The bounds hold for what is read from a file, here and below."""
    headers: dict[str, str] = {}
    delay: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Seconds before the answer, beside the server's own latency."""
    fault: Cut | None = None
    """How the answer fails to arrive whole, or by itself."""


Behaviour: TypeAlias = Callable[[Request], MockAnswer | str]
"""Gives the answer to a request; a plain string is an answer of that text."""


def argument_text(arguments: str | JSONObject) -> str:
    """Give the arguments of a call as they are sent."""
    if isinstance(arguments, str):
        return arguments
    return msgspec.json.encode(arguments).decode()


def num_turns(request: Request) -> int:
    """Count the assistant messages of the conversation so far."""
    return sum(message.role == "assistant" for message in request.messages)


def last_user_text(request: Request) -> str:
    """Give the text of the last user message, or an empty string."""
    for message in reversed(request.messages):
        if message.role == "user":
            return message.text
    return ""


def refusal_of(status: int, message: str, **headers: str) -> MockAnswer:
    """Make an error answer in OpenAI's shape; underscores in header names become hyphens."""
    body = msgspec.json.encode({"error": {"message": message, "type": "mock_error"}}).decode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return MockAnswer(status=status, body=body, headers=named)


def fixed(text: str) -> Behaviour:
    """Answer every request with one text."""
    answer = MockAnswer(text=text)
    return lambda _request: answer


def echo(request: Request) -> MockAnswer:
    """Answer with the text of the last user message."""
    return MockAnswer(text=last_user_text(request))


def in_order(*answers: MockAnswer | str) -> Behaviour:
    """Give the answers in the order in which requests arrive; what comes after is refused.

    For one conversation at a time, as in a test of retries.
    """
    places = itertools.count()
    lock = threading.Lock()

    def behave(_request: Request) -> MockAnswer | str:
        with lock:
            place = next(places)
        if place < len(answers):
            return answers[place]
        return refusal_of(400, f"the script has {len(answers)} answers, this is request {place}")

    return behave


def scripted(
    script: Mapping[str, Sequence[MockAnswer | str]] | Sequence[MockAnswer | str],
) -> Behaviour:
    """Give `answers[i]` at the i-th assistant turn of a conversation.

    A mapping picks the answers by the first key that the last user message contains; a
    conversation that has no key, or more turns than answers, is refused with status 400.
    """
    by_match = script if isinstance(script, Mapping) else {"": script}

    def behave(request: Request) -> MockAnswer | str:
        text, turn = last_user_text(request), num_turns(request)
        for match, answers in by_match.items():
            if match not in text:
                continue
            if turn < len(answers):
                return answers[turn]
            return refusal_of(400, f"the script of {match!r} has no answer for turn {turn}")
        return refusal_of(400, f"the script knows no user message like {text[:80]!r}")

    return behave
