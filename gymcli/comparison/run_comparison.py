"""Two runs compared task by task: the difference, its interval and the verdict.

B passes if the interval excludes a loss of the margin or more, and fails only if it is worse. "No
significant difference" is no reason to pass, since too few tasks never show one. Piaggio et al.
2012, "Reporting of noninferiority and equivalence randomized trials", JAMA 308(24). The tasks and
attempts that would decide follow Miller 2024, arXiv 2411.00640, section 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from gymcli.comparison.comparison_results import Comparison, Difference, RunSide, Unmatched, Verdict
from gymcli.comparison.difference_verdict import Rule, adjust_for_multiplicity, judge_difference
from gymcli.comparison.paired_differences import Measure, PairedAttempts
from gymcli.comparison.task_pairs import (
    PairedTasks,
    count_tasks,
    join,
    pair_tasks,
    regressions,
    slices_of,
    task_rows,
)
from gymcli.metrics.results import FEW_TASKS, Bounds, NoAnswers
from gymcli.store.scored_lines import EnvironmentFacts

_GOOD_COVERAGE = 0.95


def compare(
    environments: Sequence[PairedAttempts],
    *,
    a: RunSide,
    b: RunSide,
    facts: Mapping[str, EnvironmentFacts],
    measure: Measure,
    rule: Rule,
    fields: Sequence[str] = (),
    with_tasks: bool = False,
) -> Comparison:
    """Compare run B with run A task by task.

    `environments` has the attempts of both runs, `a` and `b` the other facts about them, `fields`
    the names of the columns in `PairedAttempts.slices`. The result lists tasks only `with_tasks`.

    Raises:
        UsageError: The metric needs a threshold of success that an environment lacks, or a field
            has more values than `slicing.MAX_SLICES`.
        RunFileError: An attempt appears twice in one run.
    """
    unmatched = Unmatched()
    pairs = [pair_tasks(attempts, facts, measure, unmatched) for attempts in environments]
    tasks = join(pairs)
    # Components whose values all lie between 0 and 1 count as shares, as in `gym metrics`.
    is_share = measure.scale == "share" or (measure.scale == "none" and tasks.lie_within(1.0))
    judge = partial(_judge, facts=facts, measure=measure, rule=rule, is_share=is_share)
    overall = judge(tasks, measure.name)
    names = sorted(facts if len(facts) == 1 else set(tasks.env.tolist()))
    parts = dict.fromkeys(names, overall)
    if len(names) > 1:
        for env in names:
            tasks_of_env = tasks.at(np.flatnonzero(tasks.env == env))
            parts[env] = judge(tasks_of_env, f"{measure.name}/{env}")
    by_environment = adjust_for_multiplicity(parts, rule.level)
    # Without a common scale there is no overall difference: the environments decide.
    if not _is_one_scale(tasks.best_rewards(facts)):
        overall.verdict, overall.way_out = _verdict_of_all(by_environment)
    comparison = Comparison(
        **{field: getattr(overall, field) for field in overall.__struct_fields__},
        metric=measure.name,
        level=rule.level,
        is_strict=rule.is_strict,
        a=a,
        b=b,
        bounds=_bounds(a, b),
        environments=by_environment,
        unmatched=unmatched,
        regressions=regressions(tasks, facts),
    )
    if with_tasks:
        comparison.tasks = sorted(task_rows(tasks), key=lambda task: (task.env, task.task_id))
    slices = {
        (field, value): judge(part, f"{measure.name}/{field}/{value}")
        for field, values in zip(fields, tasks.slices, strict=True)
        for value, part in slices_of(tasks, field, values)
    }
    for (field, value), part in adjust_for_multiplicity(slices, rule.level).items():
        comparison.slices.setdefault(field, {})[value] = part
    if measure.source != "metrics":
        _withhold_verdicts(comparison)
    return comparison


def _judge(
    part: PairedTasks,
    name: str,
    *,
    facts: Mapping[str, EnvironmentFacts],
    measure: Measure,
    rule: Rule,
    is_share: bool,
) -> Difference:
    best = part.best_rewards(facts)
    if not _is_one_scale(best):
        counts = count_tasks(part)
        counts.way_out = "the best rewards of environments differ; each is judged separately"
        return counts
    largest = 1.0 if is_share else None
    if measure.scale == "reward" and len(set(best.values())) == 1:
        largest = next(iter(best.values()))
    return judge_difference(part, rule, largest=largest, is_mean=measure.is_mean, name=name)


def _bounds(a: RunSide, b: RunSide) -> Bounds | None:
    if a.bounds and b.bounds and not a.coverage == b.coverage == 1.0:
        return Bounds(low=b.bounds.low - a.bounds.high, high=b.bounds.high - a.bounds.low)
    return None


def _withhold_verdicts(comparison: Comparison) -> None:
    """Make verdicts inconclusive where most answers of a run could not be read."""
    sides = {"A": comparison.a, "B": comparison.b}
    no_answers_by_run = {name: side.all_no_answers for name, side in sides.items()}
    slices = [part for parts in comparison.slices.values() for part in parts.values()]
    unread_runs = [name for name, no_answers in no_answers_by_run.items() if no_answers.are_most]
    for part in slices:
        _withhold(part, unread_runs)
    for env, part in comparison.environments.items():
        no_answers_here = {
            name: side.no_answers.get(env, NoAnswers()) for name, side in sides.items()
        }
        unread_here = [name for name, no_answers in no_answers_here.items() if no_answers.are_most]
        _withhold(part, unread_here)
        # What is pooled over environments, or decided by each of them, depends on this one too.
        place = f" to {env}" if len(comparison.environments) > 1 else ""
        _withhold(comparison, [f"{name}{place}" for name in unread_here])
    _withhold(comparison, unread_runs)


def _withhold(part: Difference, unread_runs: Sequence[str]) -> None:
    """Decide nothing about a part if there are runs of which most answers could not be read."""
    if unread_runs:
        part.verdict = "INCONCLUSIVE"
        part.way_out = f"most answers of {' and of '.join(unread_runs)} could not be read"
        part.deciding_interval = part.smallest_margin = None
        part.is_equivalent = part.p_equivalent = None
        part.tasks_needed = part.attempts_needed = None


def _is_one_scale(best: Mapping[str, float | None]) -> bool:
    # Whether tasks of all environments can be pooled with equal weights.
    return len(best) < 2 or (len(set(best.values())) == 1 and None not in best.values())


def _verdict_of_all(environments: Mapping[str, Difference]) -> tuple[Verdict, str]:
    # All must pass, which needs no adjustment (Berger 1982, intersection-union tests); a failure
    # was confirmed by its adjusted p-value in `adjust_for_multiplicity`.
    verdicts = [difference.verdict for difference in environments.values()]
    if "FAIL" in verdicts:
        return "FAIL", ""
    reasons = [
        f"{env}: {difference.way_out}"
        for env, difference in environments.items()
        if difference.way_out
    ]
    return ("INCONCLUSIVE", "; ".join(reasons)) if reasons else ("PASS", "")


def doubts(comparison: Comparison, rule: Rule) -> list[str]:
    """Return the warnings about a comparison, one sentence each."""
    texts = _coverage(comparison)
    unmatched = comparison.unmatched
    if left_out := unmatched.num_only_a + unmatched.num_only_b:
        texts.append(
            f"{left_out:,} tasks are in one run only and are left out; the shared tasks may be "
            "easier or harder"
        )
    sides = {"A": comparison.a} if rule.is_same_run else {"A": comparison.a, "B": comparison.b}
    for name, side in sides.items():
        if any(part.are_many for part in (side.all_no_answers, *side.no_answers.values())):
            texts.append(f"{name}: {side.all_no_answers.sentence_with_command(side.run)}")
    if rule.is_same_run:
        return texts
    if comparison.num_tasks < FEW_TASKS:
        texts.append(f"fewer than {FEW_TASKS} tasks: the interval and the verdict are rough")
    difference = comparison.difference
    if difference is not None and difference.standard_error == 0.0:
        # The exact upper bound if 0 of n tasks differ otherwise: Clopper and Pearson 1934.
        share = 1.0 - (1.0 - comparison.level) ** (1.0 / comparison.num_tasks)
        same, other = "no task differs", "may differ"
        if difference.value:
            same = f"every task differs by {difference.value:+g}"
            other = "may differ by another amount"
        texts.append(
            f"{same}; up to {share:.0%} of other tasks {other} (one-sided "
            f"{100 * comparison.level:g}% bound)"
        )
    if comparison.margin == 0.0 and rule.margin is None:
        texts.append(
            f"the range of {comparison.metric} is unknown, so the margin is 0 and only a better "
            "run passes; set --margin"
        )
    return texts


def _coverage(comparison: Comparison) -> list[str]:
    coverages = comparison.a.coverage, comparison.b.coverage
    known_coverages = [coverage for coverage in coverages if coverage is not None]
    if min(known_coverages, default=1.0) >= _GOOD_COVERAGE and (
        len(known_coverages) < 2 or coverages[0] == coverages[1]
    ):
        return []
    text_a, text_b = ("unknown" if share is None else f"{share:.1%}" for share in coverages)
    text = f"coverage is {text_a} in A and {text_b} in B: missing attempts may fake a difference"
    if comparison.bounds is not None:
        low, high = comparison.bounds.low, comparison.bounds.high
        text += "; whatever their rewards, the difference of all mean rewards lies in "
        text += f"{low:+.3f} .. {high:+.3f}"
    return [text]
