r"""Continues a chat about a calendar, whose events must meet every request made so far.

Source: the resources server calendar of NVIDIA NeMo Gym 0.7 (Apache-2.0), reimplemented
independently. The row has the chat, and the model adds one message. The first list in it that
contains an object counts: it must be JSON and have every expected event, with its duration, within
the hours of the day and its constraint, and no two may overlap. A message with `<think>` in it is
wrong; if no event is expected, any other text is right. Leniency kept from the reference: names are
ignored, ids may be strings, minutes may exceed 59, and any text around the list is ignored. Times
are read in lower case only: "10:30 AM" is an error, "10:30 am" is not. Differences from the
reference:

- Braces and brackets in names are part of the names, objects may contain lists, and unclosed braces
  do not hide a list. A text is read in one pass; one that nests too deeply is not JSON.
- An event that is listed twice is an error; in the reference the last one counts.
- All parts of a message are read. A message with tool calls or without text is not an answer.
- Times with blanks or signs, such as "10 : 30" or "+9:00", are errors; the reference accepts them.
- A row with an unreadable time or constraint is refused; the reference scores every answer 0, or
  ignores a constraint of another form.

One row (its messages shortened):
{"id": "calendar-0", "difficulty": "easy", "messages": [{"role": "system", "content": "You ..."},
{"role": "user", "content": "I need 45 minutes for \"choir practice\" (event id: 0)."}, {"role":
"assistant", "content": "[{\"event_id\": 0, ...}]"}, {"role": "user", "content": "..."}],
"exp_cal_state": {"0": {"event_id": 0, "duration": 45, "constraint": "before 1:45pm",
"min_time": "09:00", "max_time": "17:00"}}}
"""

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Literal, NamedTuple

from pydantic import BaseModel, field_validator

from gymcli import (
    Context,
    Environment,
    JSONObject,
    Message,
    Properties,
    Rollout,
    Score,
    Task,
)
from gymcli.envs import load_generator

__all__ = [
    "MAX_SCHEDULED",
    "Calendar",
    "CalendarTask",
    "ExpectedEvent",
    "Finding",
    "Listed",
    "Reason",
    "Span",
    "examine",
    "first_list",
    "minutes_of",
    "schedule",
    "written",
]

NEVER, ALWAYS = -(10**6), 10**6
"""Minutes before and after any time that can be written; for a span without a limit."""


class Span(NamedTuple):
    """The first and the last minute after midnight at which an event may start."""

    earliest: int = NEVER
    latest: int = ALWAYS


class ExpectedEvent(BaseModel):
    """The requirements of one event."""

    duration: int
    """In minutes."""
    min_time: str
    """No event starts before this time."""
    max_time: str
    """No event ends after this time."""
    constraint: str | None = None
    """The latest end (`before X`), the earliest start (`after X`), both (`between X and Y`), or the
    start (`at X`)."""

    @field_validator("min_time", "max_time")
    @classmethod
    def _is_time(cls, text: str) -> str:
        if minutes_of(text) is None:
            raise ValueError(f"{text!r} is not a time such as 13:45 or 1:45pm")
        return text

    @field_validator("constraint")
    @classmethod
    def _is_constraint(cls, text: str | None) -> str | None:
        # Raises if the text cannot be read.
        _span(text or "", 0)
        return text

    @property
    def hours(self) -> Span:
        """The possible starts within the day."""
        return _span(f"between {self.min_time} and {self.max_time}", self.duration)

    @property
    def wish(self) -> Span:
        """The possible starts under the constraint."""
        return _span(self.constraint or "", self.duration)

    @property
    def starts(self) -> Span:
        """The starts that meet both; there is none if `earliest` is after `latest`."""
        earliest, latest = zip(self.hours, self.wish, strict=True)
        return Span(max(earliest), min(latest))


class CalendarTask(Task):
    """The expected calendar after the last turn."""

    exp_cal_state: dict[str, ExpectedEvent]
    """The events by id."""


class Calendar(Environment[CalendarTask]):
    """Keep a calendar through a chat of many turns, with every event where the user wants it."""

    properties = Properties(
        "multi-turn", "constraint tracking", "scheduling", "calendar", "constraint check"
    )

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if the calendar of the last message meets all requirements."""
        expected = cls.parse_task(rollout.task).exp_cal_state
        finding = examine(_last_text(rollout), expected)
        return Score(
            float(finding.is_right),
            metrics={"events_kept": finding.share_kept},
            answer=finding.answer,
            details={
                "reason": finding.reason,
                "faults": dict(finding.faults),
                **({"error_message": finding.message} if finding.message else {}),
            },
        )

    async def oracle(self, rollout: Rollout) -> Message | None:
        """Return a calendar that meets all requirements; None if none is found (see `schedule`)."""
        expected = self.task.exp_cal_state
        starts = schedule(list(expected.values()))
        if starts is None:
            return None
        entries = (
            Listed(int(name) if name.isdecimal() else name, f"Event {name}", start, event.duration)
            for (name, event), start in zip(expected.items(), starts, strict=True)
        )
        return Message(role="assistant", content=written(entries))

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Yield chats about a day that was planned first, so that a right answer exists."""
        yield from load_generator("calendar").generate(rng, num)


def _last_text(rollout: Rollout) -> str:
    """Return the text of the last message; one with tool calls is not an answer."""
    last = rollout.responses[-1] if rollout.responses else None
    return last.text if last and last.role == "assistant" and not last.tool_calls else ""


MAX_SCHEDULED = 14
"""The most events that `schedule` takes; each one doubles the work."""

TIME = re.compile(r"([0-9]{1,2})(?::([0-9]{1,2}))?\s*(am|pm)?")


def minutes_of(text: str) -> int | None:
    """Return the minutes after midnight of `13:45`, `1:45pm` or `1pm`, else None."""
    match = TIME.fullmatch(text.strip())
    # A bare number is not a time.
    if match is None or not (match[2] or match[3]):
        return None
    hour, minute = int(match[1]), int(match[2] or 0)
    if match[3]:
        hour = (0 if hour == 12 else hour) + (12 if match[3] == "pm" else 0)
    return hour * 60 + minute


def schedule(events: Sequence[ExpectedEvent]) -> list[int] | None:
    """Return a start for each event so that all requirements are met and no events overlap.

    None if there is no such schedule, or if there are more than `MAX_SCHEDULED` events.
    """
    if len(events) > MAX_SCHEDULED:
        return None
    spans = [event.starts for event in events]
    plans: dict[int, tuple[int, dict[int, int]]] = {0: (NEVER, {})}
    """For each set of placed events, as bits: when the last one ends, and all starts."""
    # Of all orders of a set, the one that ends first leaves the most room for the others, so only
    # that one is kept (Held and Karp 1962, "A dynamic programming approach to sequencing
    # problems").
    for _ in events:
        longer: dict[int, tuple[int, dict[int, int]]] = {}
        for placed, (free_from, starts) in plans.items():
            for number, span in enumerate(spans):
                start = max(free_from, span.earliest)
                if number in starts or start > span.latest:
                    continue
                end, key = start + events[number].duration, placed | 1 << number
                if key not in longer or end < longer[key][0]:
                    longer[key] = (end, {**starts, number: start})
        plans = longer
    return next(([s[number] for number in range(len(events))] for _, s in plans.values()), None)


def _span(constraint: str, duration: int) -> Span:
    """Return the starts that a constraint allows; an empty constraint allows all.

    Raises:
        ValueError: It has none of the four forms, or has an unreadable time.

    """
    word, _, rest = constraint.strip().partition(" ")
    match word, [minutes_of(time) for time in rest.split(" and ")]:
        case "", _:
            return Span()
        case "before", [int(end)]:
            return Span(latest=end - duration)
        case "after", [int(start)]:
            return Span(earliest=start)
        case "between", [int(start), int(end)]:
            return Span(start, end - duration)
        case "at", [int(start)]:
            return Span(start, start)
    raise ValueError(f"{constraint!r} is not a constraint such as 'before 1:45pm'")


Reason = Literal[
    "correct",
    "nothing_expected",
    "no_answer",
    "think_tag",
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
"""Brackets, braces and strings; an unclosed string takes the rest, so nothing is read twice."""


class Entry(NamedTuple):
    """The start of an event, in minutes after midnight, and its duration in minutes."""

    start: int
    duration: float

    @property
    def end(self) -> float:
        """The minute at which the event is over."""
        return self.start + self.duration


class Finding(NamedTuple):
    """The result of checking an answer."""

    reason: Reason
    faults: Mapping[str, Reason] = {}
    """Errors of single events by id."""
    share_kept: float = 0.0
    """The share of the expected events that are right, each regardless of the others."""
    answer: str | None = None
    """The starts of all events, if these are the expected ones."""
    message: str = ""
    """Why no calendar could be read."""

    @property
    def is_right(self) -> bool:
        """Whether the calendar meets all requirements."""
        return self.reason in ("correct", "nothing_expected")


def examine(text: str, expected: Mapping[str, ExpectedEvent]) -> Finding:
    """Check the calendar in a text against the expected events."""
    # The order is the reference's: a think tag is wrong even if no event is expected.
    if not text.strip():
        return Finding("no_answer", message="there is no text")
    if "<think>" in text:
        return Finding("think_tag")
    if not expected:
        return Finding("nothing_expected", share_kept=1.0)
    written = first_list(text)
    if written is None:
        return Finding("no_answer", message="there is no list of events")
    try:
        listed = json.loads(written)
    except (ValueError, RecursionError):  # not JSON, a number of 5,000 digits, nested too deeply
        return Finding("no_answer", message="the first list of events is not JSON")
    return _compared([_read(item) for item in listed], expected)


def first_list(text: str) -> str | None:
    """Return the first `[...]` that directly contains `{...}`, whether it is JSON or not.

    A bracket directly within a bracket replaces it, so a list of lists leads to the innermost one.
    Brackets within braces belong to the braces, unless these are never closed.
    """
    # One scan over the marks: the reference's regular expression takes exponential time on a list
    # that is never closed.
    is_open: list[int] = []
    """The positions of unclosed brackets and braces; the first is a bracket."""
    holders: set[int] = set()
    """The positions of brackets and braces that directly contain closed braces."""
    # All lists, since an inner list closes before the one around it.
    lists: dict[int, int] = {}
    num_braces = position = 0
    # Quotes delimit strings only within braces; in prose they may be apostrophes or inches.
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
    """Read the id, start and duration of one event; None if one is missing or unreadable."""
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
    # As in the reference, faults of the whole list precede those of single events.
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
    """Return the error of one event, regardless of the others."""
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
    """Return whether two events overlap; one may start when another ends."""
    # Once sorted, an overlap of any two events shows between neighbours too.
    in_order = sorted(entries, key=lambda entry: (entry.start, entry.end))
    return any(after.start < before.end for before, after in itertools.pairwise(in_order))


class Listed(NamedTuple):
    """One event in a calendar's JSON."""

    event_id: int | str
    name: str
    start: int
    duration: int


def written(entries: Iterable[Listed]) -> str:
    """Return a calendar as JSON, sorted by start."""
    return json.dumps(
        [
            {
                "event_id": entry.event_id,
                "event_name": entry.name,
                "start_time": _clock(entry.start),
                "duration": entry.duration,
            }
            for entry in sorted(entries, key=lambda entry: entry.start)
        ]
    )


def _clock(minutes: int) -> str:
    return "{:02}:{:02}".format(*divmod(minutes, 60))
