"""Tests of the test whether a run reproduces a published score."""

import numpy as np
import pytest
from pydantic import ValidationError

from gymcli.comparison.reproduction import (
    EQUAL_WEIGHTS,
    FixedTasksScore,
    Reference,
    Weights,
    half_width,
    mean_of_metrics,
    reproduction,
    same_model,
    score_of_run,
    weights_of_metrics,
)
from gymcli.metrics.results import NoAnswers


def reference(score: float = 0.75, repeats: int = 1000, **more) -> Reference:
    given = {"model": "m", "source": "https://example.org", "date": "2026-05", **more}
    return Reference(score=score, repeats=repeats, **given)


def attempts(*counts: int, of: int) -> list[np.ndarray]:
    """Return the attempts of tasks by their numbers of successes."""
    return [np.array([[1.0] * count + [0.0] * (of - count) for count in counts])]


NEARLY_SURE = attempts(*([8] * 74), *([0] * 24), 4, 5, of=8)
"""100 tasks with the mean 0.75125."""
GUESSED = attempts(*([3, 1] * 50), of=4)
"""100 tasks with the mean 0.5."""
ONCE = attempts(*([1] * 75), *([0] * 25), of=1)


@pytest.mark.parametrize(
    ("groups", "published", "margin", "verdict", "advice"),
    [
        (NEARLY_SURE, reference(), 0.02, "reproduced", ""),
        (NEARLY_SURE, reference(0.65), 0.02, "not_reproduced", ""),
        (NEARLY_SURE, reference(0.764), 0.02, "cannot_tell", "repeats would decide"),
        (ONCE, reference(), 0.02, "cannot_tell", "repeats would decide"),
        (ONCE, reference(0.2), 0.02, "not_reproduced", ""),
        (GUESSED, reference(0.5), 0.05, "reproduced", ""),
        (GUESSED, reference(0.51), 0.02, "cannot_tell", "repeats would decide"),
        (GUESSED, reference(0.517, 100), 0.02, "cannot_tell", "the reference is too uncertain"),
        (GUESSED, reference(0.52, 10**9), 0.02, "cannot_tell", "too close to the margin"),
        (GUESSED, reference(0.5, repeats=1), 0.05, "cannot_tell", "the reference is too uncertain"),
        (
            NEARLY_SURE,
            reference(0.75, 8, stderr=0.002, stderr_over="repeats"),
            0.02,
            "reproduced",
            "",
        ),
        # An error over tasks says nothing about repeats: the bound counts.
        (NEARLY_SURE, reference(0.75, 8, stderr=0.002), 0.02, "cannot_tell", "too uncertain"),
        # The runs that the error comes from were too few to be sure of it.
        (
            NEARLY_SURE,
            reference(0.75, 2, stderr=0.002, stderr_over="repeats"),
            0.02,
            "cannot_tell",
            "too uncertain",
        ),
    ],
)
def test_a_score_is_reproduced_if_the_interval_lies_within_the_margin(
    groups, published, margin, verdict, advice
):
    found = reproduction(published, groups, margin=margin, best=1.0)
    assert found.verdict == verdict
    assert advice in found.way_out
    assert bool(advice) == bool(found.way_out)
    low, high = found.interval.low, found.interval.high
    assert (low + high) / 2 == pytest.approx(found.difference)
    assert found.smallest_margin == pytest.approx(max(-low, high))
    again = reproduction(published, groups, margin=found.smallest_margin * 1.0001, best=1.0)
    assert again.verdict == "reproduced"


def test_as_many_repeats_as_needed_decide():
    found = reproduction(reference(0.49), GUESSED, margin=0.03, best=1.0)
    assert found.verdict == "cannot_tell"
    more = [np.tile(GUESSED[0], -(-found.repeats_needed // 4))]
    assert reproduction(reference(0.49), more, margin=0.03, best=1.0).verdict == "reproduced"


def test_equal_attempts_of_few_tasks_do_not_look_certain():
    """Ten tasks that pass both times, as tasks of 0.95 often do, cannot tell 1 from 0.95."""
    found = reproduction(reference(1.0), attempts(*([2] * 10), of=2), margin=0.05, best=1.0)
    assert found.verdict == "cannot_tell"
    # Of 1,000 equal tasks, none of which differs in any attempt, they can.
    sure = reproduction(reference(1.0), attempts(*([2] * 1000), of=2), margin=0.05, best=1.0)
    assert sure.verdict == "reproduced"


def test_more_is_known_of_more_attempts_and_of_repeats():
    bound = [half_width(FixedTasksScore(0.7, size)) for size in (10, 100, 1000)]
    assert bound == sorted(bound, reverse=True)
    assert half_width(FixedTasksScore(0.7, 1000, 0.7 * 0.3 / 1000 / 10)) < bound[-1] / 2
    assert half_width(FixedTasksScore(0.7, 1000, 1.0)) == bound[-1]


def test_the_scale_of_rewards_does_not_matter():
    graded = np.random.default_rng(0).choice([0.0, 0.25, 0.5, 1.0], (50, 4))
    one = reproduction(reference(0.4), [graded], margin=0.1, best=1.0)
    ten = reproduction(reference(4.0), [10.0 * graded], margin=1.0, best=10.0)
    unknown = reproduction(reference(0.4), [graded], margin=0.1, best=None)
    assert ten.verdict == one.verdict
    for other, scale in ((ten, 10.0), (unknown, 1.0)):
        assert other.smallest_margin == pytest.approx(one.smallest_margin * scale)


def test_tasks_with_unequally_many_attempts_have_equal_weights():
    groups = [*attempts(4, 4, 2, of=4), *attempts(1, 0, of=1)]
    found = reproduction(reference(0.7), groups, margin=0.1, best=1.0)
    assert found.value == pytest.approx(3.5 / 5)


def test_only_comparable_references_of_the_model_are_tested():
    references = [
        reference(model="Maker/M"),
        reference(settings="with tools"),
        reference(tasks=50),
        reference(model="other"),
    ]
    common = {"benchmark": "b", "model": "m", "metric": "mean_reward", "margin": 0.1, "best": 1.0}
    found = score_of_run(ONCE, references=references, **common)
    assert [one.verdict for one in found.references] == [
        "reproduced",
        "other_settings",
        "other_settings",
    ]
    assert [one.other_settings for one in found.references[1:]] == [
        ["with tools"],
        ["the reference is a score of 50 tasks"],
    ]
    deviating = score_of_run(ONCE, references=references, other_settings=["hot"], **common)
    assert {one.verdict for one in deviating.references} == {"other_settings"}
    assert deviating.references[1].other_settings == ["hot", "with tools"]
    assert deviating.references[0].interval is None


def test_a_ratio_of_sums_and_a_mean_are_made_of_attempts():
    # Two tasks with one and three instructions, of which an attempt follows 1 and 2, or 0 and 3.
    scores = {
        "all": [np.array([[1.0, 0.0], [0.0, 1.0]])],
        "followed": [np.array([[1.0, 0.0], [2.0, 3.0]])],
        "instructions": [np.array([[1.0, 1.0], [3.0, 3.0]])],
    }
    [ratio] = mean_of_metrics(["followed / instructions"], scores)
    assert ratio.mean(axis=0).tolist() == [3 / 4, 3 / 4]
    [both] = mean_of_metrics(["all", "followed / instructions"], scores)
    assert both.mean(axis=0).tolist() == [(1 / 2 + 3 / 4) / 2, (1 / 2 + 3 / 4) / 2]
    assert mean_of_metrics(["all"], {"all": []}) == []
    # An attempt that lacks one of them has no mean.
    assert mean_of_metrics(["all", "followed"], scores | {"all": [np.array([[1.0]])]}) == []
    none = [np.zeros((2, 2))]
    assert mean_of_metrics(["all / instructions"], scores | {"instructions": none}) == []


def test_no_attempts_vary_more_than_the_bound_where_tasks_weigh_differently():
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 4, 200).astype(float)
    scores = {"all": [sizes[:, None]], "followed": [sizes[:, None]], "num": [sizes[:, None]]}
    metrics = ["all", "followed / num", "followed / num"]
    weights = weights_of_metrics(metrics, scores)
    best = (1.0 + 2.0 * sizes / sizes.mean()) / 3.0
    assert weights == pytest.approx((best.var() / 4.0, best.max()))
    assert weights_of_metrics(["all"], scores) == EQUAL_WEIGHTS
    # No attempt varies more than one that has either the best score of its task or nothing.
    for chances in (rng.random(200), np.full(200, 0.9), 0.5 + (best - 1.0) / best / 2.0):
        mean = (chances * best).mean()
        variance = (best**2 * chances * (1.0 - chances)).mean()
        assert variance <= mean * (1.0 - mean) + weights.spread + 1e-12
        assert half_width(FixedTasksScore(mean, 200, weights=weights)) > half_width(
            FixedTasksScore(mean, 200)
        )


@pytest.mark.parametrize("heaviest", [10.0, 400.0])
def test_a_heavy_task_that_never_failed_does_not_look_certain(heaviest):
    # The true difference from an exact reference is the margin.
    rng, repeats, num_runs, rate, margin = np.random.default_rng(0), 4, 4000, 0.9, 0.1
    sizes = np.ones(540)
    sizes[:20] = heaviest
    best = sizes / sizes.mean()
    weights = Weights(best.var() / 4.0, best.max())
    means = rng.binomial(repeats, rate, (num_runs, len(best))) / repeats
    variances = (best**2 * means * (1.0 - means) / (repeats - 1)).sum(axis=1) / len(best) ** 2
    size = len(best) * repeats
    num_reproduced = sum(
        rate + margin - value + half_width(FixedTasksScore(value, size, variance, None, weights))
        <= margin
        for value, variance in zip((best * means).mean(axis=1), variances, strict=True)
    )
    assert num_reproduced / num_runs < 0.06


def test_a_score_above_1_of_a_heavy_task_does_not_widen_the_scale():
    heavy = np.array([[1.5], [0.5]] * 300)
    found = reproduction(
        reference(0.98), [heavy], margin=0.05, best=1.0, weights=Weights(0.01, 1.5)
    )
    assert found.verdict == "reproduced"
    wide = reproduction(reference(0.98), [heavy], margin=0.05, best=1.0)
    assert found.smallest_margin < wide.smallest_margin


def test_names_of_models_are_compared_without_a_provider():
    assert same_model("openai/GPT-5-nano", "gpt-5-nano")
    assert not same_model("gpt-5-nano", "gpt-5")


def test_an_error_over_repeats_needs_repeats():
    with pytest.raises(ValidationError, match="needs repeats"):
        reference(0.5, 1, stderr=0.01, stderr_over="repeats")


def test_a_run_whose_answers_were_not_read_reproduces_nothing():
    settings = {
        "benchmark": "b",
        "model": "m",
        "metric": "mean_reward",
        "margin": 0.02,
        "best": 1.0,
        "references": [reference(), reference(0.65), reference(settings="other")],
    }
    for num, verdicts in (
        (100, ["reproduced", "not_reproduced", "other_settings"]),
        (401, ["cannot_tell", "cannot_tell", "other_settings"]),
    ):
        no_answers = NoAnswers(num_attempts=800, num=num)
        score = score_of_run(NEARLY_SURE, no_answers=no_answers, **settings)
        assert [one.verdict for one in score.references] == verdicts
    assert score.references[0].way_out == "no answer could be read in 401 of 800 attempts"
