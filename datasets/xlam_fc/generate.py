"""Generates requests for calls of tools from eight domains, with the tools to choose from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from random import Random
from typing import Literal, NamedTuple

from gymcli import JSONObject


def generate(rng: Random, num: int) -> Iterator[JSONObject]:
    """Yield requests for one call, for two calls of a tool, and for up to four of several tools."""
    seen: set[str] = set()
    for number in range(num):
        difficulty = DIFFICULTIES[number % len(DIFFICULTIES)]
        wishes, text = asked_anew(rng, partial(_wishes, rng, difficulty), seen)
        yield {
            "id": f"calls-{number}",
            "difficulty": difficulty,
            "messages": [
                {"role": "system", "content": INSTRUCTIONS},
                {"role": "user", "content": text},
            ],
            "tools": shown_tools(
                rng,
                [one.action for one in wishes],
                num_others=NUM_OTHERS[difficulty],
                has_siblings=difficulty == "hard",
            ),
            "expected_answers": [one.call for one in wishes],
        }


class Parameter(NamedTuple):
    """An argument of a tool, and its possible values."""

    schema: JSONObject
    choices: Sequence[str | int]
    noun: str = ""
    """For ids: the word before the value in the request."""
    prefix: str = ""
    """For ids: the beginning of the value."""

    def drawn(self, rng: Random) -> str | int:
        """Draw a value."""
        choice = rng.choice(self.choices)
        return f"{self.prefix}{choice}" if self.prefix else choice


class Action(NamedTuple):
    """A tool, and how a request asks for it."""

    domain: str
    name: str
    description: str
    phrase: str
    """The request in the imperative, with a placeholder for each required argument."""
    parameters: Mapping[str, Parameter]
    clause: str = ""
    """Follows the phrase to set the last, optional argument; empty if all are required."""

    @property
    def required(self) -> list[str]:
        """The names of the arguments that every call has."""
        names = list(self.parameters)
        return names[:-1] if self.clause else names

    @property
    def tool(self) -> JSONObject:
        """The tool in chat shape."""
        schema = {
            "type": "object",
            "properties": {name: found.schema for name, found in self.parameters.items()},
            "required": self.required,
            "additionalProperties": False,
        }
        function = {"name": self.name, "description": self.description, "parameters": schema}
        return {"type": "function", "function": function}


class Lookup(NamedTuple):
    """A tool that returns an id, and the one that takes it as its first argument."""

    find: Action
    use: Action

    @property
    def id_name(self) -> str:
        """The name of the id in the result of the one and the arguments of the other."""
        return next(iter(self.use.parameters))


def one_of(description: str, values: str) -> Parameter:
    """Return a parameter that is one of these words."""
    words = values.split()
    schema: JSONObject = {"type": "string", "enum": words, "description": description}
    return Parameter(schema, words)


def whole(description: str, low: int, high: int) -> Parameter:
    """Return a parameter that is an integer from `low` to `high`, both included."""
    schema: JSONObject = {
        "type": "integer",
        "minimum": low,
        "maximum": high,
        "description": description,
    }
    return Parameter(schema, range(low, high + 1))


def title(description: str, first: str, second: str) -> Parameter:
    """Return a parameter that is a text: one of the first words with one of the second."""
    titles = [f"{one} {other}" for one in first.split() for other in second.split()]
    return Parameter({"type": "string", "description": description}, titles)


def id_of(noun: str, prefix: str) -> Parameter:
    """Return a parameter that is an id which another tool finds."""
    description = f"Id of the {noun}, a letter and four digits."
    return Parameter(
        {"type": "string", "description": description}, range(1000, 10_000), noun, prefix
    )


CITIES = "Bergen Cusco Dakar Faro Galway Hanoi Izmir Lima Nantes Oulu Porto Quito Riga Turin"
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
ADJECTIVES = "Amber Broken Crimson Distant Early Frozen Golden Hidden Last Paper Quiet Silver"
NOUNS = "Anchor Bridge Candle Door Echo Field Harbour Island Journey Lantern Mirror River"
FIRST_NAMES = "Ada Bela Cyra Dorin Edda Falk Greta Hanno Iris Jorin Kaja Levin"
LAST_NAMES = "Ashdown Birk Calder Dray Elmore Fenn Garrow Holt Ingram Karst Lomond Marl"

FIND_BOOK = Action(
    "library",
    "find_book",
    "Look up a book by its title and get its book_id.",
    'look up the book "{title}"',
    {"title": title("Title of the book.", ADJECTIVES, NOUNS)},
)
RESERVE_BOOK = Action(
    "library",
    "reserve_book",
    "Put a book aside for a number of days.",
    "reserve {book_id} for {days} days",
    {"book_id": id_of("book", "B"), "days": whole("How long, in days.", 2, 30)},
)
FIND_TRAIN = Action(
    "travel",
    "find_train",
    "Find the next train to a city on a day and get its train_id.",
    "find the train to {city} on {day}",
    {"city": one_of("Where to.", CITIES), "day": one_of("Day of departure.", DAYS)},
)
BOOK_SEATS = Action(
    "travel",
    "book_seats",
    "Book seats on a train.",
    "book {seats} seats on {train_id}",
    {"train_id": id_of("train", "T"), "seats": whole("Number of seats.", 2, 12)},
)
FIND_RECIPE = Action(
    "kitchen",
    "find_recipe",
    "Look up the recipe of a dish and get its recipe_id.",
    'look up the recipe of "{dish}"',
    {"dish": title("Name of the dish.", "baked cold green spiced sweet", "beans rice soup tart")},
)
PLAN_MEAL = Action(
    "kitchen",
    "plan_meal",
    "Put a recipe on the meal plan.",
    "plan {recipe_id} for {day} for {guests} guests",
    {
        "recipe_id": id_of("recipe", "R"),
        "day": one_of("Day of the meal.", DAYS),
        "guests": whole("Number of guests.", 2, 40),
    },
)
FIND_PLANT = Action(
    "garden",
    "find_plant",
    "Look up a plant by its name and get its plant_id.",
    'look up the plant "{plant}"',
    {"plant": title("Name of the plant.", "alpine dwarf winter wild", "clover mint poppy thyme")},
)
ORDER_SEEDLINGS = Action(
    "garden",
    "order_seedlings",
    "Order seedlings of a plant.",
    "order {count} seedlings of {plant_id}",
    {"plant_id": id_of("plant", "P"), "count": whole("Number of seedlings.", 5, 90)},
)
FIND_SONG = Action(
    "music",
    "find_song",
    "Look up a song by its title and get its song_id.",
    'look up the song "{title}"',
    {"title": title("Title of the song.", ADJECTIVES, NOUNS)},
)
QUEUE_SONG = Action(
    "music",
    "queue_song",
    "Play a song several times on the speaker of a room.",
    "play {song_id} {times} times in the {room}",
    {
        "song_id": id_of("song", "S"),
        "times": whole("How often.", 2, 9),
        "room": one_of("Room of the speaker.", "attic cellar hall kitchen studio"),
    },
)
FIND_EXHIBIT = Action(
    "museum",
    "find_exhibit",
    "Look up an exhibit by its name and get its exhibit_id.",
    'look up the exhibit "{name}"',
    {"name": title("Name of the exhibit.", ADJECTIVES, NOUNS)},
)
BOOK_TOUR = Action(
    "museum",
    "book_tour",
    "Book a guided tour to an exhibit.",
    "book a tour to {exhibit_id} for {visitors} visitors",
    {"exhibit_id": id_of("exhibit", "E"), "visitors": whole("Number of visitors.", 2, 60)},
)
FIND_CLASS = Action(
    "sport",
    "find_class",
    "Find the class of a trainer and get its class_id.",
    'find the class of "{trainer}"',
    {"trainer": title("Full name of the trainer.", FIRST_NAMES, LAST_NAMES)},
)
JOIN_CLASS = Action(
    "sport",
    "join_class",
    "Sign up for a class.",
    "sign me up for {class_id} for {weeks} weeks",
    {"class_id": id_of("class", "C"), "weeks": whole("How long, in weeks.", 2, 20)},
)
FIND_PARCEL = Action(
    "post",
    "find_parcel",
    "Find the parcel of a sender and get its parcel_id.",
    'find the parcel of "{sender}"',
    {"sender": title("Full name of the sender.", FIRST_NAMES, LAST_NAMES)},
)
SEND_PARCEL_ON = Action(
    "post",
    "send_parcel_on",
    "Have a parcel sent on to another city.",
    "send {parcel_id} on to {city} on {day}",
    {
        "parcel_id": id_of("parcel", "K"),
        "city": one_of("Where to.", CITIES),
        "day": one_of("Day of delivery.", DAYS),
    },
)

LOOKUPS = [
    Lookup(FIND_BOOK, RESERVE_BOOK),
    Lookup(FIND_TRAIN, BOOK_SEATS),
    Lookup(FIND_RECIPE, PLAN_MEAL),
    Lookup(FIND_PLANT, ORDER_SEEDLINGS),
    Lookup(FIND_SONG, QUEUE_SONG),
    Lookup(FIND_EXHIBIT, BOOK_TOUR),
    Lookup(FIND_CLASS, JOIN_CLASS),
    Lookup(FIND_PARCEL, SEND_PARCEL_ON),
]

OTHERS = [
    Action(
        "library",
        "book_study_room",
        "Book a study room.",
        "book a study room on {day} for {hours} hours",
        {
            "day": one_of("Day of the booking.", DAYS),
            "hours": whole("How long, in hours.", 2, 9),
            "desks": whole("Desks that are needed; only where a number is asked for.", 2, 30),
        },
        " with {desks} desks",
    ),
    Action(
        "travel",
        "book_hotel",
        "Book a hotel room.",
        "book a hotel in {city} for {nights} nights",
        {
            "city": one_of("Where.", CITIES),
            "nights": whole("Number of nights.", 2, 21),
            "max_price": whole("Most that a night may cost; only where it is said.", 40, 300),
        },
        " at {max_price} euros a night at most",
    ),
    Action(
        "kitchen",
        "buy_ingredient",
        "Put an ingredient on the shopping list.",
        "buy {grams} grams of {item}",
        {
            "item": one_of("Ingredient.", "barley butter flour honey lentils oats raisins yeast"),
            "grams": whole("Amount, in grams.", 50, 2000),
        },
    ),
    Action(
        "kitchen",
        "heat_oven",
        "Heat the oven.",
        "heat the oven to {degrees} degrees",
        {
            "degrees": whole("Temperature, in degrees Celsius.", 60, 250),
            "minutes": whole("Minutes until it turns off; only where it is said.", 5, 120),
        },
        " for {minutes} minutes",
    ),
    Action(
        "garden",
        "water_bed",
        "Water a bed of the garden.",
        "water the {bed} bed for {minutes} minutes",
        {
            "bed": one_of("What grows in the bed.", "bean berry herb onion rose tulip"),
            "minutes": whole("How long, in minutes.", 3, 90),
        },
    ),
    Action(
        "garden",
        "mow_lawn",
        "Mow the lawn.",
        "mow the lawn on {day}",
        {
            "day": one_of("Day of the work.", DAYS),
            "height": whole("Height to cut to, in millimetres; only where it is said.", 20, 90),
        },
        " to a height of {height} millimetres",
    ),
    Action(
        "music",
        "set_volume",
        "Set the volume of a speaker.",
        "set the volume in the {room} to {percent} percent",
        {
            "room": one_of("Room of the speaker.", "attic cellar hall kitchen studio"),
            "percent": whole("Volume, in percent.", 5, 95),
        },
    ),
    Action(
        "music",
        "rent_instrument",
        "Rent a musical instrument.",
        "rent a {instrument} for {days} days",
        {
            "instrument": one_of("What to rent.", "banjo cello flute harp trumpet viola"),
            "days": whole("How long, in days.", 2, 60),
            "deposit": whole("Deposit in euros; only where one is agreed.", 20, 400),
        },
        " with a deposit of {deposit} euros",
    ),
    Action(
        "museum",
        "reserve_locker",
        "Reserve a locker in a hall of the museum.",
        "reserve a locker in the {hall} hall for {hours} hours",
        {
            "hall": one_of("Hall of the museum.", "east north south west"),
            "hours": whole("How long, in hours.", 2, 9),
        },
    ),
    Action(
        "museum",
        "order_posters",
        "Order posters from the museum's shop.",
        'order {count} posters of "{motif}"',
        {
            "motif": title("What the poster shows.", ADJECTIVES, NOUNS),
            "count": whole("Number of posters.", 2, 50),
        },
    ),
    Action(
        "sport",
        "log_run",
        "Write a run into the training diary.",
        "log a run of {metres} metres",
        {
            "metres": whole("Length of the run, in metres.", 800, 42000),
            "minutes": whole("Minutes that it took; only where it is said.", 5, 300),
        },
        " in {minutes} minutes",
    ),
    Action(
        "post",
        "buy_stamps",
        "Buy stamps of one colour.",
        "buy {count} {colour} stamps",
        {
            "colour": one_of("Colour of the stamps.", "blue green grey orange red violet"),
            "count": whole("Number of stamps.", 2, 200),
        },
    ),
    Action(
        "post",
        "rent_box",
        "Rent a post box.",
        "rent a post box in {city} for {months} months",
        {
            "city": one_of("Where.", CITIES),
            "months": whole("How long, in months.", 2, 36),
            "size": one_of("Size; only where one is asked for.", "small medium large"),
        },
        " of the {size} size",
    ),
]

ACTIONS = [*(lookup.find for lookup in LOOKUPS), *(lookup.use for lookup in LOOKUPS), *OTHERS]
"""Every tool."""

Difficulty = Literal["easy", "medium", "hard"]
DIFFICULTIES: tuple[Difficulty, ...] = ("easy", "medium", "hard")


class Wish(NamedTuple):
    """A call and the words that ask for it."""

    action: Action
    arguments: JSONObject
    words: str

    @property
    def call(self) -> JSONObject:
        """The call, its arguments an object."""
        return {"name": self.action.name, "arguments": self.arguments}


def drawn(rng: Random, action: Action, *, is_full: bool = False, known_id: str = "") -> Wish:
    """Draw a call of a tool.

    Args:
        rng: The only source of chance.
        action: The tool.
        is_full: Whether to set the optional argument.
        known_id: The first argument, if a look-up returned it; the words then refer to it without
            naming it.

    """
    values: dict[str, object] = {}
    words: dict[str, str] = {}
    for name in action.parameters if is_full else action.required:
        parameter = action.parameters[name]
        value = parameter.drawn(rng)
        if known_id and not values:
            values[name], words[name] = known_id, f"the {parameter.noun}"
        else:
            values[name], words[name] = value, f"{parameter.noun} {value}".strip()
    phrase = action.phrase + (action.clause if is_full else "")
    return Wish(action, values, phrase.format(**words))


def drawn_apart(rng: Random, actions: Sequence[Action]) -> list[Wish]:
    """Draw different calls of these tools, the first one of each with its optional argument."""
    wishes: list[Wish] = []
    for action in actions:
        is_full = all(action is not other.action for other in wishes)
        one = drawn(rng, action, is_full=is_full)
        while any(one.call == other.call for other in wishes):
            one = drawn(rng, action, is_full=is_full)
        wishes.append(one)
    rng.shuffle(wishes)
    return wishes


def asked_anew(
    rng: Random, draw: Callable[[], list[Wish]], seen: set[str]
) -> tuple[list[Wish], str]:
    """Draw wishes until their text is not in `seen`, then add it there."""
    while (text := _asked(rng, wishes := draw())) in seen:
        pass
    seen.add(text)
    return wishes, text


def shown_tools(
    rng: Random, needed: Sequence[Action], *, num_others: int, has_siblings: bool = False
) -> list[JSONObject]:
    """Return the needed tools and others, each once, in any order.

    Args:
        rng: The only source of chance.
        needed: The needed tools; one may be listed twice.
        num_others: The number of other tools.
        has_siblings: Whether the other tools are taken from the same domains first, or last.

    """
    wanted = {action.name: action for action in needed}
    domains = {action.domain for action in needed}
    others = [a for a in rng.sample(ACTIONS, len(ACTIONS)) if a.name not in wanted]
    # False sorts before True, and the sort keeps the random order within each half.
    others.sort(key=lambda action: (action.domain in domains) != has_siblings)
    shown = [*wanted.values(), *others[:num_others]]
    rng.shuffle(shown)
    return [action.tool for action in shown]


def _asked(rng: Random, wishes: Sequence[Wish]) -> str:
    """Return the text that asks for one call or several."""
    *first, last = [one.words for one in wishes]
    if not first:
        return rng.choice(ONE_WISH).format(last)
    return rng.choice(SEVERAL_WISHES).format(f"{'; '.join(first)}; and {last}")


ONE_WISH = ["Please {}.", "Could you {}?", "I need you to {}.", "Can you {} for me?"]
SEVERAL_WISHES = [
    "Please do all of this: {}.",
    "I need several things done: {}.",
    "Here is what I want from you: {}.",
]


def _wishes(rng: Random, difficulty: Difficulty) -> list[Wish]:
    """Draw the calls; medium and hard requests have two calls of one tool."""
    if difficulty == "easy":
        actions = [rng.choice(ACTIONS)]
    elif difficulty == "medium":
        actions = [rng.choice(ACTIONS)] * 2
    else:
        actions = rng.sample(ACTIONS, rng.randint(2, 3))
        actions.append(actions[0])
    return drawn_apart(rng, actions)


INSTRUCTIONS = (
    "You have tools for what people ask of you. Make every call that the request needs, each once "
    "and all in one message. Take names, words and numbers as they stand in the request, and leave "
    "out arguments that it says nothing of."
)
NUM_OTHERS: dict[Difficulty, int] = {"easy": 2, "medium": 4, "hard": 8}
