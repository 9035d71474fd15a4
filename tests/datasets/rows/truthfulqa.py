"""Rows with the columns of TruthfulQA: the true answer is the first, of two to thirteen."""


def rows(rng, num):
    return {"multiple_choice": [row(rng, number) for number in range(num)]}


def row(rng, number):
    targets = {
        name: {
            "choices": [
                f'{name}: {number} means {place}, "so it is said"' for place in range(size)
            ],
            "labels": [1] * num_true + [0] * (size - num_true),
        }
        for name, size, num_true in (
            ("mc1_targets", rng.randint(2, 13), 1),
            ("mc2_targets", rng.randint(3, 15), 2),
        )
    }
    return {"question": f"What does the number {number} mean?", **targets}
