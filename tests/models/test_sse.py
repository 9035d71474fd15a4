"""Server-sent events, however the bytes are cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.models.http import EventReader


def read(*chunks: bytes) -> list[bytes]:
    reader = EventReader()
    return [event for chunk in chunks for event in reader.feed(chunk)] + reader.finish()


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data:a\r\n\r\ndata:  b\r\r", [b"a", b" b"]),
        (b"event: x\nid: 1\nretry: 5\ndata: a\n\n", [b"a"]),
        (b": ping\n\ndata: a\n\n", [b"a"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data: a\n\ndata: torn", [b"a", b"torn"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"", []),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_feed_reads_events(stream, events, size):
    chunks = [stream[start : start + size] for start in range(0, len(stream), size)]
    assert read(*chunks) == events


@given(
    st.lists(st.binary(min_size=1).filter(lambda data: not {10, 13} & set(data)), max_size=5),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.lists(st.integers(0, 200), max_size=6),
)
def test_feed_does_not_care_how_the_stream_is_cut(data, end, cuts):
    stream = b"".join(b"data: " + item + end + end for item in data)
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    chunks = [stream[a:b] for a, b in pairwise(places)]
    assert read(*chunks) == data


def test_feed_looks_at_no_piece_of_a_long_line_twice():
    """A line of 64 MB in pieces of 1 kB: with each piece the whole line again, that took hours."""
    reader = EventReader()
    piece = b"x" * 1024
    assert reader.feed(b"data: ") == []
    for _ in range(64 * 1024):
        assert reader.feed(piece) == []
    [event] = reader.finish()
    assert event == piece * 64 * 1024
