"""A whole file rescored: what changed and why, and a new run of it where one is wanted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from gymcli.environment.registry import Registry, split_env_args
from gymcli.environment.remote import RemoteEnvironment
from gymcli.errors import TasksError
from gymcli.models.roles import check_missing, declared_roles
from gymcli.rollout.rescored import Rescored
from gymcli.runner.identity import rescored_manifest
from gymcli.runner.judging import Judges
from gymcli.runner.measure import measure, open_run
from gymcli.runner.rescoring_report import (
    RepeatReport,
    Repeats,
    RescoringCounter,
    RescoringReport,
)
from gymcli.runner.verifying import find_recorded, iterated, recorded_environments, rescore_run
from gymcli.store.manifest import Manifest, read_manifest
from gymcli.store.rollout_files import rollouts_file
from gymcli.store.run_directory import (
    FAILURES,
    GENERATIONS,
    RunDirectory,
    check_unused,
    read_structs,
    whole_run,
)
from gymcli.store.tasks import RowProblem, read_row_fields
from gymcli.store.verdicts import copy_verdicts
from gymcli.types import (
    SCHEMA_VERSION,
    ErrorRecord,
    Failure,
    JSONObject,
    Rollout,
)

if TYPE_CHECKING:
    from gymcli.runner.ray_driver import RayEngine

__all__ = ["Rescoring"]

T = TypeVar("T")


class Rescoring:
    """Rescoring of one run directory or rollout file.

    Args:
        run: The directory or file, ours or NeMo Gym's.
        env: The environment of lines that name none, or one given as code.
        env_args: `[ENV.]key` to value, as texts.
        task_files: Task rows that a rollout file of others lacks the fields of.
        judges: Who plays the roles that verifiers ask.
        out: A directory for the rescored run; it must be new or empty, and holds the run once that
            is whole. What an earlier try left in it is done again, but no judge is asked again.
        engine: What scores the lines whose verifiers wait for nobody; else this machine does.

    Raises:
        UsageError: A path, a name or an option is wrong.

    """

    def __init__(
        self,
        run: Path,
        *,
        env: str | None = None,
        env_args: Mapping[str, str] | None = None,
        task_files: Sequence[Path] = (),
        judges: Judges | None = None,
        out: Path | None = None,
        engine: RayEngine | None = None,
    ) -> None:
        self.warnings: list[str] = []
        """What the user should know; more may come while it runs."""
        self._judges = judges or Judges()
        self._run = run
        self._env = env
        self._out = out
        self._engine = engine
        rollouts_file(run)
        self._row_fields = _row_fields(task_files)
        self._manifest = read_manifest(run) if run.is_dir() else None
        self._found = recorded_environments(run, env)
        classes = {name: found.environment for name, found in self._found.items()}
        self.warnings += check_missing(self._judges.missing, classes)
        self._env_args = split_env_args(env_args or {}, self._found.values())
        if out is not None:
            check_unused(out)

    def run(self, *, watch: Callable[[RescoringReport], None] | None = None) -> RescoringReport:
        """Rescore every line and say what changed; `watch` sees the report grow.

        Raises:
            UsageError: A line, an environment or an option is wrong.
            RunDirectoryError: `out` cannot be written.

        """
        watch = watch or _watch_nothing
        report = RescoringReport()
        counting = RescoringCounter(report, lambda: open_run(self._run, env=self._env))
        num_lines: Counter[str] = Counter()
        with ExitStack() as stack:
            directory = self._opened_out(stack)
            for batch in self._rescored(directory):
                counting.add(batch)
                if directory is not None:
                    for item in batch:
                        num_lines[item.key.env] += 1
                        _write(directory, item)
                watch(report)
            if directory is not None:
                self._close_out(directory, num_lines)
        counting.end()
        return report

    def repeat(
        self, num_repeats: int, *, watch: Callable[[Repeats], None] | None = None
    ) -> RepeatReport:
        """Score every line so often and say how far verifiers agree with themselves.

        Nothing is kept: neither scores nor what judges answer, and judges are asked what they have
        answered before. `watch` sees the scores come.

        Raises:
            UsageError: A line, an environment or an option is wrong, or an attempt is there twice.

        """
        repeats = Repeats(num_repeats, self._asks_models)
        for number in range(1, num_repeats + 1):
            for batch in self._rescored(None, repeat=number):
                repeats.add(batch, is_first=number == 1)
                if watch is not None:
                    watch(repeats)
            if number == 1:
                repeats.check()
        return repeats.report()

    def models_asked(self) -> list[str]:
        """Return the roles that have a model which scoring may ask."""
        declared = {
            role for found in self._found.values() for role in declared_roles(found.environment)
        }
        return sorted(declared & self._judges.sources.keys())

    def _asks_models(self, env: str) -> bool:
        """Return whether a verifier may ask models; of a server it is not known, so that it may."""
        registry = Registry((self._env,) if self._env else ())
        found = self._found.get(env) or find_recorded(registry, env, self._run)
        if issubclass(found.environment, RemoteEnvironment):
            return True
        return any(role in self._judges.sources for role in declared_roles(found.environment))

    def _rescored(
        self, directory: RunDirectory | None, *, repeat: int = 0
    ) -> Iterator[list[Rescored]]:
        batches = rescore_run(
            self._run,
            self._found,
            env=self._env,
            env_args=self._env_args,
            row_fields=self._row_fields,
            judges=self._judges,
            keeps_lines=directory is not None,
            out=None if directory is None else directory.path,
            warn=self.warnings.append,
            engine=self._engine,
            repeat=repeat,
        )
        return iterated(batches)

    def _opened_out(self, stack: ExitStack) -> RunDirectory | None:
        """Make the new run, with what it takes over: failures, what waits, judges' answers."""
        if self._out is None:
            return None
        directory = stack.enter_context(whole_run(self._out, self._judges.scrubber()))
        directory.write_manifest(self._rescored_manifest({}))
        if self._run.is_dir():
            for failure in _records(self._run / FAILURES, Failure):
                directory.append_failure(failure)
            for rollout in _records(self._run / GENERATIONS, Rollout):
                directory.append_generation(rollout)
            copy_verdicts(self._run, directory.path, directory.scrubber)
        return directory

    def _close_out(self, directory: RunDirectory, num_lines: Mapping[str, int]) -> None:
        """Write the end of the new run: its manifest and its metrics."""
        directory.write_manifest(self._rescored_manifest(num_lines))
        aggregator = measure(directory.path, env=self._env)
        directory.write_metrics(msgspec.json.encode(aggregator.metrics()))
        self.warnings += aggregator.warnings

    def _rescored_manifest(self, num_lines: Mapping[str, int]) -> Manifest:
        return rescored_manifest(
            self._manifest,
            self._found,
            env_args=self._env_args,
            judges=self._judges,
            num_lines=num_lines,
        )


def _watch_nothing(report: RescoringReport) -> None:
    """Look away."""


def _row_fields(task_files: Sequence[Path]) -> dict[str, JSONObject]:
    """Read the fields of task rows, by id and by the index that NeMo Gym gives a row."""
    fields: dict[str, JSONObject] = {}
    for item in read_row_fields(task_files):
        if isinstance(item, RowProblem):
            raise TasksError(str(item))
        fields[f"#{item.task_index}"] = fields[item.id] = item.fields
    return fields


def _write(directory: RunDirectory, item: Rescored) -> None:
    if item.error is None:
        directory.append_rollout_line(item.line)
        return
    directory.append_generation_line(item.line)
    directory.append_failure(
        Failure(
            schema_version=SCHEMA_VERSION,
            env=item.key.env,
            task_id=item.key.task_id,
            attempt=item.key.attempt,
            error=ErrorRecord(
                error_class=item.error.error_class,
                phase="verify",
                message=item.error.message,
                frames=item.error.frames,
            ),
        )
    )


def _records(path: Path, kind: type[T]) -> Iterator[T]:
    return read_structs(path, msgspec.json.Decoder(kind)) if path.is_file() else iter(())
