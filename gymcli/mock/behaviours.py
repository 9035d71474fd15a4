"""Answers of the mock server: a fixed text, an echo, or the answers of a script.

A behaviour is a function from a request to an answer. Both are independent of the wire format, so
one script serves every dialect. All but `in_order` and recordings depend only on the request, so
that concurrency does not change their answers.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec

from gymcli.errors import UsageError
from gymcli.mock.faults import DeliveryFault
from gymcli.models.token_ids import PROBE
from gymcli.store.lines import iterate_lines
from gymcli.suggestions import did_you_mean
from gymcli.types import JSON, JSON_ERRORS, JSONObject, Message, Request, Usage, digest


class MockAnswer(
    msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One answer, without a wire format; its fields are the keys of answers in a script file."""

    text: str | None = None
    reasoning: str | None = None
    tool_calls: Sequence[tuple[str, str | JSONObject]] = ()
    """Pairs of a tool's name and its arguments: an object, or text that is sent unchanged."""
    call_ids: Sequence[str] = ()
    """The ids of the calls, in order; missing ones are `call_<turn>_<place>`."""
    refusal: str | None = None
    finish_reason: str | None = None
    """As in chat; None means `tool_calls` if there are calls, else `stop`; empty sends null.

    In the Responses format `failed` makes the response failed, and any other word that names no
    normal end makes it incomplete for that reason.
    """
    usage: Usage | None = None
    """None counts four characters as a token."""
    has_usage: bool = True
    """False sends no token counts."""
    logprobs: JSON = None
    """In chat shape: `{"content": [...]}`."""
    response_items: Sequence[JSONObject] = ()
    """The exact output of a response, instead of one made from the fields above."""
    has_choices: bool = True
    """False sends an answer without choices, output or data."""
    has_message: bool = True
    """False sends a choice with an empty object as its message."""
    body: str | None = None
    """Sent byte for byte instead of a rendered answer."""
    status: Annotated[int, msgspec.Meta(ge=200, le=599)] = 200
    """The bounds are checked when a file is read, here and below."""
    headers: dict[str, str] = {}
    delay: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Seconds before the answer, in addition to the server's latency."""
    fault: DeliveryFault | None = None
    """How the delivery of the answer breaks."""


Behaviour: TypeAlias = Callable[[Request], MockAnswer | str]
"""Returns the answer to a request; a string is an answer with that text."""


def argument_text(arguments: str | JSONObject) -> str:
    if isinstance(arguments, str):
        return arguments
    return msgspec.json.encode(arguments).decode()


def num_turns(request: Request) -> int:
    return sum(message.role == "assistant" for message in request.messages)


def last_user_text(request: Request) -> str:
    for message in reversed(request.messages):
        if message.role == "user":
            return message.text
    return ""


def refusal_of(status: int, message: str, **headers: str) -> MockAnswer:
    """Return an error in OpenAI's shape; underscores in header names become hyphens."""
    error = {"message": message, "type": "mock_error", "param": None, "code": None}
    body = msgspec.json.encode({"error": error}).decode()
    header_values = {name.replace("_", "-"): value for name, value in headers.items()}
    return MockAnswer(status=status, body=body, headers=header_values)


def fixed(text: str) -> Behaviour:
    """Return a behaviour that answers every request with one text."""
    answer = MockAnswer(text=text)
    return lambda _request: answer


def echo(request: Request) -> MockAnswer:
    """Answer with the text of the last user message."""
    return MockAnswer(text=last_user_text(request))


def in_order(*answers: MockAnswer | str) -> Behaviour:
    """Return a behaviour that answers requests in the order of their arrival.

    It refuses requests after the last answer. Use it for one conversation at a time, for example
    in a test of retries.
    """
    places = itertools.count()

    def behave(_request: Request) -> MockAnswer | str:
        place = next(places)
        if place < len(answers):
            return answers[place]
        return refusal_of(400, f"the script has {len(answers)} answers, this is request {place}")

    return behave


def scripted(
    script: Mapping[str, Sequence[MockAnswer | str]] | Sequence[MockAnswer | str],
) -> Behaviour:
    """Return a behaviour that answers the i-th turn of a conversation with `answers[i]`.

    With a mapping, the first key that the last user message contains selects the answers. A
    conversation with no key, or with more turns than answers, is refused with status 400.
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


# Unknown keys are refused, since a misspelt one would silently have no effect.
class ScriptLine(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One line of a script file: answers, and the requests that get them."""

    match: str | None = None
    """Part of the last user text; each answer is for one turn, in order."""
    request: str | None = None
    """The digest of the conversation; each answer is for one request with it, in order."""
    note: str | None = None
    """A comment for readers of the file."""
    answers: list[MockAnswer]


def conversation_digest(request: Request) -> str:
    """Return 16 hex digits that identify a conversation, the same in every dialect.

    Ids of tool calls, reasoning, tools and parameters do not count.
    """

    def content(message: Message) -> list[object]:
        parts = message.content
        # A text and a list of text parts are the same content in different dialects.
        is_text = not isinstance(parts, list) or all(part.get("type") == "text" for part in parts)
        calls = [[call.name, call.arguments] for call in message.tool_calls]
        return [message.role, message.text if is_text else parts, calls]

    return digest([content(message) for message in request.messages])


def read_script(path: Path) -> Behaviour:
    """Read a script file of `ScriptLine`s; one without `match` and `request` fits every request."""
    by_match: dict[str, list[MockAnswer | str]] = {}
    by_request: dict[str, list[MockAnswer]] = {}
    for line in iterate_lines(path):
        place = f"{path}:{line.number}"
        entry = _script_line(line.data, place)
        if entry.request is not None:
            by_request.setdefault(entry.request, []).extend(entry.answers)
            continue
        match = entry.match or ""
        if match in by_match:
            raise UsageError(f"{place}: a second script for {match!r}")
        by_match[match] = [*entry.answers]
    if not (by_request or by_match):
        raise UsageError(f"{path}: the script has no answers")
    behave = _replay(by_request, by_match) if by_request else scripted(by_match)
    # A run that records token ids asks this first, whatever its tasks are.
    return lambda request: echo(request) if last_user_text(request) == PROBE else behave(request)


def _script_line(line: bytes, place: str) -> ScriptLine:
    try:
        entry = msgspec.json.decode(line, type=ScriptLine)
    except JSON_ERRORS as error:
        raise UsageError(f"{place}: not a line of a script: {error}") from error
    if entry.request is not None and (entry.match is not None or not entry.answers):
        reason = "no answers" if entry.match is None else 'both "match" and "request"'
        raise UsageError(f"{place}: not a line of a script: it has {reason}")
    for answer in entry.answers:
        if problem := _problem(answer):
            raise UsageError(f"{place}: not a line of a script: {problem}")
    return entry


_FRAMING = ("content-length", "transfer-encoding", "connection")
"""Headers about the length of an answer, which the server sets itself."""
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2


def _problem(answer: MockAnswer) -> str | None:
    for name, value in answer.headers.items():
        if name.lower() in _FRAMING or not _HEADER_NAME.fullmatch(name):
            return f"{name!r} cannot be set as a header"
        if not (value.isascii() and value.isprintable()):
            return f"the value of header {name!r} cannot be sent"
    if answer.usage is not None and min(msgspec.structs.astuple(answer.usage)) < 0:
        return "a count in the usage is negative"
    return None


def _replay(
    by_request: Mapping[str, Sequence[MockAnswer]], by_match: Mapping[str, list[MockAnswer | str]]
) -> Behaviour:
    # The k-th request of a conversation gets its k-th answer; after the last, the first again.
    scripted_behaviour = scripted(by_match) if by_match else None
    num_requests: Counter[str] = Counter()

    def behave(request: Request) -> MockAnswer | str:
        key = conversation_digest(request)
        if answers := by_request.get(key):
            num_requests[key] += 1
            return answers[(num_requests[key] - 1) % len(answers)]
        if scripted_behaviour is not None:
            return scripted_behaviour(request)
        text, turn = last_user_text(request)[:80], num_turns(request)
        return refusal_of(400, f"the recording has no answer for turn {turn} after {text!r}")

    return behave


def parse_behaviour(text: str) -> Behaviour:
    name, colon, argument = text.partition(":")
    if text == "echo":
        return echo
    if name == "fixed" and colon:
        return fixed(argument)
    if name == "script" and argument:
        return read_script(Path(argument))
    names = ("echo", "fixed", "script")
    hint = "" if name in names else did_you_mean(name, names)
    reason = f"--behaviour {text}: is not one of echo, fixed:TEXT, script:FILE.jsonl"
    raise UsageError(f"{reason}; {hint}" if hint else reason)
