"""Generates word problems for the calculator from templates."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from gymcli import JSONObject
from gymcli.envs.aviary.expressions import evaluate, number_text


def generate(rng: Random, num: int) -> Iterator[JSONObject]:
    """Yield word problems for the calculator; harder ones take more steps."""
    for number, problem in enumerate(word_problems(rng, num)):
        yield {
            "id": f"calculator-{number}",
            "difficulty": problem.difficulty,
            "prompt": f"{problem.text}\n\n{INSTRUCTION}",
            "expression": problem.expression,
            "task_kwargs": {"answer": problem.answer},
        }


class WordProblem(NamedTuple):
    """A problem, the expression that solves it, and its value."""

    difficulty: str
    text: str
    expression: str
    answer: float


class Template(NamedTuple):
    """A problem with placeholders for its numbers."""

    text: str
    expression: str
    ranges: dict[str, range]


def word_problems(rng: Random, num: int) -> Iterator[WordProblem]:
    """Yield `num` different problems, easy, medium and hard in turn."""
    texts: set[str] = set()
    difficulties = list(TEMPLATES)
    while len(texts) < num:
        difficulty = difficulties[len(texts) % len(difficulties)]
        problem = _filled(rng, difficulty, rng.choice(TEMPLATES[difficulty]))
        if problem.text not in texts:
            texts.add(problem.text)
            yield problem


def _filled(rng: Random, difficulty: str, template: Template) -> WordProblem:
    """Draw numbers until the answer is a positive integer that the text does not contain."""
    while True:
        numbers = {name: rng.choice(values) for name, values in template.ranges.items()}
        text = template.text.format(name=rng.choice(NAMES), **numbers)
        expression = template.expression.format(**numbers)
        answer = evaluate(expression)
        is_plain = answer > 0 and answer.is_integer()
        if is_plain and number_text(answer) not in re.findall(r"\d+", text):
            return WordProblem(difficulty, text, expression, int(answer))


NAMES = ("Ana", "Bela", "Chidi", "Dana", "Emre", "Freya", "Goran", "Hana", "Ivo", "Jun")

TEMPLATES = {
    "easy": [
        Template(
            "{name} packs {a} crates with {b} jars of honey in each. How many jars is that?",
            "{a} * {b}",
            {"a": range(6, 40), "b": range(4, 25)},
        ),
        Template(
            "A ferry takes {a} cars on every crossing and crosses {b} times a day. How many cars "
            "does it take in a day?",
            "{a} * {b}",
            {"a": range(14, 90), "b": range(3, 13)},
        ),
        Template(
            "{name} had {a} stamps and gave {b} of them to a friend. How many are left?",
            "{a} - {b}",
            {"a": range(300, 900), "b": range(20, 280)},
        ),
        Template(
            "A ribbon is {a} centimetres long. {name} cuts all of it into pieces of {b} "
            "centimetres. How many pieces are there?",
            "{a} / {b}",
            {"a": range(120, 1000), "b": range(4, 40)},
        ),
        Template(
            "The first bus brings {a} visitors to the lake and the second one {b}. How many "
            "visitors is that?",
            "{a} + {b}",
            {"a": range(21, 70), "b": range(21, 70)},
        ),
    ],
    "medium": [
        Template(
            "A bakery bakes {a} trays of {b} rolls. {c} rolls burn, and the others go into bags "
            "of {d}. How many bags are filled?",
            "({a} * {b} - {c}) / {d}",
            {"a": range(8, 40), "b": range(12, 40), "c": range(3, 60), "d": range(4, 9)},
        ),
        Template(
            "{name} reads {a} pages a day for {b} days, then {c} pages a day for {d} days. How "
            "many pages is that?",
            "{a} * {b} + {c} * {d}",
            {"a": range(11, 50), "b": range(3, 15), "c": range(11, 50), "d": range(3, 15)},
        ),
        Template(
            "A tank that holds {a} litres is empty. A hose runs into it for {c} minutes at {b} "
            "litres a minute; then {d} litres are drawn off. How many more litres does it take to "
            "fill the tank?",
            "{a} - ({b} * {c} - {d})",
            {"a": range(700, 1500), "b": range(7, 25), "c": range(9, 26), "d": range(15, 60)},
        ),
        Template(
            "A ticket costs {a} crowns for adults and {b} crowns for children. How many crowns "
            "does {name} pay for {c} adults and {d} children?",
            "{a} * {c} + {b} * {d}",
            {"a": range(70, 150), "b": range(20, 69), "c": range(2, 9), "d": range(3, 20)},
        ),
    ],
    "hard": [
        Template(
            "A press prints {a} sheets a minute for {c} minutes and {b} sheets a minute for "
            "another {d} minutes. {e} sheets are spoiled, and the others are bound into booklets "
            "of {f} sheets. How many booklets are there?",
            "({a} * {c} + {b} * {d} - {e}) / {f}",
            {
                "a": range(20, 60),
                "b": range(20, 60),
                "c": range(15, 50),
                "d": range(15, 50),
                "e": range(5, 80),
                "f": range(8, 25),
            },
        ),
        Template(
            "{name} sells {a} lamps for {b} crowns each and {c} lamps for {d} crowns each. The "
            "stall costs {e} crowns. What is left is shared equally among {f} people. How many "
            "crowns does each get?",
            "({a} * {b} + {c} * {d} - {e}) / {f}",
            {
                "a": range(5, 30),
                "b": range(40, 120),
                "c": range(5, 30),
                "d": range(40, 120),
                "e": range(50, 200),
                "f": range(3, 8),
            },
        ),
        Template(
            "A wall is {a} metres long and {b} metres high. It has {c} windows, each {d} metres "
            "wide and {e} metres high. All of the wall but the windows is tiled, with {f} tiles to "
            "the square metre. How many tiles does that take?",
            "({a} * {b} - {c} * {d} * {e}) * {f}",
            {
                "a": range(30, 70),
                "b": range(7, 15),
                "c": range(4, 12),
                "d": range(2, 5),
                "e": range(2, 4),
                "f": range(9, 30),
            },
        ),
        Template(
            "A lorry drives {a} kilometres at {b} kilometres an hour, stops for {c} minutes, and "
            "drives {d} more kilometres at {e} kilometres an hour. How many minutes does it take "
            "in all?",
            "{a} / {b} * 60 + {c} + {d} / {e} * 60",
            {
                "a": range(60, 400),
                "b": range(40, 95, 5),
                "c": range(12, 55),
                "d": range(60, 400),
                "e": range(40, 95, 5),
            },
        ),
    ],
}
"""Easy problems take one step, medium ones three, hard ones five or six."""

INSTRUCTION = "Work it out with the calculator, then hand in the number with submit_answer."
