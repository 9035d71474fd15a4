"""The made-up company: the same tables in every process, from one seed."""

import functools
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, timedelta
from random import Random

from .customers import PRODUCTS, STATUSES
from .projects import BOARDS, LISTS
from .tables import Row, Source, labelled

__all__ = [
    "DOMAIN",
    "EVENTS",
    "FIRMS",
    "FIRST_NAMES",
    "LAST_NAMES",
    "NOTES",
    "SENTENCES",
    "SLOTS",
    "SOURCES",
    "SUBJECTS",
    "TEAM",
    "THINGS",
    "TOPICS",
    "WORK",
    "address_of",
    "made_up",
]

TEAM = (
    "Imara Voss",
    "Teodor Blom",
    "Wren Castellan",
    "Kofi Ansure",
    "Yuki Harrow",
    "Oona Feld",
    "Bastian Quill",
    "Samira Dellow",
    "Hugo Marchetti",
    "Petra Nkemelu",
    "Ingrid Sandoval",
    "Tamsin Okoro",
)
"""The colleagues; every first name is unique."""

TOPICS = (
    "Autumn catalogue",
    "Warehouse move",
    "Pricing page",
    "Supplier audit",
    "Parking plan",
    "Holiday rota",
    "Annual survey",
    "Server upgrade",
    "Trade fair stand",
    "Training budget",
    "Refund policy",
    "Plant delivery",
    "Customer study",
    "Delivery schedule",
    "Logo refresh",
)
SUBJECTS = (
    "{}: first draft",
    "{}: a question",
    "{}: what is left to do",
    "{}: the latest numbers",
    "{} is running late",
)
SENTENCES = (
    "Here is where the {} stands after this week.",
    "I have put my notes on the {} into the shared folder.",
    "Could you look over the {} before we talk?",
    "Two things about the {} still need a decision.",
    "The {} took longer than we had planned for.",
    "Nothing about the {} has changed since my last message.",
    "Finance asked again what the {} will cost.",
    "We should tell the others about the {} soon.",
)
EVENTS = (
    "Sprint planning",
    "Budget review",
    "Design critique",
    "Catch-up",
    "Hiring interview",
    "Release rehearsal",
    "Contract walk-through",
    "Support handover",
    "Roadmap session",
    "Security drill",
    "Supplier call",
    "Retrospective",
)
FIRST_NAMES = (
    "Alma",
    "Boris",
    "Celeste",
    "Dorian",
    "Edda",
    "Fergus",
    "Greta",
    "Hamza",
    "Isolde",
    "Jarek",
    "Kirsi",
    "Lorcan",
    "Maeve",
    "Nils",
    "Ottilie",
    "Pavel",
)
LAST_NAMES = (
    "Abernathy",
    "Bellweather",
    "Corrigan",
    "Drummond",
    "Eastlake",
    "Fairbairn",
    "Gallowglass",
    "Hollis",
    "Ironside",
    "Jessop",
    "Kestrel",
    "Lockwood",
    "Merriman",
    "Nightingale",
    "Ormsby",
    "Pemberton",
)
FIRMS = (
    "copperleaf.example",
    "dunmere.example",
    "farrowgate.example",
    "halcyonworks.example",
    "northbarn.example",
    "tidewater.example",
)
NOTES = (
    "Asked for a quote.",
    "Wants to see a demonstration.",
    "Waits for approval of the budget.",
    "Compares us with two others.",
    "Prefers to be called in the morning.",
)
WORK = {
    "Back end": (
        "Speed up",
        "Document",
        "Rewrite",
        "Test",
        "Monitor",
        "Secure",
        "Split",
        "Cache",
        "Move",
    ),
    "Front end": ("Restyle", "Translate", "Simplify", "Test", "Animate", "Fix", "Merge", "Resize"),
    "Design": ("Sketch", "Redraw", "Compare", "Present", "Colour", "Measure", "Polish", "Retire"),
}
THINGS = {
    "Back end": (
        "invoice export",
        "login service",
        "search index",
        "image store",
        "order queue",
        "report builder",
        "mail gateway",
        "backup job",
        "price feed",
        "audit log",
        "rate limiter",
        "session table",
    ),
    "Front end": (
        "checkout form",
        "product gallery",
        "profile page",
        "search bar",
        "site footer",
        "error banner",
        "cookie notice",
        "order history",
        "landing page",
        "help panel",
        "basket icon",
        "filter menu",
    ),
    "Design": (
        "icon set",
        "colour palette",
        "poster series",
        "packaging label",
        "welcome screen",
        "annual report",
        "trade fair banner",
        "brand guide",
        "size chart",
        "loading picture",
        "name badge",
        "gift card",
    ),
}

SEED = 20231130
NUM_EMAILS = 500
NUM_EVENTS = 300
NUM_VISITS = 1000
NUM_CUSTOMERS = 200
DOMAIN = "brightmoor.example"

SOURCES = ("direct", "referral", "search engine", "social media")
SLOTS = ("09:00", "10:30", "12:00", "13:30", "15:00", "16:30")
"""Start times of calendar events; none is longer than 90 minutes, so they never overlap."""


@functools.cache
def made_up() -> Source:
    """Return the tables of the company, made once per process."""
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
    """Return the e-mail address of a name: juno.hart@brightmoor.example."""
    return f"{name.lower().replace(' ', '.')}@{domain}"


def _numbered(key: str, rows: list[Row], rng: Random) -> Iterator[Row]:
    """Number rows in random order, so that ids do not reveal dates."""
    rng.shuffle(rows)
    for number, row in enumerate(rows):
        yield {key: f"{number:08}", **row}


def _emails(rng: Random) -> Iterator[Row]:
    # No two at the same time, so that "the latest" always names one of them.
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
