"""Draws depend on their arguments alone."""

from hypothesis import given
from hypothesis import strategies as st

from gymcli.mock.faults import body_hash, draw


@given(st.integers(), st.text(), st.binary(), st.integers(min_value=0))
def test_draw_is_a_number_between_0_and_1_and_the_same_again(seed, purpose, body, occurrence):
    number = draw(seed, purpose, body_hash(body), occurrence)
    assert 0 < number < 1
    assert number == draw(seed, purpose, body_hash(body), occurrence)


def test_draw_is_even():
    """Of 10,000 draws a tenth is in each tenth, give or take five standard deviations."""
    numbers = [draw(0, "fault", str(n), 0) for n in range(10_000)]
    for tenth in range(10):
        assert 850 < sum(tenth <= number * 10 < tenth + 1 for number in numbers) < 1150


def test_draw_differs_by_every_argument():
    first = draw(0, "fault", "a", 0)
    others = [draw(1, "fault", "a", 0), draw(0, "latency", "a", 0), draw(0, "fault", "b", 0)]
    assert len({first, *others, draw(0, "fault", "a", 1)}) == 5
