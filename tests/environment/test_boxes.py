import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli import last_boxed, without_text_commands


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
        (r"\textbf{E}", r"\textbf{E}"),
        (r"\text{a {b}}", r"\text{a {b}}"),
        (r"{\text{a}}}", "{a}}"),
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
