"""Rows with the columns of SimpleQA Verified: numbers have an acceptable range."""


def rows(rng, num):
    return {"": [row(rng, number) for number in range(num)]}


def row(rng, number):
    value = rng.randint(2000, 9000)
    spread = f"{value} (acceptable range: anything between {value - 20} and {value + 20})"
    return {
        "original_index": 7 * number,
        "problem": f"How many steps does tower no. {number} have?",
        "answer": spread if number % 2 else f"Åse Ødegård {value}.",
        "topic": ("Art", "Science and technology")[number % 2],
        "answer_type": ("Person", "Number")[number % 2],
        "multi_step": bool(number % 3),
        "requires_reasoning": bool(number % 5),
        "urls": "https://a.example,https://b.example",
    }
