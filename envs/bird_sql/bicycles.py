"""A shop that lets bicycles: what it has, who rides them, and what had to be repaired."""

from datetime import date
from random import Random

from .schemas import PEOPLE, Question, Schema, Tables, Words, some_day

__all__ = ["BICYCLES"]

DDL = """\
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


def _filled(rng: Random) -> Tables:
    bicycles = [
        (number, model, rng.choice(KINDS), rng.randint(2015, 2024), rng.randint(9, 38))
        for number, model in enumerate(rng.sample(MODELS, 8), start=1)
    ]
    riders = [
        (number, rider, rng.choice((None, rng.randrange(1, number))) if number > 1 else None)
        for number, rider in enumerate(rng.sample(PEOPLE, 9), start=1)
    ]
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


def _chosen(rng: Random, tables: Tables) -> Words:
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
    DDL,
    _filled,
    _chosen,
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
