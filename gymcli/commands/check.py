"""`gym check`: test without a model whether the scores of environments can be trusted."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymcli.commands.console import (
    folded,
    message,
    one_line,
    paced_message,
    print_json,
    print_table,
    result,
    results,
)
from gymcli.commands.options import (
    JsonOption,
    OwnEnvArgOption,
    complete_benchmark,
    complete_env,
    key_values,
)

if TYPE_CHECKING:
    from gymcli.checks.checks import CheckReport
    from gymcli.checks.subject import Finding

_MAX_IDS = 5
_MAX_TURN = 400
"""Characters of a reply that are printed."""
_FAILED = 3

_HEAD = ("environment", "tasks", "oracle", "empty", "echo", "swapped", "guess", "limit", "p99 ms")


def complete_checked(incomplete: str) -> list[str]:
    """Complete the name of an environment or a benchmark in a shell."""
    return [*complete_env(incomplete), *complete_benchmark(incomplete)]


def check(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ENV",
            help="Environments, NAME or FILE.py:CLASS, or benchmarks.",
            show_default="all environments",
            autocompletion=complete_checked,
        ),
    ] = None,
    tasks: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Check with these tasks instead of the shipped ones."),
    ] = None,
    env_arg: OwnEnvArgOption = None,
    limit: Annotated[
        int,
        typer.Option("--limit", "-n", min=1, help="Play at most N tasks of each environment."),
    ] = 100,
    json: JsonOption = False,
) -> None:
    """Check environments without a model; exit with 3 on failure.

    The oracle must get the top reward; silence, an echo and the answers of other tasks must not.
    Guessers must stay at chance level, scores must repeat, and tools, prompts and judges must keep
    their promises. The tasks of a benchmark are pulled and played in its environment, with its
    prompt.
    """
    from gymcli.library.environment_checks import CheckArguments, checked_environments

    env_args = key_values("--env-arg", env_arg or ())
    options = CheckArguments(tasks=tasks, env_args=env_args, limit=limit)
    checked = list(
        checked_environments(tuple(names or ()), options, watch=paced_message(), notify=message)
    )
    reports = [report for _, report in checked]
    if json:
        print_json(reports[0] if len(reports) == 1 else reports)
    else:
        _print_reports(reports)
        for name, report in checked:
            _print_way_to_look(name, report, tasks, env_args)
    if any(report.failures for report in reports):
        raise typer.Exit(_FAILED)


def _print_one(report: CheckReport) -> None:
    result(f"{_name_of(report)} {report.version}: {report.num_tasks} tasks ({report.tasks})")
    for finding in report.findings:
        status = "FAILED" if finding.status == "failed" else finding.status
        text = f"{finding.check:11} {status:8} {_shown(finding)}"
        result(folded(text, 21), word=status)
        _print_details(finding)


def _print_reports(reports: Sequence[CheckReport]) -> None:
    if len(reports) == 1:
        _print_one(reports[0])
        return
    rows = [_row(report) for report in reports]
    print_table((*_HEAD, "result"), rows, optional=("p99 ms", "limit", "tasks", "guess"))
    for report in reports:
        for finding in report.failures:
            text = f"FAILED {_name_of(report)} {finding.check}: {_shown(finding)}"
            result(folded(text, 2), word="FAILED")
            _print_details(finding)
    for report in reports:
        checks_by_reason: dict[str, list[str]] = {}
        for finding in report.findings:
            if finding.status == "skipped":
                checks_by_reason.setdefault(finding.text, []).append(finding.check)
        for reason, checks in checks_by_reason.items():
            text = f"skipped {_name_of(report)} {', '.join(checks)}: {one_line(reason)}"
            result(folded(text, 2), word="skipped")


def _print_way_to_look(
    name: str, report: CheckReport, tasks: Path | None, env_args: Mapping[str, str]
) -> None:
    """Print the commands that show how the oracle plays a task in which it failed."""
    from gymcli.environment.registry import Registry
    from gymcli.runner.identity import unused

    oracle_failures = [finding for finding in report.failures if not finding.turns]
    ids = [task_id for finding in oracle_failures for task_id in finding.task_ids]
    if not ids:
        return
    out = str(unused(Path("runs/check")))  # a run of earlier code would be resumed
    source = [name] if tasks is None else [str(tasks), "--env", name]
    env = report.env if report.benchmark else name
    for role in Registry((env,)).find(env).environment.required_roles:
        source += ["--role", f"{role}=oracle"]
    for key, value in env_args.items():
        source += ["--env-arg", f"{key}={value}"]
    collect = ["gym", "collect", *source, "--model", "oracle", "--task", ids[0], "--out", out]
    results().flush()  # the findings come first
    message("to look at one of these tasks:")
    message(one_line(shlex.join(collect)))
    message(f"gym show {out}")


def _name_of(report: CheckReport) -> str:
    return f"{report.benchmark} in {report.env}" if report.benchmark else report.env


def _row(report: CheckReport) -> tuple[str, ...]:
    findings = {finding.check: finding for finding in report.findings}
    means = [_number(findings.get(name), "mean") for name in _HEAD[2:6]]
    guesses = findings["guessing"].numbers if "guessing" in findings else {}
    rates = {name: rate for name, rate in guesses.items() if f"{name} limit" in guesses}
    # The guesser that exceeds its limit most, or else comes closest to it.
    best = max(rates, key=lambda name: rates[name] - guesses[f"{name} limit"], default="")
    num_failed = len(report.failures)
    return (
        _name_of(report),
        str(report.num_tasks),
        *means,
        _number(findings.get("guessing"), best),
        _number(findings.get("guessing"), f"{best} limit"),
        _number(findings.get("speed"), "p99_milliseconds"),
        f"{num_failed} FAILED" if num_failed else "ok" if "oracle" in findings else "skipped",
    )


def _number(finding: Finding | None, name: str) -> str:
    if finding is None or name not in finding.numbers:
        return "-"
    return f"{finding.numbers[name]:.2f}"


def _print_details(finding: Finding) -> None:
    """Print where the author's code failed, and the reply that got what it should not."""
    for frame in finding.frames:
        result(f"{'':20} {one_line(frame)}")
    for turn in finding.turns:
        text = f"reply to {finding.task_ids[0]}: {turn or '(empty)'}"
        result(folded(f"{'':20} {one_line(text, _MAX_TURN)}", 23))


def _shown(finding: Finding) -> str:
    ids = finding.task_ids[:_MAX_IDS]
    more = ", ..." if len(finding.task_ids) > _MAX_IDS else ""
    text = one_line(finding.text)
    return f"{text} [{one_line(', '.join(ids))}{more}]" if ids else text
