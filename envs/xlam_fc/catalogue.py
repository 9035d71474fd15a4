"""The tools that tasks are made of, from eight domains."""

from .actions import Action, Lookup, id_of, one_of, title, whole

__all__ = ["ACTIONS", "LOOKUPS"]

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
