"""What is kept of a list, and when a run that grows is searched again."""

import pytest

from gymcli.reporting.viewer_lists import Listing, Listings, quoted
from gymcli.store.run_index import Refreshed, RunIndex
from tests.reporting.viewer_runs import lines, rollout, write_run


class Clock:
    """Tells a time that goes on by so many seconds whenever it is asked."""

    def __init__(self):
        self.now = 0.0
        self.step = 0.0

    def __call__(self):
        self.now += self.step
        return self.now


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run", [rollout(name, 0, 0.5) for name in "abc"])


def test_a_run_that_grows_is_searched_again_after_ten_times_the_search(run):
    clock = Clock()
    half = Listing("reward == 0.5", "-task_id")
    with RunIndex(run) as index:
        listings = Listings(index, clock=clock)
        clock.step = 1.0  # a search begins, and ends a second later
        assert list(listings.rows(half)) == [2, 1, 0]
        clock.step = 0.0
        with (run / "rollouts.jsonl").open("ab") as file:
            file.write(lines([rollout("d", 0, 0.5)]))
        listings.take(index.refresh())
        assert listings.version == 1
        clock.now += 9.0
        assert list(listings.rows(half)) == [2, 1, 0]
        assert listings.version_of(half) == 0
        clock.now += 2.0
        assert list(listings.rows(half)) == [3, 2, 1, 0]
        assert listings.version_of(half) == listings.version_of(Listing()) == 1
        assert list(listings.rows(Listing())) == [0, 1, 2, 3]


def test_a_file_that_is_replaced_leaves_nothing_of_the_old_lists(run):
    with RunIndex(run) as index:
        listings = Listings(index)
        assert list(listings.rows(Listing("reward == 0.5"))) == [0, 1, 2]
        (run / "new").write_bytes(lines([rollout("z", 0, 0.5)]))
        (run / "new").replace(run / "rollouts.jsonl")
        listings.take(index.refresh())
        assert list(listings.rows(Listing("reward == 0.5"))) == [0]


def test_nothing_new_changes_no_version(run):
    with RunIndex(run) as index:
        listings = Listings(index)
        listings.take(index.refresh())
        listings.take(Refreshed())
        assert listings.version == 0


def test_few_lists_are_kept_and_the_one_asked_for_last_longest(run):
    clock = Clock()
    with RunIndex(run) as index:
        listings = Listings(index, clock=clock)
        first = listings.rows(Listing("attempt == 0"))
        for number in range(20):
            listings.rows(Listing(f"attempt < {number}"))
            assert listings.rows(Listing("attempt == 0")) is first
        assert len(listings._kept) == 8


@pytest.mark.parametrize(
    "text",
    ["", "plain", 'it\'s "so"', "a\\b", "\\", "\n\t\r\0\x1b", "\u2028é\U0001f600", "\\u0041"],
)
def test_a_quoted_text_is_found_as_it_is(tmp_path, text):
    named = rollout(f"x{text}x", 0, 0.5)
    run = write_run(tmp_path / "run", [named, rollout("other")])
    with RunIndex(run) as index:
        found = Listings(index).rows(Listing(f"task_id == {quoted(f'x{text}x')}"))
        assert list(found) == [0]
