"""Finds the calendar in an answer and says what is wrong with it."""

import itertools
import json
import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from .events import ExpectedEvent, minutes_of

__all__ = ["Finding", "Reason", "examine", "first_list"]

Reason = Literal[
    "correct",
    "nothing_expected",
    "no_answer",
    "think_tag",
    "no_list",
    "no_json",
    "malformed_event",
    "wrong_count",
    "repeated_id",
    "overlap",
    "missing_event",
    "wrong_duration",
    "before_min_time",
    "after_max_time",
    "constraint",
]

OUTSIDE = re.compile(r"[\[\]{]")
INSIDE = re.compile(r'[\[\]{}]|"(?:[^"\\]|\\.)*+"?', re.DOTALL)
"""Brackets and strings; a string that nobody closes takes the rest, so that none is read twice."""


class Entry(NamedTuple):
    """When an event of a calendar starts, and how many minutes it takes."""

    start: int
    duration: float

    @property
    def end(self) -> float:
        """When it is over."""
        return self.start + self.duration


class Finding(NamedTuple):
    """What was found in an answer."""

    reason: Reason
    faults: Mapping[str, Reason] = {}
    """What is wrong with single events, by id."""
    share_kept: float = 0.0
    """The expected events that are right, each taken by itself."""
    answer: str | None = None
    """The starts of all events, where these are the expected ones."""

    @property
    def is_right(self) -> bool:
        """Whether the calendar keeps to everything."""
        return self.reason in ("correct", "nothing_expected")


def examine(text: str, expected: Mapping[str, ExpectedEvent]) -> Finding:
    """Say whether the calendar in a text is one that is expected, and why not."""
    if not text.strip():
        return Finding("no_answer")
    if "<think>" in text:
        return Finding("think_tag")
    if not expected:
        return Finding("nothing_expected", share_kept=1.0)
    written = first_list(text)
    if written is None:
        return Finding("no_list")
    try:
        listed = json.loads(written)
    except (ValueError, RecursionError):  # no JSON, numbers of 5,000 digits, nested too deeply
        return Finding("no_json")
    return _compared([_read(item) for item in listed], expected)


def first_list(text: str) -> str | None:
    """Give the first [...] that holds {...}, without a look at what else it is.

    A bracket right in a bracket takes its place, so that remarks and lists of lists are passed
    over. What stands in braces is part of them, unless they are never closed. Every character is
    read once.
    """
    is_open: list[int] = []
    """The places of brackets and braces that are not closed yet; the first is a bracket."""
    holders: set[int] = set()
    lists: dict[int, int] = {}
    num_braces = position = 0
    while mark := (INSIDE if num_braces else OUTSIDE).search(text, position):
        position = mark.end()
        is_in_bracket = bool(is_open) and text[is_open[-1]] == "["
        if mark[0] == "[":
            if is_in_bracket:
                is_open.pop()
            is_open.append(mark.start())
        elif mark[0] == "{" and is_open:
            is_open.append(mark.start())
            num_braces += 1
        elif mark[0] == "]" and is_in_bracket:
            start = is_open.pop()
            if start in holders:
                lists[start] = position
        elif mark[0] == "}":
            while text[is_open.pop()] == "[":  # not closed within these braces
                pass
            num_braces -= 1
            holders.add(is_open[-1])
    start = min(lists, default=-1)
    return text[start : lists[start]] if lists else None


def _read(item: object) -> tuple[str, Entry] | None:
    """Read the id, start and duration of one event; None where one is missing or unreadable."""
    match item:
        case {
            "event_id": int() | str() as name,
            "start_time": str() as time,
            "duration": int() | float() as duration,
        }:
            start = minutes_of(time)
            return None if start is None else (str(name), Entry(start, duration))
    return None


def _compared(
    listed: list[tuple[str, Entry] | None], expected: Mapping[str, ExpectedEvent]
) -> Finding:
    """Compare the events of a calendar with those expected."""
    read = [item for item in listed if item is not None]
    entries = dict(read)
    found = {name: _fault(entries.get(name), event) for name, event in expected.items()}
    faults = {name: fault for name, fault in found.items() if fault is not None}
    reason: Reason = next(iter(faults.values()), "correct")
    if len(listed) != len(expected):
        reason = "wrong_count"
    elif len(read) < len(listed):
        reason = "malformed_event"
    elif len(entries) < len(read):
        reason = "repeated_id"
    elif _overlap(list(entries.values())):
        reason = "overlap"
    starts = [f"{name} {entries[name].start}" for name in expected if name in entries]
    return Finding(
        reason,
        faults,
        share_kept=1.0 - len(faults) / len(expected),
        answer=", ".join(starts) if len(starts) == len(expected) == len(listed) else None,
    )


def _fault(entry: Entry | None, event: ExpectedEvent) -> Reason | None:
    """Say what is wrong with one event, whatever the others are."""
    if entry is None:
        return "missing_event"
    if entry.duration != event.duration:
        return "wrong_duration"
    if entry.start < event.hours.earliest:
        return "before_min_time"
    if entry.start > event.hours.latest:
        return "after_max_time"
    return None if event.wish.earliest <= entry.start <= event.wish.latest else "constraint"


def _overlap(entries: list[Entry]) -> bool:
    """Say whether two events overlap; one may start when another ends."""
    in_order = sorted(entries, key=lambda entry: (entry.start, entry.end))
    return any(after.start < before.end for before, after in itertools.pairwise(in_order))
