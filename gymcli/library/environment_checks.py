"""Checks environments and benchmarks without a model."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import msgspec
from pydantic import BaseModel, Field

from gymcli.benchmarks.benchmark import benchmark_names, find_benchmark
from gymcli.benchmarks.resolution import names_benchmark
from gymcli.checks.checks import CheckReport, check_environment
from gymcli.checks.subject import Finding, Status, Watch
from gymcli.environment.registry import Registry, has_option
from gymcli.errors import MissingPackageError, UnknownNameError, UsageError
from gymcli.library.calls import call_blocking, run_blocking
from gymcli.library.result import Result, Results
from gymcli.secrets import environment_secrets, scrubber_of
from gymcli.suggestions import did_you_mean, options_from

_LOGGER = logging.getLogger(__name__)


class EnvironmentCheck(CheckReport, Result, kw_only=True):
    """All findings of one environment, as `gym check --json` prints them."""

    table: ClassVar[str] = "findings"


class EnvironmentChecks(Results[EnvironmentCheck]):
    """The findings of several environments."""

    @property
    def failures(self) -> list[Finding]:
        """The checks that failed."""
        return [finding for report in self for finding in report.failures]


class CheckArguments(BaseModel, extra="forbid"):
    """The options of `gymcli.check`."""

    tasks: Path | None = None
    """A tasks file; by default the tasks that ship with the environment, or 60 that it
    generates."""
    prompt: Path | None = None
    """The file of the prompt of tasks that have none."""
    env_args: dict[str, str] = {}
    """Options of the environment, as texts."""
    limit: int = Field(default=100, ge=1)
    """The most tasks of an environment to play; all of them are validated."""


def check(
    *names: str, watch: Watch = lambda _: None, **options: object
) -> EnvironmentCheck | EnvironmentChecks:
    """Check environments without any model, as `gym check` does.

    Returns the findings of the environment, or of each if there are several.

    Args:
        names: Environments, each a name, `path/to/file.py:Class` or `module:Class`, or benchmarks,
            whose tasks are pulled; all environments if there is none.
        watch: Called often, with the progress in words.
        options: The fields of `gymcli.library.environment_checks.CheckArguments`: `tasks`,
            `prompt`, `env_args` and `limit`.

    Raises:
        UsageError: There is no such environment, option or file.
    """
    for name in names:
        if not isinstance(name, str):
            raise UsageError(
                f"check: {name!r} is not a name; write the environment's name, or FILE.py:CLASS "
                "or MODULE:CLASS"
            )
    settings = options_from(CheckArguments, "check", options)
    checked = checked_environments(names, settings, watch=watch)
    reports = EnvironmentChecks(report for _, report in checked)
    return reports[0] if len(reports) == 1 else reports


def checked_environments(
    names: tuple[str, ...],
    options: CheckArguments,
    *,
    watch: Watch = lambda _: None,
    notify: Callable[[str], None] = _LOGGER.info,
) -> Iterator[tuple[str, EnvironmentCheck]]:
    """Check environments, all if there are no names; yield each with the name it was called by.

    `watch` is called often, with the progress in words, and `notify` with what is fetched. Secrets
    are removed from the findings, which may quote errors.
    """
    for option in ("tasks", "prompt"):
        if getattr(options, option) is not None and not names:
            raise UsageError(f"--{option} FILE: name the environment of these tasks")
    if options.env_args and not names:
        raise UsageError("--env-arg: name the environment that has this option")
    for name in names or Registry.names():
        try:
            for report in _reports(name, options, watch, notify):
                yield name, _without_secrets(report)
        except UsageError as error:
            is_missing = isinstance(error, MissingPackageError)
            if names and not is_missing:
                raise
            status: Status = "skipped" if is_missing else "failed"
            finding = Finding(check="ready", status=status, text=str(error))
            report = CheckReport(
                env=name, version="", tasks="none", num_tasks=0, findings=[finding]
            )
            yield name, _without_secrets(report)


def _without_secrets(report: CheckReport) -> EnvironmentCheck:
    clean = scrubber_of((), os.environ).also(environment_secrets(os.environ)).text
    for finding in report.findings:
        finding.text = clean(finding.text)
        finding.frames = list(map(clean, finding.frames))
        finding.turns = list(map(clean, finding.turns))
    return EnvironmentCheck(**msgspec.structs.asdict(report))


def _reports(
    name: str, options: CheckArguments, watch: Watch, notify: Callable[[str], None]
) -> list[CheckReport]:
    """Check an environment, or every environment that the tasks of a benchmark play in."""
    limit = options.limit
    if not names_benchmark(name):
        try:
            checking = check_environment(
                name,
                tasks=options.tasks,
                prompt=options.prompt,
                env_args=options.env_args,
                limit=limit,
                watch=watch,
            )
            return [run_blocking(checking)]
        except UnknownNameError as error:
            hint = did_you_mean(name.partition("@")[0], benchmark_names(), "of gym bench")
            raise UnknownNameError(f"{error}{hint and f'; {hint}'}") from error
    for option in ("tasks", "prompt"):
        if file := getattr(options, option):
            raise UsageError(
                f"--{option} {file}: {name} is a benchmark, which has tasks of its own"
            )
    from gymcli.benchmarks.benchmark_files import pulled_tasks  # late: heavy
    from gymcli.benchmarks.benchmark_runs import check_with_environment
    from gymcli.data.validation import validate

    benchmark = find_benchmark(name)
    check_with_environment(benchmark, Registry().find(benchmark.env))
    path = call_blocking(lambda: pulled_tasks(benchmark, notify=notify))
    prompt = benchmark.prompt_path
    env_args: Mapping[str, str] = {**benchmark.env_arg_texts, **options.env_args}
    played = validate([path], env=benchmark.env, env_args=env_args, prompt=prompt).environments
    reports = []
    for env in sorted(played) or [benchmark.env]:
        environment = Registry((env,)).find(env)
        own_args = {key: text for key, text in env_args.items() if has_option(environment, key)}
        checking = check_environment(
            env, tasks=path, prompt=prompt, env_args=own_args, limit=limit, watch=watch
        )
        report = run_blocking(checking)
        report.benchmark = benchmark.name
        reports.append(report)
    return reports
