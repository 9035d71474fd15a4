"""The comparison of two runs: laws, the interval, the verdict, and reasons for doubt."""

import math
import random

import msgspec
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.power import TTestPower
from statsmodels.stats.weightstats import ttost_paired

from gymcli.comparison.comparison_results import Comparison, RunSide
from gymcli.comparison.difference_verdict import (
    Rule,
)
from gymcli.comparison.paired_differences import PairedAttempts, parse_measure
from gymcli.comparison.run_comparison import compare, doubts
from gymcli.errors import RunFileError, UsageError
from gymcli.metrics.results import Bounds
from gymcli.store.scored_lines import EnvironmentFacts
from tests.comparison.paired_tasks import BINARY, PairedTask, compared, drawn, paired

UNBOUNDED = {"e": EnvironmentFacts(can_be_negative=True)}
means = st.integers(0, 8).map(lambda number: number / 8)
rewards = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=4)
graded = st.lists(st.tuples(rewards, rewards), min_size=1, max_size=25)
any_rewards = st.lists(st.integers(-40, 40).map(lambda n: n / 8), min_size=1, max_size=3)
unbounded = st.lists(st.tuples(any_rewards, any_rewards), min_size=1, max_size=20)


@given(graded, st.floats(1e-6, 1.0))
def test_a_run_does_not_differ_from_itself(pairs, margin):
    found = compared(paired([(a, a) for a, _ in pairs]), margin=margin)
    assert (found.difference.value, found.p_value) == (0.0, 1.0)
    assert found.verdict != "FAIL"
    assert (found.num_fixed, found.num_broken) == (0, 0)
    assert (found.num_regressed, found.num_improved, found.num_unchanged) == (0, 0, len(pairs))


def test_equal_tasks_pass_once_they_are_many():
    """Two pseudo-tasks of half the range: 57 tasks that do not differ are not yet enough."""
    for num_tasks, verdict in ((10, "INCONCLUSIVE"), (57, "INCONCLUSIVE"), (58, "PASS")):
        found = compared(paired([([1.0], [1.0])] * num_tasks), margin=0.02)
        assert found.verdict == verdict
        assert found.is_equivalent == (verdict == "PASS")
        if verdict == "INCONCLUSIVE":
            assert found.tasks_needed == 58


def test_a_run_and_its_copy_are_no_evidence():
    found = compared(paired([([1.0], [1.0])] * 500), is_same_run=True)
    assert (found.verdict, found.deciding_interval, found.p_value) == ("INCONCLUSIVE", None, None)
    assert found.difference.interval is None
    assert "the same run" in found.way_out


def test_equal_rewards_of_an_unknown_range_decide_nothing():
    found = compared(paired([([7.0], [7.0])] * 500), facts=UNBOUNDED, margin=0.5)
    assert (found.verdict, found.smallest_margin) == ("INCONCLUSIVE", None)
    assert "their range is unknown" in found.way_out
    seen = compared(paired([([7.0], [7.0]), ([8.0], [8.0])] * 50), facts=UNBOUNDED, margin=0.5)
    assert seen.verdict == "PASS", "the rewards seen tell their range"


@given(graded | unbounded, st.floats(1e-6, 0.2))
def test_the_smallest_margin_is_where_a_pass_begins(pairs, more):
    facts = UNBOUNDED if any(min(a + b) < 0.0 for a, b in pairs) else None
    smallest = compared(paired(pairs), facts=facts).smallest_margin
    if smallest is None:
        return
    assert compared(paired(pairs), facts=facts, margin=smallest + more).verdict == "PASS"
    if smallest > 0.0:
        assert compared(paired(pairs), facts=facts, margin=smallest).verdict != "PASS"


@given(graded | unbounded)
def test_the_other_way_round_everything_is_reversed(pairs):
    facts = UNBOUNDED if any(min(a + b) < 0.0 for a, b in pairs) else None
    there = compared(paired(pairs), facts=facts)
    back = compared(paired([(b, a) for a, b in pairs]), facts=facts)
    assert back.difference.value == -there.difference.value
    assert back.difference.standard_error == there.difference.standard_error
    assert (back.p_value, back.test) == (there.p_value, there.test)
    assert back.correlation == pytest.approx(there.correlation)
    assert (back.mean_a, back.mean_b) == (there.mean_b, there.mean_a)
    assert (back.num_fixed, back.num_broken) == (there.num_broken, there.num_fixed)
    assert back.num_flaky == there.num_flaky
    if there.difference.interval is not None:
        assert back.difference.interval.low == pytest.approx(-there.difference.interval.high)
        assert back.difference.interval.high == pytest.approx(-there.difference.interval.low)


@given(graded, st.randoms(use_true_random=False))
def test_the_order_of_tasks_does_not_matter(pairs, shuffle):
    tasks = paired(pairs)
    before = compared(tasks, with_tasks=True)
    shuffle.shuffle(tasks)
    assert msgspec.json.encode(compared(tasks, with_tasks=True)) == msgspec.json.encode(before)


@settings(max_examples=50)
@given(unbounded, st.sampled_from([0.5, 2.0, 8.0]))
def test_another_unit_of_rewards_changes_nothing_but_the_unit(pairs, unit):
    scaled = [([unit * r for r in a], [unit * r for r in b]) for a, b in pairs]
    before = compared(paired(pairs), facts=UNBOUNDED, margin=0.25)
    after = compared(paired(scaled), facts=UNBOUNDED, margin=0.25 * unit)
    assert after.difference.value == pytest.approx(unit * before.difference.value)
    assert after.p_value == pytest.approx(before.p_value, abs=1e-9)
    assert after.verdict == before.verdict


def test_a_worse_run_fails_and_a_better_one_passes():
    assert compared(paired(drawn(300, 4, -0.1))).verdict == "FAIL"
    assert compared(paired(drawn(300, 4, 0.1))).verdict == "PASS"
    assert compared(paired(drawn(20, 1))).verdict == "INCONCLUSIVE"


def test_strict_fails_only_beyond_the_margin():
    tasks = paired(drawn(400, 4, -0.06))
    assert compared(tasks, margin=0.02).verdict == "FAIL"
    assert compared(tasks, margin=0.055, is_strict=True).verdict == "INCONCLUSIVE"
    assert compared(tasks, margin=0.001, is_strict=True).verdict == "FAIL"


def test_one_task_decides_nothing():
    found = compared(paired([([1.0, 1.0], [0.0, 0.0])]))
    assert (found.difference.value, found.difference.interval) == (-1.0, None)
    assert found.verdict == "INCONCLUSIVE"
    assert "one task is not enough" in found.way_out


def test_all_attempts_alike_in_both_runs():
    found = compared(paired([([1.0] * 3, [1.0] * 3)] * 4))
    assert (found.correlation, found.variance_reduction) == (None, None)
    interval = found.difference.interval
    assert interval.low == -interval.high < 0.0, "other tasks may differ"


def test_negative_rewards_are_not_forced_into_a_range():
    draw = random.Random(2)
    pairs = [([draw.uniform(-50, 10)], [draw.uniform(-50, 10)]) for _ in range(12)]
    found = compared(paired(pairs), facts=UNBOUNDED)
    assert found.difference.interval.high - found.difference.interval.low > 2.0
    assert (found.num_fixed, found.num_flaky, found.margin) == (None, None, 0.0)


def test_runs_may_have_other_numbers_of_attempts():
    found = compared(paired([([1.0], [1.0, 0.0, 0.0, 1.0]), ([0.0], [1.0] * 4)]))
    assert (found.num_attempts_a, found.num_attempts_b) == (2, 8)
    assert (found.mean_a, found.mean_b) == (0.5, 0.75)


def test_tasks_change_in_five_ways():
    tasks = paired(
        [
            ([0.0, 0.0], [1.0, 1.0]),
            ([1.0, 1.0], [0.0, 0.0]),
            ([1.0, 1.0], [1.0, 0.0]),
            ([0.0, 1.0], [0.0, 0.0]),
            ([1.0], [1.0]),
            ([0.0], [0.0]),
        ]
    )
    found = compared(tasks, with_tasks=True)
    assert (found.fixed, found.broken, found.flaky) == (["t0000"], ["t0001"], ["t0002", "t0003"])
    assert (found.num_fixed, found.num_broken, found.num_flaky) == (1, 1, 2)
    changes = [task.change for task in found.tasks]
    assert changes == ["fixed", "broken", "flaky", "flaky", "passed", "failed"]
    assert [(task.direction, task.flaky_in) for task in found.tasks] == [
        ("improved", ""),
        ("regressed", ""),
        ("regressed", "B"),
        ("regressed", "A"),
        ("unchanged", ""),
        ("unchanged", ""),
    ]
    assert (found.num_regressed, found.num_improved, found.num_unchanged) == (3, 1, 2)
    assert (found.num_flaky_a, found.num_flaky_b) == (1, 1)
    assert [task.task_id for task in found.regressions] == ["t0001", "t0002", "t0003"]
    assert (found.tasks[2].num_passes_a, found.tasks[2].num_passes_b) == (2, 1)


def test_the_ten_largest_regressions_are_listed():
    losses = [n / 20 for n in range(15)]
    random.Random(3).shuffle(losses)
    found = compared(paired([([1.0], [1.0 - loss]) for loss in losses]))
    assert [-task.difference for task in found.regressions] == pytest.approx(
        sorted(losses, reverse=True)[:10]
    )


def test_regressions_on_other_scales_are_shares_of_the_range():
    tasks = paired([([1.0], [0.5])], env="e") + paired([([5.0], [4.0])], env="f")
    facts = {"e": BINARY, "f": EnvironmentFacts(max_reward=5.0)}
    assert [task.env for task in compared(tasks, facts=facts).regressions] == ["e", "f"]


def test_the_first_tasks_are_named_and_all_are_counted():
    tasks = paired([([0.0], [1.0])] * 50)
    random.Random(1).shuffle(tasks)
    found = compared(tasks)
    assert found.num_fixed == 50
    assert found.fixed == [f"t{number:04}" for number in range(20)]


def test_tasks_without_a_partner_are_counted_and_left_out():
    found = compared(paired([([1.0], None), (None, [0.0]), ([1.0], [1.0]), ([0.0], [0.0])]))
    assert found.num_tasks == 2
    unmatched = found.unmatched
    assert (unmatched.num_only_a, unmatched.only_a) == (1, ["t0000"])
    assert (unmatched.num_only_b, unmatched.only_b) == (1, ["t0001"])


def test_tasks_with_too_few_attempts_are_left_out():
    found = compared(paired([([1.0], [1.0, 1.0]), ([1.0, 0.0], [0.0, 0.0])]), metric="pass@2")
    assert (found.num_tasks, found.unmatched.num_too_few_attempts) == (1, 1)


def test_no_shared_task_gives_no_numbers():
    found = compared(paired([([1.0], None), (None, [1.0])]))
    assert (found.num_tasks, found.difference, found.verdict) == (0, None, "INCONCLUSIVE")


def test_slices_are_adjusted_among_each_other():
    pairs = drawn(80, 2, -0.25)
    slices = [("hard" if number % 4 else "easy", str(number % 2)) for number in range(80)]
    found = compared(paired(pairs, slices=slices), fields=["level", "half"])
    assert list(found.slices) == ["level", "half"]
    assert list(found.slices["level"]) == ["easy", "hard"]
    assert sum(part.num_tasks for part in found.slices["half"].values()) == 80
    for parts in found.slices.values():
        for part in parts.values():
            assert part.p_adjusted >= part.p_value
    assert found.p_adjusted is None


def test_a_field_that_is_an_id_is_refused():
    pairs = [([1.0], [1.0])] * 1001
    slices = [(str(number),) for number in range(1001)]
    with pytest.raises(UsageError, match="--by id: has more than 1,000 values"):
        compared(paired(pairs, slices=slices), fields=["id"])


def test_environments_on_one_scale_are_pooled():
    tasks = paired(drawn(20, 2), env="e") + paired(drawn(30, 2, seed=2), env="f")
    found = compared(tasks, facts={"e": BINARY, "f": BINARY})
    assert (found.num_tasks, list(found.environments)) == (50, ["e", "f"])
    assert found.difference is not None
    assert found.flaky[0].startswith("e/t")


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [((0.2, 0.2), "PASS"), ((0.2, -0.2), "FAIL"), ((0.2, 0.0), "INCONCLUSIVE")],
)
def test_environments_on_other_scales_are_judged_one_by_one(gains, verdict):
    tasks = paired(drawn(100, 4, gains[0]), env="e") + paired(drawn(100, 4, gains[1]), env="f")
    facts = {"e": BINARY, "f": EnvironmentFacts(max_reward=5.0, pass_threshold=1.0)}
    found = compared(tasks, facts=facts, margin=0.02)
    assert (found.num_tasks, found.difference, found.margin) == (200, None, None)
    assert found.num_flaky == sum(part.num_flaky for part in found.environments.values()) > 0
    assert found.verdict == verdict
    if verdict == "INCONCLUSIVE":
        assert found.way_out == f"f: {found.environments['f'].way_out}"


def test_slices_of_environments_on_other_scales_are_not_pooled():
    """A slice whose tasks are all of one environment has its own means and margin."""
    tasks = paired(drawn(20, 2), slices=[("both",)] * 20)
    tasks += paired(drawn(20, 2), env="f", slices=[("both" if n % 2 else "f",) for n in range(20)])
    facts = {"e": BINARY, "f": EnvironmentFacts(max_reward=5.0, pass_threshold=1.0)}
    slices = compared(tasks, facts=facts, fields=["kind"]).slices["kind"]
    assert (slices["both"].num_tasks, slices["both"].mean_a) == (30, None)
    assert (slices["both"].verdict, slices["f"].margin) == ("INCONCLUSIVE", 0.1)
    assert slices["f"].mean_a is not None


def test_successes_need_a_threshold():
    with pytest.raises(UsageError, match=r"--metric pass@1: environment 'e'"):
        compared(paired([([1.0], [1.0])]), facts=UNBOUNDED, metric="pass@1")


def test_components_that_never_leave_0_to_1_are_shares():
    found = compared(paired([([0.2], [0.4]), ([0.1], [0.9])]), metric="components.style")
    assert (found.margin, found.num_fixed) == (0.02, None)
    assert found.difference.value == pytest.approx(0.5)
    found = compared(paired([([0.2], [0.4]), ([0.1], [1.9])]), metric="components.style")
    assert found.margin == 0.0


def test_absent_attempts_give_bounds_of_the_difference():
    whole = RunSide(run="a", coverage=1.0, bounds=Bounds(low=0.6, high=0.6))
    torn = RunSide(run="b", coverage=0.8, bounds=Bounds(low=0.5, high=0.7))
    tasks = paired([([1.0], [1.0])] * 3)
    found = compared(tasks, a=whole, b=torn).bounds
    assert (found.low, found.high) == (pytest.approx(-0.1), pytest.approx(0.1))
    assert compared(tasks, a=whole, b=whole).bounds is None
    assert compared(tasks).bounds is None


def test_a_comparison_survives_json():
    found = compared(paired(drawn(5, 2)), with_tasks=True)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Comparison) == found


@pytest.mark.slow
def test_wrong_verdicts_are_as_few_as_promised():
    """Of 300 pairs of equal runs, about 5 % fail; where B is worse by the margin, 5 % pass.

    The runs are seeded, so the counts never change.
    """
    failed = sum(
        compared(paired(drawn(60, 2, seed=seed)), margin=0.0).verdict == "FAIL"
        for seed in range(300)
    )
    assert 6 <= failed <= 26
    # Rates are cut off at 0 and 1, so that the true loss is a little less than the nominal one.
    passed = sum(
        compared(paired(drawn(60, 2, -0.1, seed=seed)), margin=0.097).verdict == "PASS"
        for seed in range(300)
    )
    assert 6 <= passed <= 30


def means_of(tasks):
    a = np.array([np.mean(task.values_a) for task in tasks])
    b = np.array([np.mean(task.values_b) for task in tasks])
    return a, b


def union_of_t_intervals(differences, size, level):
    """Return Student's intervals without and with two pseudo-tasks, by scipy, as one."""
    both = [
        scipy.stats.ttest_1samp(own, 0.0).confidence_interval(level)
        for own in (differences, [*differences, size, -size])
    ]
    return min(one.low for one in both), max(one.high for one in both)


@pytest.mark.parametrize(("num_tasks", "num_attempts"), [(12, 1), (40, 4), (300, 2)])
def test_interval_agrees_with_the_paired_t_test_of_scipy(num_tasks, num_attempts):
    """All rewards are 0 or 1: the pseudo-tasks differ by half of that."""
    tasks = paired(drawn(num_tasks, num_attempts, 0.05))
    a, b = means_of(tasks)

    found = compared(tasks)

    assert found.difference.value == pytest.approx(np.mean(b - a))
    assert found.mean_b - found.mean_a == pytest.approx(found.difference.value)
    assert found.difference.standard_error == pytest.approx(scipy.stats.sem(b - a))
    for level, interval in (
        (0.95, found.difference.interval),
        (0.9, found.deciding_interval),
    ):
        assert interval.level == level
        expected = union_of_t_intervals(b - a, 0.5, level)
        assert (interval.low, interval.high) == pytest.approx(expected)
    assert found.difference.num_clusters == num_tasks
    assert found.difference.num_values == 2 * num_tasks * num_attempts


def test_pseudo_tasks_of_graded_rewards_differ_by_half_of_what_was_seen():
    """If most tasks do not differ, it is half the range: the few that do say little of others."""
    draw = random.Random(4)
    a = [draw.uniform(0.7, 0.9) for _ in range(30)]
    b = [draw.uniform(0.7, 0.9) for _ in range(30)]
    rare = [*a[:20], *b[20:]]
    for other, size in ((b, max(abs(x - y) for x, y in zip(a, b, strict=True)) / 2), (rare, 0.5)):
        found = compared(paired([([x], [y]) for x, y in zip(a, other, strict=True)]))
        expected = union_of_t_intervals(np.array(other) - np.array(a), size, 0.9)
        deciding = found.deciding_interval
        assert (deciding.low, deciding.high) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("pairs", "size"),
    [
        ([([1.0, 0.0], [1.0, 1.0]), ([0.0, 0.0], [1.0, 0.0]), ([1.0, 1.0], [0.0, 0.0])], 0.5),
        ([([0.5, 0.5], [1.0, 1.0]), ([0.0, 0.0], [1.0, 0.0]), ([1.0, 1.0], [0.0, 0.0])], 0.5),
        ([([0.5, 0.5], [0.6, 0.6]), ([0.5, 0.0], [0.6, 0.0]), ([0.5, 0.9], [0.0, 0.9])], 0.125),
    ],
    ids=["all or nothing", "graded, one by the whole range", "graded"],
)
def test_attempts_tell_whether_rewards_are_graded(pairs, size):
    found = compared(paired(pairs * 3))
    differences = [np.mean(b) - np.mean(a) for a, b in pairs * 3]
    expected = union_of_t_intervals(differences, size, 0.9)
    low, high = found.deciding_interval.low, found.deciding_interval.high
    assert (low, high) == pytest.approx(tuple(np.clip(expected, -1.0, 1.0)))


def test_equivalence_agrees_with_the_tost_of_statsmodels():
    tasks = paired(drawn(200, 4))
    a, b = means_of(tasks)
    for margin in (0.02, 0.05, 0.2):
        more_a, more_b = np.append(a, [0.0, 0.0]), np.append(b, [0.5, -0.5])
        expected = max(
            ttost_paired(b, a, -margin, margin)[0],
            ttost_paired(more_b, more_a, -margin, margin)[0],
        )
        found = compared(tasks, margin=margin)
        assert found.p_equivalent == pytest.approx(expected, abs=1e-9)
        assert found.is_equivalent == (expected < 0.05)


def test_correlation_and_what_pairing_gains():
    """SE^2 = SE_A^2 + SE_B^2 - 2 rho SE_A SE_B; without the last term, more tasks are needed."""
    tasks = paired(drawn(100, 4))
    a, b = means_of(tasks)
    found = compared(tasks)
    rho = np.corrcoef(a, b)[0, 1]
    var_a, var_b = np.var(a, ddof=1), np.var(b, ddof=1)
    assert found.correlation == pytest.approx(rho)
    gained = 2 * rho * np.sqrt(var_a * var_b) / (var_a + var_b)
    assert found.variance_reduction == pytest.approx(gained)
    assert found.num_unpaired_tasks == pytest.approx(100 / (1 - gained))


@given(st.lists(st.tuples(means, means), min_size=2, max_size=20), st.floats(0.5, 0.999))
def test_intervals_lie_in_the_possible_range_around_the_difference(pairs, level):
    found = compared(paired([([a], [b]) for a, b in pairs]), level=max(level, 0.51))
    interval = found.difference.interval
    if interval is not None:
        assert -1.0 <= interval.low <= found.difference.value <= interval.high <= 1.0


def test_single_attempts_with_two_rewards_are_tested_by_mcnemar():
    tasks = paired([([1.0], [0.0])] * 9 + [([0.0], [1.0])] * 3 + [([1.0], [1.0])] * 20)
    found = compared(tasks)
    assert found.test == "mcnemar-mid-p"
    exact = scipy.stats.binomtest(3, 12).pvalue
    assert found.p_value == pytest.approx(exact - scipy.stats.binom.pmf(3, 12, 0.5))


@pytest.mark.parametrize(
    "pairs",
    [
        [([1.0], [0.0]), ([0.0], [0.5])] * 3,
        [([1.0], [0.0, 1.0]), ([0.0], [1.0, 1.0])] * 3,
    ],
    ids=["three rewards", "two attempts"],
)
def test_anything_else_is_tested_by_sign_flips(pairs):
    assert compared(paired(pairs)).test == "sign-flip-exact"


def test_many_rewards_of_any_size_are_tested_by_seeded_flips():
    draw = random.Random(1)
    pairs = [([draw.random()], [draw.random()]) for _ in range(60)]
    assert compared(paired(pairs)).test == "sign-flip"


def test_default_margin_is_a_share_of_the_range():
    tasks = paired([([3.0], [4.0]), ([5.0], [4.5]), ([1.0], [2.0])])
    ten = {"e": EnvironmentFacts(max_reward=10.0)}
    unbounded = {"e": EnvironmentFacts(can_be_negative=True)}
    assert compared(tasks, facts=ten).margin == pytest.approx(0.2)
    penalties = {"e": EnvironmentFacts(max_reward=-0.5)}
    assert compared(tasks, facts=unbounded).margin == 0.0
    assert compared(tasks, facts=penalties).margin == 0.0
    assert compared(tasks, facts=unbounded, margin=0.5).margin == 0.5


def test_equal_differences_decide_from_five_tasks_on():
    """They decide only if they would hardly come about by chance."""
    for num_tasks, verdict in ((2, "INCONCLUSIVE"), (4, "INCONCLUSIVE"), (5, "FAIL")):
        found = compared(paired([([1.0], [0.0])] * num_tasks))
        assert found.verdict == verdict
        if verdict == "INCONCLUSIVE":
            assert found.difference.interval is None
            assert found.tasks_needed == 5


def test_rounding_errors_are_no_difference():
    """Nor is it a variance: 0.3 - 0.2 and 0.2 - 0.1 are equal."""
    twice = compared(paired([([0.1, 0.2], [0.1, 0.2]), ([0.3], [0.1 + 0.2])]), with_tasks=True)
    assert (twice.difference.value, twice.p_value, twice.num_unchanged) == (0.0, 1.0, 2)
    assert {task.direction for task in twice.tasks} == {"unchanged"}
    even = compared(paired([([1.0], [2 / 3]), ([1.0], [2 / 3]), ([0.0], [2 / 3])] * 10))
    assert even.difference.value == 0.0
    same = compared(paired([([0.2], [0.3]), ([0.1], [0.2]), ([0.6], [0.7])]))
    assert (same.difference.standard_error, same.num_unpaired_tasks) == (0.0, None)
    assert (same.verdict, same.tasks_needed) == ("INCONCLUSIVE", 5)


def test_tasks_needed_agree_with_the_power_of_the_t_test():
    """The power of the one-sided test that B is not worse by the margin, by statsmodels."""
    found = compared(paired(drawn(60, 2)), margin=0.05)
    assert found.verdict == "INCONCLUSIVE"
    spread = found.difference.standard_error * math.sqrt(found.num_tasks)
    effect = (found.difference.value + found.margin) / spread
    expected = TTestPower().solve_power(effect, alpha=0.05, power=0.8, alternative="larger")
    assert found.tasks_needed == pytest.approx(expected, rel=0.02)
    assert f"about {found.tasks_needed} tasks" in found.way_out


def test_advised_number_of_tasks_decides():
    """Copies of the same tasks leave the difference and the variance unchanged."""
    tasks = drawn(60, 2)
    before = compared(paired(tasks), margin=0.05)
    copies = math.ceil(before.tasks_needed / len(tasks))
    assert before.verdict == "INCONCLUSIVE"
    assert compared(paired(tasks * copies), margin=0.05).verdict == "PASS"


def test_attempts_needed_follow_the_split_of_the_variance():
    """omega^2 + (sigma_A^2 + sigma_B^2) / K must be small enough for the distance."""
    found = compared(paired(drawn(150, 3, seed=2)), margin=0.05)
    assert found.verdict == "INCONCLUSIVE"
    assert found.attempts_needed > 3
    assert f"or {found.attempts_needed} attempts a task" in found.way_out


def test_no_number_of_attempts_decides_where_tasks_differ_too_much():
    """All attempts of a task have the same reward, so that more of them add no information."""
    tasks = paired([([1.0] * 4, [0.0] * 4), ([0.0] * 4, [1.0] * 4)] * 10)
    found = compared(tasks, margin=0.1)
    assert (found.verdict, found.attempts_needed) == ("INCONCLUSIVE", None)
    assert "no number of attempts of these tasks would" in found.way_out


def test_one_attempt_a_task_cannot_tell_what_more_would():
    found = compared(paired(drawn(40, 1)), margin=0.01)
    assert (found.verdict, found.attempts_needed) == ("INCONCLUSIVE", None)
    assert "one attempt a task does not show" in found.way_out


def test_attempts_of_one_run_suffice_to_plan_more():
    tasks = [(a[:1], b) for a, b in drawn(150, 4, seed=2)]
    found = compared(paired(tasks), margin=0.04)
    assert found.verdict == "INCONCLUSIVE"
    assert found.attempts_needed is not None


def test_no_number_of_tasks_decides_a_difference_at_the_margin():
    found = compared(paired([([1.0], [0.0]), ([0.0], [1.0])] * 6), margin=0.0)
    assert (found.verdict, found.tasks_needed) == ("INCONCLUSIVE", None)
    assert "no number of tasks decides" in found.way_out


def test_a_margin_beyond_the_range_always_passes():
    found = compared(paired([([1.0], [0.0]), ([1.0], [0.5])]), margin=1e200)
    assert (found.verdict, found.smallest_margin) == ("PASS", None)


def test_attempts_are_not_planned_for_pass_at_k():
    found = compared(paired(drawn(50, 4)), metric="pass@2", margin=0.01)
    assert (found.verdict, found.attempts_needed) == ("INCONCLUSIVE", None)
    assert found.tasks_needed is not None


def side(coverage, low=0.5, high=0.5):
    return RunSide(run="r", coverage=coverage, bounds=Bounds(low=low, high=high))


def doubts_of(tasks, rule=None, **more):
    return doubts(compared(tasks, **more), rule or Rule())


def test_a_sound_comparison_has_no_doubts():
    assert doubts_of(paired(drawn(40, 2)), a=side(1.0), b=side(1.0)) == []
    assert doubts_of(paired(drawn(40, 2)), a=side(0.96), b=side(0.96)) == []
    assert doubts_of(paired(drawn(40, 2))) == [], "bare files have no known coverage"


@pytest.mark.parametrize(("one", "other"), [(1.0, 0.99), (0.9, 0.9)])
def test_missing_attempts_may_fake_a_difference(one, other):
    found = doubts_of(paired(drawn(40, 2)), a=side(one, 0.5, 0.6), b=side(other, 0.5, 0.6))
    assert len(found) == 1
    assert f"coverage is {one:.1%} in A and {other:.1%} in B" in found[0]
    assert "lies in -0.100 .. +0.100" in found[0]


def test_missing_attempts_without_bounds():
    a, b = side(0.9), RunSide(run="b", coverage=0.8)
    found = doubts_of(paired(drawn(40, 2)), a=a, b=b)
    assert found[0].endswith("may fake a difference")


def test_missing_attempts_of_the_run_that_knows_its_own():
    a, b = RunSide(run="a", coverage=0.4), RunSide(run="b")
    tasks = paired(drawn(40, 2))
    assert "coverage is 40.0% in A and unknown in B" in doubts_of(tasks, a=a, b=b)[0]
    assert doubts_of(tasks, a=side(0.96), b=b) == []


def test_tasks_of_one_run_only():
    found = doubts_of(paired([*drawn(40, 2), ([1.0], None), (None, [1.0])]))
    assert found[0].startswith("2 tasks are in one run only")


def test_few_tasks():
    assert doubts_of(paired(drawn(9, 2)))[0].startswith("fewer than 10 tasks")


def test_an_interval_without_width_is_a_doubt():
    """The rule of three: up to 3 / n of other tasks may differ."""
    [said] = doubts_of(paired([([1.0], [1.0])] * 300))
    assert said.startswith("no task differs; up to 1% of other tasks may differ")
    assert "one-sided 95% bound" in said


def test_no_known_range():
    facts = {"e": EnvironmentFacts()}
    tasks = paired(drawn(40, 2))
    assert "set --margin" in doubts_of(tasks, facts=facts)[0]
    assert doubts_of(tasks, Rule(margin=0.0), facts=facts, margin=0.0) == []


def compare_attempts(attempts, metric):
    """Compare runs of one environment."""
    return compare(
        [attempts],
        a=RunSide(run="a"),
        b=RunSide(run="b"),
        facts={"e": BINARY},
        measure=parse_measure(metric),
        rule=Rule(),
    )


def test_attempts_are_taken_in_order_whatever_the_order_of_lines():
    turned = PairedAttempts("e")
    for attempt, reward in ((2, 1.0), (0, 0.0), (300, 1.0), (1, 0.5)):
        turned.a.extend(["x"], [attempt], reward=[reward])
        turned.b.extend(["x"], [attempt], reward=[reward])
    found = compare_attempts(turned, "avg@2")
    assert (found.mean_a, found.num_attempts_a) == (0.25, 4)


def test_an_attempt_without_the_number_still_counts():
    tasks = [PairedTask("e", "x", [None, 2.0], [None]), PairedTask("e", "y", [1.0], [3.0])]
    found = compared(tasks, metric="components.style")
    assert (found.num_tasks, found.num_attempts_a, found.mean_b) == (1, 1, 3.0)
    unmatched = found.unmatched
    assert (unmatched.num_only_a, unmatched.num_too_few_attempts) == (0, 1)


def test_an_attempt_that_is_there_twice_is_refused():
    twice = PairedAttempts("e")
    twice.a.extend(["x", "x"], [1, 1], reward=[0.0, 1.0])
    twice.b.extend(["x"], [1], reward=[0.0])
    with pytest.raises(RunFileError, match="task 'x' of environment 'e', attempt 1, is scored by"):
        compare_attempts(twice, "mean_reward")
