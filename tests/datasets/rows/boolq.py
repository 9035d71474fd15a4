"""Rows with the columns of boolq: the answer is true or false."""


def rows(rng, num):
    return {"": [row(rng, number) for number in range(num)]}


def row(rng, number):
    return {
        "question": f"is station {number} on the coast",
        "answer": rng.random() < 0.6,
        "passage": f"Station {number} (Gare № {number}) -- {rng.randint(1, 90)} km from the sea.",
    }
