"""Generates conversations about a calendar: a feasible day, and the requests that describe it."""

import itertools
import json
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from gymcli import JSONObject
from gymcli.envs.calendar import ExpectedEvent, Listed, _clock, schedule, written

SYSTEM = """You keep the user's calendar for one day, which is empty when the talk begins.

Show the whole calendar in every answer, also where the user speaks of something else, as one JSON \
list: [{{"event_id": 7, "event_name": "...", "start_time": "HH:MM", "duration": 30}}, ...]. \
`event_id` is the user's number of the event, `start_time` is in 24 hours, `duration` in minutes.

- No event starts before {first} or ends after {last}, and no two overlap. One may start when \
another ends.
- What the user asks of an event's time holds to the end of the talk, unless the user changes it.
- Where events are in each other's way, move them; do not ask back, and leave none out.
- An event that is over by a time may end right then; one that starts at a time or later may start \
right then."""

ADDITIONS = (
    'Please put "{name}" on my calendar, {duration} minutes (event id: {id}).',
    'I need {duration} minutes for "{name}" (event id: {id}).',
    'Can you add "{name}"? It takes {duration} minutes (event id: {id}).',
)
WISHES = (
    '"{name}" (event id: {id}) has to {wish}.',
    'I forgot to say: "{name}" (event id: {id}) must {wish}.',
)
CHANGES = (
    'Forget what I said about the time of "{name}" (event id: {id}). Now it has to {wish}.',
    'Something came up. Instead of the earlier time, "{name}" (event id: {id}) must {wish}.',
)
OPENINGS = ("", "", "Here is your day:\n\n", "Done.\n\n")

CHATS = (
    ("It has been raining since dawn, my shoes are soaked.", "I hope they dry soon."),
    ("My sister just sent me a photo of her new puppy!", "How lovely, give it a pat from me."),
    ("What is a good name for a grey cat?", "Pebble would suit a grey cat."),
    ("The coffee machine is broken again.", "That is a sad start; tea may have to do."),
    ("I might learn to play the cello this year.", "A fine plan, it is a warm instrument."),
    ("Thanks, you are a great help.", "You are welcome."),
    ("How many legs does a lobster have?", "Ten, if you count the claws."),
    ("We won the quiz last night, by one point.", "Congratulations to the whole team."),
)

THEMES = [
    line.split(", ")
    for line in (
        "choir practice, piano tuning, costume fitting, stage rehearsal, "
        "ticket count, light check, press photos, set painting",
        "greenhouse round, seed order, beehive check, orchard walk, "
        "tool repair, market planning, compost turning, visitor tour",
        "rope inspection, boat cleaning, crew briefing, chart reading, "
        "engine test, harbour call, sail mending, safety drill",
        "book sorting, story hour, catalogue review, shelf moving, "
        "reading circle, map restoration, donor visit, archive tour",
    )
]


def twelve_hour(minutes: int) -> str:
    """Return minutes after midnight in the form of constraints: `9am`, `12:15pm`."""
    hour, minute = divmod(minutes, 60)
    return f"{(hour - 1) % 12 + 1}{f':{minute:02}' if minute else ''}{'am' if hour < 12 else 'pm'}"


class Size(NamedTuple):
    """The size of a conversation."""

    num_events: int
    durations: range
    slack: int
    """Minutes of the day that stay free, rounded up to the next half hour."""
    leeway: int
    """Maximum minutes that a constraint leaves free before and after its event."""
    num_free: int
    """Events without a constraint."""
    num_changes: int
    """Constraints that replace an earlier one."""
    num_chats: int
    """Turns without a request."""
    moves_others: bool
    """Whether the last turn forces an event to move that it does not name."""


class Step(NamedTuple):
    """A turn of the user, and the constraint of its event from then on."""

    text: str
    event: int
    constraint: str | None


class Day(NamedTuple):
    """A day on which every constraint can be met."""

    names: list[str]
    events: list[ExpectedEvent]
    """By id, with their final constraints."""
    first_wishes: dict[int, str | None]
    """Events whose final constraint has its own turn, with their constraint until then."""


SIZES = {
    "easy": Size(3, range(30, 105, 15), 180, 60, 1, 0, 1, moves_others=False),
    "medium": Size(5, range(30, 90, 15), 90, 45, 1, 0, 2, moves_others=True),
    "hard": Size(7, range(30, 75, 15), 30, 15, 1, 1, 3, moves_others=True),
}


def generate(rng: Random, num: int) -> Iterator[JSONObject]:
    """Yield different conversations of three sizes."""
    found: dict[str, JSONObject] = {}
    while (number := len(found)) < num:
        difficulty = list(SIZES)[number % len(SIZES)]
        size = SIZES[difficulty]
        day = _day(rng, size)
        endings = _endings(day, size)
        if not endings:
            continue
        messages = _messages(rng, day, size, rng.choice(endings))
        events = {str(n): {"event_id": n, **e.model_dump()} for n, e in enumerate(day.events)}
        found.setdefault(
            json.dumps(messages),
            {
                "id": f"calendar-{number}",
                "difficulty": difficulty,
                "messages": messages,
                "exp_cal_state": events,
            },
        )
    yield from found.values()


def _day(rng: Random, size: Size) -> Day:
    """Plan a day, then describe it by constraints that it meets."""
    # The plan comes first, so that the constraints can always be met together.
    durations = [rng.choice(size.durations) for _ in range(size.num_events)]
    opens = rng.choice(range(8 * 60, 11 * 60, 30))
    closes = opens + -(-(sum(durations) + size.slack) // 30) * 30
    # Sorted, these are the free minutes before each event, all earlier gaps included.
    cuts = sorted(rng.choices(range(0, size.slack + 1, 15), k=size.num_events))
    order = rng.sample(range(size.num_events), size.num_events)
    busy = itertools.accumulate((durations[number] for number in order), initial=opens)
    starts = {number: start + gap for number, start, gap in zip(order, busy, cuts, strict=False)}
    hours = {"min_time": _clock(opens), "max_time": _clock(closes)}
    free = rng.sample(range(size.num_events), size.num_free)
    events = [
        ExpectedEvent(
            duration=duration,
            constraint=None
            if number in free
            else _constraint(rng, starts[number], duration, (opens, closes), size.leeway),
            **hours,
        )
        for number, duration in enumerate(durations)
    ]
    bound = [number for number in range(size.num_events) if number not in free]
    later = rng.sample(bound, (len(bound) + 1) // 2)
    first_wishes: dict[int, str | None] = dict.fromkeys(later)
    for number in later[: size.num_changes]:
        start = rng.randrange(opens, closes - durations[number] + 1, 15)
        wish = _constraint(rng, start, durations[number], (opens, closes), size.leeway)
        if schedule(_with(events, {number: wish})):
            first_wishes[number] = wish
    return Day(rng.sample(rng.choice(THEMES), size.num_events), events, first_wishes)


def _constraint(
    rng: Random, start: int, duration: int, day: tuple[int, int], max_leeway: int
) -> str:
    """Return a constraint that an event with this start meets."""
    slack = range(0, max_leeway + 1, 15)
    first = max(day[0], start - rng.choice(slack))
    last = min(day[1], start + duration + rng.choice(slack))
    forms = (
        f"before {twelve_hour(last)}",
        f"after {twelve_hour(first)}",
        f"between {twelve_hour(first)} and {twelve_hour(last)}",
        f"at {twelve_hour(start)}",
    )
    return rng.choices(forms, weights=(3, 3, 3, 1))[0]


def _with(events: list[ExpectedEvent], wishes: dict[int, str | None]) -> list[ExpectedEvent]:
    """Return the events with the constraints of some replaced."""
    return [
        event.model_copy(update={"constraint": wishes.get(number, event.constraint)})
        for number, event in enumerate(events)
    ]


def _endings(day: Day, size: Size) -> list[int | None]:
    """Return the turns that may come last, since they change the calendar shown before.

    A number is an event that receives its final constraint, None the addition of the last event.
    """
    endings = [*(number for number in day.first_wishes if _is_broken(day, number)), None]
    return [last for last in endings if not size.moves_others or _moves_others(day, last)]


def _steps(rng: Random, day: Day, last: int | None) -> list[Step]:
    """Return the requests of the user in an order with this ending."""
    num_events = len(day.events)
    waiting: list[int] = []
    steps: list[Step] = []
    for number, event in enumerate(day.events):
        is_final = last is None and number == num_events - 1
        num_ready = len(waiting) if is_final else rng.randint(0, len(waiting))
        steps += [_wish(rng, day, waiting.pop(0)) for _ in range(num_ready)]
        is_split = number in day.first_wishes and not is_final
        constraint = day.first_wishes[number] if is_split else event.constraint
        steps.append(_addition(rng, day, number, constraint))
        if is_split and number != last:
            waiting.append(number)
    steps += [_wish(rng, day, number) for number in waiting]
    return steps if last is None else [*steps, _wish(rng, day, last)]


def _is_broken(day: Day, number: int) -> bool:
    """Return whether the calendar before an event's own turn breaks its final constraint."""
    starts = schedule(_with(day.events, {number: day.first_wishes[number]}))
    wish = day.events[number].wish
    return starts is not None and not wish.earliest <= starts[number] <= wish.latest


def _moves_others(day: Day, last: int | None) -> bool:
    """Return whether no correct calendar leaves all other events where they were."""
    if last is None:
        last, before = len(day.events) - 1, schedule(day.events[:-1])
    else:
        before = schedule(_with(day.events, {last: day.first_wishes[last]}))
    assert before is not None  # as in _shown
    kept: dict[int, str | None] = {n: f"at {twelve_hour(start)}" for n, start in enumerate(before)}
    return schedule(_with(day.events, {**kept, last: day.events[last].constraint})) is None


def _addition(rng: Random, day: Day, number: int, constraint: str | None) -> Step:
    duration = day.events[number].duration
    text = rng.choice(ADDITIONS).format(name=day.names[number], id=number, duration=duration)
    return Step(
        f"{text} It has to {_asked(constraint)}." if constraint else text, number, constraint
    )


def _wish(rng: Random, day: Day, number: int) -> Step:
    """Return the turn that asks for an event's final constraint."""
    constraint = day.events[number].constraint
    assert constraint is not None  # others have no turn of their own
    texts = CHANGES if day.first_wishes[number] else WISHES
    text = rng.choice(texts).format(name=day.names[number], id=number, wish=_asked(constraint))
    return Step(text, number, constraint)


def _asked(constraint: str) -> str:
    """Return a constraint in the user's words."""
    word, _, times = constraint.partition(" ")
    return {
        "before": f"be over by {times}",
        "after": f"start at {times} or later",
        "between": f"start and end between {times}",
        "at": f"start at {times} sharp",
    }[word]


def _messages(rng: Random, day: Day, size: Size, last: int | None) -> list[JSONObject]:
    """Return the conversation up to the user's last turn; every answer has a correct calendar."""
    steps = _steps(rng, day, last)
    hours = day.events[0]
    system = SYSTEM.format(first=hours.min_time, last=hours.max_time)
    messages: list[JSONObject] = [{"role": "system", "content": system}]
    places = rng.sample(range(1, len(steps)), size.num_chats)
    chats = dict(zip(places, rng.sample(CHATS, size.num_chats), strict=True))
    known: dict[int, str | None] = {}
    for place, step in enumerate(steps):
        if place in chats:
            text, answer = chats[place]
            messages.append({"role": "user", "content": text})
            messages.append({"role": "assistant", "content": f"{answer}\n\n{_shown(day, known)}"})
        messages.append({"role": "user", "content": step.text})
        known[step.event] = step.constraint
        if place < len(steps) - 1:
            opening = rng.choice(OPENINGS)
            messages.append({"role": "assistant", "content": f"{opening}{_shown(day, known)}"})
    return messages


def _shown(day: Day, known: dict[int, str | None]) -> str:
    """Return a calendar that meets the requests so far."""
    events = _with(day.events, known)
    starts = schedule([events[number] for number in known])
    assert starts is not None  # the plan meets it, or `_day` has tried the first wish
    text: str = written(
        Listed(number, day.names[number], start, day.events[number].duration)
        for number, start in zip(known, starts, strict=True)
    )
    return text
