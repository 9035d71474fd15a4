"""How the number of requests at once follows what an endpoint takes."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.models.limits import Window


def settle(window: Window, capacity: int, num_answers: int) -> tuple[int, list[int]]:
    """Ask an endpoint that takes so many at once; give its refusals, and how many it worked on."""
    accepted, num_refused, busy = 0, 0, []
    for _ in range(num_answers):
        while accepted + 1 <= window.limit:
            if accepted < capacity:
                accepted += 1
            else:
                window.refused(accepted)
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
    assert window.limit <= 4
    _, busy = settle(window, 1000, 2000)
    assert busy[-1] == 64
    assert busy.index(64) < 900  # by one a window it would take 2000


def test_window_falls_when_the_endpoint_can_do_less():
    window = Window(64)
    settle(window, 64, 300)
    settle(window, 4, 100)
    assert window.limit < 6


@pytest.mark.parametrize(("share", "least"), [(0.2, 35), (0.4, 12)])
def test_window_stays_where_requests_are_refused_whatever_there_is_to_do(share, least):
    """Refusals at random say nothing of the number: what was being worked on is kept."""
    random = Random(1)
    window = Window(64)
    accepted, busy = 0, []
    for _ in range(3000):
        while accepted + 1 <= window.limit:
            if random.random() < share:
                window.refused(accepted)
            else:
                accepted += 1
        busy.append(accepted)
        window.answered(accepted)
        accepted -= 1
    assert sum(busy) / len(busy) > least


def test_window_halves_what_it_thinks_of_the_endpoint_once_a_window():
    """Refusals of what was sent before say nothing new."""
    window = Window(64)
    for num_others in range(63, -1, -1):
        window.refused(num_others)
    assert (window.limit, window.capacity) == (1, 32)


def test_window_takes_nothing_below_what_is_being_worked_on():
    window = Window(8)
    window.refused(7)
    assert window.limit == 7
    window.refused(7)
    assert window.limit == 7
    window.answered(7)
    assert window.limit == window.capacity == 8


@given(st.integers(1, 100), st.lists(st.booleans(), max_size=500))
def test_window_keeps_between_one_and_its_ceiling(ceiling, answers):
    window = Window(ceiling)
    for is_answer in answers:
        if is_answer:
            window.answered(int(window.limit))
        else:
            window.refused(int(window.limit) - 1)
        assert 1 <= window.limit <= window.capacity + 1e-9 <= ceiling + 2e-9


def test_window_keeps_to_the_lower_ceiling():
    window = Window(64)
    window.lower(8)
    window.lower(16)
    assert (window.limit, window.ceiling) == (8, 8)
