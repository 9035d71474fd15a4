"""Lines are sent to workers in chunks."""

from gymcli.scoring.pool import chunks
from gymcli.store.lines import Line


def test_chunks_are_of_bounded_size_and_lose_nothing():
    lines = [Line(number, b"x" * 300_000, is_complete=True) for number in range(9)]
    found = list(chunks(iter(lines)))
    assert [len(chunk) for chunk in found] == [4, 4, 1]
    assert [line for chunk in found for line in chunk] == lines
    assert list(chunks(iter([]))) == []
