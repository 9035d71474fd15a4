"""Rows of EleutherAI/drop, made by hand: numbers, spans, dates, and a row that is left out."""

NO_DATE = {"day": "", "month": "", "year": ""}
REPEATED = "28553293-d719-441b-8f00-ce3dc6df5398"


def rows(rng, num):
    found = [_row(rng, place) for place in range(num)]
    found[3]["query_id"] = REPEATED
    found.insert(3, {**found[3], "question": found[3]["question"].replace("?", "/")})
    return {"": found}


def _row(rng, place):
    first, second = rng.randint(2, 60), rng.randint(2, 60)
    kinds = [
        {"number": str(first), "spans": [], "date": NO_DATE},
        {"number": "", "spans": ["Panthers", f"the Eagles {place}"], "date": NO_DATE},
        {"number": "", "spans": [], "date": {"day": "", "month": "May", "year": f"{1900 + first}"}},
        {"number": f"{first}.5", "spans": [], "date": NO_DATE},
        {"number": "", "spans": [f"{second}-yard run"], "date": NO_DATE},
    ]
    kind = place % len(kinds)
    # The second one repeats the answer, and the third one is empty.
    validated = [kinds[0], kinds[kind], {"number": "", "spans": [], "date": NO_DATE}]
    validated = validated[: place % 4]
    workers = {"worker_id": [""] * len(validated), "hit_id": [""] * len(validated)}
    names = ("number", "spans", "date")
    return {
        "section_id": f"nfl_{place}",
        "query_id": f"00000000-0000-0000-0000-{place:012d}",
        "passage": f" The {{Eagles}} scored {first} yards, then {second}; in the 2nd, none.",
        "question": f"How many yards were there in play {place}?",
        "answer": {**kinds[kind], "worker_id": "", "hit_id": ""},
        "validated_answers": {n: [one[n] for one in validated] for n in names} | workers,
    }
