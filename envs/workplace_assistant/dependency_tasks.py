"""Requests in which what one call finds is what the next one needs; the gold calls look it up."""

from random import Random

from .company import SLOTS
from .customers import STATUSES
from .drafts import (
    CUSTOMERS,
    INFORMATION_DEPENDENCY,
    MESSAGES,
    TODAY,
    Call,
    Draft,
    Levels,
    coming_day,
    create_event,
    create_task,
    customer_of,
    events_on,
    groups,
    latest_email_from,
    next_event_with,
    rows_of,
    send,
    spoken,
    update,
)
from .projects import BOARDS
from .source import Row
from .vocabulary import EVENTS, THINGS

__all__ = ["DEPENDENCY_LEVELS"]

PAGE = 50
"""Rows of a page: enough for all that one colleague has."""


def _dependent(category: str, text: str, calls: list[Call]) -> Draft:
    return Draft(category, text, calls, INFORMATION_DEPENDENCY)


def _find_customer(**fields: str) -> Call:
    return Call("customer_relationship_manager_search_customers", {**fields})


def _task(rng: Random) -> tuple[Row, str, Call]:
    """Give a task, how a request names it, and the call that finds it."""
    task = rng.choice(rows_of("project_tasks"))
    name, board = task["task_name"], task["board"]
    find = Call("project_management_search_tasks", {"task_name": name, "board": board})
    return task, f'the task "{name}" on the {board} board', find


def _participant(rng: Random) -> tuple[str, str, Call]:
    """Give whom Juno meets, how a request names them, and the call that finds the event."""
    event = rng.choice(events_on(coming_day(rng)))
    start = event["event_start"]
    find = Call("calendar_search_events", {"time_min": start, "time_max": start})
    who = f"the colleague whom I meet on {spoken(start)} at {start[11:16]}"
    return event["participant_email"], who, find


def _lone_customer(rng: Random, owner: str) -> tuple[Row, str, Call]:
    """Give a colleague's only customer of a kind, how a request says it, and the search."""
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
