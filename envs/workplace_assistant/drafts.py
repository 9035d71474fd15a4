"""What tasks are written with: a draft, its gold calls, and questions to the made-up company."""

from collections.abc import Callable, Sequence
from datetime import date, timedelta
from random import Random
from typing import Literal, NamedTuple

from gymcli import JSONObject

from .company import made_up
from .source import Row

__all__ = [
    "CUSTOMERS",
    "INFORMATION_DEPENDENCY",
    "MESSAGES",
    "MULTIPLE_INTENTS",
    "TODAY",
    "Call",
    "Capability",
    "Draft",
    "Family",
    "Levels",
    "coming_day",
    "create_event",
    "create_task",
    "customer_of",
    "day_of",
    "email_of",
    "events_on",
    "first_name",
    "groups",
    "latest_email_from",
    "next_event_with",
    "rows_of",
    "send",
    "spoken",
    "update",
]

TODAY = date(2023, 11, 30)
CUSTOMERS = "customer_relationship_manager_data"

Capability = Literal["tool use", "multiple intents", "information dependency"]
MULTIPLE_INTENTS: Capability = "multiple intents"
INFORMATION_DEPENDENCY: Capability = "information dependency"


class Call(NamedTuple):
    """A gold call."""

    name: str
    arguments: JSONObject


class Draft(NamedTuple):
    """A request and the calls that fulfil it."""

    category: str
    text: str
    calls: list[Call]
    capability: Capability = "tool use"


Family = Callable[[Random], Draft]
Levels = tuple[tuple[str, tuple[Family, ...]], ...]
"""The families of each difficulty, from easy to hard."""


def rows_of(table: str) -> list[Row]:
    """Give the rows of a table of the company."""
    return made_up().rows(table)


def groups(
    table: str, columns: Sequence[str], *, where: Callable[[Row], bool] = lambda row: True
) -> list[list[Row]]:
    """Give the rows of a table in groups that agree in some columns."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in filter(where, rows_of(table)):
        found.setdefault(tuple(row[column] for column in columns), []).append(row)
    return list(found.values())


def email_of(rng: Random) -> Row:
    """Give an e-mail that somebody sent, the latest of this sender under its subject."""
    received = groups(
        "emails",
        ("sender/recipient", "subject"),
        where=lambda row: row["inbox/outbox"] == "inbox",
    )
    return max(rng.choice(received), key=lambda row: row["sent_datetime"])


def latest_email_from(sender: str) -> Row:
    """Give the newest e-mail that somebody sent."""
    received = [
        row
        for row in rows_of("emails")
        if row["sender/recipient"] == sender and row["inbox/outbox"] == "inbox"
    ]
    return max(received, key=lambda row: row["sent_datetime"])


def customer_of(rng: Random, **fields: str) -> Row:
    """Give a customer whose fields have these values."""
    return rng.choice([row for row in rows_of(CUSTOMERS) if fields.items() <= row.items()])


def next_event_with(address: str) -> Row:
    """Give the first event with somebody after today."""
    coming = [
        row
        for row in rows_of("calendar_events")
        if row["participant_email"] == address and day_of(row["event_start"]) > TODAY
    ]
    return min(coming, key=lambda row: row["event_start"])


def events_on(day: date) -> list[Row]:
    """Give the events of a day in their order."""
    events = (row for row in rows_of("calendar_events") if day_of(row["event_start"]) == day)
    return sorted(events, key=lambda row: row["event_start"])


def coming_day(rng: Random) -> date:
    """Give a working day of the four weeks from tomorrow on."""
    return TODAY + timedelta(days=7 * rng.randrange(4) + rng.choice((1, 4, 5, 6, 7)))


def day_of(text: str) -> date:
    """Give the day of a day or time as the tables have it."""
    return date.fromisoformat(text[:10])


def spoken(day: date | str) -> str:
    """Give a day as people write it: Tuesday 5 December."""
    day = day_of(day) if isinstance(day, str) else day
    return f"{day:%A} {day.day} {day:%B}"


def first_name(address: str) -> str:
    """Give the first name of a colleague."""
    return address.partition(".")[0].capitalize()


def send(recipient: str, subject: str, body: str) -> Call:
    """Give the call that sends an e-mail."""
    return Call("email_send_email", {"recipient": recipient, "subject": subject, "body": body})


def create_event(name: str, participant: str, day: date, slot: str, duration: str) -> Call:
    """Give the call that makes an event."""
    arguments: JSONObject = {
        "event_name": name,
        "participant_email": participant,
        "event_start": f"{day} {slot}:00",
        "duration": duration,
    }
    return Call("calendar_create_event", arguments)


def create_task(name: str, assignee: str, list_name: str, due_date: date, board: str) -> Call:
    """Give the call that makes a task."""
    arguments: JSONObject = {
        "task_name": name,
        "assigned_to_email": assignee,
        "list_name": list_name,
        "due_date": str(due_date),
        "board": board,
    }
    return Call("project_management_create_task", arguments)


def update(row: Row, field: str, value: str) -> Call:
    """Give the call that changes a field of an event, a task or a customer."""
    key, tool_name = next((key, name) for key, name in UPDATES.items() if key in row)
    return Call(tool_name, {key: row[key], "field": field, "new_value": value})


UPDATES = {
    "event_id": "calendar_update_event",
    "task_id": "project_management_update_task",
    "customer_id": "customer_relationship_manager_update_customer",
}

MESSAGES = (
    "Thank you, I will look at it tomorrow.",
    "That works for me.",
    "Please send me the latest figures first.",
    "I have no objections.",
    "Let us talk about this on Monday.",
    "Can we keep this until the new year?",
    "Good work, carry on like this.",
    "I have passed this on to the team.",
)
