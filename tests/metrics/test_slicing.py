"""Slices: their fields, names and numbers, and the numbers that environments compute."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.errors import UsageError
from gymcli.metrics.aggregate import Aggregator
from gymcli.metrics.slicing import MAX_SLICES, NONE, field_of, slice_name, slice_order
from gymcli.store.scored_lines import EnvironmentFacts, FailureLine, OwnMetrics, ScoredLine
from gymcli.types import ErrorRecord

ROW = {
    "category": "math",
    "level": 3,
    "tags": ["a", "b"],
    "meta": {"source": {"year": 2024}, "empty": None},
    "a.b": "dotted",
    "a": {"b": "nested"},
    "verifier_metadata": {"category": "hidden", "unit": "m", "deep": {"er": True}},
}
RAW = msgspec.json.decode(msgspec.json.encode(ROW), type=dict[str, msgspec.Raw])


@pytest.mark.parametrize("row", [ROW, RAW], ids=["decoded", "raw"])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("category", '"math"'),
        ("task.category", '"math"'),
        ("level", "3"),
        ("tags", '["a","b"]'),
        ("meta.source.year", "2024"),
        ("task.meta.source", '{"year":2024}'),
        ("a.b", '"dotted"'),
        ("unit", '"m"'),
        ("deep.er", "true"),
        ("meta.empty", None),
        ("category.inner", None),
        ("absent", None),
        ("", None),
    ],
)
def test_field_of(row, field, value):
    assert field_of(row, field) == value


def test_field_of_is_the_same_for_equal_values():
    one = msgspec.json.decode('{"x": {"b": 1, "a": "\\u00e9"}}', type=dict[str, msgspec.Raw])
    other = msgspec.json.decode('{"x":{"a":"é","b":1}}', type=dict[str, msgspec.Raw])
    assert field_of(one, "x") == field_of(other, "x")


def test_field_of_a_value_nested_too_deeply_is_none():
    deep = {"x": msgspec.Raw(b"[" * 100_000 + b"]" * 100_000)}
    assert field_of(deep, "x") is None


@pytest.mark.parametrize(
    ("value", "name"),
    [('"math"', "math"), ("3", "3"), ("true", "true"), ('["a"]', '["a"]'), (None, NONE)],
)
def test_slice_name(value, name):
    assert slice_name(value) == name


def test_slice_order_is_numbers_then_texts_then_none():
    names = ["b", NONE, "10", "a", "9", "nan", "2.5"]
    assert sorted(names, key=slice_order) == ["2.5", "9", "10", "a", "b", "nan", NONE]


def test_slice_order_is_that_of_difficulty_and_of_numbers_in_texts():
    assert sorted(["hard", "easy", NONE, "medium"], key=slice_order) == [
        *("easy", "medium", "hard", NONE),
    ]
    levels = ["Level 10", "Level 2", "Level 2b", "Level"]
    assert sorted(levels, key=slice_order) == ["Level", "Level 2", "Level 2b", "Level 10"]


@given(st.lists(st.text()))
def test_slice_order_is_an_order_whatever_the_names(names):
    ordered = sorted(names, key=slice_order)
    names.reverse()
    assert sorted(names, key=slice_order) == ordered


FACTS = {
    "quiz": EnvironmentFacts(max_reward=1.0, num_expected=100),
    "game": EnvironmentFacts(max_reward=5.0),
}
TASKS = [
    ("t0", '"math"', [1.0, 0.0]),
    ("t1", '"math"', [1.0, 1.0]),
    ("t2", '"law"', [0.0, 0.0]),
    ("t3", None, [1.0]),
]


def lines_of(tasks, env="quiz"):
    """Return lines of tasks, each with the value of its row's field."""
    return [
        (ScoredLine(env=env, task_id=task, attempt=attempt, reward=reward), [value])
        for task, value, rewards in tasks
        for attempt, reward in enumerate(rewards)
    ]


def failed(task_id, attempt, env="quiz"):
    """Return the failure line of an attempt."""
    error = ErrorRecord(error_class="ServerError", phase="model")
    return FailureLine(env=env, task_id=task_id, attempt=attempt, error=error)


def counted(pairs, **arguments):
    """Return an aggregator with these lines."""
    aggregator = Aggregator(FACTS, **arguments)
    lines, values = zip(*pairs, strict=True)
    aggregator.add_scored_lines(lines, values)
    return aggregator


def test_slices_are_the_numbers_of_their_lines_alone():
    found = counted(lines_of(TASKS), by=["kind"]).metrics()
    assert list(found.slices) == ["kind"]
    slices = found.slices["kind"]
    assert list(slices) == ["law", "math", NONE]
    alone = counted(lines_of(TASKS[:2])).metrics().environments["quiz"]
    assert slices["math"].estimates == {
        name: estimate
        for name, estimate in alone.estimates.items()
        if name != "strict_mean_reward"  # how many attempts of a slice were expected is unknown
    } | {"strict_mean_reward": slices["math"].estimates["strict_mean_reward"]}
    assert slices["math"].mean_reward == 0.75
    assert slices["math"].num_expected is None
    assert slices["law"].pass_at_k == {"1": 0.0, "2": 0.0}
    assert slices[NONE].num_scored == 1


def test_slices_add_up_to_the_whole():
    whole = counted(lines_of(TASKS), by=["kind"]).metrics()
    for name in ("num_tasks", "num_scored", "num_flaky_tasks"):
        parts = [getattr(part, name) for part in whole.slices["kind"].values()]
        assert sum(parts) == getattr(whole, name)


def test_slices_of_several_environments_are_also_of_each():
    pairs = lines_of(TASKS) + lines_of([("g0", '"math"', [5.0]), ("g1", "3", [0.0])], "game")
    found = counted(pairs, by=["kind"]).metrics()
    assert list(found.slices["kind"]) == ["3", "law", "math", NONE]
    assert found.slices["kind"]["math"].mean_reward is None  # they share no best reward
    assert found.slices["kind"]["math"].num_scored == 5
    assert list(found.environments["game"].slices["kind"]) == ["3", "math"]
    assert found.environments["game"].slices["kind"]["math"].mean_reward == 5.0
    assert found.environments["quiz"].slices["kind"]["math"].mean_reward == 0.75


def test_slices_count_failures_with_their_tasks():
    """A failure's own values decide, then a scored attempt of its task; otherwise it is NONE."""
    aggregator = counted(lines_of(TASKS), by=["kind"])
    aggregator.add_failure(failed("t1", 2))
    aggregator.add_failure(failed("t9", 0), ['"law"'])
    aggregator.add_failure(failed("unknown", 0))
    aggregator.add_failure(failed("t0", 0))  # scored later
    for _ in range(2):
        slices = aggregator.metrics().slices["kind"]
        assert {name: part.num_unscored for name, part in slices.items()} == {
            "law": 1,
            "math": 1,
            NONE: 1,
        }


def test_slices_by_several_fields():
    pairs = [(line, [*values, "1"]) for line, values in lines_of(TASKS)]
    found = counted(pairs, by=["kind", "level", "kind"]).metrics()
    assert list(found.slices) == ["kind", "level"]
    assert list(found.slices["level"]) == ["1"]


def test_slices_by_a_field_that_no_task_has_are_a_warning():
    pairs = [(line, [None]) for line, _ in lines_of(TASKS)]
    aggregator = counted(pairs, by=["knid"])
    assert list(aggregator.metrics().slices["knid"]) == [NONE]
    aggregator.metrics()
    assert aggregator.warnings == ["--by knid: no task of this run has the field"]


def test_slices_of_too_many_values_are_an_error():
    pairs = [
        (ScoredLine(env="quiz", task_id=str(n), reward=1.0), [str(n)])
        for n in range(MAX_SLICES + 1)
    ]
    with pytest.raises(UsageError, match=r"^--by id: has more than 1,000 values; use a field"):
        counted(pairs, by=["id"]).metrics()


def test_slices_sort_many_lines_as_they_come():
    """In two calls, with the numbers read in between."""
    pairs = [
        (ScoredLine(env="quiz", task_id=str(n), reward=float(n % 2)), [str(n % 2)])
        for n in range(20_000)
    ]
    aggregator = counted(pairs[:18_000], by=["odd"])
    assert aggregator.metrics().slices["odd"]["0"].num_scored == 9_000
    aggregator.add_scored_lines(*map(list, zip(*pairs[18_000:], strict=True)))
    found = aggregator.metrics().slices["odd"]
    assert {name: (part.num_scored, part.mean_reward) for name, part in found.items()} == {
        "0": (10_000, 0.0),
        "1": (10_000, 1.0),
    }


def test_slices_without_a_field_are_none():
    assert counted([(line, []) for line, _ in lines_of(TASKS)]).metrics().slices == {}


def test_own_metrics_get_the_groups_with_their_fields():
    seen = []

    def compute(groups):
        seen.extend(groups)
        return {"share": sum(len(group.scores) for group in seen) / 14, "also": 1}

    own = {"quiz": OwnMetrics(compute, ("kind",)), "absent": OwnMetrics(compute)}
    pairs = [(line, ["7", *values]) for line, values in lines_of(TASKS)]
    aggregator = counted(pairs, own_metrics=own, by=["level"])
    assert aggregator.fields == ("level", "kind")
    found = aggregator.metrics()
    assert found.environment_metrics == {"also": 1.0, "share": 0.5}
    assert list(found.environment_metrics) == ["also", "share"]
    assert sorted(group.task_id for group in seen) == ["t0", "t1", "t2", "t3"]
    assert {group.task_id: group.fields for group in seen}["t2"] == {"kind": "law"}
    assert aggregator.warnings == []


def failing(groups):
    """Fail after the first group."""
    next(groups)
    raise KeyError("style")


@pytest.mark.parametrize(
    ("compute", "text"),
    [
        (failing, "KeyError: 'style'"),
        (lambda groups: {"a": 1.0, "b": float("nan")}, "'b' is nan, not a finite number"),
        (lambda groups: {"a": "much"}, "'a' is 'much', not a finite number"),
        (lambda groups: 3, "TypeError: 'int' object is not iterable"),
    ],
)
def test_own_metrics_that_fail_are_a_warning(compute, text):
    aggregator = counted(lines_of(TASKS), own_metrics={"quiz": OwnMetrics(compute)})
    found = aggregator.metrics()
    aggregator.metrics()
    assert found.environment_metrics == {}
    assert found.mean_reward == pytest.approx(2.5 / 4)
    [warning] = aggregator.warnings
    assert warning.startswith("the metrics of environment quiz failed: ")
    assert text in warning


def test_slices_survive_json():
    found = counted(lines_of(TASKS), by=["kind"]).metrics()
    assert msgspec.json.decode(msgspec.json.encode(found), type=type(found)) == found
