"""Rows with the columns of mmmu: images as bytes, options as Python writes a list."""

import base64

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
)
JPEG = b"\xff\xd8\xff\xe0 not more than its start \xff\xd9"


def rows(rng, num):
    subjects = {"Art": [], "Basic_Medical_Science": []}
    for number in range(num):
        subject = list(subjects)[number % 2]
        subjects[subject].append(row(rng, f"validation_{subject}_{number}", number))
    open_row = row(rng, "validation_Art_99", 99) | {
        "options": "[]",
        "question_type": "open",
        "answer": "['24', 'twenty-four']",
    }
    subjects["Art"].insert(1, open_row)
    return subjects


def row(rng, name, number):
    num_options = rng.choice([2, 4, 5])
    options = [f'{number + place}\\% of <image 2>, "it\'s"' for place in range(num_options)]
    images = [PNG, *([JPEG] if rng.random() < 0.5 else [])]
    return {
        "id": name,
        "question": f"What share of <image 1> is {{grey}}, if {number} are not?",
        "options": repr(options),
        "explanation": "",
        **{
            f"image_{place + 1}": {"bytes": images[place], "path": None}
            if place < len(images)
            else None
            for place in range(7)
        },
        "img_type": "['Paintings']",
        "answer": "ABCDE"[rng.randrange(num_options)],
        "topic_difficulty": "Easy",
        "question_type": "multiple-choice",
        "subfield": "Art",
    }
