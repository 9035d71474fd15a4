"""Rows with the columns of CommonsenseQA: five options."""


def rows(rng, num):
    return {"": [row(rng, number) for number in range(num)]}


def row(rng, number):
    words = ["bank", "the king's court", "mall", "bank vault", "Ångström café"]
    rng.shuffle(words)
    return {
        "id": f"{rng.getrandbits(128):032x}",
        "question": f"Where would {number} people wait for a door that turns?",
        "question_concept": "door that turns",
        "choices": {"label": list("ABCDE"), "text": words},
        "answerKey": rng.choice("ABCDE"),
    }
