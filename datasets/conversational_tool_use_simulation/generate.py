"""Generates businesses with tools, and what their customers want."""

from collections.abc import Iterator
from datetime import date, timedelta
from random import Random
from typing import NamedTuple

from gymcli import JSONObject

PROMPT = """You are a customer service representative and chat with one customer. Do what the \
policy below says, and nothing that it does not allow.

In each turn, either write to the customer or call tools, not both. The customer sees only what \
you write. Every fact that you tell, and every argument of a call, must come from the customer, \
from the tools or from the policy.

<policy>
{policy}
</policy>"""

POLICY = """# {name} in {place}

Today is {today}. Write days as here.

## Before you help

- You need the customer's **{identifier}** and **{item}**. Ask for what you were not told.
- Look the {record} up with `find_{record}` before you answer or change anything.

## What you may do

- Tell the day that the {record} says.
- {change_what} with `{change}`, where `num_changes` of the {record} is below {limit}.
- Where it is not: {substitute_what}, with `{substitute}`.
- After a change, tell the code that confirms it.

## Everything else

Any other request is for a colleague. Ask for the {identifier}, open a ticket with \
`open_handover`, then tell the customer the ticket and that you are transferring them. Nothing \
has to be looked up for that."""


class Domain(NamedTuple):
    """A business whose records can be changed a limited number of times."""

    name: str
    record: str
    identifier: str
    item: str
    items: tuple[str, ...]
    change: str
    """The tool that changes a record."""
    change_what: str
    substitute: str
    """The tool for a record that may not be changed any more."""
    substitute_what: str
    inquiry: str
    request: str
    beyond: str
    """A request that the policy does not cover."""


DOMAINS = (
    Domain(
        *("Public library", "loan", "card number", "book title"),
        ("The Salt Road", "Nine Winters", "A Field Guide to Moss", "Clockmakers of Ulm"),
        *("renew_loan", "Renew a loan by three weeks"),
        *("reserve_next_copy", "reserve the next copy of the book for the customer"),
        "I need to know by when I have to bring a book back.",
        "I have not finished a book and would like to keep it for longer.",
        "I want to dispute a fee for a water stain that was there before I borrowed the book.",
    ),
    Domain(
        *("Bike rental", "rental", "member number", "bike name"),
        ("Grey Heron", "Red Kite", "Blue Tit", "Black Swift", "Barn Owl"),
        *("extend_rental", "Extend a rental by two days"),
        *("swap_bike", "end the rental and start one of two days with another bike"),
        "Until which day may I keep the bike that I have rented?",
        "I would like to ride my rented bike for two more days.",
        "I fell with a rented bike and my insurance wants a damage report from you.",
    ),
    Domain(
        *("Repair shop", "repair", "customer number", "device"),
        ("toaster", "record player", "sewing machine", "table lamp", "coffee grinder"),
        *("postpone_pickup", "Postpone the pickup of a repair by a week"),
        *("book_delivery", "have the repaired device brought to the customer's home"),
        "When can I pick up what you are repairing for me?",
        "I cannot come on the day on which my repair is to be picked up.",
        "Something you repaired last year is broken again and I want my money back.",
    ),
    Domain(
        *("Ferry office", "ticket", "booking number", "crossing"),
        ("Skarv to Holm", "Holm to Skarv", "Tern Isle to Holm", "Skarv to Tern Isle"),
        *("move_ticket", "Move a ticket to the next day"),
        *("turn_into_voucher", "cancel the ticket and give a voucher of the same value"),
        "For which day is my ferry ticket?",
        "I cannot travel with the ferry on the day that I booked.",
        "I left a suitcase on board and nobody at the pier could help me.",
    ),
    Domain(
        *("Plant nursery", "order", "order number", "plant"),
        ("quince tree", "climbing rose", "blackcurrant bush", "fig tree", "wild hop"),
        *("delay_delivery", "Delay the delivery of an order by two weeks"),
        *("keep_in_greenhouse", "keep the plant in the greenhouse until spring"),
        "On which day will the plant that I ordered be delivered?",
        "My garden is not ready yet for the plant that I ordered.",
        "I have raised far too many tomato seedlings and want to sell some of them to you.",
    ),
)

LEVELS = ("easy", "medium", "hard")
"""A question; a change; a change over the limit, which needs the substitute."""

PERSONAS = {
    "A night nurse, tired and polite": "Good morning, I just came from a night shift.",
    "A student who writes in a hurry": "Hi, I only have a minute.",
    "A retired teacher, exact and friendly": "Good day to you.",
    "A father with a baby on his arm": "Hello, sorry if I am slow to answer.",
    "A baker who dislikes long talks": "Hello.",
    "A musician on tour": "Hi there, I am writing from the bus.",
}

PLACES = ("Lindholm", "Aberfell", "Castrova", "Port Merrin", "Ostwick", "Vale Harbour")

TEXT = {"type": "string"}


def generate(rng: Random, num: int) -> Iterator[JSONObject]:
    """Yield rows: domains, levels and profiles in turn, and every seventh beyond the policy."""
    # 7 and the 5 domains have no common factor, so each domain has requests beyond the policy.
    for number in range(num):
        domain, is_beyond = DOMAINS[number % 5], number % 7 == 6
        level = "medium" if is_beyond else LEVELS[number // 5 % 3]
        today, limit = date(2031, 1, 6) + timedelta(days=number), rng.randint(1, 4)
        facts = {domain.identifier: f"{domain.name[:2].upper()}-{rng.randrange(1000, 10000)}"}
        if not is_beyond:
            facts[domain.item] = rng.choice(domain.items)
        calls, report = _gold(rng, domain, facts, level=level, limit=limit, today=today)
        named = {**domain._asdict(), "place": rng.choice(PLACES), "limit": limit}
        policy = POLICY.format(**named, today=today.isoformat())
        persona = rng.choice(list(PERSONAS))
        wish = domain.inquiry if level == "easy" else domain.request
        yield {
            "id": f"simulation-{number}",
            "difficulty": level,
            "domain_name": domain.name.lower(),
            "profile": ("general", "proactive")[number // 15 % 2],
            "responses_create_params": {
                "input": [{"role": "system", "content": PROMPT.format(policy=policy)}]
            },
            "policy": policy,
            "tools": _tools(domain),
            "customer_scenario": {
                "customer_persona": persona,
                "representative_domain": domain.name,
                "reason_for_contact": f"{PERSONAS[persona]} {domain.beyond if is_beyond else wish}",
                "customer_details": ", ".join(f'{name} "{facts[name]}"' for name in facts),
                "unknown_info": f"You do not know what the record of your {domain.record} says.",
                "task_instructions": "Take what you are offered, a transfer too.",
                "outside_policy_scope": is_beyond,
            },
            "gold_calls": calls,
            "facts": facts,
            "report": report,
        }


def _gold(
    rng: Random, domain: Domain, facts: dict[str, str], *, level: str, limit: int, today: date
) -> tuple[list[JSONObject], str]:
    """Return the required calls with their results, and what the customer must be told."""
    named = {name.replace(" ", "_"): value for name, value in facts.items()}
    code, key = str(rng.randrange(10**5, 10**6)), f"{domain.record}_id"
    if domain.item not in facts:
        return [_call("open_handover", named, {"ticket": f"HT{code}"})], f"HT{code}"
    record: JSONObject = {
        key: f"{domain.record[0].upper()}{rng.randrange(10**5, 10**6)}",
        "day": (today + timedelta(days=rng.randint(2, 20))).isoformat(),
        "num_changes": limit if level == "hard" else rng.randrange(limit),
    }
    found = _call(f"find_{domain.record}", named, record)
    if level == "easy":
        return [found], str(record["day"])
    tool = domain.substitute if level == "hard" else domain.change
    return [found, _call(tool, {key: record[key]}, {"confirmation": f"OK{code}"})], f"OK{code}"


def _call(name: str, arguments: object, result: object) -> JSONObject:
    return {"name": name, "arguments": arguments, "result": result}


def _tools(domain: Domain) -> list[JSONObject]:
    record, key = domain.record, f"{domain.record}_id"
    identifier, item = (name.replace(" ", "_") for name in (domain.identifier, domain.item))
    found: JSONObject = {key: TEXT, "day": TEXT, "num_changes": {"type": "integer", "minimum": 0}}
    code: JSONObject = {"confirmation": TEXT}
    instead = domain.substitute_what.capitalize()
    return [
        _tool(f"find_{record}", f"Find a {record}", {identifier: TEXT, item: TEXT}, found),
        _tool(domain.change, domain.change_what, {key: TEXT}, code),
        _tool(domain.substitute, instead, {key: TEXT}, code),
        _tool(
            "open_handover", "Open a ticket for a colleague", {identifier: TEXT}, {"ticket": TEXT}
        ),
    ]


def _tool(name: str, what: str, parameters: JSONObject, returns: JSONObject) -> JSONObject:
    described = {"name": name, "description": f"{what}."}
    return {**described, "parameters": _object(parameters), "returns": _object(returns)}


def _object(properties: JSONObject) -> JSONObject:
    closed = {"required": list(properties), "additionalProperties": False}
    return {"type": "object", "properties": properties, **closed}
