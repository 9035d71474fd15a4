"""Compares two short answers on a ladder of normalisations, from the plain text to units.

Source: the resources server string_match of NVIDIA NeMo Gym (Apache-2.0), its rules written anew.
Each rung rewrites both answers; the first one on which they are the same decides.
"""

import math
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

__all__ = ["NEAR", "RUNGS", "Match", "Rung", "closing_braces", "compare"]

Rung = Literal["text", "number", "thousands", "latex", "list", "state", "near_number", "bare"]

NEAR = 0.98
"""How near a number must be, (1 - relative error) squared, and the reward for one that is."""

BRACES = re.compile("[{}]")
COMMANDS = re.compile(r"\\(?:boxed|emph|url|text(?:bf|it|tt)?|math(?:rm|bf|it|sf|bb|cal))\{")
MATH_MODE = re.compile(r"\\[()\[\]]|\$")
SIGNS = re.compile("[$£€%,]")
THOUSANDS = re.compile(r"(?<!\d)(\d++),(\d+)")
UNITS = re.compile(r"(?:\^\{?\\circ|°)\}?|\\circ|(?<![a-z])(?:cm|mm|km|m|kg)(?![a-z])")

# Where a name has another one in it, it stands first. In capitals no rule for lists changes a code.
STATE_CODES = (
    "district of columbia DC, new hampshire NH, new jersey NJ, new mexico NM, new york NY, "
    "north carolina NC, north dakota ND, rhode island RI, south carolina SC, south dakota SD, "
    "west virginia WV, alabama AL, alaska AK, arizona AZ, arkansas AR, california CA, colorado CO, "
    "connecticut CT, delaware DE, florida FL, georgia GA, hawaii HI, idaho ID, illinois IL, "
    "indiana IN, iowa IA, kansas KS, kentucky KY, louisiana LA, maine ME, maryland MD, "
    "massachusetts MA, michigan MI, minnesota MN, mississippi MS, missouri MO, montana MT, "
    "nebraska NE, nevada NV, ohio OH, oklahoma OK, oregon OR, pennsylvania PA, tennessee TN, "
    "texas TX, utah UT, vermont VT, virginia VA, washington WA, wisconsin WI, wyoming WY"
)
STATES = dict(entry.rsplit(" ", 1) for entry in STATE_CODES.split(", "))


class Match(NamedTuple):
    """How two answers are the same."""

    reward: float
    rung: Rung


def compare(answer: str, expected: str) -> Match | None:
    """Give the first rung on which two answers are the same, else None."""
    one, other = _plain(answer), _plain(expected)
    if one == other:
        return Match(1.0, "text")
    for rung, normalize in RUNGS.items():
        if normalize(one) == normalize(other) != "":
            return Match(1.0, rung)
    if _are_near(one, other):
        return Match(NEAR, "near_number")
    one, other = _bare(one), _bare(other)
    if one == other != "":
        return Match(1.0, "bare")
    return Match(NEAR, "near_number") if _are_near(one, other) else None


def closing_braces(text: str) -> dict[int, int]:
    """Give by the place of each opening brace the place of its closing one, where it has one."""
    closing: dict[int, int] = {}
    still_open: list[int] = []
    for brace in BRACES.finditer(text):
        if brace[0] == "{":
            still_open.append(brace.start())
        elif still_open:
            closing[still_open.pop()] = brace.start()
    return closing


def _plain(text: str) -> str:
    """Fold compatibility forms (NFKC) and case; drop quotes around it, then `.!?` at the end."""
    text = unicodedata.normalize("NFKC", text)
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1]
    text = text.lower()
    return text.rstrip(".!?") or text


def _number(text: str) -> str:
    """Rewrite a number, in dollars or percent of LaTeX or not, as Python does: 80 as 80.0."""
    value = _finite(text.replace("\\%", "").replace("\\$", "").replace("$", ""))
    return text if value is None else str(value)


def _thousands(text: str) -> str:
    """Close up digits, comma, digits; in `1,234,567` this takes the first comma only."""
    return THOUSANDS.sub(r"\1\2", text).replace("\\%", "%")


def _latex(text: str) -> str:
    """Drop commands of text and boxes, what shifts to mathematics, and spare blanks."""
    closing = closing_braces(text)
    dropped: set[int] = set()
    for command in COMMANDS.finditer(text):
        dropped.update(range(*command.span()))
        dropped.add(closing.get(command.end() - 1, -1))
    kept = "".join(character for place, character in enumerate(text) if place not in dropped)
    return " ".join(MATH_MODE.sub("", kept).split())


def _list(text: str) -> str:
    """Make blanks of `,`, `;`, `and` and `or`, also in words, where little of the text is lost."""
    spaced = text.replace(",", " ").replace(";", " ").replace("and", " ").replace("or", " ")
    return text if len(spaced) < 0.9 * len(text) else " ".join(spaced.split())


def _state(text: str) -> str:
    """Write the states of the USA as their postal codes, then as in a list."""
    for name, code in STATES.items():
        text = text.replace(name, code)
    return _list(text).lower()


def _bare(text: str) -> str:
    """Drop LaTeX and units, and write roots and pi as LaTeX does."""
    bare = UNITS.sub("", _latex(text))
    return bare.replace("√", "\\sqrt").replace("π", "\\pi").strip()


def _are_near(answer: str, expected: str) -> bool:
    """Say whether both are numbers, but for signs and units, about one in a hundred apart."""
    value, gold = (_finite(UNITS.sub("", SIGNS.sub("", text))) for text in (answer, expected))
    if value is None or gold is None:
        return False
    error = abs(value - gold) / max(abs(gold), 1e-9)
    return max(0.0, 1.0 - error) ** 2 > NEAR


def _finite(text: str) -> float | None:
    """Read a finite number as Python does."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


RUNGS: Mapping[Rung, Callable[[str], str]] = {
    "number": _number,
    "thousands": _thousands,
    "latex": _latex,
    "list": _list,
    "state": _state,
}
"""What is tried on two plain texts that differ, in this order."""
