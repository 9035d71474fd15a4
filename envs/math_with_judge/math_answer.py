r"""Finds the answer to a mathematical problem in a text, and compares it by math-verify.

Used alone, the library searches a text for whatever it can read, so that a number of the reasoning
becomes the answer where the stated one is missing. Here an answer has one place, and the place is
read as one answer.
"""

import logging
import re
from decimal import Decimal
from typing import Literal, NamedTuple

from gymcli import (
    VerifierError,
    closed_boxes,
    last_answer_line,
    last_boxed,
    plain_answer,
    without_text_commands,
)

__all__ = [
    "MAX_ANSWER",
    "AnswerPlace",
    "LibraryFinding",
    "compare",
    "stated_answer",
    "without_dollars",
]

MAX_ANSWER = 1000
"""Characters of an answer that the record keeps and a judge is shown."""

AnswerPlace = Literal["boxed_or_line", "line_or_boxed", "boxed", "sentence"]

# Up to a full stop that ends a sentence, or the line.
_SENTENCE = re.compile(r"(?i)\bfinal answer is\b:?([^\n]*?)(?:[.!](?=\s|\Z)|$)", re.MULTILINE)

# What may stand between boxes that are one answer, such as `$\boxed{2}$ and $\boxed{5}$`.
_JOINT = re.compile(r"(?:[\s,$]|\\[()\[\],;:! ]|\\q?quad\b|\b(?:and|or)\b)*+")


def stated_answer(text: str, place: AnswerPlace) -> str | None:
    """Return the answer at a place of a text, without its decoration; None if there is none."""
    if place == "boxed":
        return _boxed(text) if (last_boxed(text) or "").strip() else None
    if place == "sentence":
        sentences = _SENTENCE.findall(text)
        return (_boxed(sentences[-1]) or _plain(sentences[-1]) or None) if sentences else None
    line = last_answer_line(text) or ""
    # A box counts on the line too, but not the beginning of one that is closed on another line.
    line = _boxed(line) or ("" if "\\boxed{" in line else _plain(line))
    boxed = _boxed(text) or ""
    return (line or boxed if place == "line_or_boxed" else boxed or line) or None


def _boxed(text: str) -> str | None:
    """Return the content of the last box that is not empty, and of those that are joined to it."""
    boxes = [box for box in closed_boxes(text) if box.content.strip()]
    joined = boxes[-1:]
    for box in reversed(boxes[:-1]):
        if not _JOINT.fullmatch(without_text_commands(text[box.end : joined[-1].start])):
            break
        joined.append(box)
    # A box that is repeated does not become two solutions.
    contents = dict.fromkeys(box.content.strip() for box in reversed(joined))
    return ", ".join(map(_plain, contents)) or None


def _plain(text: str) -> str:
    """Take the decoration and a full stop off an answer."""
    return plain_answer(plain_answer(text).removesuffix("."))


class LibraryFinding(NamedTuple):
    """The library's verdict on an answer."""

    is_right: bool
    answer: str | None
    """What it read, cut after `MAX_ANSWER` characters; None if it can read nothing."""


def compare(gold: str, answer: str) -> LibraryFinding:
    """Compare an answer with the gold answer; runs in a worker, which limits its time.

    Raises:
        VerifierError: The library can read nothing in the gold answer.

    """
    # It logs a warning about the timeouts that are off, and about every text without an answer.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    gold, answer = (_NEGATIVE_SPACE.sub("", text) for text in (gold, answer))
    gold_latex = _in_latex(without_dollars(gold))
    golds = _parsed(gold_latex)
    if not golds:
        raise VerifierError(f"math-verify can read nothing in the expected answer {gold!r:.200}")
    if isinstance(golds[0], str) or _WORDS.search(gold_latex):
        latex = _in_latex(answer)
        is_right = latex.casefold() == gold_latex.casefold() or _is_equal(golds, _parsed(latex))
        return LibraryFinding(is_right, answer[:MAX_ANSWER])
    if _number(golds[0]) is not None:
        answer = _THOUSANDS.sub(lambda number: number[0].replace(",", ""), answer)
        answer = _DECIMAL_COMMA.sub(r"\1.\2", answer)
    formula = _formula(answer)
    values = _parsed(formula) if formula else []
    if not values or isinstance(values[0], str):
        return LibraryFinding(is_right=False, answer=None)
    return LibraryFinding(_is_equal(golds, values), _written(values))


def without_dollars(gold: str) -> str:
    """Remove the outer `$..$` of an answer."""
    text = gold.strip()
    if text.startswith("$") and text.endswith("$"):
        text = text[1:-1].strip()
    return text


# `\!` of `18,\!000`; behind a letter it separates, as in `\sin\!x`.
_NEGATIVE_SPACE = re.compile(r"(?<![\\A-Za-z])\\!\s*+")
_SUPERSCRIPTS = str.maketrans("⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "+-0123456789")
_SIGNS = str.maketrans(
    {"\u2212": "-", "·": r"\cdot ", "∞": r"\infty ", "≈": r"\approx ", "½": r"\frac{1}{2}"}
)
# Notation that the library cannot read or takes for something else. The order counts.
_NOTATION = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(?<!\\)\\[,;:! ()\[\]]|\\q?quad\b|~|\\?\$|[€£¥₹]", " "),
        (r"(?:\^\{?\\circ\}?|°)(?: ?[CF]\b)?|\\(?:tri)?angle\b", " "),
        (r"[⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹]++", lambda power: f"^{{{power[0].translate(_SUPERSCRIPTS)}}}"),
        (r"(?<=[\w)}])\*\*(?=[\w({+-])", "^"),
        (r"\^([-+]?\d++)", r"^{\1}"),
        (r"(?:√|(?<![A-Za-z])\\?sqrt) ?\(([^()]*+)\)|√ ?(\w++)", r"\\sqrt{\1\2}"),
        (r"\s++", " "),
        (r"(?<![\d.,])([1-9]\d{0,2}(?: \d{3})++)(?!\d)", lambda number: number[0].replace(" ", "")),
        (r"(?<!\d)(\d++) (\d++)/(\d++)", r"\1\\frac{\2}{\3}"),
        (r"(?<=\d)e(?=[-+]?\d)", "E"),
        (r"(?<=\d) x (?=\d)", r"\\times "),
        (r"(?<![\\A-Za-z])(sin|cos|tan|ln|log|pi)(?![A-Za-z])", r"\\\1 "),
        (r"\bpercent\b", "%"),
        (r",? ?\b(?:and|or)\b", ","),
        (r"(?i:(?<![-\w])(?<![\d)}] )(?:minus|negative) (?=[\d.\\(]|[^\W\d_a]\b))", "-"),
    )
]


def _in_latex(text: str) -> str:
    """Return an answer in the notation of LaTeX, without dollars and spacing."""
    text = without_text_commands(text).translate(_SIGNS)
    for pattern, replacement in _NOTATION:
        text = pattern.sub(replacement, text)
    return text.strip()


_WORDS = re.compile(
    # The names of commands and environments, and those in subscripts, are no words.
    r"(?: ?(?:(?:\b[AaI] )?(?<![A-Za-z\\{])[A-Za-z]{2,}+"
    # Units of one letter; then alphabets that are neither Latin nor Greek.
    r"|(?<=[\d})] )[mgshLVWNJKAC](?![A-Za-z(])|(?<=\d)m(?=/s)|[^\W\d_A-Za-z\u0370-\u03ff]++)"
    r"(?:['\u2019/][A-Za-z]++)*+(?:\^\{-?\d\}|[23]\b)?)++"
)
# What "18 because 2*9 = 18" says besides a number.
_REASON = re.compile(r"\b(?:because|since)\b.*", re.IGNORECASE)
# Words that are no mere prose: they deny, bound or scale the number, whose value is then another.
# Where a word has harmless senses too, only its place beside a number counts: "18 left over",
# "the third side is 18", "18 square meters" and "$18 per dozen" are 18, as is "half of 36 = 18".
_CHANGE = re.compile(
    r"n['\u2019]t\b|不(?!同)|(?:^|[=(,:]) ?- ?-"
    r"|\b(?:(?:can)?not|never|none|neither|nor|nicht|keine?|pas|(?<!with )no(?!\. of))\b"
    r"|(?:=|\bwas) ?(?:wrong|incorrect|false)\b"
    r"|\b(?:than|between|at (?:least|most))\b|, (?:more|less|fewer|over|under|above|below|up)\b"
    # Before a number.
    r"|\b(?:without|but|hardly|almost|nearly|within|(?<!add )(?<!adds )up to|over|under|above|below"
    r"|twice|double|triple|half|third|quarter|square|cube|root|negative|reciprocal)"
    r"(?: of)? -?(?:[\d.,]++(?! ?=)|[\\(√])"
    # After a number.
    r"|(?<=[\d)}]) ?(?:(?:dozen|hundred|thousand|(?:m|b|tr)illion)(?:s|en|ths)?"
    r"|tenths|thirds|halves|squared|cubed|doubled|tripled|halved|factorial)\b"
    r"|(?<=[\d)}]) ?[百千万萬亿億](?![米克瓦卡焦])"
    r"|,[ -](?:a|one|two|three)[ -](?:half|thirds?|quarters?)\b",
    re.IGNORECASE,
)
_IS = re.compile(r"(?:\b(?:is|are|equals?(?: to)?)\b[ =]*+)++")
_THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})++(?![\d,])")
_DECIMAL_COMMA = re.compile(r"(?<![\d.,])(\d++),(?!\d{3}(?!\d))(\d++)(?!,)")
_NAME = re.compile(r"\A[^=,\d\0]*+\0[^=,\d]*+=")
_START = re.compile(r"\A(?:[ \0,:=#?!\"']|\\approx\b|\.(?!\d))++")


def _formula(answer: str) -> str | None:
    """Return the one formula of an answer without the words around it; None if it has others."""
    text = _IS.sub("=", _REASON.sub("", _in_latex(answer)))
    if _CHANGE.search(text):
        return None
    text = _WORDS.sub("\0", text)
    # What a number is called, as in `AP = 18`, and units of the members of a list.
    text = re.sub(r"\(\0\)|\0(?= ?[,)])", "", _NAME.sub("", text))
    text = plain_answer(_START.sub("", text).rstrip(" \0,:=.?(/-\"'"))
    # The library would multiply or add "8 0 9", and complete a formula that was cut.
    is_broken = "\0" in text or text.count("{") != text.count("}") or re.search(r"\d \d", text)
    return None if is_broken else text


def _parsed(latex: str) -> list[object]:
    """Return the expression that the library reads, if any, and its text."""
    import math_verify as library  # late: an extra, and a second to import

    # Both timeouts are off: they would turn a slow step into "wrong". The worker's limit does not.
    configs = (library.LatexExtractionConfig(),)
    return [*library.parse(f"\\boxed{{{latex}}}", configs, parsing_timeout=None)]


def _is_equal(golds: list[object], values: list[object]) -> bool:
    """Compare by six decimals, as the reference does, or six digits of a small gold answer."""
    import math_verify as library  # late: as above

    gold = _number(golds[0])
    if gold is not None and 0 < abs(gold) < Decimal("0.001"):
        number = _number(values[0]) if values else None
        if number is not None:
            return f"{number:.5e}" == f"{gold:.5e}"
    return bool(library.verify(golds, values, 6, timeout_seconds=None))


def _number(value: object) -> Decimal | None:
    """Return the number that an expression, or the last side of an equation, is."""
    from math_verify.grader import is_equation, take_last_relation  # late: as above

    if is_equation(value):
        value = take_last_relation(value).rhs
    evaluate = getattr(value, "evalf", None)
    try:
        number = Decimal(str(evaluate(30))) if evaluate else Decimal("NaN")
    except (ArithmeticError, TypeError, ValueError):
        return None
    return number if number.is_finite() else None


def _written(values: list[object]) -> str:
    """Return an answer as text."""
    try:
        return str(values[0])[:MAX_ANSWER]
    except ValueError:
        # Python prints no integer of more than 4,300 digits. The list ends with the answer's text.
        return str(values[-1])[:MAX_ANSWER]
