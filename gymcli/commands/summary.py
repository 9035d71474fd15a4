"""Prints the numbers of runs as tables, and the published scores of their benchmarks."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gymcli.commands.console import (
    folded,
    harmless,
    one_line,
    print_table,
    result,
    terminal_width,
)
from gymcli.reporting.formatting import (
    between,
    cost,
    counted,
    headline,
    number,
    reference_source,
    reference_text,
    settings_text,
    share,
    token_facts,
    with_command,
)

if TYPE_CHECKING:
    from pathlib import Path

    from gymcli.comparison.planning import Plan
    from gymcli.comparison.reproduction import BenchmarkScore
    from gymcli.library.measurement import MetricsReport
    from gymcli.metrics.agreement import Agreement
    from gymcli.metrics.results import Estimate, Metrics, RunMetrics, TaskMetrics
    from gymcli.types import RoleUse

_MAX_ANSWER = 40
_MAX_VALUE = 24
_MAX_WIDTH = 100


def metrics_object(report: MetricsReport) -> dict[str, object]:
    """Return what `--json` prints of a run, its path first."""
    import msgspec

    numbers: dict[str, object] = msgspec.to_builtins(report)
    # JSON cannot hold a name that is not Unicode.
    return {"run": "", **numbers} | {"run": harmless(report.run)}


def print_summary(metrics: RunMetrics, run: Path, *, with_doubts: bool = True) -> None:
    """Print the first numbers of each environment of a run, then failures, tokens and times.

    `with_doubts` also prints caveats, which `print_advice` prints at more length.
    """
    rows: list[tuple[str, Metrics]] = list(metrics.environments.items())
    if len(rows) > 1:
        rows.append(("all", metrics))
    head, cells = headline([part for _, part in rows])
    names = [name for name, _ in rows]
    print_table(
        ["environment", *head], [[name, *row] for name, row in zip(names, cells, strict=True)]
    )
    result()
    if with_doubts:
        _print_doubts(metrics.environments, run)
    _print_counts("stop reasons", metrics.stop_reasons)
    _print_counts("failures", metrics.failures)
    _print_counts("tool errors", metrics.tool_errors)
    _print_counts("retries", metrics.retries)
    tokens = {name.removesuffix("_tokens"): count for name, count in metrics.usage.items() if count}
    _print_counts("tokens", tokens)
    if metrics.tokens is not None:
        for title, text in token_facts(metrics.tokens).items():
            result(folded(f"{title:14}{text}", 14))
    if metrics.cost is not None:
        last = " (tokens and cost of the last try of each attempt)" if tokens else ""
        result(f"{'cost':14}{cost(metrics.cost)}{last}")
    for role, use in metrics.role_usage.items():
        _print_role(role, use)
    if metrics.latency is not None:
        for title, times in (
            ("seconds", metrics.latency.total_seconds),
            ("in the model", metrics.latency.model_seconds),
        ):
            result(
                f"{title:14}p50 {times.p50:.2f}, p90 {times.p90:.2f}, "
                f"p95 {times.p95:.2f}, p99 {times.p99:.2f} a rollout"
            )


def _print_role(role: str, use: RoleUse) -> None:
    text = f"{use.num_calls:,} calls"
    if use.num_cached:
        text += f", {use.num_cached:,} recorded answers"
    if use.num_failed:
        text += f", {use.num_failed:,} failed"
    for name, count in use.retries.items():
        text += f", {count:,} retries of {one_line(name)}"
    if use.num_calls:
        tokens = use.usage.prompt_tokens + use.usage.completion_tokens
        text += f", {tokens:,} tokens, {use.seconds / use.num_calls:.2f} s a call"
        text += "" if use.cost is None else f", cost {cost(use.cost)}"
    result(f"{one_line(role):14}{text} ({one_line(use.model)})")


def _print_doubts(environments: Mapping[str, Metrics], run: Path) -> None:
    from gymcli.metrics.results import FEW_TASKS

    rough = []
    for name, part in environments.items():
        if part.no_answers.are_many:
            env = f"{one_line(name)}: " if len(environments) > 1 else ""
            text, command = with_command(part.no_answers.sentence_with_command(), str(run))
            result(f"{'answers':14}{env}{text}")
            result(f"{'':14}{one_line(command, 1000)}")
        if part.bounds is not None and part.coverage is not None and part.coverage < 1.0:
            suffix = f" of {one_line(name)}" if len(environments) > 1 else ""
            result(
                f"bounds        {between(part.bounds)}{suffix}, "
                "for any rewards of the unscored attempts"
            )
        if part.interval is not None and part.num_clusters < FEW_TASKS:
            rough.append(one_line(name))
    if rough:
        names = f" of {', '.join(rough)}" if len(environments) > 1 else ""
        result(f"fewer than {FEW_TASKS} tasks{names}: the interval is rough")


def print_advice(metrics: RunMetrics, run: Path) -> None:
    """Print the advice that follows from the numbers of each environment of a run."""
    advised = {name: part.advice for name, part in metrics.environments.items() if part.advice}
    if advised:
        result()
    width = min(_MAX_WIDTH, terminal_width() or _MAX_WIDTH)
    for name, sentences in advised.items():
        prefix = f"- {one_line(name)}: " if len(metrics.environments) > 1 else "- "
        for sentence in sentences:
            text, command = with_command(sentence, str(run))
            for line in textwrap.wrap(prefix + text, width, subsequent_indent="  "):
                result(line)
            if command:
                result(f"  {one_line(command, 1000)}")


def print_at_k(metrics: RunMetrics, ks: Sequence[int]) -> None:
    """Print the metrics of k attempts of each environment, for every k that was asked for."""
    from gymcli.metrics.at_k import METRICS

    metrics_of_any = [metric for metric in METRICS.values() if not metric.takes_first]
    names = [f"{metric.name}{k}" for metric in metrics_of_any for k in ks]
    for env, part in metrics.environments.items():
        estimates = part.distinct
        if "pass@1" in part.estimates:
            estimates["pass@1"] = part.estimates["pass@1"]
        _print_estimates(env, {name: estimates[name] for name in names if name in estimates})


def print_all_numbers(metrics: RunMetrics) -> None:
    """Print every number about rewards with its interval, and the environments' own metrics."""
    for name, part in metrics.environments.items():
        _print_estimates(name, part.distinct)
        if part.environment_metrics:
            result()
            numbers = part.environment_metrics.items()
            print_table((f"{name}: its own numbers", ""), [(k, number(v)) for k, v in numbers])
        _print_method(name, part)


def _print_estimates(name: str, estimates: Mapping[str, Estimate]) -> None:
    if not estimates:
        return
    rows = [
        (
            one_line(title),
            number(estimate.value),
            between(estimate.interval),
            number(estimate.standard_error, ".4f"),
            f"{estimate.num_clusters:,}",
        )
        for title, estimate in estimates.items()
    ]
    result()
    print_table((one_line(name), "", "95 %", "error", "tasks"), rows)


def _print_method(name: str, part: Metrics) -> None:
    intervals = [estimate.interval for estimate in part.distinct.values()]
    methods = dict.fromkeys(interval.method for interval in intervals if interval)
    if methods:
        text = f"errors clustered by {part.num_clusters:,} tasks; intervals: {', '.join(methods)}"
        result()
        result(f"{one_line(name)}: {text}")
    parts = part.variance
    if parts is not None and parts.design_effect is not None:
        result(
            f"{one_line(name)}: intraclass correlation {parts.intraclass_correlation:.2f}, "
            f"design effect {parts.design_effect:.2f}"
        )


def print_tasks(tasks: list[TaskMetrics]) -> None:
    """Print a line for every task."""
    head = ("task", "environment", "scored", "unscored", "passed", "mean", "min", "max", "answer")
    rows = [
        (
            task.task_id,
            task.env,
            str(task.num_scored),
            str(task.num_unscored),
            number(task.num_passes, "d"),
            number(task.mean_reward),
            number(task.min_reward),
            number(task.max_reward),
            one_line(task.majority_answer or "-", _MAX_ANSWER),
        )
        for task in tasks
    ]
    print_table(head, rows)


def _print_counts(title: str, counts: dict[str, int]) -> None:
    if counts:
        text = ", ".join(f"{count:,} {one_line(name)}" for name, count in counts.items())
        result(f"{title:14}{text}")


def print_slices(metrics: RunMetrics) -> None:
    """Print a table for each field and environment, with a line for each value."""
    for env, part in metrics.environments.items():
        for field, slices in part.slices.items():
            result()
            result(f"{one_line(env)} by {one_line(field)}")
            head, cells = headline([*slices.values()], have_coverage=False)
            names = [one_line(name, _MAX_VALUE) or '""' for name in slices]
            rows = [[name, *row] for name, row in zip(names, cells, strict=True)]
            print_table(["value", *head], rows)


def print_agreement(agreements: Mapping[str, Agreement], *, source: str) -> None:
    """Print how far rewards agree with labels, by environment."""
    from gymcli.metrics.results import FEW_TASKS

    for name, part in agreements.items():
        result()
        result(f"{one_line(name)}: agreement with the labels of {one_line(source)}")
        counts = f"{part.num_values:,} of {part.num_clusters:,} tasks"
        unlabelled = f", {part.num_unlabelled:,} have no label" if part.num_unlabelled else ""
        result(f"{'attempts':14}{counts}{unlabelled}")
        result(f"{'agreement':14}{share(part.agreement)}")
        kappa = number(part.kappa, unknown="undefined: all labels and all rewards are the same")
        interval = f", 95 % {between(part.interval)}" if part.interval else ""
        if part.interval and part.num_clusters < FEW_TASKS:
            interval += f" (rough: fewer than {FEW_TASKS} tasks)"
        result(f"{'kappa':14}{kappa}{interval}")
        rows = [
            (f"reward >= {part.threshold:g}", part.num_both_pass, part.num_only_reward_passes),
            (f"reward < {part.threshold:g}", part.num_only_label_passes, part.num_both_fail),
        ]
        cells = [(title, f"{passes:,}", f"{fails:,}") for title, passes, fails in rows]
        print_table(("", "label pass", "label fail"), cells)


def print_plans(plans: Mapping[str, Plan]) -> None:
    """Print the tasks that comparisons take to pass, by environment."""
    for place, (name, plan) in enumerate(plans.items()):
        if place:
            result()
        _print_plan(one_line(name), plan)


_SCENARIOS = {
    "unchanged": "nothing changed",
    "other-model": "B is another model, as good as A on average",
}


def _print_plan(name: str, plan: Plan) -> None:
    pilot = plan.pilot
    within = number(pilot.within, ".2g", unknown="unknown (one attempt per task)")
    measured = (
        "assumed; a second run of these tasks would measure it" if pilot.is_assumed else "measured"
    )
    result(f"{name}: planned from {pilot.num_tasks:,} tasks")
    result(f"variance      {pilot.between:.2g} between tasks, {within} within")
    result(f"correlation   {pilot.correlation:.2f} of two models' task means ({measured})")
    for scenario, meaning in _SCENARIOS.items():
        designs = [row for row in plan.designs if row.scenario == scenario]
        if not designs:
            continue
        result()
        result(f"tasks so that gym compare passes in {plan.power:.0%} of the cases if {meaning}:")
        attempts = [counted(row.num_attempts, "attempt") for row in designs]
        rows = [
            (f"--margin {margin}", *(_two_digits(row.num_tasks[margin]) for row in designs))
            for margin in designs[0].num_tasks
        ]
        margins = (f"{row.smallest_margin:.2g}" for row in designs)
        rows.append((f"{pilot.num_tasks:,} tasks pass with --margin", *margins))
        print_table(("", *attempts), rows)


def _two_digits(count: int) -> str:
    """Return a number of tasks with two digits, rounded up, so that they are enough."""
    unit = 10 ** max(0, len(str(count)) - 2)
    return f"{-(-count // unit) * unit:,}"


def print_references(score: BenchmarkScore) -> None:
    """Print how a run differs from its benchmark, and the verdict on each published score."""
    if text := settings_text(score.benchmark, score.other_settings):
        result(f"{'benchmark':14}{one_line(text, 1000)}")
    for reference in score.references:
        verdict = f"{reference.verdict_text}, {reference_text(reference, score)}"
        text = f"{reference.model} {reference.score:g} ({reference_source(reference)}): {verdict}"
        result(f"{'reference':14}{one_line(text, 1000)}", word=reference.verdict_text)
    if score.num_published and not score.references and score.model != "oracle":
        text = f"{score.benchmark} has no published score of {score.model}"
        result(f"{'reference':14}{one_line(text, 1000)}")
    if score.elsewhere:
        text = f"{', '.join(score.elsewhere)} has a score of {score.model} that can be tested"
        result(f"{'':14}{one_line(text, 1000)}")
