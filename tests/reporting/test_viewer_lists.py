"""What the viewer reads of a run: lists, measurements, differences and earlier failures."""

import asyncio
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.errors import RunFileError, UsageError
from gymcli.reporting.viewer import (
    KINDS,
    CachedMeasurement,
    Listing,
    Listings,
    TaskScores,
    differences,
    failures_of,
    quoted,
)
from gymcli.store.run_index import Refreshed, RunIndex
from tests.reporting.viewer_runs import failure, lines, rollout, write_run


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
        assert listings.rows(half) == ([2, 1, 0], 0)
        clock.step = 0.0
        with (run / "rollouts.jsonl").open("ab") as file:
            file.write(lines([rollout("d", 0, 0.5)]))
        listings.take(index.refresh())
        assert listings.version == 1
        clock.now += 9.0
        assert listings.rows(half) == ([2, 1, 0], 0)
        clock.now += 2.0
        assert listings.rows(half) == ([3, 2, 1, 0], 1)
        assert listings.rows(Listing()) == (range(4), 1)


def test_a_file_that_is_replaced_leaves_nothing_of_the_old_lists(run):
    with RunIndex(run) as index:
        listings = Listings(index)
        assert listings.rows(Listing("reward == 0.5")) == ([0, 1, 2], 0)
        (run / "new").write_bytes(lines([rollout("z", 0, 0.5)]))
        (run / "new").replace(run / "rollouts.jsonl")
        listings.take(index.refresh())
        assert listings.rows(Listing("reward == 0.5")) == ([0], 1)


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
        first, _ = listings.rows(Listing("attempt == 0"))
        for number in range(20):
            listings.rows(Listing(f"attempt < {number}"))
            assert listings.rows(Listing("attempt == 0"))[0] is first
        assert len(listings._kept) == 8


@pytest.mark.parametrize(
    "text",
    ["", "plain", 'it\'s "so"', "a\\b", "\\", "\n\t\r\0\x1b", "\u2028é\U0001f600", "\\u0041"],
)
def test_a_quoted_text_is_found_as_it_is(tmp_path, text):
    named = rollout(f"x{text}x", 0, 0.5)
    run = write_run(tmp_path / "run", [named, rollout("other")])
    with RunIndex(run) as index:
        found, _ = Listings(index).rows(Listing(f"task_id == {quoted(f'x{text}x')}"))
        assert found == [0]


class Measurement:
    """Counts its calls; each waits until it may end."""

    def __init__(self):
        self.num_calls = 0
        self.has_begun = threading.Event()
        self.may_end = threading.Event()

    def __call__(self):
        self.num_calls += 1
        self.has_begun.set()
        self.may_end.wait()
        return self.num_calls


def test_who_asks_meanwhile_waits_for_the_same_measurement():
    measurement = Measurement()
    kept = CachedMeasurement(
        measurement, clock=lambda: 0.0
    )  # which takes no time, and needs no rest

    async def main():
        first = asyncio.create_task(kept.of(1))
        await asyncio.to_thread(measurement.has_begun.wait)
        others = [asyncio.create_task(kept.of(1)) for _ in range(3)]
        measurement.may_end.set()
        return [await each for each in (first, *others)], await kept.of(1), await kept.of(2)

    together, again, newer = asyncio.run(main())
    assert {found.value for found in together} == {again.value} == {1}
    assert (newer.value, newer.version) == (2, 2)


def test_a_newer_version_is_measured_after_ten_times_the_measurement():
    now = 0.0

    def measure():
        nonlocal now
        now += 1.0
        return now

    async def main():
        nonlocal now
        kept = CachedMeasurement(measure, clock=lambda: now)
        found = [await kept.of("a"), await kept.of("b")]
        now += 9.0
        found.append(await kept.of("b"))
        now += 1.0
        return [*found, await kept.of("b")]

    versions = [(found.value, found.version) for found in asyncio.run(main())]
    assert versions == [(1.0, "a"), (1.0, "a"), (1.0, "a"), (12.0, "b")]


def test_a_measurement_goes_on_when_nobody_waits_any_more():
    measurement = Measurement()
    kept = CachedMeasurement(measurement)

    async def main():
        leaving = asyncio.create_task(kept.of(1))
        await asyncio.to_thread(measurement.has_begun.wait)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        waiting = asyncio.create_task(kept.of(1))
        measurement.may_end.set()
        return await waiting

    assert asyncio.run(main()).value == 1
    assert measurement.num_calls == 1


def test_a_measurement_is_given_up_at_the_end():
    measurement = Measurement()
    kept = CachedMeasurement(measurement)

    async def main():
        await kept.close()  # nothing is measured yet
        waiting = asyncio.create_task(kept.of(1))
        await asyncio.to_thread(measurement.has_begun.wait)
        await kept.close()
        measurement.may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not waiting.cancelling()

    asyncio.run(main())


def test_what_cannot_be_measured_is_tried_again_by_who_asks_next():
    answers = [UsageError("gone"), 7]

    def measure():
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    async def main():
        kept = CachedMeasurement(measure)
        with pytest.raises(UsageError, match="gone"):
            await kept.of(1)
        return await kept.of(1)

    assert asyncio.run(main()).value == 7


KEY = ("env", "task")
MIRRORED = {"fixed": "broken", "better": "worse", "only_a": "only_b"}
MIRRORED |= {b: a for a, b in MIRRORED.items()}


def kind(a, b):
    [row] = differences({KEY: a} if a else {}, {KEY: b} if b else {}).rows
    return row.kind


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        (TaskScores(0.0, 2, 0), TaskScores(1.0, 2, 2), "fixed"),
        (TaskScores(1.0, 3, 3), TaskScores(0.5, 1, 0), "broken"),
        (TaskScores(0.5, 2, 1), TaskScores(1.0, 2, 2), "flaky"),
        (TaskScores(1.0, 2, 2), TaskScores(0.5, 2, 1), "flaky"),
        (TaskScores(0.2, 2, 0), TaskScores(0.4, 2, 0), "better"),
        (TaskScores(0.4, 2, 0), TaskScores(0.2, 2, 0), "worse"),
        (TaskScores(1.0, 2, 2), TaskScores(1.0, 1, 1), "same"),
        (TaskScores(-3.0, 2, None), TaskScores(7.0, 1, 1), "better"),
        (TaskScores(1.0, 2, None), TaskScores(1.0, 1, None), "same"),
        (TaskScores(1.0, 1, 1), None, "only_a"),
        (None, TaskScores(1.0, 1, 1), "only_b"),
    ],
)
def test_a_task_is_of_one_kind(a, b, wanted):
    assert kind(a, b) == wanted


@st.composite
def standings(draw):
    num = draw(st.integers(1, 4))
    passed = draw(st.none() | st.integers(0, num))
    return TaskScores(draw(st.floats(-2, 2)), num, passed)


tables = st.dictionaries(st.tuples(st.sampled_from("ef"), st.sampled_from("abc")), standings())


@given(tables, tables)
def test_the_runs_the_other_way_round_give_the_mirror_image(a, b):
    there, back = differences(a, b), differences(b, a)
    assert [row.kind for row in back.rows] == [
        MIRRORED.get(row.kind, row.kind) for row in there.rows
    ]
    for one, other in zip(there.rows, back.rows, strict=True):
        assert (one.mean_a, one.num_b) == (other.mean_b, other.num_a)
        assert one.difference is None or one.difference == -other.difference


@given(tables)
def test_a_run_differs_from_itself_in_nothing(a):
    rows = differences(a, a).rows
    assert {row.kind for row in rows} <= {"same", "flaky"}
    assert all(row.difference == 0 for row in rows)


@given(tables, tables, st.sampled_from(["", *KINDS]), st.booleans())
def test_a_choice_keeps_its_kind_alone_sorted(a, b, wanted, is_descending):
    found = differences(a, b)
    sort = "-difference" if is_descending else "difference"
    rows = found.select(wanted, sort)
    assert len(rows) == (found.counts.get(wanted, 0) if wanted else len(found.rows))
    known = [row.difference for row in rows if row.difference is not None]
    assert known == sorted(known, reverse=is_descending)
    assert all(row.difference is None for row in rows[len(known) :])


def errors(run, task="a", attempt=0):
    with RunIndex(run) as index:
        row = index.find("arithmetic", task, attempt)
        return [each.error.error_class for each in failures_of(run, row)]


def test_only_those_of_the_attempt_are_given_in_their_order(tmp_path):
    others = [failure("a", 1, "Other"), failure("aa", 0, "Other"), failure("b", 0, "a")]
    own = [failure("a", 0, name) for name in ("First", "Second", "Third")]
    run = write_run(tmp_path, [rollout("a")], failures=[own[0], *others, *own[1:]])
    assert errors(run) == ["First", "Second", "Third"]
    assert errors(run, "b") == ["a"]


def test_of_many_the_last_ones_are_given(tmp_path):
    run = write_run(tmp_path, failures=[failure("a", 0, f"E{n}") for n in range(80)])
    assert errors(run) == [f"E{n}" for n in range(30, 80)]


def test_a_line_that_is_not_finished_is_left_out(tmp_path):
    run = write_run(tmp_path, failures=[failure("a", 0, "First")])
    with (run / "failures.jsonl").open("ab") as file:
        file.write(lines([failure("a", 0, "Second")])[:-10])
    assert errors(run) == ["First"]


def test_a_damaged_line_is_told(tmp_path):
    run = write_run(tmp_path, [rollout("a")], failures=[failure("b")])
    with RunIndex(run) as index:
        row = index.find("arithmetic", "a", 0)
        with (run / "failures.jsonl").open("ab") as file:
            file.write(b'{"task_id":"a",\n')
        with pytest.raises(RunFileError, match=r"failures.jsonl:2: is damaged"):
            failures_of(run, row)


def test_a_bare_file_has_no_history(tmp_path):
    file = tmp_path / "rollouts.jsonl"
    file.write_bytes(lines([rollout("a")]))
    with RunIndex(file) as index:
        assert failures_of(file, index.rows[0]) == []
