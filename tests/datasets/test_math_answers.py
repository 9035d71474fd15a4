"""How math_with_judge and inspect-evals score answers to GSM8K and AIME."""

import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

from gymcli.envs.math_with_judge.math_answer import compare, stated_answer

DATASETS = Path(__file__).parents[2] / "datasets"


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
        ("18", "ANSWER: \\$18"),
        ("-5", "ANSWER: \u22125"),
        ("18", "So 16 - 3 - 4 = 9 and 9 * 2 = $18 every day.\n\nANSWER: \\$18"),
        ("18", "So 16 - 3 - 4 = 9 and 9 * 2 = $18 every day.\n\nANSWER: `18`"),
        ("18", 'So 16 - 3 - 4 = 9 and 9 * 2 = $18 every day.\n\nANSWER: "18"'),
        ("18", "So 16 - 3 - 4 = 9 and 9 * 2 = $18 every day.\n\nANSWER: +18"),
        ("18", "So 16 - 3 - 4 = 9 and 9 * 2 = $18 every day.\n\nANSWER:\n\n18"),
        ("18", "So 16 - 3 - 4 = 9 and 9 * 2 = $18 every day.\n\nANSWER: 18 because 9 * 2 = 18"),
        ("35", "The final answer is 36.\n\nANSWER: 35"),
        ("18", "ANSWER: **\\$18** per day"),
        ("18", "ANSWER: 18 km/h"),
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
        ("1450000", "ANSWER: 1.45 million"),
        ("0", "ANSWER: none"),
        ("18", "ANSWER: 18 or 20"),
        ("18", "So 16 - 3 - 4 = 9 and 9 * 2 = $18 every day.\n\nANSWER: \\$20"),
        ("18", "So 16 - 3 - 4 = 9 and 9 * 2 = $18 every day.\n\nANSWER: `20`"),
        ("36", "The final answer is 36.\n\nANSWER: 35"),
        ("18", "\\boxed{18}\n\nANSWER: 20"),
        ("0", "ANSWER: zero"),
    ],
    right_here=[
        ("18", "ANSWER: \\text{18}"),
        ("18", "ANSWER: \\boxed{18}"),
        ("18", "The total is \\boxed{18}."),
        ("18", "ANSWER: 18\n\nThis is because 9 eggs are sold for 2 dollars each."),
        ("18", "ANSWER: 36/2"),
        ("18", "ANSWER: \\(18\\)"),
        ("18", "ANSWER: 18%"),
        ("7.5", "ANSWER: 15/2"),
        ("18", "ANSWER: $\\boxed{18}$"),
        ("18", "ANSWER: 18kg"),
        ("1450000", "ANSWER: 1 450 000"),
        ("7.5", "ANSWER: 7 1/2"),
    ],
    right_there=[
        ("18", "So 16 - 3 - 4 = 9 and 9 * 2 = 18"),
        ("1450000", "ANSWER: 1450001"),
        ("18", "So 16 - 3 - 4 = 9 and 9 * 2 = $18 every day.\n\nANSWER: unknown"),
        ("18", "So 16 - 3 - 4 = 9 and 9 * 2 = $18 every day.\n\nANSWER:"),
        ("18", "So 16 - 3 - 4 = 9 and 9 * 2 = $18 every day.\n\nANSWER: not 18"),
        ("18", "So 16 - 3 - 4 = 9 and 9 * 2 = $18 every day.\n\nANSWER: 20 and 18"),
        ("18", "So 16 - 3 - 4 = 9 and 9 * 2 = $18 every day.\n\nANSWER: 2 hours 18 minutes"),
        ("18", "So 16 - 3 - 4 = 9 and 9 * 2 = 18 eggs. Let me double-check by"),
        ("18", "It is 18, so \\boxed{?}"),
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
        ("70", "ANSWER: 070"),
        ("70", "ANSWER: m+n = 70"),
        ("70", "ANSWER: 70\n\n---"),
        ("33", "ANSWER: 033"),
        ("204", "ANSWER: 204 minutes"),
        ("204", "\\[\\boxed{204}\\]\nANSWER: 204"),
        ("33", "ANSWER: (33)"),
        ("204", "\\boxed{205}\n\nANSWER: 204"),
    ],
    wrong=[
        ("70", "ANSWER: 71"),
        ("70", ""),
        ("70", "We get 70.\nANSWER: 69"),
        ("204", "ANSWER: 3 hours 24 minutes"),
        ("809", "ANSWER: 8 0 9"),
        ("70", "ANSWER: 70 or 71"),
        ("204", "\\boxed{204}\n\nANSWER: 205"),
    ],
    right_here=[
        ("33", "ANSWER: \\textbf{033}"),
        ("70", "m+n=\\boxed{70}"),
        ("70", "ANSWER: 7*10"),
        ("70", "ANSWER: \\frac{140}{2}"),
        ("70", "ANSWER: 70\n\n(checked)"),
        ("540", "ANSWER: 540^\\circ"),
        ("540", "ANSWER: 540\u00b0"),
    ],
    right_there=[
        ("70", "The answer is 70."),
        ("540", "I got stuck at 540 cases and cannot finish."),
    ],
)


@pytest.mark.parametrize(
    ("cases", "benchmarks"),
    [(GSM8K, ["gsm8k"]), (AIME, ["aime24", "aime25", "aime26"])],
    ids=["gsm8k", "aime"],
)
def test_verdicts_differ_from_those_of_inspect_evals_where_the_readmes_say(cases, benchmarks):
    pytest.importorskip("math_verify", reason="math_with_judge needs it")
    for name in benchmarks:
        benchmark = tomllib.loads((DATASETS / name / "benchmark.toml").read_text())
        assert benchmark["env_args"] == {"answer_place": "line_or_boxed", "use_judge": False}
        num_equal = len(cases.right) + len(cases.wrong)
        num = num_equal + len(cases.right_here) + len(cases.right_there)
        readme = " ".join((DATASETS / name / "README.md").read_text().split())
        assert f"Of {num} answers of all shapes {num_equal} get the verdict" in readme
    for gold, text in (*cases.right, *cases.right_here):
        assert is_right(gold, text), (gold, text)
    for gold, text in (*cases.wrong, *cases.right_there):
        assert not is_right(gold, text), (gold, text)


# By the verdicts of lm-eval 0.4.13's filter strict-match and exact_match for gsm8k_cot_llama.
GSM8K_8_SHOT = Cases(
    right=[
        ("18", "The final answer is 18"),
        ("18", "The final answer is 18."),
        ("18", "So 3.\nThe final answer is $18."),
        ("1,450", "The final answer is 1,450"),
        ("1,450", "The final answer is $1450."),
        ("-5", "The final answer is -5."),
        ("-5", "The final answer is -$5"),
        ("18", "The final answer is 18 dollars."),
        ("18", "The final answer is 18 eggs per day"),
        ("18", "The final answer is 18%"),
        ("18", "The final answer is 7. The final answer is 18."),
        ("18", "The final answer is 18 because 2 + 2 = 4"),
        ("18", "The final answer is 18. I hope this helps."),
    ],
    wrong=[
        ("18", "The answer is 18"),
        ("18", "#### 18"),
        ("18", "ANSWER: 18"),
        ("18", "The final answer is not 18."),
        ("18", "The final answer is\n18"),
        ("18", "The final answer is 918"),
        ("18", "The final answer is 18. The final answer is 7."),
        ("18", ""),
    ],
    right_here=[
        ("18", "The final answer is **18**"),
        ("18", r"The final answer is \boxed{18}."),
        ("18", "the final answer is 18"),
        ("18", "The final answer is: 18"),
        ("18", "The final answer is x = 18"),
        ("18", "The final answer is 18.00"),
        ("18", "The final answer is $ 18"),
        ("18", "The final answer is about 18"),
    ],
    right_there=[
        ("18", "The final answer is 18 and not 9."),
        ("-5", "The final answer is -5%"),
    ],
)


def test_verdicts_differ_from_those_of_lm_eval_where_the_readme_says():
    pytest.importorskip("math_verify", reason="math_with_judge needs it")
    right, wrong, right_here, right_there = GSM8K_8_SHOT
    num_equal = len(right) + len(wrong)
    readme = " ".join((DATASETS / "gsm8k" / "README.md").read_text().split())
    num = num_equal + len(right_here) + len(right_there)
    assert f"Of {num} answers of all shapes {num_equal} get the verdict of lm-eval" in readme
    for gold, text in (*right, *right_here):
        assert is_right(gold, text, "sentence"), (gold, text)
    for gold, text in (*wrong, *right_there):
        assert not is_right(gold, text, "sentence"), (gold, text)


def is_right(gold, text, place="line_or_boxed"):
    answer = stated_answer(text, place)
    return answer is not None and compare(gold, answer).is_right
