"""Which way a task went between two runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.reporting.viewer_lists import KINDS, TaskScores, differences

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
