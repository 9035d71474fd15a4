"""Runs every check on an environment, ordered so that the first failure explains the rest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from gymcli.checks.prompt_checks import duplicates, judges, leaks, tool_answers, tools
from gymcli.checks.score_checks import echo, empty, guessing, oracle, repeatable, speed, swapped
from gymcli.checks.subject import (
    Finding,
    Subject,
    UnscoredError,
    Watch,
    failed,
    not_applicable,
    read_task_set,
)
from gymcli.environment.contract import Environment
from gymcli.environment.registry import Registry, environment_options, prepare, split_env_args
from gymcli.environment.tool import Task
from gymcli.errors import AttemptError
from gymcli.rollout.scoring import Workers
from gymcli.tracebacks import frames_of


class CheckReport(msgspec.Struct, omit_defaults=True, kw_only=True):
    """All findings of one environment."""

    benchmark: str = ""
    """The benchmark whose tasks were played."""
    env: str
    version: str
    tasks: str
    """The source of the tasks."""
    num_tasks: int
    """The number of tasks that were played."""
    findings: list[Finding]

    @property
    def failures(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.status == "failed"]


async def _tasks(subject: Subject) -> Finding:
    return subject.tasks.finding


CHECKS: Mapping[str, Callable[[Subject], Awaitable[Finding]]] = {
    "tasks": _tasks,
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
"""Every check by the name that `Environment.skipped_checks` uses."""

_SCORES = ("oracle", "empty", "echo", "swapped", "guessing", "repeatable")
"""Checks that may fail because episodes are not independent or not repeatable."""
_NUM_REPLAYED = 3

_NEVER_SKIPPED = ("tasks", "repeatable")
"""Checks that apply to every environment."""


async def check_environment(
    environment: str,
    *,
    tasks: str | Path | None = None,
    prompt: Path | None = None,
    env_args: Mapping[str, str] | None = None,
    limit: int = 100,
    watch: Watch | None = None,
) -> CheckReport:
    """Check an environment without any model.

    `tasks` are by default those that ship with it, or 60 that it generates; at most `limit` are
    played, and all are validated. `watch` is called often, with the progress in words.

    Raises:
        UsageError: There is no such environment, option or file, or the environment cannot be
            played here (a MissingPackageError if a package is missing).
    """
    registry = Registry((environment,))
    registration = registry.find(environment)
    args = split_env_args(env_args or {}, [registration])[registration.name]
    options = environment_options(registration.environment, registration.name, args, {})
    prepare(registration, options)
    tasks_file = None if tasks is None else Path(tasks)
    task_set = read_task_set(registration, registry, tasks_file, prompt=prompt, limit=limit)
    async with Workers() as workers:
        subject = Subject(
            registration, task_set, options, workers=workers, watch=watch or (lambda _: None)
        )
        # A misspelt name in `skipped_checks` would otherwise skip nothing, without notice.
        class_values = _class_values(subject.environment)
        findings = list(_wrong_skips(registration.environment.skipped_checks))
        for name in CHECKS if subject.rows else ("tasks",):
            finding = await run_check(subject, name)
            # Where nothing can be scored, a row of `n/a` for each check would hide the reason.
            if finding.status != "n/a" or subject.verify_seconds:
                findings.append(finding)
            if subject.is_hanging:
                break
        if any(finding.status == "failed" and finding.check in _SCORES for finding in findings):
            findings += await _causes(subject, class_values)
    return CheckReport(
        env=registration.name,
        version=registration.environment.version,
        tasks=task_set.origin,
        num_tasks=len(task_set.rows),
        findings=findings,
    )


async def run_check(subject: Subject, name: str) -> Finding:
    """Return the finding of a check; an error of the environment's code fails only one check."""
    finding = await _finding(subject, name)
    finding.check = name
    return finding


async def _finding(subject: Subject, name: str) -> Finding:
    reason = subject.environment.skipped_checks.get(name)
    if reason and name not in _NEVER_SKIPPED:
        return Finding(status="skipped", text=reason)
    try:
        return await CHECKS[name](subject)
    except AttemptError as error:
        # An exception of the environment's code is a finding too.
        episodes = error.episodes if isinstance(error, UnscoredError) else []
        text = episodes[0].error if episodes else str(error)
        if (earlier_check := subject.check_by_error.setdefault(text, name)) != name:
            return not_applicable(f"not checked, because of the error in {earlier_check}")
        turns = episodes[0].turns if episodes and name != "oracle" else ()
        ids = [episode.row.id for episode in episodes]
        return failed(str(error), ids, frames_of(error), turns=turns)


def _class_values(environment: type[Environment[Task]]) -> dict[str, str]:
    """Return the lists, dicts and sets of a class, written out, by `CLASS.NAME`."""
    values = {}
    for kind in environment.__mro__:
        for name, value in vars(kind).items():
            if isinstance(value, list | dict | set) and not name.startswith("__"):
                with suppress(Exception):  # an item may have a `__repr__` that raises
                    values[f"{kind.__name__}.{name}"] = repr(value)
    return values


async def _causes(subject: Subject, values_before: Mapping[str, str]) -> list[Finding]:
    """Return why scores may be wrong: what episodes share, or else tools with random results."""
    values = _class_values(subject.environment)
    changed_names = [name for name, value in values.items() if value != values_before.get(name)]
    if changed_names:
        text = (
            f"episodes share and change {', '.join(changed_names)}: unless it is only a cache, "
            "make it in `setup`, as `self.NAME`"
        )
        return [Finding(check="cause", status="failed", text=text)]
    unstable: dict[str, None] = {}
    for episode in () if subject.is_hanging else (await subject.episodes("oracle"))[:_NUM_REPLAYED]:
        with suppress(AttemptError):  # it may take too long
            new_episode = await subject.play_task(episode.row, None)
            pairs = zip(tool_answers(episode), tool_answers(new_episode), strict=False)
            unstable |= {name: None for (name, text), (_, new_text) in pairs if text != new_text}
    if not unstable:
        return []
    text = (
        f"the same calls get other results from {', '.join(unstable)}: a tool's result must depend "
        "only on its episode, its arguments and `self.rng`"
    )
    return [Finding(check="cause", status="failed", text=text)]


def _wrong_skips(reasons: Mapping[str, str]) -> Iterator[Finding]:
    for name, reason in reasons.items():
        if name not in CHECKS:
            text = f'there is no check "{name}" (checks: {", ".join(CHECKS)})'
        elif name in _NEVER_SKIPPED:
            text = f'"{name}" applies to every environment and cannot be skipped'
        elif not reason.strip():
            text = f'"{name}" is skipped without a reason'
        else:
            continue
        yield Finding(check="skipped_checks", status="failed", text=text)
