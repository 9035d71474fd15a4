"""Rows with the columns of MedQA's file: options by their letters."""


def rows(rng, num):
    return {"": [row(rng, number) for number in range(num)]}


def row(rng, number):
    options = {letter: f"Drug {letter.lower()}{number} (≥ 5 mg)" for letter in "ABCDE"}
    right = rng.choice("ABCDE")
    return {
        "question": f"A {20 + number}-year-old has pulse {rng.randint(50, 99)}/min. Which one?",
        "answer": options[right],
        "options": options,
        "meta_info": "step1",
        "answer_idx": right,
    }
