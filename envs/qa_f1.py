r"""Asks a question about a text; the answer earns its F1 with the best gold answer.

Source: two evaluation scripts, reimplemented independently; the row's `rule` chooses. `squad` is
the official script of SQuAD 2.0 (Rajpurkar et al. 2018, arXiv 1806.03822) as in the packages
allennlp-models 2.10.1 (`rc/tools/squad.py`) and transformers 4.46.3 (`squad_metrics.py`): both
texts in small letters, without punctuation and the articles a, an and the; F1 over bags of words.
SQuAD 1.1 has the same rule, and an answer to every question. `drop` is the official script of DROP
(Dua et al. 2019, arXiv 1903.00161) as in allennlp-models (`rc/tools/drop.py`): words are also split
at hyphens, numbers are compared by value, an answer without the gold span's number gets nothing for
it, and the spans of an answer and of a gold answer are paired so that the sum is largest; F1 is
over sets of words, rounded to two digits. Exact match is a component of the score in both. Those
scripts compare answers; how they are read from a model's text is our own:

- With `extraction_mode` `answer_line` the answer is the rest of the line after the first "Answer:",
  as in simple-evals and inspect-evals, or the whole text if there is none. The label may be in bold
  (`**Answer**: 9`, `**Answer:**` before a line with 9), which those do not read. If nothing follows
  it, there is no answer; those read the whole text.
- The rule `drop` splits it into spans at semicolons.
- With the rule `squad` the text `no_answer_text` alone, in any case, says that the question has no
  answer; to the script it is the empty answer. A text that is empty earns nothing.

As in the scripts, a gold answer that is empty counts as none; to the rule `squad`, so does one
without a word.

One row:
{"id": "qa-f1-1", "prompt": "The mill closed in May 1903.\n\nIn which year did the mill close?
Answer in as few words as possible.", "answers": ["1903", "May 1903"], "rule": "squad"}
"""

import re
import string
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Literal, NamedTuple, Self

from pydantic import model_validator

from gymcli import (
    Context,
    Environment,
    JSONObject,
    Message,
    Properties,
    Rollout,
    Score,
    Task,
)
from gymcli.envs import load_generator

__all__ = ["Overlap", "QaF1", "ReadingQuestion", "drop_overlap", "squad_overlap"]

MAX_SHOWN = 1_000
"""Characters of the answer that the record keeps."""

ANSWER_LINE = re.compile(r"answer[*_`~]*+\s*+:(?:[*_`~]++(?=\s|\Z))?+\s*+([^\n]*+)", re.IGNORECASE)
ARTICLES = re.compile(r"\b(?:a|an|the)\b")
WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


class ReadingQuestion(Task):
    """A question's gold answers, and how answers are read and compared."""

    answers: list[str | list[str]]
    """Each is right alone; a list is one answer of several spans. If empty, there is no answer."""
    rule: Literal["squad", "drop"] = "squad"
    """The evaluation script."""
    extraction_mode: Literal["full_response", "answer_line"] = "full_response"
    """Whether the answer is the whole text, or follows "Answer:"."""
    no_answer_text: str = "unanswerable"
    """What the model writes if the question has no answer."""

    @property
    def golds(self) -> list[list[str]]:
        """The gold answers that count, each as a list of spans."""
        lists = [[gold] if isinstance(gold, str) else gold for gold in self.answers]
        if self.rule == "drop":
            return [spans for spans in lists if spans and spans[0].strip()]
        return [spans for spans in lists if squad_form(spans[0])]

    @model_validator(mode="after")
    def _can_be_right(self) -> Self:
        if self.rule == "drop" and not self.golds:
            raise ValueError("answers: the rule drop needs one that is not empty")
        if self.rule == "squad" and any(isinstance(gold, list) for gold in self.answers):
            raise ValueError("answers: only the rule drop takes lists of spans")
        return self


class Overlap(NamedTuple):
    """How much an answer and a gold answer have in common, each from 0 to 1."""

    exact_match: float
    f1: float


NOTHING = Overlap(0.0, 0.0)


class QaF1(Environment[ReadingQuestion]):
    """Answer a question about a text; scored by SQuAD's or DROP's F1."""

    properties = Properties(
        "single-step", "reading comprehension", "general", "short answer", "F1 and exact match"
    )
    version = "2"
    skipped_checks = {
        "leaks": "the answer is a part of the text that the question is about",
        "guessing": "many questions of SQuAD 2.0 have the same answer: none",
    }

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward the F1 with the gold answer that the answer has most in common with."""
        task = cls.parse_task(rollout.task)
        answer = _read(rollout.output_text, task)
        golds = task.golds or [[""]]
        overlaps = [_overlap(answer, gold, task) if answer else NOTHING for gold in golds]
        f1 = max(overlap.f1 for overlap in overlaps)
        exact_match = max(overlap.exact_match for overlap in overlaps)
        _, nearest = max(zip(overlaps, golds, strict=True), key=lambda pair: pair[0].f1)
        reasons = {0.0: "wrong_answer" if answer else "no_answer", 1.0: "correct"}
        return Score(
            f1,
            components={"f1": f1, "exact_match": exact_match},
            metrics={"no_answer": float(not answer)},
            answer=answer[:MAX_SHOWN] or None,
            details={
                "reason": reasons.get(f1, "partly_correct"),
                "expected": ("; ".join(nearest) or task.no_answer_text)[:MAX_SHOWN],
            },
        )

    async def oracle(self, rollout: Rollout) -> Message | None:
        """Return a gold answer; None if none is read back as it is."""
        prefix = "Answer: " if self.task.extraction_mode == "answer_line" else ""
        for gold in self.task.golds or [[self.task.no_answer_text]]:
            text = prefix + "; ".join(gold)
            wanted = gold if self.task.golds else [""]
            if _overlap(_read(text, self.task), wanted, self.task) == Overlap(1.0, 1.0):
                return Message(role="assistant", content=text)
        return None

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Write short texts with questions, for both rules."""
        yield from load_generator("qa_f1").generate(rng, num)


def _read(text: str, task: ReadingQuestion) -> str:
    """Return the answer that a text gives, which may be empty."""
    line = ANSWER_LINE.search(text) if task.extraction_mode == "answer_line" else None
    return (line[1] if line else text).strip()


def _overlap(answer: str, gold: list[str], task: ReadingQuestion) -> Overlap:
    if task.rule == "drop":
        return drop_overlap([span for span in answer.split(";") if span.strip()] or [""], gold)
    says_none = gold == [""] and squad_form(answer) == squad_form(task.no_answer_text)
    return squad_overlap("" if says_none else answer, gold[0])


# SQuAD


def squad_form(text: str) -> str:
    """Return a text in small letters, without punctuation and articles."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(WITHOUT_PUNCTUATION)).split())


def squad_overlap(answer: str, gold: str) -> Overlap:
    """Compare two texts by the rule of SQuAD; the empty text says that there is no answer."""
    said, wanted = squad_form(answer).split(), squad_form(gold).split()
    is_same = float(said == wanted)
    if not said or not wanted:
        return Overlap(is_same, is_same)
    num_shared = (Counter(said) & Counter(wanted)).total()
    return Overlap(is_same, _f1(num_shared / len(said), num_shared / len(wanted)))


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


# DROP


def drop_overlap(answer: list[str], gold: list[str]) -> Overlap:
    """Compare two lists of spans by the rule of DROP."""
    said, wanted = [drop_form(span) for span in answer], [drop_form(span) for span in gold]
    is_same = set(said) == set(wanted) and len(said) == len(wanted)
    said_bags, wanted_bags = [set(text.split()) for text in said], [set(t.split()) for t in wanted]
    scores = [[_bag_f1(bag, wanted_bag) for bag in said_bags] for wanted_bag in wanted_bags]
    mean = _best_pairing(scores) / max(len(said), len(wanted))
    # As numpy rounds, which the script uses: half to even, of the product.
    return Overlap(float(is_same), round(mean * 100) / 100)


def drop_form(text: str) -> str:
    """Return a text in small letters without articles and punctuation, with numbers as floats."""
    return " ".join(" ".join(map(_drop_word, re.split("[ -]", text.lower()))).split())


def _drop_word(word: str) -> str:
    kept = word if _is_number(word) else word.translate(WITHOUT_PUNCTUATION)
    return ARTICLES.sub(" ", str(float(kept)) if _is_number(kept) else kept)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _bag_f1(said: set[str], wanted: set[str]) -> float:
    """Return the F1 of two sets of words; 0 if the gold set has numbers, and none is shared."""
    shared = said & wanted
    numbers = set(filter(_is_number, wanted))
    if numbers and not numbers & shared:
        return 0.0
    return _f1(
        len(shared) / len(said) if said else 1.0, len(shared) / len(wanted) if wanted else 1.0
    )


def _best_pairing(scores: list[list[float]]) -> float:
    """Return the largest sum of scores that takes at most one of each row and of each column.

    The Hungarian algorithm with potentials: rows are added one by one, each along the cheapest path
    that changes earlier pairs.
    """
    is_long = len(scores) > len(scores[0])
    wide = [list(column) for column in zip(*scores, strict=True)] if is_long else scores
    num_columns = len(wide[0])
    row_potentials, potentials = [0.0] * len(wide), [0.0] * (num_columns + 1)
    row_of = [-1] * (num_columns + 1)  # the last column is where a new row starts
    for row in range(len(wide)):
        column, row_of[-1] = num_columns, row
        distances, before = [float("inf")] * num_columns, [num_columns] * num_columns
        visited: set[int] = set()
        while row_of[column] >= 0:
            visited.add(column)
            here = row_of[column]
            left = [one for one in range(num_columns) if one not in visited]
            for one in left:
                cost = -wide[here][one] - row_potentials[here] - potentials[one]
                if cost < distances[one]:
                    distances[one], before[one] = cost, column
            nearest = min(left, key=distances.__getitem__)
            step = distances[nearest]
            for one in visited:
                row_potentials[row_of[one]] += step
                potentials[one] -= step
            for one in left:
                distances[one] -= step
            column = nearest
        while column != num_columns:
            row_of[column] = row_of[before[column]]
            column = before[column]
    pairs = [(row, column) for column, row in enumerate(row_of[:-1]) if row >= 0]
    # In the order of the rows, as the script adds: another order may round to another digit.
    in_order = sorted((column, row) for row, column in pairs) if is_long else sorted(pairs)
    return sum(scores[row][column] for row, column in in_order)
