r"""Continues a chat about a calendar, whose events must meet every request so far.

Source: the resources server calendar of NVIDIA NeMo Gym (Apache-2.0), reimplemented independently.
The row has the chat, and the model adds one message. The first list in it that contains an object
counts: it must be JSON and have every expected event, with its duration, within the hours of the
day and its constraint, and no two may overlap. A message with `<think>` in it is wrong; if no event
is expected, any other text is right. Leniency kept from the reference: names are ignored, ids may
be strings, minutes may exceed 59, and any text around the list is ignored. Times are read in lower
case only: "10:30 AM" is an error, "10:30 am" is not. Differences from the reference:

- Braces and brackets in names are part of the names, objects may contain lists, and unclosed braces
  hide no list. Texts are read in one pass; too deep nesting is not JSON.
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
    """`before X` and `after X` for the end and the start, `between X and Y`, or `at X`."""

    @field_validator("min_time", "max_time")
    @classmethod
    def _is_time(cls, text: str) -> str:
        if minutes_of(text) is None:
            raise ValueError(f"{text!r} is no time such as 13:45 or 1:45pm")
        return text

    @field_validator("constraint")
    @classmethod
    def _is_constraint(cls, text: str | None) -> str | None:
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
        """The starts that keep to everything, which are none where the first is after the last."""
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
            details={"reason": finding.reason, "faults": dict(finding.faults)},
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
        """Write chats about a day that was planned first, so that there is a right answer."""
        yield from load_generator("calendar").generate(rng, num)


def _last_text(rollout: Rollout) -> str:
    """Return the text of the last message; one with tool calls is not an answer."""
    last = rollout.responses[-1] if rollout.responses else None
    return last.text if last and last.role == "assistant" and not last.tool_calls else ""


MAX_SCHEDULED = 14
"""Events that `schedule` takes; the work doubles with each."""

TIME = re.compile(r"([0-9]{1,2})(?::([0-9]{1,2}))?\s*(am|pm)?")


def minutes_of(text: str) -> int | None:
    """Return the minutes after midnight of `13:45`, `1:45pm` or `1pm`, else None."""
    match = TIME.fullmatch(text.strip())
    if match is None or not (match[2] or match[3]):
        return None
    hour, minute = int(match[1]), int(match[2] or 0)
    if match[3]:
        hour = (0 if hour == 12 else hour) + (12 if match[3] == "pm" else 0)
    return hour * 60 + minute


def schedule(events: Sequence[ExpectedEvent]) -> list[int] | None:
    """Return a start for each event so that all keep to what is expected and none overlap.

    None where there is no such schedule, or there are more than `MAX_SCHEDULED` events. Of all
    orders of a set of events the one that ends first leaves the most room for the others, so that
    one is kept for each set (Held and Karp 1962, "A dynamic programming approach to sequencing
    problems").
    """
    if len(events) > MAX_SCHEDULED:
        return None
    spans = [event.starts for event in events]
    plans: dict[int, tuple[int, dict[int, int]]] = {0: (NEVER, {})}
    """By the bits of the events that are placed: the last one's end, and all starts."""
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
    """Read the starts that a constraint allows.

    Raises:
        ValueError: It has none of the four forms, or a time in it cannot be read.

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
    raise ValueError(f"{constraint!r} is no constraint that can be read, such as 'before 1:45pm'")


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
    """The result of checking an answer."""

    reason: Reason
    faults: Mapping[str, Reason] = {}
    """Errors of single events, by id."""
    share_kept: float = 0.0
    """The expected events that are right, each taken by itself."""
    answer: str | None = None
    """The starts of all events, where these are the expected ones."""

    @property
    def is_right(self) -> bool:
        """Whether the calendar meets all requirements."""
        return self.reason in ("correct", "nothing_expected")


def examine(text: str, expected: Mapping[str, ExpectedEvent]) -> Finding:
    """Return whether the calendar in a text is one that is expected, and why not."""
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
    """Return the first [...] that holds {...}, without a look at what else it is.

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
    in_order = sorted(entries, key=lambda entry: (entry.start, entry.end))
    return any(after.start < before.end for before, after in itertools.pairwise(in_order))


class Listed(NamedTuple):
    """One event in a calendar's JSON."""

    event_id: int | str
    name: str
    start: int
    duration: int


def written(entries: Iterable[Listed]) -> str:
    """Write a calendar as JSON, in the order of time."""
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
