"""When events may start, as a row says it, and schedules that keep to it."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from pydantic import BaseModel, field_validator

__all__ = ["MAX_SCHEDULED", "ExpectedEvent", "Span", "minutes_of", "schedule", "twelve_hour"]

MAX_SCHEDULED = 14
"""Events that `schedule` takes; the work doubles with each."""

TIME = re.compile(r"([0-9]{1,2})(?::([0-9]{1,2}))?\s*(am|pm)?")
NEVER, ALWAYS = -(10**6), 10**6


class Span(NamedTuple):
    """The first and the last minute after midnight at which an event may start."""

    earliest: int = NEVER
    latest: int = ALWAYS


class ExpectedEvent(BaseModel):
    """What an event of the calendar has to keep to."""

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
        """The starts that lie within the day."""
        return _span(f"between {self.min_time} and {self.max_time}", self.duration)

    @property
    def wish(self) -> Span:
        """The starts that the constraint allows."""
        return _span(self.constraint or "", self.duration)

    @property
    def starts(self) -> Span:
        """The starts that keep to everything, which are none where the first is after the last."""
        earliest, latest = zip(self.hours, self.wish, strict=True)
        return Span(max(earliest), min(latest))


def minutes_of(text: str) -> int | None:
    """Give the minutes after midnight of `13:45`, `1:45pm` or `1pm`, else None."""
    match = TIME.fullmatch(text.strip())
    if match is None or not (match[2] or match[3]):
        return None
    hour, minute = int(match[1]), int(match[2] or 0)
    if match[3]:
        hour = (0 if hour == 12 else hour) + (12 if match[3] == "pm" else 0)
    return hour * 60 + minute


def twelve_hour(minutes: int) -> str:
    """Write minutes after midnight as constraints have them: `9am`, `12:15pm`."""
    hour, minute = divmod(minutes, 60)
    return f"{(hour - 1) % 12 + 1}{f':{minute:02}' if minute else ''}{'am' if hour < 12 else 'pm'}"


def schedule(events: Sequence[ExpectedEvent]) -> list[int] | None:
    """Give a start for each event so that all keep to what is expected and none overlap.

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
