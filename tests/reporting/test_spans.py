"""Pieces of Markdown keep their shape whatever is in them."""

import re

import pytest

from gymcli.reporting.markdown import MAX_CHARACTERS, MAX_ROWS, Spans, joined, table

SPANS = Spans(lambda text: text.replace("secret", "[redacted]"))


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("plain", "`plain`"),
        ("", "`(empty)`"),
        ("a`b``c", "`a'b''c`"),
        ("a|b\\|c\\", "`a¦b\\¦c\\`"),
        ("a\n\n# b", "`a # b`"),
        ("the secret", "`the [redacted]`"),
        ("x" * 200, f"`{'x' * 79}…`"),
    ],
)
def test_code_is_one_span(text, span):
    assert SPANS.code(text) == span


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("about 30 tasks would decide", "about 30 tasks would decide"),
        ("a * b_c [d](e) | f", "a \\* b\\_c \\[d\\](e) \\| f"),
        ("<b> & `c`", "&lt;b&gt; &amp; 'c'"),
        ("pass@4", "pass@\u20604"),
        ("http://e.vil www.e.vil", "http:\u2060//e.vil www\u2060.e.vil"),
        ("the secret", "the \\[redacted\\]"),
    ],
)
def test_sentence_is_text(text, sentence):
    assert SPANS.sentence(text) == sentence


def test_list_says_how_many_more_there_are():
    assert SPANS.listed(["a", "b"], 2) == "`a`, `b`"
    assert SPANS.listed(["a", "b"], 5) == "`a`, `b` and 3 more"
    assert SPANS.listed(["a"] * 40, 50).endswith(f"`a` and {50 - MAX_ROWS} more")


def test_table_says_how_many_rows_are_left_out():
    assert table(("a", "b"), [("1", "2")]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
    lines = table(("a",), [("1",)] * 12, most=5).splitlines()
    assert len(lines) == 9
    assert lines[-2:] == ["", "7 more are left out."]


def test_blocks_that_do_not_fit_are_left_out_whole():
    assert joined(["a", "b"]) == "a\n\nb\n"
    block = "x" * (MAX_CHARACTERS // 4)
    text = joined([block] * 6)
    assert len(text) <= MAX_CHARACTERS
    assert text.count("x" * len(block)) == 3
    assert re.search("^3 more sections did not fit", text, re.MULTILINE)
