"""Planning by a pilot: the reference's table, and laws."""

import itertools
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.power import NormalIndPower

from gymcli.errors import UsageError
from gymcli.metrics.aggregate import Aggregator
from gymcli.metrics.planning import (
    ASSUMED_CORRELATION,
    Pilot,
    pilot_of,
    pilot_of_pair,
    plan,
    plans,
)
from gymcli.metrics.scored_lines import EnvironmentFacts, ScoredLine

PILOT = Pilot(num_tasks=100, between=0.14, within=0.07, correlation=0.7, is_assumed=False)


def differences(found, design, num_attempts):
    """Return the smallest detectable differences of one design."""
    [row] = [d for d in found.designs if (d.design, d.num_attempts) == (design, num_attempts)]
    return row.differences


@pytest.mark.parametrize(
    ("num_tasks", "unpaired", "paired"),
    [
        ("100", 0.182, {1: 0.133, 4: 0.097, 16: 0.085}),
        ("500", 0.081, {1: 0.059, 4: 0.043, 16: 0.038}),
        ("1000", 0.057, {1: 0.042, 4: 0.031, 16: 0.027}),
    ],
)
def test_plan_gives_the_table_of_the_literature(num_tasks, unpaired, paired):
    found = plan(PILOT)
    assert differences(found, "unpaired", 1)[num_tasks] == pytest.approx(unpaired, abs=6e-4)
    for num_attempts, expected in paired.items():
        value = differences(found, "paired", num_attempts)[num_tasks]
        assert value == pytest.approx(expected, abs=6e-4)


def test_plan_agrees_with_statsmodels():
    """Two independent samples of variance 0.21: the effect size that 200 tasks detect."""
    expected = NormalIndPower().solve_power(nobs1=200, alpha=0.05, power=0.8) * math.sqrt(0.21)
    value = differences(plan(PILOT), "unpaired", 1)["200"]
    assert value == pytest.approx(expected, rel=1e-4)


@given(st.floats(0.001, 0.25), st.floats(0.0, 0.25), st.floats(0.0, 0.99), st.floats(0.005, 0.5))
def test_plan_needs_as_many_tasks_as_detect_the_margin(between, within, correlation, margin):
    pilot = Pilot(num_tasks=10, between=between, within=within, correlation=correlation)
    found = plan(pilot, margin=margin)
    for row in found.designs:
        per_task = row.differences["100"] * 10.0
        assert per_task / math.sqrt(row.tasks_needed) <= margin * (1 + 1e-9)
        if row.tasks_needed > 2:
            assert per_task / math.sqrt(row.tasks_needed - 1) > margin * (1 - 1e-9)


@given(st.floats(0.001, 0.25), st.floats(0.0, 0.25), st.floats(0.0, 1.0))
def test_plan_improves_with_tasks_attempts_and_pairing(between, within, correlation):
    pilot = Pilot(num_tasks=10, between=between, within=within, correlation=correlation)
    found = plan(pilot)
    for design in ("paired", "unpaired"):
        rows = [differences(found, design, attempts) for attempts in (1, 2, 4, 8, 16)]
        for fewer, more in itertools.pairwise(rows):
            assert all(more[n] <= fewer[n] for n in fewer)
        for row in rows:
            by_size = [row[n] for n in sorted(row, key=int)]
            assert by_size == sorted(by_size, reverse=True)
    for attempts in (1, 16):
        paired, unpaired = (differences(found, d, attempts) for d in ("paired", "unpaired"))
        assert all(paired[n] <= unpaired[n] for n in paired)


def test_plan_of_single_attempts_plans_single_attempts():
    found = plan(Pilot(num_tasks=50, between=0.21, within=None))
    assert {row.num_attempts for row in found.designs} == {1}
    one, known = differences(found, "unpaired", 1), differences(plan(PILOT), "unpaired", 1)
    assert {n: one[n] for n in known} == pytest.approx(known)


def test_plan_without_a_margin_needs_no_tasks():
    assert all(row.tasks_needed is None for row in plan(PILOT).designs)


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
    assert found["quiz"].margin == 0.1


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
    assert {row.tasks_needed for row in found.designs} == {2}
