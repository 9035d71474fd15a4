"""The environment string_match: how answers are read and compared, and the tasks."""

import datetime as dt
import itertools
import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gymcli.envs.string_match import (
    EXTRACTORS,
    RUNGS,
    STATES,
    ShortAnswer,
    StringMatch,
    closing_braces,
    compare,
)
from tests.envs.episodes import (
    answered,
    played,
    row_of_file,
    says,
    scored,
    scored_here,
    task_row,
)


def short(expected, mode="full_response", *, case_sensitive=False):
    return {
        "expected_answer": expected,
        "extraction_mode": mode,
        "case_sensitive": case_sensitive,
    }


def score(expected, *texts, mode="full_response", case_sensitive=False):
    task = short(expected, mode, case_sensitive=case_sensitive)
    return scored(answered("string_match", task, *texts))


def found(mode, *texts):
    """Return the answer that is read from texts."""
    return score("x", *texts, mode=mode).answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        pytest.param(r"\boxed{Paris}", "Paris", id="box"),
        pytest.param(r"\boxed{a} or \boxed{b}", "b", id="the last of two"),
        pytest.param(r"\boxed{\frac{1}{2}}", r"\frac{1}{2}", id="braces inside"),
        pytest.param(r"\boxed{\boxed{D}}", "D", id="box in a box, the inner one"),
        pytest.param(r"\boxed{a} then \boxed{b", "a", id="the last one that is closed"),
        pytest.param(r"\boxed{a} \boxed{b{} \boxed{c", "a", id="two that are not closed"),
        pytest.param(r"\boxed{ a }", "a", id="blanks"),
        pytest.param(r"\boxed{\text{ Paris }}", "Paris", id="text command"),
        pytest.param(r"\boxed{\text{\text{Paris} }}", "Paris", id="text command twice"),
        pytest.param(r"\boxed{5 \text{ km}}", r"5 \text{ km}", id="text command within"),
        pytest.param(
            r"\boxed{\text{a} or \text{b}}", r"\text{a} or \text{b}", id="two text commands"
        ),
        pytest.param(r"\boxed{\textbf{Paris}}", "Paris", id="bold in a box"),
        pytest.param(r"\boxed{\mathrm{Paris}}", "Paris", id="roman in a box"),
        pytest.param(r"\boxed{**Paris**}", "Paris", id="Markdown in a box"),
        pytest.param(r"\boxed{\text{x_{1}}}", "x_{1}", id="text command around braces"),
        pytest.param(r"\boxed{}", None, id="empty box"),
        pytest.param("Paris", None, id="no box"),
    ],
)
def test_boxed(text, answer):
    assert found("boxed", text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        pytest.param("Final answer: Paris", "Paris", id="final answer"),
        pytest.param("Answer: Paris", "Paris", id="answer"),
        pytest.param("FINAL  ANSWER : Paris", "Paris", id="case and blanks"),
        pytest.param("So the answer\uff1aParis", "Paris", id="full-width colon"),
        pytest.param("Answer: Rome\nAnswer: Paris\nBye", "Paris", id="the last one"),
        pytest.param("Answer:\n\nParis", "Paris", id="on the next line"),
        pytest.param("Answer: a, answer: b", "a, answer: b", id="two on a line, from the first"),
        pytest.param("Answer: Paris. ", "Paris", id="full stop"),
        pytest.param("Answer: Paris...", "Paris", id="full stops"),
        pytest.param("Answer: 3.5", "3.5", id="decimal point"),
        pytest.param("Answer: **Paris**", "Paris", id="bold answer"),
        pytest.param("Answer: **Paris.**", "Paris", id="bold answer with a full stop"),
        pytest.param("Answer: **Paris**.", "Paris", id="bold answer before a full stop"),
        pytest.param("**Final answer:** Paris", "Paris", id="bold label"),
        pytest.param("**Final answer**: Paris", "Paris", id="bold label before the colon"),
        pytest.param("**Answer:** **Paris**", "Paris", id="bold label and answer"),
        pytest.param("**Answer: Paris**", "Paris", id="bold line"),
        pytest.param("**Answer:**\n\nParis\nBye", "Paris", id="bold label, next line"),
        pytest.param("Answer: `Paris`", "Paris", id="code"),
        pytest.param("Answer:\n```text\nParis\n```", "Paris", id="fenced code"),
        pytest.param('Answer: "Paris"', "Paris", id="quotes"),
        pytest.param("Answer: “Paris”.", "Paris", id="typographic quotes"),
        pytest.param(r"Answer: $\boxed{\text{Paris}}$", "Paris", id="box in a formula"),
        pytest.param("Answer:\n\\[\nx^2\n\\]", "x^2", id="formula on lines of its own"),
        pytest.param("Answer: 2**3", "2**3", id="asterisks within"),
        pytest.param("The final answer is: Paris", "Paris", id="in a sentence"),
        pytest.param("Answer: Rome\nFinal answer:", None, id="cut behind the last label"),
        pytest.param("Answer: **", None, id="nothing but asterisks"),
        pytest.param(r"It is \boxed{Paris}.", "Paris", id="box where no answer is named"),
        pytest.param(r"Answer: Rome \boxed{Paris}", r"Rome \boxed{Paris}", id="line before box"),
        pytest.param("Answer: .", None, id="only a full stop"),
        pytest.param("Paris", None, id="neither"),
    ],
)
def test_final_answer(text, answer):
    assert found("final_answer", text) == answer


@pytest.mark.parametrize(
    ("mode", "texts", "answer"),
    [
        pytest.param("last_line", ["Hm.\n Paris \n\n"], "Paris", id="last line with text"),
        pytest.param("last_line", ["Paris"], "Paris", id="only line"),
        pytest.param("last_line", ["Hm.\n**Paris**"], "Paris", id="last line in bold"),
        pytest.param("last_line", ["```\nParis\n```"], "Paris", id="last line of code"),
        pytest.param("last_line", [" \n "], None, id="blank lines"),
        pytest.param("full_response", ["**Paris**"], "Paris", id="everything in bold"),
        pytest.param("full_response", [" Hm.\nParis "], "Hm.\nParis", id="everything"),
        pytest.param("full_response", [" "], None, id="blanks"),
        pytest.param("full_response", ["It is", "Paris"], "It is\nParis", id="all messages"),
        pytest.param("last_line", ["Rome", "Paris"], "Paris", id="line of the last message"),
        pytest.param("boxed", [r"\boxed{Paris}", "Bye."], "Paris", id="box of an earlier message"),
    ],
)
def test_other_modes(mode, texts, answer):
    assert found(mode, *texts) == answer


@pytest.mark.parametrize(
    ("text", "number"),
    [
        pytest.param("The sum is -5.", "-5", id="sign"),
        pytest.param("x = \u22125", "-5", id="minus sign"),
        pytest.param("**-5**", "-5", id="sign in bold"),
        pytest.param("_-5_", "-5", id="sign in italics"),
        pytest.param("(3,-5)", "-5", id="sign after a comma"),
        pytest.param("-$5", "-5", id="sign before a currency"),
        pytest.param("10-5", "5", id="difference of numbers"),
        pytest.param("x-5", "5", id="difference of names"),
        pytest.param("f(x)-5", "5", id="difference after a bracket"),
        pytest.param("5%-10%", "10", id="range"),
        pytest.param("2024-05-12", "12", id="date"),
        pytest.param("5\u20136", "6", id="dash"),
        pytest.param("x = - 5", "-5", id="sign and blank"),
        pytest.param("x = \u2212\u20095", "-5", id="minus sign and thin space"),
        pytest.param("x =\u00a0-\u202f5", "-5", id="sign between no-break spaces"),
        pytest.param(r"\(-\,5\)", "-5", id="sign and space of LaTeX"),
        pytest.param("x = \u20135", "-5", id="en dash as sign"),
        pytest.param("- 5", "-5", id="sign at the start"),
        pytest.param("So:\n\u2212 5", "-5", id="sign at the start of a line"),
        pytest.param("So:\n\u2013 5", "-5", id="en dash at the start of a line"),
        pytest.param("(- 5", "-5", id="sign after a bracket"),
        pytest.param("[- 5", "-5", id="sign after a square bracket"),
        pytest.param("\\boxed{- 5}", "-5", id="sign in a box"),
        pytest.param("Answer: - 5", "-5", id="sign after a colon"),
        pytest.param("3, - 5", "-5", id="sign and blank after a comma"),
        pytest.param("$- 5$", "-5", id="sign after the start of a formula"),
        pytest.param("It is \u00a3 - 5", "-5", id="sign after a currency"),
        pytest.param("= - $5", "-5", id="sign, blank, currency"),
        pytest.param("= - .5", "-0.5", id="sign, blank, point"),
        pytest.param("- 1 000", "-1000", id="sign before blanks of thousands"),
        pytest.param("10 - 5", "5", id="difference with blanks"),
        pytest.param("the answer - 5", "5", id="dash after a word"),
        pytest.param("(a) - 5", "5", id="difference after a bracket with blanks"),
        pytest.param("$10$ \u2013 $5$", "5", id="range of formulas"),
        pytest.param("5\u20ac - 10\u20ac", "10", id="difference of amounts"),
        pytest.param("5 \u2013 10", "10", id="dash with blanks"),
        pytest.param("Eggs:\n- 3\n- 5", "5", id="item of a list"),
        pytest.param("Eggs:\n- Today:\n  - 5", "5", id="item of a list in a list"),
        pytest.param("+5", "5", id="plus"),
        pytest.param("-0.0", "0", id="zero has no sign"),
        pytest.param("It is .5", "0.5", id="leading point"),
        pytest.param("-.50", "-0.5", id="sign and leading point"),
        pytest.param("sections 1.2.3", "3", id="point between numbers"),
        pytest.param("1,450.0 dollars", "1450", id="comma and final zeros"),
        pytest.param("1,234,567", "1234567", id="commas"),
        pytest.param("It is 1\u00a0234\u202f567.", "1234567", id="no-break spaces"),
        pytest.param("It is 1\u2009234", "1234", id="thin space"),
        pytest.param(r"It is 1{,}234 or 1\,234", "1234", id="separators of LaTeX"),
        pytest.param("1 000", "1000", id="blank in the only number"),
        pytest.param("**$1 000.50**", "1000.5", id="blank in a decorated number"),
        pytest.param("It is 1 000", "000", id="blank between numbers of a sentence"),
        pytest.param("12345\u00a0678", "678", id="no group of thousands"),
        pytest.param("about 1.5e-3", "1.5e-3", id="exponent"),
        pytest.param("1e5x", "5", id="no exponent"),
        pytest.param("five", None, id="words"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_last_number(text, number):
    assert score("1", text, mode="last_number").answer == number


@pytest.mark.parametrize(
    ("expected", "answer", "reward"),
    [
        ("-5", "10 - 15 = -5", 1.0),
        ("5", "-5", 0.0),
        ("\u22125", "-5", 1.0),
        ("5", "x = - 5", 0.0),
        ("- 5", "x = \u20135", 1.0),
        (".5", "0.50", 1.0),
        ("1,450.0", "1450", 1.0),
        ("5 km", "5", 1.0),
        (1000, "1 000", 1.0),
        ("1500", "1.5e3", 1.0),
    ],
)
def test_last_number_reads_the_expected_number_too(expected, answer, reward):
    assert score(expected, answer, mode="last_number").reward == reward


@given(st.text(alphabet="0123456789.,-\u2212 \u00a0$*\nx", max_size=30))
def test_last_digits_reads_as_simple_evals(text):
    """The rule of `parse_answer` and `score_mgsm` in mgsm_eval.py of simple-evals at ee3b031."""
    numbers = re.findall(r"\d+\.?\d*", text.replace(",", ""))
    prediction = numbers[-1].rstrip(".") if numbers else ""
    if "." in prediction:
        prediction = prediction.rstrip("0").rstrip(".")

    task = {"expected_answer": prediction or "1", "extraction_mode": "last_digits"}
    rollout = scored_here(answered("string_match", {**task, "case_sensitive": True}, text))
    assert rollout.answer == (prediction or None)
    assert rollout.reward == (1.0 if prediction else 0.0)


def test_extraction_mode_defaults_to_the_final_answer():
    task = ShortAnswer.model_validate({"expected_answer": "x"})

    defaults = (task.extraction_mode, task.case_sensitive, task.near)
    assert defaults == ("final_answer", False, True)


@pytest.mark.parametrize(
    ("answer", "expected", "rung"),
    [
        pytest.param("Paris", "Paris", "text", id="same text"),
        pytest.param("PARIS", "paris", "text", id="case"),
        pytest.param("x\u00b2", "x2", "text", id="compatibility forms"),
        pytest.param("\uff30aris", "Paris", "text", id="full width"),
        pytest.param('"Paris"', "'Paris'", "text", id="outer quotes"),
        pytest.param("Paris!?.", "Paris", "text", id="punctuation at the end"),
        pytest.param("?", "?", "text", id="nothing but punctuation"),
        pytest.param('"Paris".', "Paris", None, id="quotes before punctuation, known limit"),
        pytest.param("80.0", "80", "number", id="decimal"),
        pytest.param("8e1", "80", "number", id="exponent"),
        pytest.param("$80", r"\$80.0", "number", id="dollars"),
        pytest.param(r"80\%", "80", "number", id="percent of LaTeX"),
        pytest.param("-80", "80", None, id="sign"),
        pytest.param("1,000 men", "1000 men", "thousands", id="comma in a number"),
        pytest.param("1,000", "1000", "thousands", id="comma in a mere number"),
        pytest.param("1,234,567", "1234567", "near_number", id="two commas, known limit"),
        pytest.param(r"a 5\%", "a 5%", "thousands", id="percent in a text"),
        pytest.param(r"\text{Paris}", "Paris", "latex", id="text command"),
        pytest.param(r"\mathbf{\emph{x}} + {y}", "x + {y}", "latex", id="commands, other braces"),
        pytest.param(r"\mathrm{x", "x", "latex", id="command without its brace"),
        pytest.param(r"\(x\)", "$x$", "latex", id="mathematics"),
        pytest.param(r"\texttt{x}", "x", "latex", id="typewriter command"),
        pytest.param("a   b", "a b", "latex", id="blanks"),
        pytest.param(r"\frac{1}{2}", "1/2", None, id="fractions are not read"),
        pytest.param("red, green, blue", "red; green; blue", "list", id="semicolons"),
        pytest.param("horse, donkey", "horse donkey", "list", id="no comma"),
        pytest.param("blue whale and chimpanzee", "blue whale, chimpanzee", "list", id="and"),
        pytest.param("cats and dogs", "cats, dogs", None, id="and in a short list, known limit"),
        pytest.param("b, a", "a, b", None, id="order"),
        pytest.param("NY", "New York", "state", id="state"),
        pytest.param("Salem, OR", "Salem, Oregon", None, id="or for Oregon, known limit"),
        pytest.param("Austin, TX", "Austin, Texas", "state", id="state in a list"),
        pytest.param("WV", "West Virginia", "state", id="state with another one in its name"),
        pytest.param("100.5", "100", "near_number", id="half a percent off"),
        pytest.param("101.5", "100", None, id="one and a half percent off"),
        pytest.param("0.001", "0", None, id="nothing is near zero"),
        pytest.param("5 km", "5", "near_number", id="unit left out"),
        pytest.param("5 mm", "5 cm", "near_number", id="other unit, known limit"),
        pytest.param("£1,000", "€1000", "near_number", id="currency"),
        pytest.param("20°", "20", "near_number", id="degrees"),
        pytest.param("50%", "50", "near_number", id="percent"),
        pytest.param(r"5 \text{ km}", "5", "bare", id="unit in LaTeX"),
        pytest.param(r"100.4 \text{ km}", "100", "near_number", id="unit in LaTeX, near"),
        pytest.param(r"90^{\circ}", "90", "near_number", id="degrees of LaTeX"),
        pytest.param(r"x = 90^\circ", "x = 90°", "bare", id="degrees in a text"),
        pytest.param("2π", r"2\pi", "bare", id="pi"),
        pytest.param("√2 m", r"\sqrt2", "bare", id="root and unit"),
        pytest.param("Rome", "Paris", None, id="other text"),
        pytest.param("ham", "ha", None, id="m in a word is no unit"),
        pytest.param("km", "cm", None, id="nothing left is not the same"),
        pytest.param("$", r"\(\)", None, id="nothing left of LaTeX"),
    ],
)
def test_compare(answer, expected, rung):
    match = compare(answer, expected)

    assert (match.rung if match else None) == rung
    if match:
        assert match.reward == (0.98 if rung == "near_number" else 1.0)
        assert compare(expected, answer) is not None


@pytest.mark.parametrize(
    ("answer", "expected", "is_right"),
    [
        ("1984", "1985", False),
        ("1985.0", "1985", True),
        ("1,234,567", "1234567", True),
        ("£1,000", "1000", True),
        ("£1,000", "€1000", False),
        ("50%", "50", True),
        ("50%", "0.5", False),
        ("5 km", "5", True),
        (r"5 \text{ km}", "5 km", True),
        ("5 mm", "5 cm", False),
        ("20°", r"20^{\circ}", True),
        ("20°", r"$20^\circ$", True),
        ("2π m", r"2\pi", True),
        ("1,2,3", "123", False),
        ("km", "cm", False),
        ("-0", "1", False),
    ],
)
def test_compare_takes_equal_numbers_only_where_near_is_off(answer, expected, is_right):
    for pair in [(answer, expected), (expected, answer)]:
        match = compare(*pair, near=False)
        assert (match.reward if match else 0.0) == float(is_right)


def test_a_row_may_turn_near_numbers_off():
    task = {"expected_answer": "1985", "extraction_mode": "last_line"}
    rewards = [
        scored(answered("string_match", {**task, **near}, "1984")).reward
        for near in ({}, {"near": True}, {"near": False})
    ]
    assert rewards == [0.98, 0.98, 0.0]


def test_compare_takes_no_number_without_end(subtests):
    """Numbers without a finite float are compared as texts."""
    for expected, number in itertools.product(
        ["5", "0", "1e999", "2" * 500, "nan", "inf", "1e308"],
        ["1" * 10_000, "1e999", "-1e999", "nan", "inf", "-inf", "infinity"],
    ):
        with subtests.test(number=number, expected=expected):
            match = compare(number, expected)

            assert (match is not None) == (number == expected)


def test_thousands_takes_one_comma_of_each_pair():
    assert RUNGS["thousands"]("1,234,567,890") == "1234,567890"


@given(st.text(max_size=20))
def test_compare_finds_a_text_the_same_as_itself(text):
    assert compare(text, text).rung == "text"


@given(
    st.text(alphabet="12,.%$ \\text{}()andorNYkm°π", max_size=30), st.sampled_from(["5", "a, b"])
)
def test_compare_never_raises(text, expected):
    match = compare(text, expected)

    assert match is None or match.reward in (0.98, 1.0)


def test_states_are_all_there():
    """Fifty states and the district; no name matches as a part of another one."""
    assert len(STATES) == len(set(STATES.values())) == 51
    for name, code in STATES.items():
        assert compare(code, name) is not None
        assert RUNGS["state"](name) == code.lower()


def test_closing_braces_pairs_what_belongs_together():
    assert closing_braces("{a{b}c}") == {0: 6, 2: 4}
    assert closing_braces("}{a{b}") == {3: 5}


@pytest.mark.parametrize(
    ("answer", "reward"),
    [
        pytest.param("Paris", 1.0, id="same text"),
        pytest.param(" Paris\n", 1.0, id="blanks around it"),
        pytest.param("paris", 0.0, id="case"),
        pytest.param("Paris.", 0.0, id="punctuation"),
        pytest.param('"Paris"', 1.0, id="quotes"),
        pytest.param("**Paris**", 1.0, id="Markdown"),
        pytest.param("**Paris** it is", 0.0, id="more than the answer"),
    ],
)
def test_case_sensitive_takes_the_same_text_only(answer, reward):
    assert score(" Paris ", answer, case_sensitive=True).reward == reward


def test_a_full_stop_may_be_part_of_the_expected_answer():
    for answer in ("Final answer: U.S.A.", "Final answer: **U.S.A.**", r"\boxed{U.S.A.}"):
        assert score("U.S.A.", answer, mode="final_answer", case_sensitive=True).reward == 1.0


def test_verify_says_how_it_came_to_the_score():
    right, near, wrong, silent = (score("100", text) for text in ("$100", "100.5", "7", ""))

    assert [r.reward for r in (right, near, wrong, silent)] == [1.0, 0.98, 0.0, 0.0]
    assert [r.details["reason"] for r in (right, near, wrong, silent)] == [
        "correct",
        "near_number",
        "wrong_answer",
        "no_answer",
    ]
    assert [r.details.get("matched_by") for r in (right, near, wrong)] == [
        "number",
        "near_number",
        None,
    ]
    assert all(r.details["expected"] == "100" for r in (right, near, wrong, silent))
    assert [r.metrics["no_answer"] for r in (wrong, silent)] == [0.0, 1.0]
    assert [r.answer for r in (right, near, wrong, silent)] == ["$100", "100.5", "7", None]


@pytest.mark.parametrize("mode", EXTRACTORS)
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("1" * 100_000, id="digits"),
        pytest.param("1," * 50_000, id="digits and commas"),
        pytest.param("{" * 100_000, id="braces"),
        pytest.param("\\boxed{" * 14_000, id="boxes not closed"),
        pytest.param("\\boxed{" * 12_000 + "}" * 12_000, id="boxes in boxes"),
        pytest.param("\\boxed{" + "\\text{" * 14_000 + "}" * 14_001, id="text commands in a box"),
        pytest.param("\\boxed{\\text{" + " " * 100_000 + "x}", id="blanks in a text command"),
        pytest.param("answer" + " " * 100_000 + "x", id="blanks after answer"),
        pytest.param("final " * 17_000, id="final without answer"),
        pytest.param("answer: " + ". " * 50_000, id="full stops"),
        pytest.param("answer:" * 14_000, id="answers"),
        pytest.param("a" + "\u0315" * 50_000 + "\u0300" * 50_000, id="marks out of order"),
        pytest.param("\ufdfa" * 100_000, id="characters that NFKC makes eighteen of"),
        pytest.param("\n" * 50_000 + "x" + "\n" * 50_000, id="blank lines"),
    ],
)
def test_verify_takes_hostile_text_for_a_wrong_answer(mode, text):
    """A search that restarts at every character would not finish; the record stays short."""
    rollout = score("5", text, mode=mode)

    assert rollout.reward == 0.0
    assert len(rollout.answer or "") <= 1000


def test_verify_takes_an_answer_that_is_much_longer_for_wrong():
    assert score("5", "5" + " " * 9_000 + ".").reward == 1.0
    assert score("5", "5" + " " * 11_000 + ".").reward == 0.0
    assert score("x " * 9_000, "x, " * 9_000).reward == 1.0


@pytest.mark.parametrize("expected", ["", " \n"])
def test_parse_task_refuses_an_empty_answer(expected):
    with pytest.raises(ValidationError, match="the expected answer is empty"):
        ShortAnswer.model_validate({"expected_answer": expected})


@pytest.mark.parametrize(
    ("expected", "fields"),
    [
        ("five", {"extraction_mode": "last_number"}),
        ("1/2", {"extraction_mode": "last_number"}),
        ("COVID-19", {"extraction_mode": "last_number"}),
        ("-5", {"extraction_mode": "last_digits"}),
        ("5.0", {"extraction_mode": "last_digits", "case_sensitive": True}),
        ("a}\nb", {"extraction_mode": "final_answer"}),
        ("a\nb", {"extraction_mode": "last_line"}),
        ("a}b", {"extraction_mode": "boxed"}),
        ("Answer", {"extraction_mode": "last_line", "answer_prefix": "Answer"}),
    ],
)
def test_parse_task_refuses_an_answer_that_the_mode_cannot_read(expected, fields):
    with pytest.raises(ValidationError, match=r"no answer in the mode \w+ can match the"):
        ShortAnswer.model_validate({"expected_answer": expected, **fields})


@given(
    st.text(max_size=12),
    st.sampled_from(list(EXTRACTORS)),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["", "Result"]),
)
def test_an_answer_that_is_not_refused_can_be_given(expected, mode, is_exact, near, prefix):
    task = short(expected, mode, case_sensitive=is_exact) | {"near": near, "answer_prefix": prefix}
    try:
        ShortAnswer.model_validate(task)
    except ValidationError:
        return
    assert scored_here(played(task_row("string_match", task))).reward == 1.0


def test_parse_task_refuses_an_unknown_mode():
    with pytest.raises(ValidationError):
        ShortAnswer.model_validate(short("5", "first_line"))


@pytest.mark.parametrize("mode", EXTRACTORS)
@pytest.mark.parametrize("case_sensitive", [True, False])
@pytest.mark.parametrize("expected", ["Paris", "U.S.A.", "a b, c", r"\frac{1}{2}"])
@pytest.mark.parametrize("prefix", ["", "Result"])
def test_oracle_speaks_every_mode(mode, case_sensitive, expected, prefix):
    expected = "18" if mode in ("last_number", "last_digits") else expected
    task = short(expected, mode, case_sensitive=case_sensitive)
    row = task_row("string_match", {**task, "answer_prefix": prefix})

    assert scored(played(row)).reward == 1.0


@pytest.mark.parametrize(
    ("answer", "reward"),
    [
        pytest.param(r"Divide by the time: \boxed{72}", 1.0, id="right"),
        pytest.param(r"\boxed{72 \text{ km/h}}", 0.0, id="other unit, not stripped"),
        pytest.param(r"\boxed{90}", 0.0, id="wrong"),
        pytest.param("72", 0.0, id="no box"),
    ],
)
def test_verify_scores_a_row_in_the_shape_of_the_reference(tmp_path, answer, reward):
    prompt = "A bus goes 54 km in 45 minutes. What is its speed in km/h? Use \\boxed{}."
    content = [{"type": "input_text", "text": prompt}]
    row = row_of_file(
        tmp_path,
        "string_match",
        {
            "responses_create_params": {
                "input": [{"role": "user", "type": "message", "content": content}]
            },
            **short("72", "boxed"),
        },
    )

    assert row.messages[0].text == prompt
    assert scored(played(row, says(answer))).reward == reward


@pytest.fixture(scope="module")
def rows():
    return list(StringMatch.generate(Random(5), 240))


def test_tasks_cover_every_mode_in_every_difficulty(rows):
    pairs = {(row["difficulty"], row["extraction_mode"]) for row in rows}

    assert {mode for _, mode in pairs} == EXTRACTORS.keys() - {"last_number", "last_digits"}
    assert len(pairs) == 3 * (len(EXTRACTORS) - 2)
    assert {row["case_sensitive"] for row in rows} == {True, False}
    assert len({row["prompt"] for row in rows}) == len(rows)


def test_tasks_have_right_answers(rows):
    """The answers are computed again from the text of the prompt."""
    num_solved = 0
    for row in rows:
        question = row["prompt"].split("\n\n")[0]
        for pattern, solve in SOLUTIONS.items():
            if match := re.match(pattern, question):
                assert solve(*match.groups()) == row["expected_answer"], question
                num_solved += 1
    assert num_solved + sum("capital of which state" in row["prompt"] for row in rows) == len(rows)


def test_tasks_give_nothing_for_a_number_that_is_near(rows):
    for row in rows:
        number = float(re.sub(r"[^\d.]", "", row["expected_answer"]) or 1)
        near = f"{number * 1.005:.6g}"
        rollout = answered("string_match", {**row, "extraction_mode": "full_response"}, near)

        assert scored(rollout).reward == 0.0, row["prompt"]


def roman(number):
    """Write a Roman numeral: in ones first, then replace each longer form by its shorter one."""
    text = "I" * int(number)
    for long, brief in [
        ("IIIII", "V"), ("VV", "X"), ("XXXXX", "L"), ("LL", "C"), ("CCCCC", "D"), ("DD", "M"),
        ("DCCCC", "CM"), ("CCCC", "CD"), ("LXXXX", "XC"), ("XXXX", "XL"), ("VIIII", "IX"),
        ("IIII", "IV"),
    ]:  # fmt: skip
        text = text.replace(long, brief)
    return text


def camel(words):
    return re.sub(r" (\w)", lambda match: match[1].upper(), words)


def multiples(factor, low, high):
    return ", ".join(str(n) for n in range(int(low) + 1, int(high)) if n % int(factor) == 0)


def primes(low):
    numbers = range(int(low) + 1, int(low) + 99)
    return ", ".join([str(n) for n in numbers if not re.fullmatch(r"(11+?)\1+", "1" * n)][:3])


def clock(time, minutes):
    start = dt.datetime.strptime(time, "%H:%M")
    return (start + dt.timedelta(minutes=int(minutes))).strftime("%H:%M")


def later(days, date):
    return str(dt.datetime.fromisoformat(date).date() + dt.timedelta(int(days)))


SOLUTIONS = {
    r"What is (\d+) \+ (\d+)\?": lambda a, b: str(int(a) + int(b)),
    r'Write the letters of "(\w+)" in reverse': lambda word: "".join(reversed(word)),
    r"(\d+) of (\d+) seats": lambda part, whole: f"{100 * int(part) / int(whole):.0f}",
    r"A clock shows ([\d:]+)\. What does it show (\d+) minutes later": clock,
    r"List the multiples of (\d+) that are greater than (\d+) and less than (\d+),": multiples,
    r"Write (\d+) in Roman": roman,
    r'Join the words "([a-z ]+)" in camel case': camel,
    r"What is (\d+) times (\d+)\?": lambda a, b: str(int(a) * int(b)),
    r"What is the arithmetic mean of ([\d, ]+)\?": lambda text: (
        f"{sum(map(int, text.split(','))) / 8:.3f}"
    ),
    r"Which date is (\d+) days after ([\d-]+)\?": later,
    r"Two angles of a triangle measure (\d+)° and (\d+)°": lambda a, b: str(
        (180 - int(a) - int(b)) / 2
    ),
    r"Which are the first three prime numbers greater than (\d+)\?": primes,
}


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("共有18个。\n\n答案\uff1a18", "18"),
        ("**答案: 1,450.00元**", "1450"),
        ("9 * 2 = 18\n答案: 17", "17"),
        ("答案: 18。答案: 19 或 20.", "20"),
        ("答案: 100.", "100"),
        ("答案: -3/4", "4"),
        ("答案: 十八", None),
        ("It is 18.", None),
    ],
)
def test_the_last_number_after_a_word_is_read_as_simple_evals_does(text, answer):
    """The answers are those of `parse_answer` and `score_mgsm` in its mgsm_eval.py."""
    task = {**short("18", "last_number", case_sensitive=True), "answer_prefix": "答案"}
    done = scored(answered("string_match", task, text))
    assert (done.answer, done.reward) == (answer, float(answer == "18"))
    assert (
        score("18", text.replace("答案", "?"), mode="last_number").answer is not None or not answer
    )
