"""Reads a script, written by hand or recorded, and plays it."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from gymcli.errors import UsageError
from gymcli.mock.behaviours import (
    Behaviour,
    MockAnswer,
    echo,
    fixed,
    last_user_text,
    num_turns,
    refusal_of,
    scripted,
)
from gymcli.types import JSON_ERRORS, Message, Request, digest

__all__ = ["ScriptLine", "conversation_digest", "parse_behaviour", "read_script"]


_FRAMING = ("content-length", "transfer-encoding", "connection")
"""Headers that say where an answer ends, which is the server's to say."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2


class ScriptLine(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One line of a script file: answers, and whom they are for."""

    match: str | None = None
    """What the last user text contains; the answers are those of the turns, in their order."""
    request: str | None = None
    """The digest of the conversation; the answers are those of repeated requests, in turn."""
    note: str | None = None
    """For the reader."""
    answers: list[MockAnswer]


def conversation_digest(request: Request) -> str:
    """Give 16 hex digits that stand for a conversation, the same in every dialect.

    Ids of tool calls, reasoning, tools and parameters are not in it.
    """
    return digest([_said(message) for message in request.messages])


def _said(message: Message) -> list[object]:
    content = message.content
    is_text = not isinstance(content, list) or all(part.get("type") == "text" for part in content)
    calls = [[call.name, call.arguments] for call in message.tool_calls]
    return [message.role, message.text if is_text else content, calls]


def read_script(path: Path) -> Behaviour:
    """Read a script file, a `ScriptLine` on each line; one without `match` and `request` fits all.

    Raises:
        UsageError: The file cannot be read, or a line is not of this shape.

    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(f"{path}: cannot read the script: {error.strerror}") from error
    by_match: dict[str, list[MockAnswer | str]] = {}
    by_request: dict[str, list[MockAnswer]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        entry = _script_line(line, place)
        if entry.request is not None:
            by_request.setdefault(entry.request, []).extend(entry.answers)
            continue
        match = entry.match or ""
        if match in by_match:
            raise UsageError(f"{place}: a second script for {match!r}")
        by_match[match] = [*entry.answers]
    if not (by_request or by_match):
        raise UsageError(f"{path}: no line says what to answer")
    return _played(by_request, by_match) if by_request else scripted(by_match)


def _script_line(line: bytes, place: str) -> ScriptLine:
    try:
        entry = msgspec.json.decode(line, type=ScriptLine)
    except JSON_ERRORS as error:
        raise UsageError(f"{place}: not a line of a script: {error}") from error
    if entry.request is not None and (entry.match is not None or not entry.answers):
        wrong = "no answers" if entry.match is None else 'both "match" and "request"'
        raise UsageError(f"{place}: not a line of a script: it has {wrong}")
    for answer in entry.answers:
        if problem := _unsendable(answer):
            raise UsageError(f"{place}: not a line of a script: {problem}")
    return entry


def _unsendable(answer: MockAnswer) -> str | None:
    """Say what of an answer would be no HTTP, or no count."""
    for name, value in answer.headers.items():
        if name.lower() in _FRAMING or not _HEADER_NAME.fullmatch(name):
            return f"{name!r} cannot be among the headers"
        if not (value.isascii() and value.isprintable()):
            return f"the value of the header {name!r} cannot be sent"
    if answer.usage is not None and min(msgspec.structs.astuple(answer.usage)) < 0:
        return "a count of the usage is negative"
    return None


def _played(
    by_request: Mapping[str, Sequence[MockAnswer]], by_match: Mapping[str, list[MockAnswer | str]]
) -> Behaviour:
    """Answer recorded conversations as recorded, and others by their text.

    The k-th request of one conversation gets its k-th answer; after the last it starts anew.
    """
    others = scripted(by_match) if by_match else None
    seen: Counter[str] = Counter()

    def behave(request: Request) -> MockAnswer | str:
        key = conversation_digest(request)
        if answers := by_request.get(key):
            seen[key] += 1
            return answers[(seen[key] - 1) % len(answers)]
        if others is not None:
            return others(request)
        text, turn = last_user_text(request)[:80], num_turns(request)
        return refusal_of(400, f"the recording has no answer for turn {turn} after {text!r}")

    return behave


def parse_behaviour(text: str) -> Behaviour:
    """Make a behaviour from its name: `echo`, `fixed:TEXT` or `script:FILE.jsonl`.

    Raises:
        UsageError: There is no such behaviour, or its script cannot be read.

    """
    name, colon, argument = text.partition(":")
    if text == "echo":
        return echo
    if name == "fixed" and colon:
        return fixed(argument)
    if name == "script" and argument:
        return read_script(Path(argument))
    close = difflib.get_close_matches(name, ("echo", "fixed", "script"), n=1)
    hint = f'did you mean "{close[0]}"? ' if close else ""
    raise UsageError(f"no behaviour {text!r}; {hint}use echo, fixed:TEXT or script:FILE.jsonl")
