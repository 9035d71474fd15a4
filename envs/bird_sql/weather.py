"""A weather service: its stations, what they measured, and who looked after them."""

from datetime import date, timedelta
from random import Random

from .schemas import PEOPLE, Question, Schema, Tables, Words, some_day

__all__ = ["WEATHER"]

DDL = """\
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


def _filled(rng: Random) -> Tables:
    stations, readings = [], []
    for number, station in enumerate(rng.sample(STATIONS, 6), start=1):
        region = rng.choice(list(REGIONS))
        stations.append((number, station, region, rng.randint(*REGIONS[region])))
        for after in range(NUM_DAYS):
            rain = rng.choice((None, 0, 0, rng.randint(1, 9), rng.randint(10, 40)))
            day = str(FIRST_DAY + timedelta(days=after))
            readings.append((number, day, rng.randint(40, 240) / 10, rain))
    technicians = rng.sample(PEOPLE, 4)
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


def _chosen(rng: Random, tables: Tables) -> Words:
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
    DDL,
    _filled,
    _chosen,
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
