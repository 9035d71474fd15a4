"""Rows with the columns of musr: choices as Python writes a list, and numbers as text."""

FILES = {"murder_mystery.csv": 2, "object_placements.csv": 5, "team_allocation.csv": 3}


def rows(rng, num):
    tables = {name: [] for name in FILES}
    for number in range(num):
        name = list(FILES)[number % len(FILES)]
        tables[name].append(row(rng, number, FILES[name]))
    return tables


def row(rng, number, num_choices):
    choices = [f'Ann\'s {word}, "{number}"' for word in ("car", "cup", "hat", "key", "bag")]
    place = rng.randrange(num_choices)
    return {
        "narrative": f"It was night no. {number}.\n\nAnn came home; 'I left {{nothing}}.'",
        "question": "What is the most likely thing?",
        "choices": repr(choices[:num_choices]),
        "answer_index": str(place),
        "answer_choice": choices[place],
    }
