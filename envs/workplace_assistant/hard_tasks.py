"""Hard requests: conditions to be looked up, or several wishes that belong together."""

from collections import Counter
from datetime import timedelta
from random import Random

from .company import SLOTS, SOURCES, address_of
from .drafts import (
    CUSTOMERS,
    MESSAGES,
    MULTIPLE_INTENTS,
    TODAY,
    Call,
    Draft,
    Family,
    coming_day,
    create_event,
    create_task,
    customer_of,
    day_of,
    email_of,
    events_on,
    first_name,
    groups,
    next_event_with,
    rows_of,
    send,
    spoken,
    update,
)
from .projects import BOARDS
from .vocabulary import EVENTS, TEAM, THINGS

__all__ = ["HARD"]


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
    # Half of the time somebody whom the calendar has on this day.
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
    # One row of each, so that there are turns enough to look everything up.
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
