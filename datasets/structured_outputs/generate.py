"""Generates invented records in prose, and the format in which they are requested."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from gymcli import JSONObject

Difficulty = Literal["easy", "medium", "hard"]


class Theme(NamedTuple):
    """The names of one kind of record, its properties and its parts."""

    name: str
    person: str
    place: str
    amount: str
    measure: str
    flag: str
    words: str
    part: str
    entries: str
    entry_person: str
    entry_count: str


class Record(NamedTuple):
    """A record or a property: its schema, a valid value, and that value in prose."""

    schema: JSONObject
    gold: object
    prose: str


Maker: TypeAlias = Callable[[Random, str], Record]
"""A function that draws a property with this name."""


def generate(rng: Random, num: int) -> Iterator[JSONObject]:
    """Yield tasks; harder ones have more properties and deeper nesting."""
    themes = [Theme(*line.split()) for line in THEMES.strip().splitlines()]
    for number in range(num):
        difficulty = DIFFICULTIES[number % len(DIFFICULTIES)]
        place = number // len(DIFFICULTIES) % len(themes)
        theme, form = themes[place], FORMS[place % len(FORMS)]
        make = _table if form == "csv" else _tree
        record = make(rng, theme, difficulty)
        others = [other for other in themes if other is not theme]
        if form == "tool_call":
            fields = _call_fields(rng, theme, record, others, difficulty)
        else:
            fields = _text_fields(theme, record, form, is_schema_first=number % 2 == 1)
        yield {"id": f"record-{number}", "difficulty": difficulty, "theme": theme.name, **fields}


def _text_fields(
    theme: Theme, record: Record, form: str, *, is_schema_first: bool
) -> dict[str, object]:
    """Ask for text; the schema is in the prompt, before the record or after it."""
    schema, gold = record.schema, record.gold
    # An XML document has a single root element.
    if form == "xml":
        schema, gold = _object_schema({theme.name: schema}), {theme.name: gold}
    schema_text = msgspec.json.encode(schema).decode()
    parts = [f"Record of one {_words(theme.name)}:\n{record.prose}", f"JSON Schema:\n{schema_text}"]
    if is_schema_first:
        parts.reverse()
    request = (
        f"Write the record down as {form.upper()} that fits the JSON Schema. {HINTS[form]}Answer "
        f"with the {form.upper()} alone, without any explanation and without a code fence."
    )
    return {
        "prompt": "\n\n".join([*parts, request]),
        "schema_str": schema_text,
        "schema_type": form,
        "response_mode": "text",
        "gold": gold,
    }


def _call_fields(
    rng: Random, theme: Theme, record: Record, others: list[Theme], difficulty: Difficulty
) -> dict[str, object]:
    """Ask for a call of the right one of several tools; only the tool has the schema."""
    key = {"easy": None, "medium": "record", "hard": theme.name}[difficulty]
    shown = _object_schema({key: record.schema}) if key else record.schema
    wrong = rng.sample(others, NUM_WRONG_TOOLS[difficulty])
    tools = [_tool(other, _tree(rng, other, "easy").schema) for other in wrong]
    tools.append(_tool(theme, shown))
    rng.shuffle(tools)
    return {
        "prompt": (
            f"Record of one {_words(theme.name)}:\n{record.prose}\n\nHand the record over: call "
            "the tool that is made for it, once, and say nothing."
        ),
        "tools": tools,
        "num_tools": len(tools),
        "schema_str": msgspec.json.encode(record.schema).decode(),
        "schema_type": "json",
        "response_mode": "tool_call",
        "tool_name": f"save_{theme.name}",
        "tool_payload_key": key,
        "gold": record.gold,
    }


def _tool(theme: Theme, parameters: JSONObject) -> JSONObject:
    description = f"Save the record of one {_words(theme.name)}."
    function = {
        "name": f"save_{theme.name}",
        "description": description,
        "parameters": parameters,
    }
    return {"type": "function", "function": function}


def _tree(rng: Random, theme: Theme, difficulty: Difficulty) -> Record:
    """Draw a record: three plain properties, or more with a part and a list of entries."""
    makers: dict[str, Maker] = {theme.person: _person}
    if difficulty == "easy":
        makers |= {theme.amount: _count, theme.flag: _flag}
    elif difficulty == "medium":
        part = {theme.measure: _measure, theme.flag: _flag}
        makers |= {theme.amount: _count, theme.words: _several, theme.part: _nested(part)}
    else:
        part = {theme.measure: _measure, theme.flag: _flag, theme.words: _several}
        entry = {theme.entry_person: _person, theme.entry_count: _count}
        num_entries = rng.randint(2, 4)
        makers |= {theme.place: _place, theme.part: _nested(part)}
        makers[theme.entries] = _listed(entry, num_entries)
    record = _object(rng, makers)
    return record._replace(prose=_sentences(record.prose.split(CLAUSE)))


def _table(rng: Random, theme: Theme, difficulty: Difficulty) -> Record:
    """Draw a list of records with two, three or five columns."""
    columns: dict[str, Maker] = {theme.person: _person, theme.amount: _count}
    if difficulty != "easy":
        columns[theme.flag] = _flag
    if difficulty == "hard":
        columns |= {theme.place: _place, theme.amount: _count_if_known, theme.measure: _measure}
    record = _listed(columns, 2 + DIFFICULTIES.index(difficulty))(rng, theme.entries)
    return record._replace(prose=_sentences([record.prose]))


def _object(rng: Random, makers: Mapping[str, Maker]) -> Record:
    made = {name: make(rng, name) for name, make in makers.items()}
    return Record(
        _object_schema({name: found.schema for name, found in made.items()}),
        {name: found.gold for name, found in made.items()},
        CLAUSE.join(found.prose for found in made.values()),
    )


def _object_schema(properties: Mapping[str, JSONObject]) -> JSONObject:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _nested(makers: Mapping[str, Maker]) -> Maker:
    def make(rng: Random, name: str) -> Record:
        made = _object(rng, makers)
        prose = made.prose.replace(CLAUSE, ", ")
        return made._replace(prose=f"as for the {_words(name)}: {prose}")

    return make


def _listed(makers: Mapping[str, Maker], num_entries: int) -> Maker:
    def make(rng: Random, name: str) -> Record:
        made = [_object(rng, makers) for _ in range(num_entries)]
        schema: JSONObject = {"type": "array", "items": made[0].schema, "minItems": num_entries}
        entries = [entry.prose.replace(CLAUSE, ", ") for entry in made]
        prose = f"of the {_words(name)} there are {num_entries}: {'; '.join(entries)}"
        return Record(schema, [entry.gold for entry in made], prose)

    return make


def _person(rng: Random, name: str) -> Record:
    person = f"{rng.choice(FIRST_NAMES.split())} {rng.choice(LAST_NAMES.split())}"
    return Record({"type": "string"}, person, f"the {_words(name)} is {person}")


def _place(rng: Random, name: str) -> Record:
    place = f"{rng.choice(LAST_NAMES.split())} {rng.choice(PLACE_KINDS.split())}"
    return Record({"type": "string"}, place, f"the {_words(name)} is {place}")


def _count(rng: Random, name: str) -> Record:
    count = rng.randint(2, 400)
    schema: JSONObject = {"type": "integer", "minimum": 0}
    return Record(schema, count, f"the number of {_words(name)} is {count}")


def _count_if_known(rng: Random, name: str) -> Record:
    schema: JSONObject = {"type": ["integer", "null"], "minimum": 0}
    if rng.random() < 0.3:
        return Record(schema, None, f"the number of {_words(name)} is unknown")
    return _count(rng, name)._replace(schema=schema)


def _measure(rng: Random, name: str) -> Record:
    measure = rng.randint(11, 899) / 10
    what, _, unit = name.partition("_")
    prose = f"the {what} comes to {measure} {_words(unit)}"
    return Record({"type": "number"}, measure, prose)


def _flag(rng: Random, name: str) -> Record:
    flag = rng.random() < 0.5
    return Record({"type": "boolean"}, flag, f"it is {'' if flag else 'not '}{_words(name)}")


def _several(rng: Random, name: str) -> Record:
    *first, last = rng.sample(PLAIN_WORDS.split(), rng.randint(2, 4))
    schema: JSONObject = {"type": "array", "items": {"type": "string"}, "minItems": 1}
    return Record(schema, [*first, last], f"the {_words(name)} are {', '.join(first)} and {last}")


def _sentences(clauses: list[str]) -> str:
    return " ".join(f"{clause[0].upper()}{clause[1:]}." for clause in clauses)


def _words(name: str) -> str:
    return name.replace("_", " ")


CLAUSE = "\n"
"""Separates the clauses of an object until its parent decides how to join them."""

DIFFICULTIES: tuple[Difficulty, ...] = ("easy", "medium", "hard")
FORMS = ("json", "yaml", "xml", "toml", "csv", "tool_call")

NUM_WRONG_TOOLS: dict[Difficulty, int] = {"easy": 1, "medium": 2, "hard": 4}

HINTS = {
    "json": "",
    "yaml": "",
    "xml": "Each property is an element; of a list, each entry is an element of the list's name. ",
    "toml": "",
    "csv": "The first line names the columns; a value that is unknown is left empty. ",
}

FIRST_NAMES = "Ada Bela Cyra Dorin Edda Falk Greta Hanno Iris Jorin Kaja Levin Mara Orla Pavel"
LAST_NAMES = "Ashdown Birk Calder Dray Elmore Fenn Garrow Holt Ingram Karst Lomond Marl Sorrel Tamm"
PLACE_KINDS = "Bay Corner Cross Ford Gate Green Heath Hill Hollow Mill Point Row"
PLAIN_WORDS = "amber birch cobalt damson ember fennel ginger heather indigo juniper kelp lilac"

THEMES = """
lighthouse keeper harbour stairs range_miles lit lamp_colours tower visits guest nights
bakery baker street ovens flour_kilograms air_conditioned loaf_names kitchen orders customer loaves
orchard grower valley trees harvest_tonnes irrigated apple_sorts press pickings picker crates
ferry captain pier cabins speed_knots licensed pennant_colours engine crossings purser cars
museum curator quarter halls floor_hectares renovated exhibit_names vault tours guide visitors
choir conductor chapel singers session_hours well_paid song_names rehearsal concerts soloist encores
observatory astronomer hilltop lenses dome_metres automated star_names mirror nights observer hours
carpentry carpenter yard benches timber_cubic_metres insured wood_sorts saw commissions buyer chairs
vineyard vintner slope barrels rainfall_litres organic grape_names cellar tastings taster glasses
clinic doctor district beds budget_euros accredited ward_names pharmacy shifts nurse patients
railway engineer terminus wagons track_kilometres electrified stop_names signals runs driver halts
library librarian square shelves average_degrees heated section_names archive loans reader books
expedition leader camp tents altitude_kilometres sponsored route_names gear stages scout days
theatre director arcade seats stage_metres restored play_names lighting premieres actor bows
aquarium biologist quay tanks water_hectolitres salted fish_names filter feedings diver buckets
printery printer lane presses paper_reams audited type_names bindery jobs publisher copies
farm farmer county cows milk_hectolitres fenced field_names dairy deliveries dealer churns
airfield pilot plateau hangars runway_metres paved plane_names beacon flights passenger miles
pottery potter village moulds peak_degrees glazed clay_sorts kiln firings apprentice bowls
apiary beekeeper meadow hives honey_litres certified flower_names extractor swarms helper frames
regatta umpire lake boats course_kilometres televised team_names timing heats rower strokes
school head_teacher suburb classrooms garden_acres private club_names canteen lessons teacher pupils
post_office postmaster corner counters mail_kilograms guarded stamp_names lobby rounds courier notes
quarry foreman ridge trucks granite_tonnes flooded stone_sorts crusher blasts miner charges
"""
"""One kind of record per line, in the order of the fields of `Theme`."""
