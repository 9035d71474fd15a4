"""Generates requests to an invented company's assistant, and the calls that fulfil them."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta
from random import Random
from typing import Literal, NamedTuple

import msgspec

from gymcli import JSONObject
from gymcli.envs.workplace_assistant.analytics import PLOT_TYPES, VALUES_TO_PLOT
from gymcli.envs.workplace_assistant.company import (
    EVENTS,
    SLOTS,
    SOURCES,
    TEAM,
    THINGS,
    address_of,
    made_up,
)
from gymcli.envs.workplace_assistant.customers import PRODUCTS, STATUSES
from gymcli.envs.workplace_assistant.projects import BOARDS, LISTS
from gymcli.envs.workplace_assistant.tables import Row


def generate(rng: Random, num: int) -> Iterator[JSONObject]:
    """Yield requests whose gold calls are computed from the tables of the invented company."""
    rows: dict[str, JSONObject] = {}
    tries = itertools.count()
    while (number := len(rows)) < num:
        difficulty, families = PLAN[number % len(PLAN)]
        # Counting tries, not rows, moves on from a family whose requests are all used up.
        draft = families[next(tries) // len(LEVELS) % len(families)](rng)
        if draft.text not in rows:
            rows[draft.text] = _row(number, difficulty, draft)
    yield from rows.values()


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
    """Return the rows of a table of the company."""
    rows: list[Row] = made_up().rows(table)
    return rows


def groups(
    table: str, columns: Sequence[str], *, where: Callable[[Row], bool] = lambda row: True
) -> list[list[Row]]:
    """Return the rows of a table, grouped by some columns."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in filter(where, rows_of(table)):
        found.setdefault(tuple(row[column] for column in columns), []).append(row)
    return list(found.values())


def email_of(rng: Random) -> Row:
    """Return a received e-mail, the latest with its sender and subject."""
    received = groups(
        "emails",
        ("sender/recipient", "subject"),
        where=lambda row: row["inbox/outbox"] == "inbox",
    )
    return max(rng.choice(received), key=lambda row: row["sent_datetime"])


def latest_email_from(sender: str) -> Row:
    """Return the newest received e-mail of a sender."""
    received = [
        row
        for row in rows_of("emails")
        if row["sender/recipient"] == sender and row["inbox/outbox"] == "inbox"
    ]
    return max(received, key=lambda row: row["sent_datetime"])


def customer_of(rng: Random, **fields: str) -> Row:
    """Return one of the customers whose fields have these values."""
    return rng.choice([row for row in rows_of(CUSTOMERS) if fields.items() <= row.items()])


def next_event_with(address: str) -> Row:
    """Return the first event with a participant after today."""
    coming = [
        row
        for row in rows_of("calendar_events")
        if row["participant_email"] == address and day_of(row["event_start"]) > TODAY
    ]
    return min(coming, key=lambda row: row["event_start"])


def events_on(day: date) -> list[Row]:
    """Return the events of a day by their start."""
    events = (row for row in rows_of("calendar_events") if day_of(row["event_start"]) == day)
    return sorted(events, key=lambda row: row["event_start"])


def coming_day(rng: Random) -> date:
    """Return a working day of the four weeks from tomorrow on."""
    # Today is a Thursday: 1 is Friday, 4 to 7 are Monday to Thursday.
    return TODAY + timedelta(days=7 * rng.randrange(4) + rng.choice((1, 4, 5, 6, 7)))


def day_of(text: str) -> date:
    """Return the day of a date or time in the format of the tables."""
    return date.fromisoformat(text[:10])


def spoken(day: date | str) -> str:
    """Return a day as people write it: Tuesday 5 December."""
    day = day_of(day) if isinstance(day, str) else day
    return f"{day:%A} {day.day} {day:%B}"


def first_name(address: str) -> str:
    """Return the first name of a colleague."""
    return address.partition(".")[0].capitalize()


def send(recipient: str, subject: str, body: str) -> Call:
    """Return the call that sends an e-mail."""
    return Call("email_send_email", {"recipient": recipient, "subject": subject, "body": body})


def create_event(name: str, participant: str, day: date, slot: str, duration: str) -> Call:
    """Return the call that creates an event."""
    arguments: JSONObject = {
        "event_name": name,
        "participant_email": participant,
        "event_start": f"{day} {slot}:00",
        "duration": duration,
    }
    return Call("calendar_create_event", arguments)


def create_task(name: str, assignee: str, list_name: str, due_date: date, board: str) -> Call:
    """Return the call that creates a task."""
    arguments: JSONObject = {
        "task_name": name,
        "assigned_to_email": assignee,
        "list_name": list_name,
        "due_date": str(due_date),
        "board": board,
    }
    return Call("project_management_create_task", arguments)


def update(row: Row, field: str, value: str) -> Call:
    """Return the call that changes a field of an event, a task or a customer."""
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


def _delete_email(rng: Random) -> Draft:
    identity = rng.choice(rows_of("emails"))["email_id"]
    call = Call("email_delete_email", {"email_id": identity})
    return Draft("email", f"Delete the e-mail with the id {identity}.", [call])


def _reply(rng: Random) -> Draft:
    identity, body = rng.choice(rows_of("emails"))["email_id"], rng.choice(MESSAGES)
    call = Call("email_reply_email", {"email_id": identity, "body": body})
    return Draft("email", f'Reply to the e-mail {identity} with "{body}"', [call])


def _forward(rng: Random) -> Draft:
    identity, recipient = rng.choice(rows_of("emails"))["email_id"], address_of(rng.choice(TEAM))
    call = Call("email_forward_email", {"email_id": identity, "recipient": recipient})
    return Draft("email", f"Forward the e-mail {identity} to {recipient}.", [call])


def _send(rng: Random) -> Draft:
    recipient, subject = address_of(rng.choice(TEAM)), f"About the {rng.choice(EVENTS).lower()}"
    body = rng.choice(MESSAGES)
    text = f'Send an e-mail to {recipient} with the subject "{subject}" and the text "{body}"'
    return Draft("email", text, [send(recipient, subject, body)])


def _create_event(rng: Random) -> Draft:
    name, participant = rng.choice(EVENTS), address_of(rng.choice(TEAM))
    day, slot, duration = coming_day(rng), rng.choice(SLOTS), rng.choice(("30", "60", "90"))
    text = (
        f'Put "{name}" with {participant} into my calendar on {day} at {slot}, '
        f"for {duration} minutes."
    )
    return Draft("calendar", text, [create_event(name, participant, day, slot, duration)])


def _rename_event(rng: Random) -> Draft:
    event = rng.choice(rows_of("calendar_events"))
    name = rng.choice([name for name in EVENTS if name != event["event_name"]])
    text = f'The event {event["event_id"]} in my calendar should be called "{name}".'
    return Draft("calendar", text, [update(event, "event_name", name)])


def _delete_event(rng: Random) -> Draft:
    identity = rng.choice(rows_of("calendar_events"))["event_id"]
    call = Call("calendar_delete_event", {"event_id": identity})
    return Draft("calendar", f"Take the event {identity} out of my calendar.", [call])


def _create_task(rng: Random) -> Draft:
    board, assignee = rng.choice(BOARDS), address_of(rng.choice(TEAM))
    name, list_name = f"Review {rng.choice(THINGS[board])}", rng.choice(LISTS)
    day = coming_day(rng)
    text = (
        f'Create a task "{name}" for {assignee} in the list "{list_name}" of the board "{board}", '
        f"due on {day}."
    )
    call = create_task(name, assignee, list_name, day, board)
    return Draft("project_management", text, [call])


def _move_task(rng: Random) -> Draft:
    task = rng.choice(rows_of("project_tasks"))
    list_name = rng.choice([name for name in LISTS if name != task["list_name"]])
    text = f'Move the task {task["task_id"]} to the list "{list_name}".'
    return Draft("project_management", text, [update(task, "list_name", list_name)])


def _set_status(rng: Random) -> Draft:
    customer = rng.choice(rows_of("customer_relationship_manager_data"))
    status = rng.choice([name for name in STATUSES if name != customer["status"]])
    text = f'Set the status of the customer {customer["customer_id"]} to "{status}".'
    return Draft("customer_relationship_manager", text, [update(customer, "status", status)])


def _add_customer(rng: Random) -> Draft:
    name = f"{rng.choice(NEW_NAMES)} {rng.choice(NEW_NAMES)}son"
    assignee, status = address_of(rng.choice(TEAM)), rng.choice(STATUSES)
    product = rng.choice(PRODUCTS)
    text = (
        f'Add the customer {name} with the status "{status}" and the product interest "{product}"; '
        f"{assignee} looks after them. We know nothing else yet."
    )
    call = Call(
        "customer_relationship_manager_add_customer",
        {
            "customer_name": name,
            "assigned_to_email": assignee,
            "status": status,
            "product_interest": product,
        },
    )
    return Draft("customer_relationship_manager", text, [call])


def _plot(rng: Random) -> Draft:
    first, last = rng.choice(RANGES)
    value, kind = rng.choice(VALUES_TO_PLOT), rng.choice(PLOT_TYPES)
    text = f'Make a {kind} plot of "{value}" from {first} to {last}.'
    call = Call(
        "analytics_create_plot",
        {"time_min": first, "time_max": last, "value_to_plot": value, "plot_type": kind},
    )
    return Draft("analytics", text, [call])


NEW_NAMES = ("Anders", "Corwin", "Elias", "Osric", "Robin", "Silvan", "Tobias")
RANGES = (("2023-09-01", "2023-09-30"), ("2023-10-01", "2023-10-31"), ("2023-11-01", "2023-11-15"))

EASY: tuple[Family, ...] = (
    _delete_email,
    _create_event,
    _move_task,
    _set_status,
    _plot,
    _reply,
    _rename_event,
    _create_task,
    _add_customer,
    _forward,
    _delete_event,
    _send,
)


def _reply_to_latest(rng: Random) -> Draft:
    email, body = email_of(rng), rng.choice(MESSAGES)
    sender = first_name(email["sender/recipient"])
    text = (
        f'Reply to the last e-mail with the subject "{email["subject"]}" that {sender} sent me. '
        f'The text of the reply: "{body}"'
    )
    call = Call("email_reply_email", {"email_id": email["email_id"], "body": body})
    return Draft("email", text, [call])


def _delete_latest(rng: Random) -> Draft:
    sender = address_of(rng.choice(TEAM))
    email = latest_email_from(sender)
    text = f"Delete the newest e-mail in my inbox from {first_name(sender)}."
    return Draft("email", text, [Call("email_delete_email", {"email_id": email["email_id"]})])


def _forward_latest(rng: Random) -> Draft:
    email = email_of(rng)
    sender = email["sender/recipient"]
    recipient = rng.choice([known for known in map(address_of, TEAM) if known != sender])
    text = (
        f"{first_name(recipient)} should see the last e-mail with the subject "
        f'"{email["subject"]}" that {first_name(sender)} sent me. Please forward it.'
    )
    arguments = {"email_id": email["email_id"], "recipient": recipient}
    return Draft("email", text, [Call("email_forward_email", {**arguments})])


def _rename_next_event(rng: Random) -> Draft:
    participant = address_of(rng.choice(TEAM))
    event = next_event_with(participant)
    name = rng.choice([name for name in EVENTS if name != event["event_name"]])
    text = f'Call my next event with {first_name(participant)} "{name}" from now on.'
    return Draft("calendar", text, [update(event, "event_name", name)])


def _cancel_last_of_day(rng: Random) -> Draft:
    day = coming_day(rng)
    call = Call("calendar_delete_event", {"event_id": events_on(day)[-1]["event_id"]})
    return Draft("calendar", f"Cancel the last event that I have on {spoken(day)}.", [call])


def _book_with(rng: Random) -> Draft:
    day, participant, name = coming_day(rng), address_of(rng.choice(TEAM)), rng.choice(EVENTS)
    taken = {event["event_start"][11:16] for event in events_on(day)}
    slot = rng.choice([slot for slot in SLOTS if slot not in taken])
    text = (
        f'Book 45 minutes with {first_name(participant)} on {spoken(day)} at {slot}, as "{name}".'
    )
    return Draft("calendar", text, [create_event(name, participant, day, slot, "45")])


def _move_named_task(rng: Random) -> Draft:
    task = rng.choice(rows_of("project_tasks"))
    list_name = rng.choice([name for name in LISTS if name != task["list_name"]])
    text = (
        f'"{task["task_name"]}" on the {task["board"]} board belongs in the list "{list_name}" now.'
    )
    return Draft("project_management", text, [update(task, "list_name", list_name)])


def _delete_tasks(rng: Random) -> Draft:
    columns = ("assigned_to_email", "list_name", "board")
    tasks = rng.choice([rows for rows in groups("project_tasks", columns) if len(rows) in (2, 3)])
    person = first_name(tasks[0]["assigned_to_email"])
    text = (
        f"Delete all of {person}'s tasks in the list "
        f'"{tasks[0]["list_name"]}" of the {tasks[0]["board"]} board.'
    )
    calls = [Call("project_management_delete_task", {"task_id": row["task_id"]}) for row in tasks]
    return Draft("project_management", text, calls)


def _set_named_status(rng: Random) -> Draft:
    customer = customer_of(rng)
    status = rng.choice([name for name in STATUSES if name != customer["status"]])
    text = f'We heard from {customer["customer_name"]}: please set their status to "{status}".'
    return Draft("customer_relationship_manager", text, [update(customer, "status", status)])


def _reassign_customers(rng: Random) -> Draft:
    columns = ("assigned_to_email", "product_interest", "status")
    customers = rng.choice([rows for rows in groups(CUSTOMERS, columns) if len(rows) in (2, 3)])
    old, product, status = (customers[0][column] for column in columns)
    new = rng.choice([known for known in map(address_of, TEAM) if known != old])
    text = (
        f"{first_name(new)} takes over all of {first_name(old)}'s customers who are interested in "
        f'{product} and have the status "{status}". Please reassign them.'
    )
    calls = [update(customer, "assigned_to_email", new) for customer in customers]
    return Draft("customer_relationship_manager", text, calls)


def _postpone_follow_up(rng: Random) -> Draft:
    customer, day = customer_of(rng), coming_day(rng).replace(year=2024)
    text = (
        f"Put off the follow-up with {customer['customer_name']} until {day.day} {day:%B} "
        f"{day.year}."
    )
    call = update(customer, "follow_up_by", str(day))
    return Draft("customer_relationship_manager", text, [call])


def _delete_lost(rng: Random) -> Draft:
    columns = ("assigned_to_email", "product_interest")
    lost = groups(CUSTOMERS, columns, where=lambda row: row["status"] == "Lost")
    customers = rng.choice([rows for rows in lost if len(rows) in (2, 3)])
    person, product = (customers[0][column] for column in columns)
    text = (
        f"Delete all of {first_name(person)}'s customers whom we have lost and who were interested "
        f"in {product}."
    )
    name = "customer_relationship_manager_delete_customer"
    calls = [Call(name, {"customer_id": customer["customer_id"]}) for customer in customers]
    return Draft("customer_relationship_manager", text, calls)


MEDIUM: tuple[Family, ...] = (
    _reply_to_latest,
    _rename_next_event,
    _delete_tasks,
    _reassign_customers,
    _book_with,
    _delete_latest,
    _move_named_task,
    _set_named_status,
    _cancel_last_of_day,
    _forward_latest,
    _delete_lost,
    _postpone_follow_up,
)

SHORT: tuple[Family, ...] = (
    _reply_to_latest,
    _rename_next_event,
    _book_with,
    _delete_latest,
    _move_named_task,
    _set_named_status,
    _cancel_last_of_day,
    _postpone_follow_up,
)
"""Families that need at most three calls: an address, a search and a change."""


def _two_people(rng: Random) -> tuple[str, str]:
    first, second = rng.sample(TEAM, 2)
    return address_of(first), address_of(second)


def _chase_overdue(rng: Random) -> Draft:
    overdue = groups(
        "project_tasks",
        ("assigned_to_email", "board"),
        where=lambda row: row["list_name"] == "In Progress" and day_of(row["due_date"]) < TODAY,
    )
    tasks = rng.choice([rows for rows in overdue if len(rows) in (2, 3)])
    owner, board, body = tasks[0]["assigned_to_email"], tasks[0]["board"], rng.choice(MESSAGES)
    text = (
        f"{first_name(owner)} has overdue tasks (due before today) in progress on the {board} "
        f'board. Move all of these to "In Review", and send {first_name(owner)} an e-mail with the '
        f'subject "Overdue tasks" and the text "{body}"'
    )
    calls = [update(task, "list_name", "In Review") for task in tasks]
    return Draft("multiple", text, [*calls, send(owner, "Overdue tasks", body)], MULTIPLE_INTENTS)


def _plot_the_larger(rng: Random) -> Draft:
    day = TODAY - timedelta(days=rng.randint(5, 60))
    visits = [row for row in rows_of("analytics_data") if day_of(row["date_of_visit"]) == day]
    first, second = rng.sample(SOURCES, 2)
    counts = Counter(visit["traffic_source"] for visit in visits)
    chosen, kind = (first, "bar") if counts[first] > counts[second] else (second, "line")
    text = (
        f"If there were more {first} visits than {second} visits on {spoken(day)}, make a bar plot "
        f"of the {first} visits for that day and the two days after it. Otherwise make a line plot "
        f"of the {second} visits for the same days."
    )
    arguments = {
        "time_min": str(day),
        "time_max": str(day + timedelta(days=2)),
        "value_to_plot": f"visits_{chosen.replace(' ', '_')}",
        "plot_type": kind,
    }
    return Draft("analytics", text, [Call("analytics_create_plot", {**arguments})])


def _cancel_and_tell(rng: Random) -> Draft:
    participant, body, day = address_of(rng.choice(TEAM)), rng.choice(MESSAGES), coming_day(rng)
    event, board = next_event_with(participant), rng.choice(BOARDS)
    task = f"Discuss {rng.choice(THINGS[board])}"
    name = first_name(participant)
    text = (
        f'Cancel my next event with {name}. Send {name} an e-mail with the subject "Our meeting" '
        f'and the text "{body}" Instead, {name} gets a task "{task}" in the Backlog of the {board} '
        f"board, due on {spoken(day)}."
    )
    calls = [
        Call("calendar_delete_event", {"event_id": event["event_id"]}),
        send(participant, "Our meeting", body),
        create_task(task, participant, "Backlog", day, board),
    ]
    return Draft("multiple", text, calls, MULTIPLE_INTENTS)


def _give_up_or_follow_up(rng: Random) -> Draft:
    customer = customer_of(rng, status="Proposal")
    limit, day = TODAY - timedelta(days=90), coming_day(rng)
    owner, name = customer["assigned_to_email"], customer["customer_name"]
    if day_of(customer["last_contact_date"]) < limit:
        change, subject = update(customer, "status", "Lost"), "No answer"
    else:
        change, subject = update(customer, "follow_up_by", str(day)), "Please call again"
    text = (
        f'If {name} was last contacted before {limit.day} {limit:%B}, set their status to "Lost" '
        f'and e-mail whoever looks after them, with the subject "No answer". If not, set their '
        f'follow-up to {spoken(day)} and e-mail the same colleague, with the subject "Please call '
        f'again". The text is "It is about {name}." in both cases.'
    )
    return Draft(
        "multiple", text, [change, send(owner, subject, f"It is about {name}.")], MULTIPLE_INTENTS
    )


def _spread_the_work(rng: Random) -> Draft:
    board, day = rng.choice(BOARDS), coming_day(rng)
    tasks = [row for row in rows_of("project_tasks") if row["board"] == board]
    counts = Counter(row["assigned_to_email"] for row in tasks)
    first = address_of(rng.choice(TEAM))
    others = [known for known in map(address_of, TEAM) if counts[known] != counts[first]]
    second = rng.choice(others)
    chosen = min(first, second, key=lambda person: counts[person])
    task = f"Plan {rng.choice(THINGS[board])}"
    text = (
        f"Who has fewer tasks on the {board} board, all its lists taken together: "
        f"{first_name(first)} or {first_name(second)}? Give them a new task there, "
        f'"{task}", in the Backlog, due on '
        f"{spoken(day)}."
    )
    return Draft("project_management", text, [create_task(task, chosen, "Backlog", day, board)])


def _move_or_book(rng: Random) -> Draft:
    day, name, body = coming_day(rng), rng.choice(EVENTS), rng.choice(MESSAGES)
    events = events_on(day)
    # Half of the requests name somebody with an event on this day.
    present = rng.random() < 0.5
    participants = {event["participant_email"]: event for event in reversed(events)}
    absent = [known for known in map(address_of, TEAM) if known not in participants]
    person = rng.choice(sorted(participants) if present else absent)
    taken = {event["event_start"][11:16] for event in events}
    slot = rng.choice([slot for slot in SLOTS if slot not in taken])
    if present:
        change = update(participants[person], "event_start", f"{day} {slot}:00")
    else:
        change = create_event(name, person, day, slot, "60")
    text = (
        f"If I have an event with {first_name(person)} on {spoken(day)}, move the first one to "
        f"{slot} of that day. If I have none, book an hour with {first_name(person)} at {slot} as "
        f'"{name}". Either way, send {first_name(person)} an e-mail with the subject '
        f'"{spoken(day)}" and the text "{body}"'
    )
    return Draft("multiple", text, [change, send(person, spoken(day), body)], MULTIPLE_INTENTS)


def _hand_over(rng: Random) -> Draft:
    # One customer and one task, so that the turns suffice to look everything up.
    tasks = groups("project_tasks", ("assigned_to_email", "list_name", "board"))
    lone_tasks = [rows[0] for rows in tasks if len(rows) == 1]
    owners = {task["assigned_to_email"] for task in lone_tasks}
    customers = groups(CUSTOMERS, ("assigned_to_email", "product_interest"))
    lone_customers = [rows[0] for rows in customers if len(rows) == 1]
    customer = rng.choice([row for row in lone_customers if row["assigned_to_email"] in owners])
    old = customer["assigned_to_email"]
    task = rng.choice([row for row in lone_tasks if row["assigned_to_email"] == old])
    new = rng.choice([known for known in map(address_of, TEAM) if known != old])
    text = (
        f"{first_name(old)} hands over to {first_name(new)}: every customer who is interested in "
        f'{customer["product_interest"]}, and every task in the list "{task["list_name"]}" of the '
        f"{task['board']} board. Please reassign them."
    )
    calls = [update(row, "assigned_to_email", new) for row in (customer, task)]
    return Draft("multiple", text, calls, MULTIPLE_INTENTS)


def _pass_on_and_delete(rng: Random) -> Draft:
    email, (first, second) = email_of(rng), _two_people(rng)
    sender, identity = email["sender/recipient"], email["email_id"]
    recipient = second if first == sender else first
    text = (
        f'Take the last e-mail with the subject "{email["subject"]}" that {first_name(sender)} '
        f"sent me: forward it to {first_name(recipient)}, then delete it from my inbox."
    )
    calls = [
        Call("email_forward_email", {"email_id": identity, "recipient": recipient}),
        Call("email_delete_email", {"email_id": identity}),
    ]
    return Draft("email", text, calls)


HARD: tuple[Family, ...] = (
    _chase_overdue,
    _plot_the_larger,
    _cancel_and_tell,
    _give_up_or_follow_up,
    _spread_the_work,
    _move_or_book,
    _hand_over,
    _pass_on_and_delete,
)

PAGE = 50
"""Rows of a page, enough for everything of one colleague."""


def _dependent(category: str, text: str, calls: list[Call]) -> Draft:
    return Draft(category, text, calls, INFORMATION_DEPENDENCY)


def _find_customer(**fields: str) -> Call:
    return Call("customer_relationship_manager_search_customers", {**fields})


def _task(rng: Random) -> tuple[Row, str, Call]:
    """Return a task, its name in a request, and the call that finds it."""
    task = rng.choice(rows_of("project_tasks"))
    name, board = task["task_name"], task["board"]
    find = Call("project_management_search_tasks", {"task_name": name, "board": board})
    return task, f'the task "{name}" on the {board} board', find


def _participant(rng: Random) -> tuple[str, str, Call]:
    """Return whom Juno meets, their name in a request, and the call that finds the event."""
    event = rng.choice(events_on(coming_day(rng)))
    start = event["event_start"]
    find = Call("calendar_search_events", {"time_min": start, "time_max": start})
    who = f"the colleague whom I meet on {spoken(start)} at {start[11:16]}"
    return event["participant_email"], who, find


def _lone_customer(rng: Random, owner: str) -> tuple[Row, str, Call]:
    """Return a colleague's only customer of a kind, its description, and the call that finds it."""
    customers = groups(
        CUSTOMERS,
        ("product_interest", "status"),
        where=lambda row: row["assigned_to_email"] == owner,
    )
    customer = rng.choice([rows[0] for rows in customers if len(rows) == 1])
    product, status = customer["product_interest"], customer["status"]
    find = _find_customer(assigned_to_email=owner, product_interest=product, status=status)
    return customer, f'is interested in {product} and has the status "{status}"', find


def _write_to_caretaker(rng: Random) -> Draft:
    customer, body = customer_of(rng), rng.choice(MESSAGES)
    name = customer["customer_name"]
    text = (
        f'Send an e-mail to the colleague who looks after {name}, with the subject "{name}" and '
        f'the text "{body}"'
    )
    calls = [_find_customer(customer_name=name), send(customer["assigned_to_email"], name, body)]
    return _dependent("email", text, calls)


def _meet_assignee(rng: Random) -> Draft:
    (task, spoken_of, find), day, name = _task(rng), coming_day(rng), rng.choice(EVENTS)
    taken = {event["event_start"][11:16] for event in events_on(day)}
    slot = rng.choice([slot for slot in SLOTS if slot not in taken])
    text = (
        f"Book half an hour with the colleague who has {spoken_of}, on {spoken(day)} at {slot}, "
        f'as "{name}".'
    )
    calls = [find, create_event(name, task["assigned_to_email"], day, slot, "30")]
    return _dependent("calendar", text, calls)


def _give_participant_a_task(rng: Random) -> Draft:
    (participant, who, find), board, day = _participant(rng), rng.choice(BOARDS), coming_day(rng)
    name = f"Prepare {rng.choice(THINGS[board])}"
    text = (
        f'Create a task "{name}" in the Backlog of the {board} board, due on {spoken(day)}, for '
        f"{who}."
    )
    calls = [find, create_task(name, participant, "Backlog", day, board)]
    return _dependent("project_management", text, calls)


def _rename_event_with_caretaker(rng: Random) -> Draft:
    customer = customer_of(rng)
    owner = customer["assigned_to_email"]
    event = next_event_with(owner)
    name = rng.choice([name for name in EVENTS if name != event["event_name"]])
    text = (
        f"Call my next event with the colleague who looks after {customer['customer_name']} "
        f'"{name}" from now on.'
    )
    after_now = {"query": owner, "time_min": f"{TODAY} 23:59:00", "page_size": PAGE}
    calls = [
        _find_customer(customer_name=customer["customer_name"]),
        Call("calendar_search_events", {**after_now}),
        update(event, "event_name", name),
    ]
    return _dependent("calendar", text, calls)


def _answer_assignee(rng: Random) -> Draft:
    (task, spoken_of, find), body = _task(rng), rng.choice(MESSAGES)
    owner = task["assigned_to_email"]
    text = (
        f"Reply to the newest e-mail that I got from the colleague who has {spoken_of}. The text "
        f'of the reply: "{body}"'
    )
    identity = latest_email_from(owner)["email_id"]
    calls = [
        find,
        Call("email_search_emails", {"query": owner, "page_size": PAGE}),
        Call("email_reply_email", {"email_id": identity, "body": body}),
    ]
    return _dependent("email", text, calls)


def _set_status_for_participant(rng: Random) -> Draft:
    participant, who, find = _participant(rng)
    customer, kind, find_customer = _lone_customer(rng, participant)
    status = rng.choice([name for name in STATUSES if name != customer["status"]])
    text = f'One customer of {who} {kind}: set it to "{status}".'
    calls = [find, find_customer, update(customer, "status", status)]
    return _dependent("customer_relationship_manager", text, calls)


def _pass_customer_on(rng: Random) -> Draft:
    participant, who, find = _participant(rng)
    (customer, kind, find_customer), body = _lone_customer(rng, participant), rng.choice(MESSAGES)
    task, spoken_of, find_task = _task(rng)
    while task["assigned_to_email"] == participant:
        task, spoken_of, find_task = _task(rng)
    new = task["assigned_to_email"]
    text = (
        f"One customer of {who} {kind}. The colleague who has {spoken_of} "
        f"takes over that customer: please reassign them, and send the new colleague an e-mail "
        f'with the subject "A new customer" and the text "{body}"'
    )
    change = update(customer, "assigned_to_email", new)
    calls = [find, find_customer, find_task, change, send(new, "A new customer", body)]
    return _dependent("multiple", text, calls)


def _write_to_customer_of_assignee(rng: Random) -> Draft:
    (task, spoken_of, find), body, day = _task(rng), rng.choice(MESSAGES), coming_day(rng)
    owner = task["assigned_to_email"]
    customer, kind, find_customer = _lone_customer(rng, owner)
    product = customer["product_interest"]
    text = (
        f"The colleague who has {spoken_of} looks after one customer who {kind}. "
        f"Send this customer an e-mail, to the address that we have on file, with the "
        f'subject "{product}" and the text "{body}" Then set their follow-up to {spoken(day)}.'
    )
    calls = [
        find,
        find_customer,
        send(customer["customer_email"], product, body),
        update(customer, "follow_up_by", str(day)),
    ]
    return _dependent("multiple", text, calls)


def _forward_to_caretaker(rng: Random) -> Draft:
    participant, who, find = _participant(rng)
    others = [row for row in rows_of(CUSTOMERS) if row["assigned_to_email"] != participant]
    customer = rng.choice(others)
    name, identity = customer["customer_name"], latest_email_from(participant)["email_id"]
    text = (
        f"Take the newest e-mail that I got from {who}: forward it to the colleague who looks "
        f"after {name}, then delete it from my inbox."
    )
    arguments = {"email_id": identity, "recipient": customer["assigned_to_email"]}
    calls = [
        find,
        Call("email_search_emails", {"query": participant, "page_size": PAGE}),
        _find_customer(customer_name=name),
        Call("email_forward_email", {**arguments}),
        Call("email_delete_email", {"email_id": identity}),
    ]
    return _dependent("email", text, calls)


DEPENDENCY_LEVELS: Levels = (
    ("easy", (_write_to_caretaker, _meet_assignee, _give_participant_a_task)),
    ("medium", (_rename_event_with_caretaker, _answer_assignee, _set_status_for_participant)),
    ("hard", (_pass_customer_on, _write_to_customer_of_assignee, _forward_to_caretaker)),
)

NUMBERS = {2: "Two", 3: "Three"}
NEXT_YEAR = str(TODAY.year + 1)


def _unrelated(rng: Random, families: tuple[Family, ...], num: int) -> Draft:
    """Combine requests that change different tables, so that their order does not matter."""
    wishes: dict[str, Draft] = {}
    for family in rng.sample(families, len(families)):
        wish = family(rng)
        # A date with the next year would look like a mistake next to dates without a year.
        if NEXT_YEAR not in wish.text:
            wishes.setdefault(wish.category, wish)
    chosen = list(wishes.values())[:num]
    listing = "\n".join(f"{number}. {wish.text}" for number, wish in enumerate(chosen, start=1))
    calls = [call for wish in chosen for call in wish.calls]
    return Draft("multiple", f"{NUMBERS[num]} things:\n{listing}", calls, MULTIPLE_INTENTS)


def _two_named(rng: Random) -> Draft:
    return _unrelated(rng, EASY, 2)


def _two_looked_up(rng: Random) -> Draft:
    return _unrelated(rng, SHORT, 2)


def _three_looked_up(rng: Random) -> Draft:
    return _unrelated(rng, SHORT, 3)


INTENT_LEVELS: Levels = (
    ("easy", (_two_named,)),
    ("medium", (_two_looked_up,)),
    ("hard", (_three_looked_up,)),
)


def _row(number: int, difficulty: str, draft: Draft) -> JSONObject:
    return {
        "id": f"workplace-{number}",
        "difficulty": difficulty,
        "category": draft.category,
        "capability": draft.capability,
        "tables": "made_up",
        "messages": [
            {"role": "system", "content": INSTRUCTIONS},
            {"role": "user", "content": draft.text},
        ],
        "ground_truth": [
            {"name": call.name, "arguments": msgspec.json.encode(call.arguments).decode()}
            for call in draft.calls
        ],
    }


LEVELS: Levels = (("easy", EASY), ("medium", MEDIUM), ("hard", HARD))
PLAN: Levels = LEVELS * 20 + INTENT_LEVELS * 4 + DEPENDENCY_LEVELS * 4
"""The difficulty and the families of each row, repeated."""

INSTRUCTIONS = (
    "You are the assistant of Juno Hart, who works at Brightmoor. It is Thursday, 30 November "
    "2023, 23:59:00. Do what Juno asks for with the tools, and nothing beyond it. The directory "
    "has the addresses of Juno's colleagues; requests name them by their first names. Searches "
    "give their results in pages. Take over names, subjects and texts exactly as they are given, "
    "without the quotation marks around them. Say when you are done."
)
