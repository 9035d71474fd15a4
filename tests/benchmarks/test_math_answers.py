"""How math_with_judge and inspect-evals score answers to GSM8K and AIME."""

from typing import NamedTuple

import pytest

from gymcli.envs.math_with_judge import compare


class Cases(NamedTuple):
    """Gold answers and texts, by the verdicts of inspect-evals 0.26.0 with inspect_ai 0.3.285.

    Made by running its scorers: `match(numeric=True)` for GSM8K, `aime_scorer` for AIME.
    """

    right: list[tuple[str, str]]
    """Right in both."""
    wrong: list[tuple[str, str]]
    """Wrong in both."""
    right_here: list[tuple[str, str]]
    """Right here, wrong in inspect-evals."""
    right_there: list[tuple[str, str]]
    """Wrong here, right in inspect-evals."""


GSM8K = Cases(
    right=[
        ("18", "She sells 9 eggs at $2.\n\nANSWER: 18"),
        ("18", "ANSWER: $18"),
        ("18", "ANSWER: 18 dollars"),
        ("18", "ANSWER: 18."),
        ("18", "ANSWER: 18.00"),
        ("18", "**ANSWER: 18**"),
        ("18", "**ANSWER:** 18"),
        ("18", "Answer: 18"),
        ("18", "So 16 - 3 - 4 = 9 and 9 * 2 = 18.\nANSWER: 18"),
        ("18", "So 16 - 3 - 4 = 9 and 9 * 2 = 18"),
        ("18", "ANSWER: 18\n\nI hope this helps!"),
        ("18", "ANSWER: 9 * 2 = 18"),
        ("18", "ANSWER: $18$"),
        ("18", "ANSWER: x = 18"),
        ("18", "ANSWER: 18 (eggs)"),
        ("1450000", "ANSWER: 1,450,000"),
        ("1450000", "ANSWER: $1,450,000"),
        ("1450000", "ANSWER: 1450000"),
        ("2,125", "ANSWER: 2125"),
        ("2,125", "ANSWER: 2,125"),
        ("-5", "ANSWER: -5"),
        ("0", "ANSWER: 0"),
        ("7.5", "ANSWER: 7.50"),
        ("18", "### Reasoning\n1. First 16 eggs\n2. Then 13\n\n### ANSWER: 18"),
        ("18", "ANSWER:\n18"),
        ("18", "ANSWER: **18**"),
    ],
    wrong=[
        ("18", "ANSWER: 17"),
        ("18", "18 is wrong, it is\nANSWER: 19"),
        ("18", "ANSWER: 180"),
        ("18", "ANSWER: 118"),
        ("18", "ANSWER: 1.8"),
        ("18", "ANSWER: -18"),
        ("18", ""),
        ("18", "I cannot solve this."),
        ("18", "ANSWER: eighteen"),
        ("18", "ANSWER: \\text{18}"),
        ("1450000", "ANSWER: 1.45 million"),
        ("0", "ANSWER: none"),
    ],
    right_here=[
        ("18", "ANSWER: \\boxed{18}"),
        ("18", "The total is \\boxed{18}."),
        ("18", "ANSWER: 18\n\nThis is because 9 eggs are sold for 2 dollars each."),
        ("18", "ANSWER: 36/2"),
        ("18", "ANSWER: \\(18\\)"),
        ("18", "ANSWER: 18%"),
        ("18", "ANSWER: 18 or 20"),
        ("7.5", "ANSWER: 15/2"),
        ("18", "ANSWER: $\\boxed{18}$"),
    ],
    right_there=[
        ("18", "ANSWER: \\$18"),
        ("1450000", "ANSWER: 1450001"),
        ("-5", "ANSWER: \u22125"),
    ],
)
AIME = Cases(
    right=[
        ("70", "so the answer is\n\nANSWER: 70"),
        ("70", "$$\n\\boxed{70}\n$$"),
        ("70", "ANSWER: \\boxed{70}"),
        ("70", "ANSWER: $\\boxed{70}$"),
        ("70", "ANSWER: $70$"),
        ("70", "**ANSWER: 70**"),
        ("70", "The answer is 70."),
        ("70", "ANSWER: 070"),
        ("70", "ANSWER: m+n = 70"),
        ("70", "ANSWER: 70\n\n---"),
        ("33", "ANSWER: 033"),
        ("204", "ANSWER: 204 minutes"),
        ("204", "\\[\\boxed{204}\\]\nANSWER: 204"),
        ("540", "I got stuck at 540 cases and cannot finish."),
    ],
    wrong=[
        ("70", "ANSWER: 71"),
        ("70", ""),
        ("70", "We get 70.\nANSWER: 69"),
        ("33", "ANSWER: \\textbf{033}"),
        ("204", "ANSWER: 3 hours 24 minutes"),
        ("809", "ANSWER: 8 0 9"),
    ],
    right_here=[
        ("70", "m+n=\\boxed{70}"),
        ("70", "ANSWER: 7*10"),
        ("70", "ANSWER: \\frac{140}{2}"),
        ("70", "ANSWER: 70\n\n(checked)"),
        ("70", "ANSWER: 70 or 71"),
        ("204", "\\boxed{204}\n\nANSWER: 205"),
        ("540", "ANSWER: 540^\\circ"),
        ("540", "ANSWER: 540°"),
    ],
    right_there=[
        ("33", "ANSWER: (33)"),
        ("204", "\\boxed{205}\n\nANSWER: 204"),
    ],
)


@pytest.mark.parametrize("cases", [GSM8K, AIME], ids=["gsm8k", "aime"])
def test_verdicts_differ_from_those_of_inspect_evals_where_the_readmes_say(cases):
    pytest.importorskip("math_verify", reason="math_with_judge needs it")
    for gold, text in (*cases.right, *cases.right_here):
        assert compare(gold, text).is_right, (gold, text)
    for gold, text in (*cases.wrong, *cases.right_there):
        assert not compare(gold, text).is_right, (gold, text)
