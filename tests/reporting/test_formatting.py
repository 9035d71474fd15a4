"""Numbers have one format; texts lose only characters that a file must not contain."""

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.metrics.results import Interval
from gymcli.reporting.formatting import (
    between,
    cost,
    counted,
    legible,
    number,
    one_line,
    p_value,
    passes_with,
    plain,
    share,
    signed,
)


@given(st.text(st.characters(exclude_categories=())))
def test_plain_text_is_what_xml_takes(text):
    fit = plain(text, 100)
    assert len(fit) <= 100
    assert ET.fromstring(f"<a>{fit.replace('&', '').replace('<', '')}</a>".encode()).tag == "a"


def test_plain_text_stays():
    for text in ("plain", "été 日本 🙂", "two\nlines\tand a tab", "<a & b>"):
        assert plain(text, 100) == text


def test_plain_text_shows_where_something_was():
    assert plain("a\x00b\x1bc\u202ed\ud800e\r", 100) == "a\ufffdb\ufffdc\ufffdd\ufffde\ufffd"


def test_long_text_is_cut():
    assert plain("abcdef", 4) == "abc…"
    assert one_line("a\n\n b\t" + "c" * 20, 10) == "a b ccccc…"
    assert one_line("a" + " " * 100 + "b", 10) == "a…"


@given(st.text(), st.integers(1, 20))
def test_one_line_is_one_and_not_too_long(text, most):
    line = one_line(text, most)
    assert len(line) <= most
    assert len(line.splitlines()) <= 1


INTERVAL = Interval(low=-0.25, high=1234.5, level=0.95, method="t")


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (number(0.12345), "0.123"),
        (number(None), "-"),
        (number(None, ",", unknown="unknown"), "unknown"),
        (number(12345, ","), "12,345"),
        (signed(0.5), "+0.500"),
        (signed(-0.5), "-0.500"),
        (signed(None), "-"),
        (share(0.12345), "12.3%"),
        (share(None), "-"),
        (cost(1234.5), "1,234.5000"),
        (cost(None), "unknown"),
        (p_value(0.0004), "< 0.001"),
        (p_value(0.000985), "< 0.001"),
        (p_value(0.001), "0.001"),
        (p_value(None), "-"),
        (passes_with(0.0612), "passes with --margin 0.062 or more"),
        (passes_with(0.0699), "passes with --margin 0.07 or more"),
        (passes_with(0.07), "passes with --margin 0.071 or more"),
        (passes_with(0.1105), "passes with --margin 0.12 or more"),
        (passes_with(123.0), "passes with --margin 130 or more"),
        (passes_with(0.0), ""),
        (passes_with(None), ""),
        (between(INTERVAL), "-0.250 .. 1234.500"),
        (between(INTERVAL, ",.3f"), "-0.250 .. 1,234.500"),
        (between(INTERVAL, "+.3f", separator=".."), "-0.250..+1234.500"),
        (legible(0.00004), "4e-05"),
        (legible(0.5, "+"), "+0.500"),
        (legible(-0.0, "+"), "+0.000"),
        (legible(1e6), "1e+06"),
        (legible(None), "-"),
    ],
)
def test_numbers_as_tables_show_them(shown, text):
    assert shown == text


def test_counted_names_one_thing_and_several():
    assert [counted(num, "task") for num in (0, 1, 2)] == ["0 tasks", "1 task", "2 tasks"]
