"""Rows with the columns that the map of gpqa-diamond reads, and some others of its table."""

DOMAINS = [
    ("Physics", "Quantum Mechanics"),
    ("Chemistry", "Organic Chemistry"),
    ("Biology", "Genetics"),
]


def rows(rng, num):
    return {"gpqa_diamond.csv": [row(rng, number) for number in range(num)]}


def row(rng, number):
    one, other = rng.randint(2, 99), rng.randint(100, 999)
    domain, subdomain = DOMAINS[number % 3]
    right = one + other
    answers = [f"{value} \\text{{ eV}}\n" for value in (right, right + 1, other - one, one * other)]
    return {
        "Pre-Revision Question": "",
        "Question": f'What is $E = {one} + {other}$, in "eV"?\n\nIgnore terms of order $\\hbar^2$.',
        "Correct Answer": answers[0],
        **{f"Incorrect Answer {place}": answers[place] for place in (1, 2, 3)},
        "Explanation": f"It is {right}, since sums are sums,\nin physics too.",
        "Subdomain": subdomain,
        "Record ID": f"rec{number:014d}",
        "High-level domain": domain,
        "Canary String": "made by hand",
    }
