"""Rows with the columns of ARC: labels are letters or digits, of three to five options."""


def rows(rng, num):
    return {"ARC-Challenge": [row(rng, number) for number in range(num)]}


def row(rng, number):
    labels = list(("ABCD", "1234", "ABC", "ABCDE")[number % 4])
    return {
        "id": f"Mercury_{number}",
        "question": f"A student sees {number} planets. Which is most likely?",
        "choices": {"text": [f"{number} of type {rng.random()}." for _ in labels], "label": labels},
        "answerKey": rng.choice(labels),
    }
