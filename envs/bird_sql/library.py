"""A lending library: its members, its books, and who took which of them home."""

from datetime import date, timedelta
from random import Random

from .schemas import PEOPLE, Question, Schema, Tables, Words, some_day

__all__ = ["LIBRARY"]

DDL = """\
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


def _filled(rng: Random) -> Tables:
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
        # Some members borrow nothing, and some books stay on the shelf.
        loans.append((number, rng.randint(1, 8), rng.randint(1, 10), str(lent), returned))
    return {"members": members, "books": books, "loans": loans}


def _chosen(rng: Random, tables: Tables) -> Words:
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
    DDL,
    _filled,
    _chosen,
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
