"""Generates databases, questions about them, and the queries that answer these."""

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import date, timedelta
from random import Random
from typing import NamedTuple

from gymcli import JSONObject
from gymcli.envs.bird_sql.database import Database

Table = Sequence[tuple[str | int | float | None, ...]]
Tables = dict[str, Table]
"""Rows by the name of their table."""
Words = dict[str, str | int | float]
"""Values for the placeholders of a question and its query."""


class Question(NamedTuple):
    """A question and the query that answers it, both with placeholders in braces."""

    difficulty: str
    text: str
    query: str


class Schema(NamedTuple):
    """A kind of database."""

    name: str
    subject: str
    """The owner of the database, as the prompt names it."""
    ddl: str
    fill: Callable[[Random], Tables]
    choose: Callable[[Random, Tables], Words]
    questions: tuple[Question, ...]


def some_day(rng: Random, first: date, num: int) -> str:
    """Return one of `num` days from `first` on, as YYYY-MM-DD."""
    return str(first + timedelta(days=rng.randrange(num)))


PEOPLE = (
    "Ada Quill",
    "Bruno Seidel",
    "Carla Mendes",
    "Dario Novak",
    "Edda Lund",
    "Farid Osman",
    "Greta Holm",
    "Henk Visser",
    "Ilse Krantz",
    "Jonas Petri",
    "Kaya Demir",
    "Lucia Romano",
    "Mateo Rios",
    "Nadia Haddad",
    "Oskar Lindt",
    "Paula Reyes",
)

BAKERY_DDL = """\
CREATE TABLE products (
    product_id INTEGER PRIMARY KEY,
    product TEXT NOT NULL,
    kind TEXT NOT NULL, -- 'bread', 'roll' or 'cake'
    cents INTEGER NOT NULL -- the price of one
);
CREATE TABLE customers (
    customer_id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    district TEXT NOT NULL
);
CREATE TABLE orders (
    order_id INTEGER PRIMARY KEY,
    customer_id INTEGER NOT NULL REFERENCES customers (customer_id),
    ordered_on TEXT NOT NULL, -- YYYY-MM-DD
    delivered INTEGER NOT NULL -- 1 or 0
);
CREATE TABLE order_lines (
    order_id INTEGER NOT NULL REFERENCES orders (order_id),
    product_id INTEGER NOT NULL REFERENCES products (product_id),
    quantity INTEGER NOT NULL,
    PRIMARY KEY (order_id, product_id)
);"""

PRODUCTS = {
    "bread": ("rye loaf", "farmhouse loaf", "walnut loaf", "spelt loaf", "tin loaf"),
    "roll": ("poppy roll", "cheese roll", "plain roll", "pretzel roll"),
    "cake": ("plum cake", "almond slice", "carrot cake", "cheesecake", "apple strudel"),
}
CENTS = {"bread": (320, 690), "roll": (60, 180), "cake": (240, 560)}
DISTRICTS = ("Old Town", "Riverside", "Mill Hill", "Station Quarter")


def _filled_bakery(rng: Random) -> Tables:
    products = [
        (product, kind, rng.randrange(*CENTS[kind], 10))
        for kind, names in PRODUCTS.items()
        for product in rng.sample(names, 3)
    ]
    names = rng.sample(PEOPLE, 9)
    # The last customer orders nothing and the last product is in no order, so that questions about
    # what is absent have an answer. Questions name only customers who may order.
    orders = [
        (number, rng.randint(1, 8), some_day(rng, date(2025, 2, 1), 56), int(rng.random() < 0.7))
        for number in range(1, 19)
    ]
    lines = [
        (order[0], product, rng.randint(1, 12))
        for order in orders
        for product in sorted(rng.sample(range(1, 9), rng.randint(1, 3)))
    ]
    return {
        "products": [(number, *rest) for number, rest in enumerate(products, start=1)],
        "customers": [
            (number, name, rng.choice(DISTRICTS)) for number, name in enumerate(names, 1)
        ],
        "orders": orders,
        "order_lines": lines,
    }


def _chosen_bakery(rng: Random, tables: Tables) -> Words:
    return {
        "kind": rng.choice(list(PRODUCTS)),
        "product": str(rng.choice(tables["products"])[1]),
        "customer": str(tables["customers"][rng.randrange(8)][1]),
        "district": rng.choice(DISTRICTS),
        "day": some_day(rng, date(2025, 2, 14), 36),
        "cents": rng.randrange(110, 520, 10),
        "num": rng.randint(3, 9),
        "total": rng.randint(10, 30),
    }


BAKERY = Schema(
    "bakery",
    "a bakery",
    BAKERY_DDL,
    _filled_bakery,
    _chosen_bakery,
    (
        Question(
            "easy",
            "Which products cost less than {cents} cents? Give product and price.",
            "SELECT product, cents FROM products WHERE cents < {cents}",
        ),
        Question(
            "easy",
            "Which customers live in the district {district}? Give their names.",
            "SELECT name FROM customers WHERE district = '{district}'",
        ),
        Question(
            "easy",
            "How many cents do all products of the kind {kind} cost together, one of each?",
            "SELECT SUM(cents) FROM products WHERE kind = '{kind}'",
        ),
        Question(
            "easy",
            "Give the number and the day of every order from before {day} that has not been "
            "delivered.",
            "SELECT order_id, ordered_on FROM orders WHERE delivered = 0 AND ordered_on < '{day}'",
        ),
        Question(
            "medium",
            "How many pieces of each product did customers from {district} order? Give the product "
            "and the pieces, without products that they did not order.",
            "SELECT product, SUM(quantity) FROM order_lines JOIN products USING (product_id) "
            "JOIN orders USING (order_id) JOIN customers USING (customer_id) "
            "WHERE district = '{district}' GROUP BY product_id",
        ),
        Question(
            "medium",
            "What does each order of {customer} cost? Give the order's number and the cents.",
            "SELECT order_id, SUM(quantity * cents) FROM order_lines "
            "JOIN products USING (product_id) JOIN orders USING (order_id) "
            "JOIN customers USING (customer_id) WHERE name = '{customer}' GROUP BY order_id",
        ),
        Question(
            "medium",
            "Who ordered at least {num} pieces of one product in a single order? Give the "
            "customer's name and the product.",
            "SELECT DISTINCT name, product FROM order_lines JOIN products USING (product_id) "
            "JOIN orders USING (order_id) JOIN customers USING (customer_id) "
            "WHERE quantity >= {num}",
        ),
        Question(
            "medium",
            "Which products were ordered more than {total} times, counting every piece? Give the "
            "product and the pieces.",
            "SELECT product, SUM(quantity) FROM order_lines JOIN products USING (product_id) "
            "GROUP BY product_id HAVING SUM(quantity) > {total}",
        ),
        Question(
            "hard",
            "Which customers have never ordered anything of the kind {kind}? Give name and "
            "district; customers without any order count too.",
            "SELECT name, district FROM customers AS customer WHERE NOT EXISTS (SELECT 1 "
            "FROM orders JOIN order_lines USING (order_id) JOIN products USING (product_id) "
            "WHERE orders.customer_id = customer.customer_id AND kind = '{kind}')",
        ),
        Question(
            "hard",
            "Which orders from {day} or later cost more than the average order in all, the average "
            "being taken over all orders of any day? Give the order's number and its cents.",
            "WITH sums AS (SELECT order_id, ordered_on, SUM(quantity * cents) AS cost "
            "FROM order_lines JOIN products USING (product_id) JOIN orders USING (order_id) "
            "GROUP BY order_id) SELECT order_id, cost FROM sums "
            "WHERE ordered_on >= '{day}' AND cost > (SELECT AVG(cost) FROM sums)",
        ),
        Question(
            "hard",
            "For each district, how many pieces of the kind {kind} and how many pieces of all "
            "other kinds were ordered? Give the district and the two numbers, 0 where there were "
            "none, and leave out districts without any order.",
            "SELECT district, SUM(CASE WHEN kind = '{kind}' THEN quantity ELSE 0 END), "
            "SUM(CASE WHEN kind <> '{kind}' THEN quantity ELSE 0 END) FROM order_lines "
            "JOIN products USING (product_id) JOIN orders USING (order_id) "
            "JOIN customers USING (customer_id) GROUP BY district",
        ),
        Question(
            "hard",
            "Which products stand in an order together with the {product}? Give the product and "
            "the number of orders that hold both.",
            "SELECT other.product, COUNT(*) FROM order_lines AS line JOIN products "
            "USING (product_id) JOIN order_lines AS pair ON pair.order_id = line.order_id "
            "AND pair.product_id <> line.product_id JOIN products AS other "
            "ON other.product_id = pair.product_id WHERE products.product = '{product}' "
            "GROUP BY other.product_id",
        ),
    ),
)

BICYCLES_DDL = """\
CREATE TABLE bicycles (
    bicycle_id INTEGER PRIMARY KEY,
    model TEXT NOT NULL,
    kind TEXT NOT NULL, -- 'city', 'cargo', 'mountain' or 'racing'
    bought INTEGER NOT NULL, -- the year
    euros_a_day INTEGER NOT NULL
);
CREATE TABLE riders (
    rider_id INTEGER PRIMARY KEY,
    rider TEXT NOT NULL,
    recommended_by INTEGER REFERENCES riders (rider_id) -- NULL where nobody did
);
CREATE TABLE rentals (
    rental_id INTEGER PRIMARY KEY,
    bicycle_id INTEGER NOT NULL REFERENCES bicycles (bicycle_id),
    rider_id INTEGER NOT NULL REFERENCES riders (rider_id),
    starts_on TEXT NOT NULL, -- YYYY-MM-DD
    num_days INTEGER NOT NULL
);
CREATE TABLE repairs (
    repair_id INTEGER PRIMARY KEY,
    bicycle_id INTEGER NOT NULL REFERENCES bicycles (bicycle_id),
    part TEXT NOT NULL, -- 'brake', 'chain', 'tyre' or 'light'
    euros INTEGER NOT NULL
);"""

MODELS = ("Heron", "Falcon", "Otter", "Badger", "Swift", "Ibex", "Marten", "Kestrel", "Lynx")
KINDS = ("city", "cargo", "mountain", "racing")
PARTS = ("brake", "chain", "tyre", "light")


def _filled_bicycles(rng: Random) -> Tables:
    bicycles = [
        (number, model, rng.choice(KINDS), rng.randint(2015, 2024), rng.randint(9, 38))
        for number, model in enumerate(rng.sample(MODELS, 8), start=1)
    ]
    riders = [
        (number, rider, rng.choice((None, rng.randrange(1, number))) if number > 1 else None)
        for number, rider in enumerate(rng.sample(PEOPLE, 9), start=1)
    ]
    # The last bicycle and the last rider have no rentals.
    rentals = [
        (
            number,
            rng.randint(1, 7),
            rng.randint(1, 8),
            some_day(rng, date(2025, 6, 1), 90),
            rng.randint(1, 9),
        )
        for number in range(1, 23)
    ]
    repairs = [
        (number, rng.randint(1, 7), rng.choice(PARTS), rng.randint(8, 95))
        for number in range(1, 15)
    ]
    return {"bicycles": bicycles, "riders": riders, "rentals": rentals, "repairs": repairs}


def _chosen_bicycles(rng: Random, tables: Tables) -> Words:
    return {
        "model": str(tables["bicycles"][rng.randrange(7)][1]),
        "kind": rng.choice(KINDS),
        "rider": str(tables["riders"][rng.randrange(8)][1]),
        "part": rng.choice(PARTS),
        "year": rng.randint(2016, 2023),
        "price": rng.randint(12, 30),
        "day": some_day(rng, date(2025, 6, 20), 50),
        "days": rng.randint(3, 7),
        "euros": rng.randrange(40, 160, 5),
    }


BICYCLES = Schema(
    "bicycles",
    "a shop that lets bicycles",
    BICYCLES_DDL,
    _filled_bicycles,
    _chosen_bicycles,
    (
        Question(
            "easy",
            "Which bicycles cost at most {price} euros a day? Give model and kind.",
            "SELECT model, kind FROM bicycles WHERE euros_a_day <= {price}",
        ),
        Question(
            "easy",
            "Which models were bought before {year}?",
            "SELECT model FROM bicycles WHERE bought < {year}",
        ),
        Question(
            "easy",
            "How many euros were spent in all on repairs of the part {part}?",
            "SELECT SUM(euros) FROM repairs WHERE part = '{part}'",
        ),
        Question(
            "easy",
            "Which rentals from {day} or later are for more than {days} days? Give the rental's "
            "number and its days.",
            "SELECT rental_id, num_days FROM rentals WHERE starts_on >= '{day}' "
            "AND num_days > {days}",
        ),
        Question(
            "medium",
            "Which models did {rider} rent for at least {days} days at a time? Give the model and "
            "the first day of the rental.",
            "SELECT model, starts_on FROM rentals JOIN bicycles USING (bicycle_id) "
            "JOIN riders USING (rider_id) WHERE rider = '{rider}' AND num_days >= {days}",
        ),
        Question(
            "medium",
            "What did each rider pay in all for bicycles of the kind {kind}? Give the rider and "
            "the euros, without riders who never rented one.",
            "SELECT rider, SUM(num_days * euros_a_day) FROM rentals JOIN bicycles "
            "USING (bicycle_id) JOIN riders USING (rider_id) WHERE kind = '{kind}' "
            "GROUP BY rider_id",
        ),
        Question(
            "medium",
            "On which bicycles was more than {euros} euros spent for repairs in all? Give the "
            "model and the euros.",
            "SELECT model, SUM(euros) FROM bicycles JOIN repairs USING (bicycle_id) "
            "GROUP BY bicycle_id HAVING SUM(euros) > {euros}",
        ),
        Question(
            "medium",
            "Which riders whom somebody recommended rented a bicycle on {day} or later? Give the "
            "rider and who recommended them.",
            "SELECT DISTINCT new.rider, old.rider FROM rentals JOIN riders AS new "
            "USING (rider_id) JOIN riders AS old ON new.recommended_by = old.rider_id "
            "WHERE starts_on >= '{day}'",
        ),
        Question(
            "hard",
            "Which riders have never rented a bicycle of the kind {kind}? Give their names; riders "
            "without any rental count too.",
            "SELECT rider FROM riders WHERE rider_id NOT IN (SELECT rider_id FROM rentals "
            "JOIN bicycles USING (bicycle_id) WHERE kind = '{kind}')",
        ),
        Question(
            "hard",
            "For every bicycle bought in {year} or later, what did it earn in rentals, and what "
            "did its repairs cost? Give the model and the two sums in euros, 0 where there is "
            "nothing.",
            "SELECT model, COALESCE((SELECT SUM(num_days) FROM rentals "
            "WHERE rentals.bicycle_id = bicycles.bicycle_id), 0) * euros_a_day, "
            "COALESCE((SELECT SUM(euros) FROM repairs "
            "WHERE repairs.bicycle_id = bicycles.bicycle_id), 0) "
            "FROM bicycles WHERE bought >= {year}",
        ),
        Question(
            "hard",
            "Who came to the shop through {rider}, by a recommendation of {rider} or of anybody "
            "who came through {rider}? Give the name and the number of recommendations between "
            "them, 1 for those whom {rider} recommended.",
            "WITH RECURSIVE chain (rider_id, steps) AS (SELECT rider_id, 0 FROM riders "
            "WHERE rider = '{rider}' UNION ALL SELECT riders.rider_id, steps + 1 FROM riders "
            "JOIN chain ON riders.recommended_by = chain.rider_id) "
            "SELECT rider, steps FROM chain JOIN riders USING (rider_id) WHERE steps > 0",
        ),
        Question(
            "hard",
            "When was each model rented for the last time before {day}, and by whom? Give model, "
            "day and rider; where several rentals began on that day, give all of them, and leave "
            "out models without such a rental.",
            "SELECT model, starts_on, rider FROM rentals JOIN bicycles USING (bicycle_id) "
            "JOIN riders USING (rider_id) WHERE (bicycle_id, starts_on) IN (SELECT bicycle_id, "
            "MAX(starts_on) FROM rentals WHERE starts_on < '{day}' GROUP BY bicycle_id)",
        ),
    ),
)

LIBRARY_DDL = """\
CREATE TABLE members (
    member_id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    town TEXT NOT NULL,
    joined_on TEXT NOT NULL -- YYYY-MM-DD
);
CREATE TABLE books (
    book_id INTEGER PRIMARY KEY,
    title TEXT NOT NULL,
    genre TEXT NOT NULL, -- 'novel', 'travel', 'history' or 'poetry'
    published INTEGER NOT NULL, -- the year
    pages INTEGER NOT NULL
);
CREATE TABLE loans (
    loan_id INTEGER PRIMARY KEY,
    member_id INTEGER NOT NULL REFERENCES members (member_id),
    book_id INTEGER NOT NULL REFERENCES books (book_id),
    lent_on TEXT NOT NULL, -- YYYY-MM-DD
    returned_on TEXT -- NULL while the book is still out
);"""

TOWNS = ("Elmford", "Saltby", "Hollin Cross", "Wexcombe")
GENRES = ("novel", "travel", "history", "poetry")
FIRST_WORDS = ("The Quiet", "A Distant", "Beyond the", "Letters from the", "Songs of the")
LAST_WORDS = ("Harbour", "Orchard", "Lighthouse", "Valley", "Winter", "Border")
DAY = date(2024, 1, 1)


def _filled_library(rng: Random) -> Tables:
    names = rng.sample(PEOPLE, 10)
    titles = rng.sample([f"{one} {other}" for one in FIRST_WORDS for other in LAST_WORDS], 12)
    members = [
        (number, name, rng.choice(TOWNS), some_day(rng, date(2020, 1, 1), 1400))
        for number, name in enumerate(names, start=1)
    ]
    books = [
        (number, title, rng.choice(GENRES), rng.randint(1950, 2022), rng.randint(80, 620))
        for number, title in enumerate(titles, start=1)
    ]
    loans = []
    for number in range(1, 31):
        lent = DAY + timedelta(days=rng.randrange(330))
        returned = str(lent + timedelta(days=rng.randint(3, 60))) if rng.random() < 0.75 else None
        # The last two members borrow nothing, and the last two books are never lent.
        loans.append((number, rng.randint(1, 8), rng.randint(1, 10), str(lent), returned))
    return {"members": members, "books": books, "loans": loans}


def _chosen_library(rng: Random, tables: Tables) -> Words:
    return {
        "member": str(tables["members"][rng.randrange(8)][1]),
        "town": rng.choice(TOWNS),
        "genre": rng.choice(GENRES),
        "year": rng.randint(1955, 2005),
        "pages": rng.randint(12, 45) * 10,
        "day": some_day(rng, date(2024, 3, 1), 240),
        "num": rng.randint(2, 4),
    }


LIBRARY = Schema(
    "library",
    "a lending library",
    LIBRARY_DDL,
    _filled_library,
    _chosen_library,
    (
        Question(
            "easy",
            "Which books have more than {pages} pages? Give title and genre.",
            "SELECT title, genre FROM books WHERE pages > {pages}",
        ),
        Question(
            "easy",
            "What are the names of the members who live in {town}?",
            "SELECT name FROM members WHERE town = '{town}'",
        ),
        Question(
            "easy",
            "How many pages has the longest book that was published in {year} or later?",
            "SELECT MAX(pages) FROM books WHERE published >= {year}",
        ),
        Question(
            "easy",
            "How many different books have been lent on {day} or later?",
            "SELECT COUNT(DISTINCT book_id) FROM loans WHERE lent_on >= '{day}'",
        ),
        Question(
            "medium",
            "Which books has {member} borrowed? Give their titles.",
            "SELECT DISTINCT title FROM books JOIN loans USING (book_id) "
            "JOIN members USING (member_id) WHERE name = '{member}'",
        ),
        Question(
            "medium",
            "How often was each genre lent to members from {town}? Give the genre and the number "
            "of loans, without genres that were never lent to them.",
            "SELECT genre, COUNT(*) FROM loans JOIN books USING (book_id) "
            "JOIN members USING (member_id) WHERE town = '{town}' GROUP BY genre",
        ),
        Question(
            "medium",
            "Which loans that began before {day} are still out? Give the member's name and the "
            "book's title.",
            "SELECT name, title FROM loans JOIN books USING (book_id) "
            "JOIN members USING (member_id) WHERE returned_on IS NULL AND lent_on < '{day}'",
        ),
        Question(
            "medium",
            "Which members have borrowed books at least {num} times? Give the name and the number "
            "of loans.",
            "SELECT name, COUNT(*) FROM members JOIN loans USING (member_id) "
            "GROUP BY member_id HAVING COUNT(*) >= {num}",
        ),
        Question(
            "hard",
            "Which members have never borrowed a book of the genre {genre}? Give name and town; "
            "members without any loan count too.",
            "SELECT name, town FROM members WHERE member_id NOT IN (SELECT member_id FROM loans "
            "JOIN books USING (book_id) WHERE genre = '{genre}')",
        ),
        Question(
            "hard",
            "Take the loans of books with more than {pages} pages that have been returned. For "
            "each town of the members: what is the longest time, in days, that such a loan took? "
            "Give the town and the days, without towns that have no such loan.",
            "SELECT town, MAX(CAST(julianday(returned_on) - julianday(lent_on) AS INTEGER)) "
            "FROM loans JOIN books USING (book_id) JOIN members USING (member_id) "
            "WHERE pages > {pages} AND returned_on IS NOT NULL GROUP BY town",
        ),
        Question(
            "hard",
            "Which members other than {member} have borrowed at least one of the books that "
            "{member} has borrowed? Give the name and the number of different books that they "
            "share.",
            "SELECT name, COUNT(DISTINCT book_id) FROM members JOIN loans USING (member_id) "
            "WHERE name <> '{member}' AND book_id IN (SELECT book_id FROM loans JOIN members "
            "USING (member_id) WHERE name = '{member}') GROUP BY member_id",
        ),
        Question(
            "hard",
            "Which books were lent most often within their genre, counting only loans that began "
            "before {day}? Give genre and title; where several books of a genre are equal, give "
            "all of them, and leave out genres without such a loan.",
            "WITH counts AS (SELECT genre, title, RANK() OVER (PARTITION BY genre ORDER BY "
            "COUNT(*) DESC) AS place FROM loans JOIN books USING (book_id) "
            "WHERE lent_on < '{day}' GROUP BY book_id) "
            "SELECT genre, title FROM counts WHERE place = 1",
        ),
    ),
)

WEATHER_DDL = """\
CREATE TABLE stations (
    station_id INTEGER PRIMARY KEY,
    station TEXT NOT NULL,
    region TEXT NOT NULL, -- 'coast', 'plain' or 'mountains'
    altitude INTEGER NOT NULL -- metres
);
CREATE TABLE readings (
    station_id INTEGER NOT NULL REFERENCES stations (station_id),
    day TEXT NOT NULL, -- YYYY-MM-DD
    temperature REAL NOT NULL, -- the highest of the day, in degrees
    rain INTEGER, -- millimetres, NULL where the gauge failed
    PRIMARY KEY (station_id, day)
);
CREATE TABLE visits (
    visit_id INTEGER PRIMARY KEY,
    station_id INTEGER NOT NULL REFERENCES stations (station_id),
    technician TEXT NOT NULL,
    visited_on TEXT NOT NULL, -- YYYY-MM-DD
    minutes INTEGER NOT NULL
);"""

STATIONS = ("Cape Rill", "Gull Point", "Marrow Flats", "Dunmore", "High Tarn", "Stonegate")
REGIONS = {"coast": (1, 40), "plain": (60, 300), "mountains": (700, 2100)}
FIRST_DAY = date(2024, 5, 1)
NUM_DAYS = 8


def _filled_weather(rng: Random) -> Tables:
    stations, readings = [], []
    for number, station in enumerate(rng.sample(STATIONS, 6), start=1):
        region = rng.choice(list(REGIONS))
        stations.append((number, station, region, rng.randint(*REGIONS[region])))
        for after in range(NUM_DAYS):
            rain = rng.choice((None, 0, 0, rng.randint(1, 9), rng.randint(10, 40)))
            day = str(FIRST_DAY + timedelta(days=after))
            readings.append((number, day, rng.randint(40, 240) / 10, rain))
    technicians = rng.sample(PEOPLE, 4)
    # Nobody visits the last station.
    visits = [
        (
            number,
            rng.randint(1, 5),
            rng.choice(technicians),
            some_day(rng, FIRST_DAY, 60),
            rng.randrange(15, 200, 5),
        )
        for number in range(1, 16)
    ]
    return {"stations": stations, "readings": readings, "visits": visits}


def _chosen_weather(rng: Random, tables: Tables) -> Words:
    return {
        "station": str(tables["stations"][rng.randrange(5)][1]),
        "region": rng.choice(list(REGIONS)),
        "technician": str(rng.choice(tables["visits"])[2]),
        "day": str(FIRST_DAY + timedelta(days=rng.randrange(2, NUM_DAYS))),
        "altitude": rng.randrange(20, 900, 20),
        "degrees": rng.randint(16, 44) / 2,
        "millimetres": rng.randint(2, 20),
        "minutes": rng.randrange(60, 180, 10),
    }


WEATHER = Schema(
    "weather",
    "a weather service",
    WEATHER_DDL,
    _filled_weather,
    _chosen_weather,
    (
        Question(
            "easy",
            "Which stations lie higher than {altitude} metres? Give station and altitude.",
            "SELECT station, altitude FROM stations WHERE altitude > {altitude}",
        ),
        Question(
            "easy",
            "How many readings are warmer than {degrees} degrees?",
            "SELECT COUNT(*) FROM readings WHERE temperature > {degrees}",
        ),
        Question(
            "easy",
            "Which visits of {technician} took longer than {minutes} minutes? Give the day and the "
            "minutes.",
            "SELECT visited_on, minutes FROM visits WHERE technician = '{technician}' "
            "AND minutes > {minutes}",
        ),
        Question(
            "easy",
            "On which days did the gauge fail at the station with the number 3? Give the days.",
            "SELECT day FROM readings WHERE station_id = 3 AND rain IS NULL",
        ),
        Question(
            "medium",
            "On which days did {station} have more than {millimetres} millimetres of rain? Give "
            "the day and the rain.",
            "SELECT day, rain FROM readings JOIN stations USING (station_id) "
            "WHERE station = '{station}' AND rain > {millimetres}",
        ),
        Question(
            "medium",
            "What is the highest temperature that each station measured before {day}? Give station "
            "and temperature.",
            "SELECT station, MAX(temperature) FROM stations JOIN readings USING (station_id) "
            "WHERE day < '{day}' GROUP BY station_id",
        ),
        Question(
            "medium",
            "How many minutes did each technician spend at stations of the region {region}? Give "
            "the technician and the minutes, without those who were never there.",
            "SELECT technician, SUM(minutes) FROM visits JOIN stations USING (station_id) "
            "WHERE region = '{region}' GROUP BY technician",
        ),
        Question(
            "medium",
            "At which stations did the gauge fail on at least two days before {day}? Give the "
            "station and the number of these days.",
            "SELECT station, COUNT(*) FROM stations JOIN readings USING (station_id) "
            "WHERE rain IS NULL AND day < '{day}' GROUP BY station_id HAVING COUNT(*) >= 2",
        ),
        Question(
            "hard",
            "Which stations has {technician} never visited? Give station and region.",
            "SELECT station, region FROM stations WHERE station_id NOT IN "
            "(SELECT station_id FROM visits WHERE technician = '{technician}')",
        ),
        Question(
            "hard",
            "On which days was {station} warmer than on the day before? Give the day and the two "
            "temperatures, that of the day itself first.",
            "SELECT later.day, later.temperature, earlier.temperature FROM readings AS later "
            "JOIN readings AS earlier ON earlier.station_id = later.station_id "
            "AND earlier.day = date(later.day, '-1 day') JOIN stations "
            "ON stations.station_id = later.station_id "
            "WHERE station = '{station}' AND later.temperature > earlier.temperature",
        ),
        Question(
            "hard",
            "Which station was the warmest of its region on each day from {day} on? Give the day, "
            "the region and the station; where several are equal, give all of them.",
            "WITH ranked AS (SELECT day, region, station, RANK() OVER (PARTITION BY day, region "
            "ORDER BY temperature DESC) AS place FROM readings JOIN stations USING (station_id) "
            "WHERE day >= '{day}') SELECT day, region, station FROM ranked WHERE place = 1",
        ),
        Question(
            "hard",
            "Which stations had more rain in all than {station}? Days on which the gauge failed "
            "count as dry. Give the station and its rain.",
            "WITH sums AS (SELECT station, SUM(COALESCE(rain, 0)) AS total FROM stations "
            "JOIN readings USING (station_id) GROUP BY station_id) SELECT station, total FROM sums "
            "WHERE total > (SELECT total FROM sums WHERE station = '{station}')",
        ),
    ),
)

SCHEMAS = (LIBRARY, BAKERY, WEATHER, BICYCLES)
LEVELS = ("easy", "medium", "hard")
NO_ANSWERS: tuple[set[tuple[int, ...]], ...] = (set(), {(0,)}, {(1,)})
"""Results that a wrong query may have by chance; 1 is the result of `SELECT 1`."""
MAX_ROWS = 20
"""Maximum rows of a result."""
NUM_APART = 120
"""Tasks before a question may be repeated with other rows in its tables."""

FORM = (
    "This is the database of {subject}, in SQLite:\n\n{ddl}\n\n"
    "Each table has several rows; these are the first ones:\n\n{examples}\n\n{question}\n\n"
    "Write one SQL query that answers this for whatever the tables hold. It must give exactly "
    "the columns asked for, in the order in which they are named; the order of the rows does not "
    "matter. End with the query in a block that begins with ```sql and ends with ```."
)


def generate(rng: Random, num: int) -> Iterator[JSONObject]:
    """Yield rows whose gold queries have results that a wrong query rarely has."""
    prompts: set[str] = set()
    recent: deque[str] = deque(maxlen=NUM_APART)
    number = 0
    for attempt in itertools.count():
        if number == num:
            return
        schema = SCHEMAS[number % len(SCHEMAS)]
        difficulty = LEVELS[number % len(LEVELS)]
        questions = [one for one in schema.questions if one.difficulty == difficulty]
        # Counting attempts, not rows, moves on to the next question if one finds no answer.
        question = questions[attempt // (len(SCHEMAS) * len(LEVELS)) % len(questions)]
        tables = schema.fill(rng)
        words = schema.choose(rng, tables)
        gold, context = question.query.format(**words), _context(schema, tables)
        text = question.text.format(**words)
        prompt = _prompt(schema, tables, text)
        if text in recent or prompt in prompts or not _is_telling(context, gold):
            continue
        recent.append(text)
        prompts.add(prompt)
        yield {
            "id": f"bird-sql-{number}",
            "difficulty": difficulty,
            "db_id": schema.name,
            "prompt": prompt,
            "question": text,
            "sql_context": context,
            "gt_sql": gold,
        }
        number += 1


def _prompt(schema: Schema, tables: Tables, question: str) -> str:
    examples = "\n".join(f"{name}: {_written(table[:1])}" for name, table in tables.items())
    return FORM.format(subject=schema.subject, ddl=schema.ddl, examples=examples, question=question)


def _context(schema: Schema, tables: Tables) -> str:
    fills = (f"INSERT INTO {name} VALUES {_written(rows)};" for name, rows in tables.items())  # noqa: S608  # all of it is ours
    return "\n".join([schema.ddl, *fills])


def _written(table: Table) -> str:
    """Return rows as SQL values."""
    return ", ".join(f"({', '.join(map(_literal, row))})" for row in table)


def _literal(cell: str | float | None) -> str:
    if cell is None:
        return "NULL"
    return "'{}'".format(cell.replace("'", "''")) if isinstance(cell, str) else repr(cell)


def _is_telling(context: str, query: str) -> bool:
    """Return whether the result of a query has enough content to be told from a wrong one.

    It has rows, but not too many, and no NULL.
    """
    with closing(Database(context)) as database:
        found = database.read(query)
    holds_null = any(None in row for row in found)
    return found not in NO_ANSWERS and len(found) <= MAX_ROWS and not holds_null
