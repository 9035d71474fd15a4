"""Rows of openai/gsm8k, made by hand: a solution with calculations, then the answer."""

ANSWERS = ("18", "1,450", "-5", "0", "2,125,000", "7.5")


def rows(rng, num):
    return {"main": [_row(rng, place) for place in range(num)]}


def _row(rng, place):
    answer = ANSWERS[place] if place < len(ANSWERS) else str(rng.randint(1, 999))
    marked = f"Half of it is <<{place}/2={place / 2}>>{place / 2}.\n"
    if place % 5 == 0:
        marked += "Not the answer: #### 3\n"
    return {
        "question": f"Farmer {place} has some eggs.\nHow many?",
        "answer": f"{marked}#### {answer}",
    }
