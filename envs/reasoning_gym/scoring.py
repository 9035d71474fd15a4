"""Scores an answer with the library, and corrects some errors of its scorers."""

import decimal
import json
import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple, cast

from gymcli import JSONObject

from .library import Address, evaluate, generator_of, guarded, scorer_of

__all__ = ["Outcome", "gold_in", "scored"]

NEARLY_ONE = 1 - 1e-9
"""From here on, a reward counts as full: some scorers add up fractions."""

_EXAMPLES = ("example_answer", "example_correct_answer", "possible_answer")
"""The metadata keys with an example of an answer, for entries whose answer is null."""

_NO_NUMBER = re.compile(r"(?<![a-z])(s?nan|inf|infinity)[ij]?(?![a-z])", re.IGNORECASE)
"""Numbers whose comparisons no scorer expects, also as imaginary parts."""

_FOUR_OPERATORS = re.compile(r"(?!.*(\*\*|//))[0-9+\-*/()\s]*", re.DOTALL)
"""A whole answer of countdown or puzzle24: no `**`, `//`, names or decimal points."""


class Outcome(NamedTuple):
    """The library's verdict on an answer."""

    reward: float | None
    """None if the answer cannot be scored."""
    fault: str
    """Why the answer cannot be scored."""


def scored(answer: str | None, entry: JSONObject, address: Address | None) -> Outcome:
    """Score an answer with at most 1; runs in a worker.

    The scorer is the address's, else that of the generator with default options.
    """
    gold = gold_in(entry)
    if answer is not None and answer != gold and _is_misread(answer, gold or "", entry):
        return Outcome(None, "the scorer would misread it")
    scorer = scorer_of(generator_of(entry), address)
    # An unevaluated integral is no answer, unless the gold answer cannot do without one.
    names = frozenset({"Integral"} if "Integral(" in (gold or "") else ())
    with guarded(names), decimal.localcontext(decimal.Context()):
        try:
            reward = float(cast("float", scorer(answer=answer, entry=_as_made(entry))))
        except MemoryError:
            # The worker turns it into a VerifierError, and the answer is `too_large`.
            raise
        except Exception as error:  # noqa: BLE001  # scorers raise whatever an answer leads them to
            return Outcome(None, f"{type(error).__name__}: {error}"[:300])
    if not math.isfinite(reward):
        return Outcome(None, f"it gave {reward}")
    ceiling = _CEILINGS.get(generator_of(entry))
    if reward < NEARLY_ONE or ceiling is None or answer is None or gold is None:
        return Outcome(min(reward, 1.0), "")
    return Outcome(min(reward, ceiling(answer, gold)), "")


def gold_in(entry: JSONObject) -> str | None:
    """Return the gold answer, else the metadata's example, if there is either."""
    metadata = entry["metadata"]
    assert isinstance(metadata, dict)
    examples = [metadata[key] for key in _EXAMPLES if key in metadata]
    gold = next((value for value in (entry["answer"], *examples) if value is not None), None)
    return gold if gold is None or isinstance(gold, str) else json.dumps(gold)


def _is_misread(answer: str, gold: str, entry: JSONObject) -> bool:
    """Return whether the scorer would read an answer differently from a human reader."""
    # The scorers of countdown and puzzle24 do not count numbers such as 0x10 and 1_0 among those
    # used, and do count numbers in a comment.
    if generator_of(entry) in {"countdown", "puzzle24"}:
        return not _FOUR_OPERATORS.fullmatch(answer)
    # For some scorers NaN equals any number.
    is_of_numbers = any("0" <= character <= "9" for character in gold)
    return is_of_numbers and bool(_NO_NUMBER.search(answer)) and not _NO_NUMBER.search(gold)


def _as_made(entry: JSONObject) -> dict[str, object]:
    """Return an entry as the library makes it, with grids as tuples, which JSON does not have."""
    metadata = entry["metadata"]
    assert isinstance(metadata, dict)
    grid = metadata.get("output")
    if generator_of(entry) not in {"arc_agi", "rearc"} or not isinstance(grid, list):
        return {**entry}
    rows = tuple(tuple(row) if isinstance(row, list) else row for row in grid)
    return {**entry, "metadata": {**metadata, "output": rows}}


def _most_of_coin_flip(answer: str, gold: str) -> float:
    """Score a number that begins like the gold one ("0" for "0.125") by its share of the length."""
    given, right = (Fraction(text.replace(",", "")) for text in (answer, gold))
    if abs(given - right) <= 1e-4:
        return 1.0
    lengths = [len(f"{float(number):.10g}") for number in (given, right)]
    return min(lengths) / max(lengths)


def _most_of_halting(answer: str, gold: str) -> float:
    """Require the gold word; the scorer finds every text right."""
    words = set(re.findall(r"true|false", answer.lower()))
    return float(words == {gold.lower()})


def _most_of_puzzle24(answer: str, gold: str) -> float:
    """Require exactly 24 of the puzzle's own numbers; the scorer accepts 24.5 and any numbers."""
    if _numbers(answer) != _numbers(gold):
        return 0.01
    exact = re.sub("[0-9]+", r"Fraction(\g<0>)", answer)
    try:
        value = evaluate(exact, local_names={"Fraction": Fraction})
    except (ArithmeticError, SyntaxError, TypeError, ValueError):
        return 0.01
    return 1.0 if value == 24 else 0.01


def _most_of_spell_backward(answer: str, gold: str) -> float:
    """Score an answer that continues after the gold word with 0.8, as the scorer intends."""
    is_longer = len(answer) > len(gold) and answer.lower().startswith(gold.lower())
    return 0.8 if is_longer else 1.0


def _numbers(text: str) -> list[str]:
    return sorted(re.findall("[0-9]+", text))


_CEILINGS: dict[str, Callable[[str, str], float]] = {
    "coin_flip": _most_of_coin_flip,
    "game_of_life_halting": _most_of_halting,
    "puzzle24": _most_of_puzzle24,
    "spell_backward": _most_of_spell_backward,
}
"""By generator, the reward of an answer that its scorer rewards in full."""
