"""Rows of math-ai/aime25, made by hand: the answers are texts."""


def rows(rng, num):
    return {"": [_row(rng, place) for place in range(num)]}


def _row(rng, place):
    return {
        "problem": rf"How many $k$ have $\tfrac{{k}}{{{place + 2}}} \le 2^{{{place}}}$?",
        "answer": ("070", "0")[place] if place < 2 else str(rng.randint(0, 999)),
        "id": str(place),
    }
