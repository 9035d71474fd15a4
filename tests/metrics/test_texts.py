"""Texts in one block of bytes: the law of a list."""

from hypothesis import given
from hypothesis import strategies as st

from gymcli.metrics.texts import Texts


@given(st.lists(st.lists(st.text(max_size=4), max_size=4), max_size=4))
def test_texts_are_those_of_a_list(parts):
    """Also those that are empty, or take more bytes than they have characters."""
    texts = Texts()
    for part in parts:
        texts.extend(part)

    expected = [text for part in parts for text in part]
    assert [texts[place] for place in range(len(texts))] == expected
    backwards = list(reversed(range(len(expected))))
    assert texts.encoded(backwards) == [text.encode() for text in reversed(expected)]


def test_texts_may_be_read_while_they_come():
    texts = Texts()
    texts.extend(["a", "é"])
    assert texts[1] == "é"
    texts.extend(["b"])

    assert [texts[place] for place in range(3)] == ["a", "é", "b"]
