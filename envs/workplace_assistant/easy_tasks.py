"""Easy requests: one action, with every id, address and time in the request."""

from random import Random

from .analytics import PLOT_TYPES, VALUES_TO_PLOT
from .company import SLOTS, address_of
from .customers import PRODUCTS, STATUSES
from .drafts import (
    MESSAGES,
    Call,
    Draft,
    Family,
    coming_day,
    create_event,
    create_task,
    rows_of,
    send,
    update,
)
from .projects import BOARDS, LISTS
from .vocabulary import EVENTS, TEAM, THINGS

__all__ = ["EASY"]


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
