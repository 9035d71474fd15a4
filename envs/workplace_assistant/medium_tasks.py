"""Medium requests: one wish, whose ids and addresses must be looked up first."""

from random import Random

from .company import SLOTS, address_of
from .customers import STATUSES
from .drafts import (
    CUSTOMERS,
    MESSAGES,
    Call,
    Draft,
    Family,
    coming_day,
    create_event,
    customer_of,
    email_of,
    events_on,
    first_name,
    groups,
    latest_email_from,
    next_event_with,
    rows_of,
    spoken,
    update,
)
from .projects import LISTS
from .vocabulary import EVENTS, TEAM

__all__ = ["MEDIUM", "SHORT"]


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
"""Those that take three calls at most: one address, one search, one change."""
