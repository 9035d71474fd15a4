"""Texts keep what can be read, and lose what a file must not have."""

from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from gymcli.reporting.run_report import number, one_line, plain, signed


@given(st.text(st.characters(exclude_categories=())))
def test_plain_text_is_what_xml_takes(text):
    fit = plain(text, 100)
    assert len(fit) <= 100
    root = ET.fromstring(f"<a>{fit.replace('&', '').replace('<', '')}</a>".encode())
    assert root.tag == "a"


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


def test_numbers_as_tables_show_them():
    assert [number(0.12345), number(None), signed(0.5), signed(-0.5), signed(None)] == [
        *("0.123", "-", "+0.500", "-0.500", "-")
    ]
