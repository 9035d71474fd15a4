"""Rows with the columns of race-h: several questions about one article share its name."""


def rows(rng, num):
    return {"high": [row(rng, number) for number in range(num)]}


def row(rng, number):
    year = rng.randint(1800, 1999)
    years = [year, year - 1, year + 1, year + 10]
    rng.shuffle(years)
    question = (
        f"Lines {number} tell that the stamp is of _ ." if number % 2 else f"When was no. {number}?"
    )
    return {
        "example_id": f"high{number // 3}.txt",
        "article": f"Stamp no. {number // 3} is “late”. Post no. {number} was paid in {year}.",
        "answer": "ABCD"[years.index(year)],
        "question": question,
        "options": [f"in {one}." for one in years],
    }
