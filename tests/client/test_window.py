"""How the number of requests at once follows what an endpoint takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.client.window import Window


def settle(window: Window, capacity: int, num_answers: int) -> tuple[int, list[int]]:
    """Ask an endpoint that takes so many at once; give its refusals, and how many it worked on."""
    accepted, num_refused, busy = 0, 0, []
    for _ in range(num_answers):
        while accepted + 1 <= window.limit:
            if accepted < capacity:
                accepted += 1
            else:
                window.refused()
                num_refused += 1
        busy.append(accepted)
        window.answered(accepted)
        accepted -= 1
    return num_refused, busy


@pytest.mark.parametrize("capacity", [1, 2, 3, 8, 20, 63])
def test_window_finds_a_capacity_that_nobody_told(capacity):
    window = Window(64)
    num_refused, busy = settle(window, capacity, 100 * capacity)
    assert sum(busy) / len(busy) > 0.95 * capacity
    assert num_refused < 400  # about one in a window, once the capacity is found
    settled = settle(window, capacity, 50 * capacity)[0]
    assert settled <= 80


def test_window_starts_at_the_ceiling_and_stays_there():
    window = Window(64)
    num_refused, busy = settle(window, 1000, 500)
    assert (num_refused, set(busy)) == (0, {64})


def test_window_grows_again_when_the_endpoint_can_do_more():
    window = Window(64)
    settle(window, 2, 200)
    assert window.limit <= 3
    _, busy = settle(window, 1000, 2000)
    assert busy[-1] == 64
    assert busy.index(64) < 900  # by one a window it would take 2000


def test_window_falls_when_the_endpoint_can_do_less():
    window = Window(64)
    settle(window, 64, 300)
    settle(window, 4, 100)
    assert window.limit < 6


def test_window_takes_few_refusals_for_a_capacity_that_is_near():
    """Where each fifth is refused whatever there is to do, the limit stays about where it is."""
    window = Window(64)
    for number in range(2000):
        if number % 5:
            window.answered(int(window.limit))
        else:
            window.refused()
    assert window.limit > 40


def test_window_halves_what_it_thinks_of_the_endpoint_once_a_window():
    """Refusals of what was sent before say nothing new."""
    window = Window(64)
    for _ in range(64):
        window.refused()
    assert (window.limit, window.capacity) == (1, 32)


@given(st.integers(1, 100), st.lists(st.booleans(), max_size=500))
def test_window_keeps_between_one_and_its_ceiling(ceiling, answers):
    window = Window(ceiling)
    for is_answer in answers:
        if is_answer:
            window.answered(int(window.limit))
        else:
            window.refused()
        assert 1 <= window.limit <= window.capacity + 1e-9 <= ceiling + 2e-9


def test_window_keeps_to_the_lower_ceiling():
    window = Window(64)
    window.lower(8)
    window.lower(16)
    assert (window.limit, window.ceiling) == (8, 8)
