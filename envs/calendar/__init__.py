r"""Goes on with a talk about a calendar, whose events must keep to all that was asked so far.

Source: the resources server calendar of NVIDIA NeMo Gym (Apache-2.0), its rules written anew. The
talk stands in the row and the model gives one more message. What counts is the first list in it
that holds an object: it must be JSON and give every expected event, with its duration, within the
hours of the day and its constraint, and no two may overlap. A message with `<think>` in it is
wrong; where nothing is expected every other text is right. Looseness that is kept: names are not
looked at, ids may be texts, minutes after 59 count on, and whatever stands around the list, or
after it, is passed over. Times are read in lower case only: "10:30 AM" is an error, "10:30 am" is
not. Where this differs:

- Braces and brackets in names are part of the names, objects may hold lists, and braces that are
  not closed hide no list. Texts are read in one pass; what is nested too deeply is no JSON.
- An event that is listed twice is an error; the reference lets the last one count.
- A message of several parts is read as a whole. One that calls tools is no answer, nor is silence.
- Blanks or signs within a time, "10 : 30" or "+9:00", make it one that cannot be read; the
  reference takes them.
- A row with a time or a constraint that cannot be read is refused; the reference gives every
  answer 0, or passes over a constraint of another form.

One row (its messages shortened):
{"id": "calendar-0", "difficulty": "easy", "messages": [{"role": "system", "content": "You ..."},
{"role": "user", "content": "I need 45 minutes for \"choir practice\" (event id: 0)."}, {"role":
"assistant", "content": "[{\"event_id\": 0, ...}]"}, {"role": "user", "content": "..."}],
"exp_cal_state": {"0": {"event_id": 0, "duration": 45, "constraint": "before 1:45pm",
"min_time": "09:00", "max_time": "17:00"}}}
"""

from collections.abc import Iterator
from random import Random

from gymcli import Context, Environment, JSONObject, Message, Properties, Rollout, Score, Task

from .answers import examine
from .conversations import Listed, rows, written
from .events import ExpectedEvent, schedule

__all__ = ["Calendar", "CalendarTask"]


class CalendarTask(Task):
    """What the calendar has to be after the last turn."""

    exp_cal_state: dict[str, ExpectedEvent]
    """The events by id."""


class Calendar(Environment[CalendarTask]):
    """Keep a calendar in a talk of many turns, with every event where the user wants it."""

    properties = Properties(
        "multi-turn", "constraint tracking", "scheduling", "calendar", "constraint check"
    )

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 where the calendar of the last message keeps to everything."""
        expected = cls.parse_task(rollout.task).exp_cal_state
        finding = examine(_last_text(rollout), expected)
        return Score(
            float(finding.is_right),
            metrics={"events_kept": finding.share_kept},
            answer=finding.answer,
            details={"reason": finding.reason, "faults": dict(finding.faults)},
        )

    async def oracle(self, rollout: Rollout) -> Message | None:
        """Give a calendar that keeps to everything; None where none is found (see `schedule`)."""
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
        """Write talks about a day that was planned first, so that there is a right answer."""
        return rows(rng, num)


def _last_text(rollout: Rollout) -> str:
    """Give the text of the last message, which is no answer where it calls tools."""
    last = rollout.responses[-1] if rollout.responses else None
    return last.text if last and last.role == "assistant" and not last.tool_calls else ""
