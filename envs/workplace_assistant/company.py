"""The company that the environment makes up: the same tables in every process, from one seed."""

import functools
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, timedelta
from random import Random

from .customers import PRODUCTS, STATUSES
from .projects import BOARDS, LISTS
from .source import Row, Source, labelled
from .vocabulary import (
    EVENTS,
    FIRMS,
    FIRST_NAMES,
    LAST_NAMES,
    NOTES,
    SENTENCES,
    SUBJECTS,
    TEAM,
    THINGS,
    TOPICS,
    WORK,
)

__all__ = ["DOMAIN", "SLOTS", "SOURCES", "address_of", "made_up"]

SEED = 20231130
NUM_EMAILS = 500
NUM_EVENTS = 300
NUM_VISITS = 1000
NUM_CUSTOMERS = 200
DOMAIN = "brightmoor.example"

SOURCES = ("direct", "referral", "search engine", "social media")
SLOTS = ("09:00", "10:30", "12:00", "13:30", "15:00", "16:30")
"""When events of the calendar start; none is longer than 90 minutes, so they never overlap."""


@functools.cache
def made_up() -> Source:
    """Give the tables of the company, made once in a process."""
    rng = Random(SEED)
    makers: dict[str, tuple[str, Callable[[Random], Iterator[Row]]]] = {
        "emails": ("email_id", _emails),
        "calendar_events": ("event_id", _events),
        "customer_relationship_manager_data": ("customer_id", _customers),
        "project_tasks": ("task_id", _tasks),
    }
    tables = {
        name: labelled(_numbered(key, list(make(rng)), rng)) for name, (key, make) in makers.items()
    }
    visits = sorted(_visits(rng), key=lambda visit: visit["date_of_visit"])
    return Source(tuple(map(address_of, TEAM)), {**tables, "analytics_data": labelled(visits)})


def address_of(name: str, domain: str = DOMAIN) -> str:
    """Give the e-mail address of a name: juno.hart@brightmoor.example."""
    return f"{name.lower().replace(' ', '.')}@{domain}"


def _numbered(key: str, rows: list[Row], rng: Random) -> Iterator[Row]:
    """Give rows in random order, so that their ids say nothing of their dates."""
    rng.shuffle(rows)
    for number, row in enumerate(rows):
        yield {key: f"{number:08}", **row}


def _emails(rng: Random) -> Iterator[Row]:
    # Each at a time of its own, so that one of them is the latest.
    start = datetime(2023, 9, 18, 7)
    for minutes in rng.sample(range(73 * 24 * 60), NUM_EMAILS):
        name = rng.choice(TEAM)
        topic = rng.choice(TOPICS)
        box = rng.choice(("inbox", "inbox", "outbox"))
        sentences = [rng.choice(SENTENCES).format(topic.lower()) for _ in range(2)]
        signature = name.split()[0] if box == "inbox" else "Juno"
        yield {
            "inbox/outbox": box,
            "sender/recipient": address_of(name),
            "subject": rng.choice(SUBJECTS).format(topic),
            "sent_datetime": str(start + timedelta(minutes=minutes, seconds=rng.randrange(60))),
            "body": f"{' '.join(sentences)} {signature}",
        }


def _events(rng: Random) -> Iterator[Row]:
    days = _weekdays(date(2023, 9, 18), 75)
    for day in days:
        for slot in sorted(rng.sample(SLOTS, NUM_EVENTS // len(days))):
            yield {
                "event_name": rng.choice(EVENTS),
                "participant_email": address_of(rng.choice(TEAM)),
                "event_start": f"{day} {slot}:00",
                "duration": rng.choice(("30", "45", "60", "90")),
            }


def _visits(rng: Random) -> Iterator[Row]:
    for _ in range(NUM_VISITS):
        yield {
            "date_of_visit": str(_some_day(rng, date(2023, 9, 1), 91)),
            "visitor_id": f"{rng.randrange(10_000):04}",
            "page_views": str(rng.randint(1, 24)),
            "session_duration_seconds": str(rng.randint(3, 900)),
            "traffic_source": rng.choice(SOURCES),
            "user_engaged": rng.choice(("True", "False")),
        }


def _customers(rng: Random) -> Iterator[Row]:
    names = [f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES]
    for number, name in enumerate(rng.sample(names, NUM_CUSTOMERS)):
        contact = _some_day(rng, date(2023, 6, 1), 183)
        yield {
            "assigned_to_email": address_of(rng.choice(TEAM)),
            "customer_name": name,
            "customer_email": address_of(name, rng.choice(FIRMS)),
            "customer_phone": f"020 7946 0{number:03}",
            "last_contact_date": str(contact),
            "product_interest": rng.choice(PRODUCTS),
            "status": rng.choice(STATUSES),
            "notes": rng.choice(("", f"{contact}: {rng.choice(NOTES)}")),
            "follow_up_by": str(_some_day(rng, date(2023, 12, 1), 45)),
        }


def _tasks(rng: Random) -> Iterator[Row]:
    days = _weekdays(date(2023, 11, 6), 40)
    for board in BOARDS:
        for work in WORK[board]:
            for thing in THINGS[board]:
                yield {
                    "task_name": f"{work} {thing}",
                    "assigned_to_email": address_of(rng.choice(TEAM)),
                    "list_name": rng.choice(LISTS),
                    "due_date": str(rng.choice(days)),
                    "board": board,
                }


def _weekdays(first: date, num: int) -> Sequence[date]:
    days = (first + timedelta(days=number) for number in range(2 * num))
    return [day for day in days if day.weekday() < 5][:num]


def _some_day(rng: Random, first: date, num: int) -> date:
    return first + timedelta(days=rng.randrange(num))
