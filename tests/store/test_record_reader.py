"""Lines are read as they are appended, and conversations of any writer are searched."""

import json

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gymcli.store.record_reader import GrowingFile, LazyText, text_of_messages
from gymcli.types import FunctionCall, Message, ToolCall


def never():
    raise AssertionError("the line was decoded")


def test_text_of_messages_has_all_words_each_on_its_line():
    call = ToolCall(id="1", function=FunctionCall("weather", '{"city": "Oslo"}'))
    parts = [
        {"type": "text", "text": "one"},
        {"type": "image_url"},
        {"type": "text", "text": "two"},
    ]
    messages = [
        Message(role="user", content=parts),
        Message(role="assistant", reasoning="hm", content="three", refusal="no", tool_calls=[call]),
        Message(role="tool", content=None),
    ]
    assert text_of_messages(messages) == 'one\ntwo\nhm\nthree\nno\nweather\n{"city": "Oslo"}'


def test_lazy_text_decodes_no_line_that_does_not_hold_what_is_looked_for():
    text = LazyText(b'{"content":"Some words"}', never)
    assert "other words" not in text
    assert "/others/" not in text
    assert "other words" not in text.lower()
    with pytest.raises(AssertionError, match="was decoded"):
        assert "Some words" in text


def test_lazy_text_looks_for_text_alone():
    with pytest.raises(TypeError, match="int"):
        assert 3 in LazyText(b"", never)


_LETTERS = st.text(st.sampled_from('akKiI\u212a\u0130\u0131ß\u1e9e/"\\<\n é\u2028x'), max_size=8)


@given(_LETTERS, _LETTERS, _LETTERS, st.booleans(), st.booleans())
@example("", "i\u0307", "", True, False)
@example("K", "k", "", True, True)
def test_lazy_text_finds_what_the_text_holds(before, part, after, is_lowered, is_escaped):
    """Also escaped text, in upper and lower case."""
    content = before + part + after
    encoded = json.dumps(content).encode() if is_escaped else msgspec.json.encode(content)
    text, expected = LazyText(encoded, lambda: content), content
    if is_lowered:
        text, part, expected = text.lower(), part.lower(), expected.lower()
    assert (part in text) == (part in expected)
    assert ("ak" in text) == ("ak" in expected)
    assert ("i" in text) == ("i" in expected)
    assert text == expected
    assert len(text) == len(expected)


def test_new_lines_gives_none_of_a_file_that_came_in_its_place(tmp_path):
    """Also if the file was replaced after the last check for that."""
    path, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    path.write_bytes(b'{"a": 1}\n')
    growing = GrowingFile(path)
    assert [line.data for line in growing.new_lines()] == [b'{"a": 1}']
    other.write_bytes(b'{"b": 1, "c": 1}\n{"b": 2}\n')
    other.replace(path)
    assert list(growing.new_lines()) == []
    assert growing.is_replaced()


def test_new_lines_gives_those_that_are_new_with_their_places(tmp_path):
    path = tmp_path / "a.jsonl"
    growing = GrowingFile(path)
    assert (list(growing.new_lines()), growing.is_replaced()) == ([], False)
    path.write_bytes(b"\xef\xbb\xbf1\r\n\n 2")
    assert list(growing.new_lines()) == [(1, 3, b"1"), (3, 8, b"2")]
    with path.open("ab") as file:
        file.write(b"\n3\n{")
    assert list(growing.new_lines()) == [(4, 10, b"3")]
    assert (growing.has_grown(), growing.is_replaced()) == (True, False)
    path.unlink()
    assert (growing.has_grown(), growing.is_replaced()) == (False, True)
