"""Whole numbers in few bytes: the law of a list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.metrics.small_ints import SmallInts

NUMBERS = st.integers(0, 300) | st.integers(-3, 1 << 17) | st.integers(-(1 << 63), (1 << 63) - 1)


@given(st.lists(st.lists(NUMBERS, max_size=5), max_size=5), st.integers(0, 9))
def test_numbers_are_those_of_a_list(parts, num_more):
    """However wide the next ones are, and whatever came before them."""
    numbers = SmallInts()
    for part in parts:
        numbers.extend(iter(part))
    expected = [number for part in parts for number in part]
    assert [numbers[place] for place in range(len(numbers))] == expected
    assert numbers.at(reversed(range(len(numbers)))) == expected[::-1]
    numbers.pad(len(expected) + num_more)
    assert [numbers[place] for place in range(len(numbers))] == expected + [0] * num_more


def test_a_number_that_is_too_large_changes_nothing():
    numbers = SmallInts()
    numbers.extend([1, 2])
    with pytest.raises(OverflowError):
        numbers.extend([3, 1 << 63])
    assert [numbers[0], numbers[1], len(numbers)] == [1, 2, 2]
