"""Rows with the columns of MMLU: the answer is a position, and some questions come twice."""


def rows(rng, num):
    made = [row(rng, number) for number in range(num - 2)]
    # The source has a question under two subjects, and others as they are: all are tasks.
    made.insert(3, made[0] | {"subject": "college_medicine"})
    return {"all": [*made, made[5]]}


def row(rng, number):
    name, right = rng.getrandbits(30), rng.randrange(4)
    texts = [f"${name + place} \\times 10^{{-3}}$" for place in range(4)]
    # An option may be empty, or name the others.
    texts[(right + 1) % 4] = ("", "All of the above", "A and B", "None of {these}")[number % 4]
    return {
        "question": f'The "value" no. {number} is ________, where $f(x) = {{x}}$.\nWhich one?',
        "subject": ("clinical_knowledge", "abstract_algebra")[number % 2],
        "choices": texts,
        "answer": right,
    }
