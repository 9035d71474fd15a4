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
from gymcli.rollout.episode import EpisodeFailedError
from tests.envs.episodes import answered, played, row_of_file, says, scored, task_row


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
        pytest.param("**Final answer:** Paris", "** Paris", id="asterisks stay, known limit"),
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
        pytest.param("last_line", [" \n "], None, id="blank lines"),
        pytest.param("full_response", [" Hm.\nParis "], "Hm.\nParis", id="everything"),
        pytest.param("full_response", [" "], None, id="blanks"),
        pytest.param("full_response", ["It is", "Paris"], "It is\nParis", id="all messages"),
        pytest.param("last_line", ["Rome", "Paris"], "Paris", id="line of the last message"),
        pytest.param("boxed", [r"\boxed{Paris}", "Bye."], "Paris", id="box of an earlier message"),
    ],
)
def test_other_modes(mode, texts, answer):
    assert found(mode, *texts) == answer


def test_extraction_mode_defaults_to_the_final_answer():
    task = ShortAnswer.model_validate({"expected_answer": "x"})

    assert (task.extraction_mode, task.case_sensitive) == ("final_answer", False)


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
        pytest.param('"Paris"', 0.0, id="quotes"),
    ],
)
def test_case_sensitive_takes_the_same_text_only(answer, reward):
    assert score(" Paris ", answer, case_sensitive=True).reward == reward


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


def test_parse_task_refuses_an_unknown_mode():
    with pytest.raises(ValidationError):
        ShortAnswer.model_validate(short("5", "first_line"))


@pytest.mark.parametrize("mode", EXTRACTORS)
@pytest.mark.parametrize("case_sensitive", [True, False])
@pytest.mark.parametrize("expected", ["Paris", "U.S.A.", "a b, c", r"\frac{1}{2}"])
@pytest.mark.parametrize("prefix", ["", "Result"])
def test_oracle_speaks_every_mode(mode, case_sensitive, expected, prefix):
    expected = "18" if mode == "last_number" else expected
    task = short(expected, mode, case_sensitive=case_sensitive)
    row = task_row("string_match", {**task, "answer_prefix": prefix})

    assert scored(played(row)).reward == 1.0


def test_oracle_gives_none_where_the_mode_cannot_read_the_answer():
    with pytest.raises(EpisodeFailedError, match="no oracle for this task"):
        played(task_row("string_match", short("a}b", "boxed")))


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

    assert {mode for _, mode in pairs} == EXTRACTORS.keys() - {"last_number"}
    assert len(pairs) == 3 * (len(EXTRACTORS) - 1)
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
    named = sum("capital of which state" in row["prompt"] for row in rows)
    assert num_solved + named == len(rows)


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
