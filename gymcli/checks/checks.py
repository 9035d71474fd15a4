"""Runs every check on one environment, in an order in which the first failure explains the rest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path

from gymcli.checks.findings import CheckReport, Finding, failed, not_applicable
from gymcli.checks.prompt_checks import duplicates, judges, leaks, tools
from gymcli.checks.score_checks import echo, empty, guessing, oracle, repeatable, speed, swapped
from gymcli.checks.subject import Subject, Watch, read_task_set
from gymcli.environment.registry import Registry, environment_options, prepare, split_env_args
from gymcli.errors import AttemptError, frames_of
from gymcli.rollout.event_loop import run
from gymcli.rollout.verifier_workers import Workers

__all__ = ["CHECKS", "DEFAULT_LIMIT", "check", "check_async"]

DEFAULT_LIMIT = 100
"""Tasks that are played."""


async def tasks_are_valid(subject: Subject) -> Finding:
    """Give what was found when the tasks were read."""
    return subject.tasks.finding


CHECKS: Mapping[str, Callable[[Subject], Awaitable[Finding]]] = {
    "tasks": tasks_are_valid,
    "oracle": oracle,
    "empty": empty,
    "echo": echo,
    "swapped": swapped,
    "guessing": guessing,
    "repeatable": repeatable,
    "speed": speed,
    "tools": tools,
    "leaks": leaks,
    "duplicates": duplicates,
    "judges": judges,
}
"""Every check by its name, which `Environment.skipped_checks` takes."""

_NEVER_SKIPPED = ("tasks", "repeatable")


def check(
    environment: str,
    *,
    tasks: str | Path | None = None,
    env_args: Mapping[str, str] | None = None,
    limit: int = DEFAULT_LIMIT,
    watch: Watch | None = None,
) -> CheckReport:
    """Check an environment without any model, as `gym check` does.

    Args:
        environment: Its name, `path/to/file.py:Class` or `module:Class`.
        tasks: A task file; without it the tasks that ship with the environment, else 60 that it
            generates.
        env_args: Options of the environment, as texts.
        limit: Play only so many tasks; all of them are validated.
        watch: Told now and then how far it is.

    Raises:
        UsageError: There is no such environment, option or file, or the environment cannot be
            played here; where a package is missing, a MissingPackageError.

    """
    return run(check_async(environment, tasks=tasks, env_args=env_args, limit=limit, watch=watch))


async def check_async(
    environment: str,
    *,
    tasks: str | Path | None = None,
    env_args: Mapping[str, str] | None = None,
    limit: int = DEFAULT_LIMIT,
    watch: Watch | None = None,
) -> CheckReport:
    """Do what `check` does, in an event loop that runs already."""
    registry = Registry((environment,))
    found = registry.find(environment)
    given = split_env_args(env_args or {}, [found])[found.name]
    options = environment_options(found.environment, found.name, given, {})
    prepare(found, options)
    task_set = read_task_set(found, registry, None if tasks is None else Path(tasks), limit=limit)
    async with Workers() as workers:
        subject = Subject(found, task_set, options, workers=workers, watch=watch or _unwatched)
        findings = [*_wrong_skips(found.environment.skipped_checks)]
        for name in CHECKS:
            finding = await _checked(subject, name)
            finding.check = name
            findings.append(finding)
    return CheckReport(
        env=found.name,
        version=found.environment.version,
        tasks=task_set.origin,
        num_tasks=len(task_set.rows),
        findings=findings,
    )


async def _checked(subject: Subject, name: str) -> Finding:
    reason = subject.environment.skipped_checks.get(name)
    if reason and name not in _NEVER_SKIPPED:
        return Finding(status="skipped", text=reason)
    if not subject.rows and name != "tasks":
        return not_applicable("no valid tasks")
    try:
        return await CHECKS[name](subject)
    except AttemptError as error:
        return failed(str(error), (), frames_of(error))


def _wrong_skips(skipped: Mapping[str, str]) -> Iterator[Finding]:
    """Complain of checks that cannot be skipped, or not without a reason."""
    for name, reason in skipped.items():
        if name not in CHECKS:
            text = f'"{name}" is no check (there are: {", ".join(CHECKS)})'
        elif name in _NEVER_SKIPPED:
            text = f'"{name}" holds for every environment and cannot be skipped'
        elif not reason.strip():
            text = f'"{name}" is skipped without a reason'
        else:
            continue
        yield Finding(check="skipped_checks", status="failed", text=text)


def _unwatched(text: str) -> None:
    """Take no notice."""
