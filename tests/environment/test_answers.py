"""Tests of reading the place of an answer."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli import (
    closed_boxes,
    last_answer_line,
    last_boxed,
    plain_answer,
    without_text_commands,
)


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        (r"\boxed{3}", "3"),
        (r"\boxed{1} or \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{}", ""),
        (r"\boxed{3", None),
        (r"\boxed{1} then \boxed{2", None),
        ("boxed{3}", None),
        ("", None),
    ],
)
def test_last_boxed_counts_braces(text, inner):
    assert last_boxed(text) == inner


@given(st.text(), st.text(alphabet="ab\\n "))
def test_last_boxed_finds_what_was_put_in_a_box(before, inner):
    assert last_boxed(f"{before}\\boxed{{{inner}}}.") == inner


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        (r"\text{E}", "E"),
        (r"a \text{b \text{c}} d", "a b c d"),
        (r"\text{E", r"\text{E"),
        (r"\textbf{\mathrm{E}}", "E"),
        (r"\frac{\text{a}}{b}", r"\frac{a}{b}"),
        (r"\textstyle{E}", r"\textstyle{E}"),
        (r"\text{a {b}}", r"\text{a {b}}"),
        (r"{\text{a}}}", "{a}}"),
        ("\ufeff\\text{\u200bin\xadorganic}\u200f", "inorganic"),
        ("\u0645\u06cc\u200c\u0634\u0648\u062f", "\u0645\u06cc\u200c\u0634\u0648\u062f"),
        ("\\text{" * 100_000 + "E" + "}" * 100_000, "E"),
    ],
)
def test_without_text_commands_keeps_what_stands_in_them(text, plain):
    assert without_text_commands(text) == plain


@given(st.lists(st.sampled_from([r"\text{", "{", "}", "a", " "])).map("".join))
def test_without_text_commands_takes_the_inner_ones_off_first(text):
    plain = text
    while (shorter := re.sub(r"\\text\{([^{}]*)\}", r"\1", plain)) != plain:
        plain = shorter

    assert without_text_commands(text) == plain


@pytest.mark.parametrize(
    ("text", "contents"),
    [
        (r"\boxed{1} and \boxed{\frac{1}{2}}", ["1", r"\frac{1}{2}"]),
        (r"\boxed{1} then \boxed{2", ["1"]),
        (r"\boxed{1 then \boxed{2}", ["2"]),
        (r"\boxed{a \boxed{b}}", [r"a \boxed{b}"]),
        (r"\boxed{\{1\}}", [r"\{1\}"]),
        (r"} \boxed{}", [""]),
        ("\u200b\\boxed{\u200b1} \\boxed{2}", ["\u200b1", "2"]),
        ("\\boxed{" * 20_000 + "}" * 19_999, ["\\boxed{" * 19_998 + "}" * 19_998]),
    ],
)
def test_closed_boxes_are_the_complete_ones(text, contents):
    boxes = closed_boxes(text)
    assert [box.content for box in boxes] == contents
    assert all(text[box.start : box.end] == f"\\boxed{{{box.content}}}" for box in boxes)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("ANSWER: 18", "18"),
        ("Answer: 1\nso\nanswer : 2\n", "2"),
        ("**ANSWER:** 18", "18"),
        ("**ANSWER:** **18**", "**18**"),
        ("**ANSWER: 18**", "18**"),
        ("### Final answer: 18", "18"),
        ("- *The final answer is*: 18", "18"),
        ("Answer\uff1a18", "18"),
        ("So the ANSWER: 18", "18"),
        ("ANSWER: 18\nIs this the answer: yes", "18"),
        ("Now the answer: 36\nANSWER: 35", "35"),
        ("\ufeffANSWER: \u206718\u2069", "18"),
        ("ANSWER:\u200b\n18", "18"),
        ("ANSWER:\n\n18\n", "18"),
        ("ANSWER:\n```\n18\n```", "18"),
        ("ANSWER:\n$$\n18\n$$", "18"),
        ("ANSWER: $$\n18\n$$", "18"),
        ("ANSWER: \\[\n18\n\\]", "18"),
        ("**ANSWER:**\n18\nThat was all.", ""),
        ("ANSWER:", ""),
        ("The answer is 18.", None),
        ("non-answer: 18", None),
        ("answers: 18", None),
        ("", None),
    ],
)
def test_last_answer_line(text, answer):
    assert last_answer_line(text) == answer


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("**18**", "18"),
        ("***A***", "A"),
        ("`18`", "18"),
        ("```python\n18\n```", "18"),
        (" “**18**” ", "18"),
        (r"\$18", "$18"),
        (r"**\$1,000**", "$1,000"),
        ("18**", "18"),
        ("** 18", "18"),
        ("2**3", "2**3"),
        ("2*3", "2*3"),
        ("*a* or *b*", "*a* or *b*"),
        ('"a" and "b"', '"a" and "b"'),
        ("don't", "don't"),
        ("x_1", "x_1"),
        ("\u200e**\u200b18\u2060**\ufeff", "18"),
        ("\u202e18\u202c\u061c\xad", "18"),
        ("a\u200cb \u200d", "a\u200cb \u200d"),
        ('"', '"'),
        ("", ""),
    ],
)
def test_plain_answer(text, plain):
    assert plain_answer(text) == plain


@pytest.mark.parametrize(
    "piece", ["*", "`", "answer", "answer:\n", "the ", "> ", "\\boxed{", " \n"]
)
def test_long_texts_take_linear_time(piece):
    text = piece * 200_000
    last_answer_line(text)
    plain_answer(text)
    closed_boxes(text)
