"""Writes an evaluation of a bike rental's support, and what stands in for models and people.

`evaluation/` holds 200 questions, each with three points that a reply must meet, the map that makes
tasks of them, the prompt, and benchmark.toml. `answers.jsonl` and `verdicts.jsonl` are scripts for
`gym mock`, in place of an assistant and a judge. `labels.csv` has the labels of 40 replies.
"""

import csv
import json
from datetime import date, timedelta
from pathlib import Path
from random import Random

FOLDER = Path("evaluation")
PRICE, LATE, HELMET = 18, 25, 4
RNG = Random(21)

MAP = """\
def task(row):
    return {
        "id": row["id"],
        "category": row["category"],
        "question": row["question"],
        "rubric": [{"question": row[f"point_{number}"]} for number in (1, 2, 3)],
        "gold_reply": row["model_reply"],
    }
"""

PROMPT = """\
system: |
  You answer customers of a bike rental. A bike costs 18 euros a day, a helmet 4 euros
  a day. A late day costs 25 euros. Name the booking, the total, and the date or the
  days on which it depends.
user: "{question}"
"""

BENCHMARK = """\
name = "rental-support"
version = "1"
title = "Answers to customers of a bike rental"
domain = "support"
env = "multichallenge"
env_args = { aggregation = "all" }
prompt = "prompt.yaml"
params = { temperature = 0.0, max_tokens = 300 }

[source]
file = "questions.jsonl"
sha256 = "eeb0ae8448fe8f031d660d72094599b2cb7cc9aa36857aed1a264e7136309f3d"
rows = 200
licence = "ours"

[roles.judge]
model = "grader"
"""


def day(when: date) -> str:
    """Return a date as people write it."""
    return f"{when.day} {when:%B}"


def question(number: int) -> dict[str, str]:
    """Return one row of the table."""
    booking = f"R-{1000 + number}"
    begin = date(2026, 5, 1) + timedelta(days=RNG.randrange(100))
    days, late, helmets = RNG.randint(2, 9), RNG.randint(1, 3), RNG.randint(0, 2)
    end, back = begin + timedelta(days=days), begin + timedelta(days=days + late)
    extra = f" with {helmets} helmets" if helmets else ""
    if number % 2:
        category, total = "booking", days * (PRICE + helmets * HELMET)
        asked = f"I want a bike{extra} from {day(begin)} for {days} days. What will it cost?"
        second = f'Does the reply to {booking} say that the bike is due back on "{day(end)}"?'
        reply = f"{booking}: {total} euros. The bike is due back on {day(end)}."
    else:
        category, total = "late return", late * LATE
        asked = f"My bike was due on {day(end)}; I brought it back on {day(back)}. What do I owe?"
        unit = "day" if late == 1 else "days"
        second = f'Does the reply to {booking} say that the bike was "{late} {unit} late"?'
        reply = f"{booking}: the bike was {late} {unit} late, so you owe {total} euros."
    return {
        "id": booking,
        "category": category,
        "question": f"Booking {booking}. {asked}",
        "point_1": f'Does the reply to {booking} name the total, "{total} euros"?',
        "point_2": second,
        "point_3": f'Does the reply name the booking, "{booking}"?',
        "model_reply": f"{reply} Enjoy the ride!",
    }


def main() -> None:
    """Write the files."""
    FOLDER.mkdir(exist_ok=True)
    rows = [question(number) for number in range(200)]
    answers, verdicts, labels = [], [], []
    for number, row in enumerate(rows):
        reply = row["model_reply"]
        # The assistant gets every eighth total wrong, and forgets every tenth booking.
        if number % 8 == 3:
            reply = reply.replace(" euros", "0 euros")
        if number % 10 == 0:
            reply = reply.replace(f"{row['id']}: ", "")
        answers.append({"match": row["id"], "answers": [{"text": reply}]})
        for name in ("point_1", "point_2", "point_3"):
            # The judge overlooks one wrong total in four.
            is_met = row[name].split('"')[1] in reply or number % 32 == 3
            verdict = {"text": f"[[{'YES' if is_met else 'NO'}]]"}
            verdicts.append({"match": row[name], "answers": [verdict]})
        labels.append(
            {"task_id": row["id"], "label": "pass" if reply == row["model_reply"] else "fail"}
        )
    write_table(FOLDER / "questions.csv", rows)
    for name, text in (("map.py", MAP), ("prompt.yaml", PROMPT), ("benchmark.toml", BENCHMARK)):
        (FOLDER / name).write_text(text, encoding="utf-8")
    write_table(Path("labels.csv"), labels[:40])
    for name, script in (("answers.jsonl", answers), ("verdicts.jsonl", verdicts)):
        Path(name).write_text("".join(json.dumps(line) + "\n" for line in script), encoding="utf-8")


def write_table(path: Path, rows: list[dict[str, str]]) -> None:
    """Write rows as a CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)


if __name__ == "__main__":
    main()
