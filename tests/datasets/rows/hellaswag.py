"""Rows with the columns of HellaSwag: the label is a position as text."""


def rows(rng, num):
    return {"": [row(rng, number) for number in range(num)]}


def row(rng, number):
    first, second = f"A man climbs {number} steps. [header] Rest {{often}}.", "he"
    return {
        "ind": 24 + number,
        "activity_label": "Roof shingle removal",
        "ctx_a": first,
        "ctx_b": second,
        "ctx": f"{first} {second}",
        "endings": [f"takes {rng.random()} of step {place}." for place in range(4)],
        "source_id": f"activitynet~v_{number}",
        "split": "val",
        "split_type": "indomain",
        "label": str(rng.randrange(4)),
    }
