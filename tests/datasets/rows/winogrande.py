"""Rows with the columns of winogrande: the answer is the text 1 or 2, and the gap an underline."""


def rows(rng, num):
    return {
        "train-00000-of-00001.parquet": [row(rng, f"t{number}") for number in range(9)],
        "validation-00000-of-00001.parquet": [row(rng, f"v{number}") for number in range(num)],
    }


def row(rng, name):
    nouns = rng.sample(["trophy", "suitcase", "piano", "door", "niño"], 2)
    return {
        "sentence": f"The {nouns[0]} {name} did not fit the {nouns[1]} because the _ was wrong.",
        "option1": nouns[0],
        "option2": nouns[1],
        "answer": str(rng.randint(1, 2)),
    }
