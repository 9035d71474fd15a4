"""The garbage collector during a run."""

import gc

import pytest

from gymcli.commands.collect import rarely_collected


class Node:
    """One that refers to itself."""

    def __init__(self) -> None:
        self.itself = self


def num_nodes() -> int:
    return sum(type(thing) is Node for thing in gc.get_objects())


def test_rarely_collected_leaves_what_was_there_alone_and_goes_back():
    before = gc.get_threshold()
    Node()  # garbage before it begins
    with rarely_collected():
        assert gc.get_threshold()[0] > before[0]
        Node()
        gc.collect()
        assert num_nodes() == 0
        assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_rarely_collected_leaves_no_garbage_behind():
    gc.collect()
    with rarely_collected():
        Node()
    assert num_nodes() == 0


def test_rarely_collected_goes_back_after_an_error():
    before = gc.get_threshold()
    with pytest.raises(ValueError, match="x"), rarely_collected():
        raise ValueError("x")
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)
