"""How comparisons become scores, and what shortness and plain style are worth."""

import re
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from gymcli import Comparison, JSONObject, Rollout, Score

__all__ = [
    "Result",
    "centred",
    "score_of",
    "shortest",
    "style_density",
    "top_threshold",
    "without_tie",
]

MIDDLE = 3.5
"""The ranking of two answers that are as good as each other."""

CODE = re.compile(r"```.*?```", re.DOTALL)
STYLE = (
    re.compile(r"^#{1,6}\s", re.MULTILINE),
    re.compile(r"^[^\S\n]*+(?:\d++\.|[-*+])\s", re.MULTILINE),
    re.compile(r"\*\*[^*\n]++\*\*"),
    re.compile(r"__[^_\n]++__"),
    re.compile("[\u2600-\u27bf\U0001f1e6-\U0001f1ff\U0001f300-\U0001faff]"),
)
"""Headers, list items, bold words in either form, emoji."""


class Result(NamedTuple):
    """One comparison; its places are those of the attempts in the group."""

    first: int
    second: int
    comparison: Comparison


def without_tie(comparison: Comparison) -> tuple[float, float]:
    """Give both scores; equal ones are moved apart by the ranking."""
    first, second, ranking, _ = comparison
    shift = MIDDLE - ranking if first == second else 0.0
    return first + shift, second - shift


def score_of(
    place: int, results: Sequence[Result], rollouts: Sequence[Rollout], default: float
) -> Score:
    """Give the mean of the scores of one attempt, with every comparison that it was part of."""
    own = [result for result in results if place in (result.first, result.second)]
    read = [result for result in own if result.comparison.is_parsed]
    scores = [without_tie(result.comparison)[result.second == place] for result in read]
    num_ties = sum(result.comparison.score_1 == result.comparison.score_2 for result in read)
    return Score(
        fmean(scores) if scores else default,
        metrics={
            "comparisons": len(own),
            "unparseable": len(own) - len(read),
            "ties": num_ties,
        },
        details={
            "reason": "compared" if scores else "unparseable",
            "comparisons": [_record(place, result, rollouts) for result in own],
        },
    )


def _record(place: int, result: Result, rollouts: Sequence[Rollout]) -> JSONObject:
    """Say what was compared and what was said; nothing was where it could not be read."""
    other = result.first if place == result.second else result.second
    shown: JSONObject = {
        "with_attempt": rollouts[other].attempt,
        "shown_as": 1 if place == result.first else 2,
    }
    if not result.comparison.is_parsed:
        return {**shown, "is_parsed": False}
    score_1, score_2, ranking, _ = result.comparison
    return {**shown, "score_1": score_1, "score_2": score_2, "ranking": ranking}


def top_threshold(scores: Sequence[float], share: float) -> float:
    """Give the lowest of the top scores: of a share of them, and of one at least."""
    return sorted(scores, reverse=True)[max(0, int(len(scores) * share) - 1)]


def shortest(lengths: Sequence[int]) -> int | None:
    """Give the place of the first shortest text that is not empty; None where all are."""
    places = [place for place, length in enumerate(lengths) if length]
    return min(places, key=lambda place: lengths[place], default=None)


def centred(values: Sequence[float]) -> list[float]:
    """Give a weight for each value: the lowest is 1 above the highest, and the mean is 0."""
    low, high = min(values), max(values)
    if low == high:
        return [0.0] * len(values)
    weights = [(high - value) / (high - low) for value in values]
    mean = fmean(weights)
    return [weight - mean for weight in weights]


def style_density(text: str) -> float:
    """Count headers, list items, bold words and emoji for each character, outside code."""
    prose = CODE.sub("", text)
    length = len(prose.strip())
    return sum(len(pattern.findall(prose)) for pattern in STYLE) / length if length else 0.0
