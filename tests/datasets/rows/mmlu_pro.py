"""Rows with the columns of MMLU-Pro: three to ten options."""

EXAMPLES = [
    {
        "question_id": number,
        "question": f" What is {number} plus 1?\n",
        "options": [str(number + 1), str(number)],
        "answer": "A",
        "answer_index": 0,
        "cot_content": f"A: Let's think step by step. It is {number + 1}. The answer is (A).",
        "category": ("business", "computer science")[number % 2],
        "src": "made by hand",
    }
    for number in range(10)
]


def rows(rng, num):
    return {"": [row(rng, number) for number in range(num)]}


def row(rng, number):
    options = [f"\\frac{{{number}}}{{{place + 2}}} N/A" for place in range(rng.randint(3, 10))]
    right = rng.randrange(len(options))
    return {
        "question_id": 70 + number,
        "question": f"What is {number} divided by {right + 2}, in {{the}} usual notation?\n",
        "options": options,
        "answer": "ABCDEFGHIJ"[right],
        "answer_index": right,
        "cot_content": "",
        "category": ("business", "computer science")[number % 2],
        "src": "made by hand",
    }
