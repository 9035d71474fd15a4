"""Planning by a pilot: tasks that pass, against scipy and by laws."""

import itertools
import math

import msgspec
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from gymcli.comparison.planning import (
    ASSUMED_CORRELATION,
    Pilot,
    pilot_of,
    pilot_of_pair,
    plan,
    plans,
    smallest_margin,
    tasks_to_pass,
)
from gymcli.errors import UsageError
from gymcli.metrics.aggregate import Aggregator
from gymcli.store.scored_lines import EnvironmentFacts, ScoredLine

PILOT = Pilot(num_tasks=100, between=0.14, within=0.07, correlation=0.7, is_assumed=False)


def rows_of(found, scenario):
    """Return the designs of one scenario, by attempts."""
    return {row.num_attempts: row for row in found.designs if row.scenario == scenario}


def test_plan_by_the_formula():
    """The variance of a difference is 2 * 0.07/4 if nothing changed, else 2 * 0.14 * 0.3 more."""
    found = plan(PILOT, margins=[0.02, 0.1])
    factor = scipy.stats.norm.ppf(0.95) + scipy.stats.norm.ppf(0.8)
    for scenario, spread in (("unchanged", 0.035), ("other-model", 0.119)):
        row = rows_of(found, scenario)[4]
        assert row.num_tasks["0.02"] == pytest.approx(spread * (factor / 0.02) ** 2, rel=0.02)
        quantiles = scipy.stats.t.ppf(0.95, 99) + scipy.stats.norm.ppf(0.8)
        assert row.smallest_margin == pytest.approx(quantiles * math.sqrt(spread / 100))


@given(st.floats(1e-6, 0.5), st.floats(0.005, 0.5), st.floats(0.0, 0.5))
def test_tasks_to_pass_are_as_many_as_the_margin_takes(spread, margin, size):
    num_tasks = tasks_to_pass(spread, margin, size=size)
    assert smallest_margin(num_tasks, spread, size=size) <= margin
    fewer = min(num_tasks - 1, math.floor(num_tasks / 1.02))
    assert fewer < 2 or smallest_margin(fewer, spread, size=size) > margin


@pytest.mark.parametrize("margin", [1e-9, 1e300])
@pytest.mark.parametrize(("spread", "size"), [(0.5, 0.5), (0.0, 0.5), (0.5, 0.0), (0.0, 0.0)])
def test_tasks_to_pass_takes_any_margin(margin, spread, size):
    assert tasks_to_pass(spread, margin, size=size) >= 2


def test_smallest_margin_of_tasks_that_never_differ_is_that_of_the_pseudo_tasks():
    """Ten differences of 0 and two of 0.5: a standard error of sqrt(0.5/11/12)."""
    found = smallest_margin(10, 0.0, size=0.5)
    assert found == pytest.approx(scipy.stats.t.ppf(0.95, 11) * math.sqrt(0.5 / 11 / 12))


@given(st.floats(0.001, 0.25), st.floats(0.0, 0.25), st.floats(0.0, 1.0))
def test_plan_improves_with_attempts_and_where_nothing_changed(between, within, correlation):
    pilot = Pilot(num_tasks=10, between=between, within=within, correlation=correlation)
    found = plan(pilot, margins=[0.05])
    unchanged, other = (rows_of(found, name) for name in ("unchanged", "other-model"))
    assert list(unchanged) == list(other) == [1, 2, 4, 8, 16]
    for rows in (unchanged, other):
        for fewer, more in itertools.pairwise(rows.values()):
            assert more.num_tasks["0.05"] <= fewer.num_tasks["0.05"]
            assert more.smallest_margin <= fewer.smallest_margin
    for one, several in zip(unchanged.values(), other.values(), strict=True):
        assert one.num_tasks["0.05"] <= several.num_tasks["0.05"]


def test_plan_of_single_attempts_plans_single_attempts_of_another_model():
    """One attempt a task does not show how much the same model varies."""
    found = plan(Pilot(num_tasks=50, between=0.21, within=None), margins=[0.05])
    [row] = found.designs
    assert (row.scenario, row.num_attempts) == ("other-model", 1)


def test_pilot_of_pair_measures_the_correlation():
    """Covariance 0.05 and both variances 0.1, computed by hand from the samples."""
    first = {"a": 0.0, "b": 0.5, "c": 1.0, "only": 0.3}
    second = {"a": 0.1, "b": 0.2, "c": 0.6, "other": 0.9}
    run = Pilot(num_tasks=4, between=0.2, within=0.05)
    found = pilot_of_pair(first, second, runs=(run, msgspec.structs.replace(run, within=0.15)))
    assert found.num_tasks == 3
    assert found.within == pytest.approx(0.1)
    assert not found.is_assumed
    assert found.correlation == pytest.approx(0.125 / 0.2)


@pytest.mark.parametrize("shared", [0, 2])
def test_pilot_of_pair_assumes_where_few_tasks_are_shared(shared):
    first = {str(n): n / 10 for n in range(6)}
    second = {**{str(n): n / 5 for n in range(shared)}, "x": 0.5}
    run = Pilot(num_tasks=6, between=0.2, within=None)
    found = pilot_of_pair(first, second, runs=(run, run))
    assert found.is_assumed
    assert found.correlation == ASSUMED_CORRELATION
    assert found.within is None


def test_pilot_of_pair_of_a_run_with_itself_has_correlation_1():
    tasks = {str(n): float(n % 2) for n in range(10)}
    run = Pilot(num_tasks=10, between=0.1, within=0.2)
    assert pilot_of_pair(tasks, tasks, runs=(run, run)).correlation == 1.0


def counted(**environments):
    """Return an aggregator of environments, each with the rewards of its tasks."""
    facts = {env: EnvironmentFacts(max_reward=1.0) for env in environments}
    aggregator = Aggregator(facts)
    for env, tasks in environments.items():
        for number, rewards in enumerate(tasks):
            for attempt, reward in enumerate(rewards):
                line = ScoredLine(env=env, task_id=f"t{number}", attempt=attempt, reward=reward)
                aggregator.add_scored(line)
    return aggregator


TASKS = [[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [0.0, 1.0], [1.0, 1.0]]


def test_pilot_of_a_run_is_its_variance():
    numbers = counted(quiz=TASKS).metrics().environments["quiz"]
    found = pilot_of(numbers)
    assert (found.between, found.within) == (numbers.variance.between, numbers.variance.within)
    assert found.num_tasks == 5


def test_pilot_of_single_attempts_is_the_variance_of_the_scores():
    found = pilot_of(counted(quiz=[[1.0], [0.0], [1.0], [1.0]]).metrics().environments["quiz"])
    assert found.between == pytest.approx(0.25)
    assert found.within is None


def test_pilot_of_one_task_is_none():
    assert pilot_of(counted(quiz=[[1.0, 0.0]]).metrics().environments["quiz"]) is None


def test_plans_cover_environments_with_a_usable_pilot():
    found = plans([counted(quiz=TASKS, game=[[1.0, 0.0]])], margin=0.1)
    assert list(found) == ["quiz"]
    assert found["quiz"].pilot.is_assumed
    assert {tuple(row.num_tasks) for row in found["quiz"].designs} == {("0.1",)}


def test_pilots_of_graded_rewards_have_no_best_reward():
    assert plans([counted(quiz=TASKS)])["quiz"].pilot.best_reward == 1.0
    assert plans([counted(quiz=[*TASKS, [0.5, 1.0]])])["quiz"].pilot.best_reward is None


def test_plans_without_a_margin_are_for_shares_of_the_range():
    found = plans([counted(quiz=TASKS)])["quiz"]
    assert list(found.designs[0].num_tasks) == ["0.01", "0.02", "0.05", "0.1"]


def test_plans_of_an_unknown_range_need_a_margin():
    pilot = counted(quiz=TASKS)
    pilot.facts["quiz"] = EnvironmentFacts()
    with pytest.raises(UsageError, match="the range of rewards of quiz is unknown; set --margin"):
        plans([pilot])
    assert plans([pilot], margin=0.3)


def test_plans_of_two_runs_are_of_what_both_have():
    found = plans([counted(quiz=TASKS, game=TASKS), counted(quiz=TASKS)])
    assert list(found) == ["quiz"]
    assert found["quiz"].pilot.correlation == 1.0
    assert not found["quiz"].pilot.is_assumed


@pytest.mark.parametrize(
    ("num_pilots", "margin", "message"),
    [
        (3, None, "--power: 3 runs"),
        (1, 0.0, "--margin 0: must be 1e-09 or more"),
        (1, 1e-300, "--margin 1e-300: must be 1e-09 or more"),
        (1, math.nan, "--margin nan: must be 1e-09 or more"),
    ],
)
def test_plans_refuse_what_cannot_be_planned(num_pilots, margin, message):
    with pytest.raises(UsageError, match=message):
        plans([counted(quiz=TASKS)] * num_pilots, margin=margin)


@pytest.mark.parametrize("tasks", [[[1.0]], [[1.0], [1.0]], [[0.0, 0.0], [0.0, 0.0]]])
def test_plans_refuse_a_pilot_without_variance(tasks):
    """With equal rewards, a plan would claim that any difference is detectable."""
    with pytest.raises(UsageError, match="two scored tasks of one environment, and rewards that d"):
        plans([counted(quiz=tasks)])


def test_plans_take_a_pilot_whose_tasks_have_the_same_mean():
    found = plans([counted(quiz=[[0.0, 1.0], [1.0, 0.0]])], margin=1e300)["quiz"]
    assert (found.pilot.between, found.pilot.within) == (0.0, 0.5)
    assert {row.num_tasks["1e+300"] for row in found.designs} == {2}
