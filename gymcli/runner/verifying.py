"""Rescores the lines of a file: in processes where verifiers compute, here where they wait."""

from __future__ import annotations

import itertools
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from gymcli.registry import Found, Registry
from gymcli.remote import RemoteEnvironment, remote_environment, reverify_mode
from gymcli.role_models import RoleSource, check_declared, waits_to_score
from gymcli.runner.attempts import Shared
from gymcli.runner.judged import JudgedJob, rescore_judged
from gymcli.runner.judging import Judges, judging
from gymcli.runner.own_loop import OwnLoop
from gymcli.runner.recorded import find_recorded
from gymcli.scoring import Batch, Rescored, RescoreJob, Scorers, rescore_batches
from gymcli.store.compressed import is_plain
from gymcli.store.lines import Line
from gymcli.store.manifest import read_manifest
from gymcli.store.rollouts import (
    RolloutReading,
    environment_names,
    line_environment,
    rollout_lines,
    rollouts_file,
)
from gymcli.store.verdicts import Verdicts, rescoring_verdicts
from gymcli.types import JSONObject

__all__ = ["recorded_environments", "rescore_file", "verify"]

_LOGGER = logging.getLogger(__name__)


def verify(
    run: str | Path,
    *,
    env: str | None = None,
    env_args: Mapping[str, Mapping[str, str]] | None = None,
    row_fields: Mapping[str, JSONObject] | None = None,
    roles: Mapping[str, RoleSource] | None = None,
    role_params: Mapping[str, JSONObject] | None = None,
    keeps_lines: bool = False,
) -> Iterator[Rescored]:
    """Rescore a run directory or a rollout file, ours or NeMo Gym's.

    Results come in the order of the lines; those of environments whose verifiers wait, for models
    or for all attempts of a task, or run `verifies_in_worker`, follow as they are there. What
    judges newly answer is appended to the verdicts of a run directory.

    Args:
        run: The directory or file.
        env: The environment of lines that name none, or one given as code.
        env_args: Options by environment name, as texts; they override those on record.
        row_fields: Fields of task rows, for rollout files of others that lack them.
        roles: Models beside the policy, as of `gymcli.collect`.
        role_params: Request parameters of roles, as of `gymcli.collect`.
        keeps_lines: Give every line anew, with its new score.

    Raises:
        UsageError: A file, a line, an environment or an option is wrong, or a role has no model.

    """
    batches = rescore_file(
        Path(run),
        recorded_environments(Path(run), env),
        env=env,
        env_args=env_args or {},
        row_fields=row_fields or {},
        judges=Judges(roles or {}, role_params or {}, given=(*(roles or ()), *(role_params or ()))),
        keeps_lines=keeps_lines,
    )
    return (result for batch in batches for result in batch)


def recorded_environments(run: Path, env: str | None) -> dict[str, Found]:
    """Find the environments that a run or a file names, by their name.

    Raises:
        UsageError: One of them is not there; a file or a line is wrong.

    """
    manifest = read_manifest(run) if run.is_dir() else None
    if manifest is not None:
        names = set(manifest.environments)
    else:
        file = rollouts_file(run)
        names = environment_names(file, RolloutReading(str(file), env))
    registry = Registry((env,) if env else ())
    environments = (find_recorded(registry, name, run, manifest) for name in sorted(names))
    return {found.name: found for found in map(_asked_again, environments)}


def _asked_again(found: Found) -> Found:
    """Let a server score again where it says that its verifier needs no session.

    Raises:
        UsageError: The server cannot be asked.

    """
    environment = found.environment
    if not (issubclass(environment, RemoteEnvironment) and environment.base_url):
        return found
    with OwnLoop() as loop:
        if loop.run(reverify_mode(environment.base_url)) != "stateless":
            return found
    again = remote_environment(found.name, environment.base_url, rescore="verify")
    return found._replace(environment=again)


def rescore_file(
    run: Path,
    environments: Mapping[str, Found],
    *,
    env: str | None,
    env_args: Mapping[str, Mapping[str, str]],
    row_fields: Mapping[str, JSONObject],
    judges: Judges,
    keeps_lines: bool,
    out: Path | None = None,
    warn: Callable[[str], None] = _LOGGER.warning,
    elsewhere: Scorers | None = None,
    repeat: int = 0,
) -> Iterator[Batch]:
    """Rescore every line of a run or a file, whose environments are known.

    Gives the results of lines that follow one another together; lines whose verifiers compute come
    first, where there are others as well. New verdicts are kept in the run, where it may be
    written, and in `out`; `warn` is told where they are not. What waits for nobody is scored
    `elsewhere`, where that is given. In a `repeat`, from 1 on, judges are asked what they have
    answered before, and nothing is kept.
    """
    path = rollouts_file(run)
    reading = RolloutReading(str(path), env, row_fields)
    check_declared(
        judges.sources,
        judges.given,
        {name: found.environment for name, found in environments.items()},
    )
    specs = (env,) if env is not None else ()
    registry = Registry(specs)

    def find(name: str) -> Found:
        return environments.get(name) or find_recorded(registry, name, run)

    # Of a line whose environment the manifest does not know the class is asked when it comes.
    def waits_here(found: Found) -> bool:
        return _waits(found, judges, is_in_worker=elsewhere is not None)

    waiting = {name: waits_here(found) for name, found in environments.items()}

    def lines(*, waits: bool) -> Iterator[Line]:
        for line in rollout_lines(path):
            name = line_environment(line, reading)
            if name not in waiting:
                waiting[name] = waits_here(find(name))
            if waiting[name] == waits:
                yield line

    job = RescoreJob(reading, specs, env_args, keeps_lines, frozenset(environments), repeat)
    size = path.stat().st_size
    if not any(waiting.values()):
        return rescore_batches(
            rollout_lines(path),
            job,
            size=size,
            scrubber=judges.scrubber(),
            file=path if is_plain(path) else None,
            elsewhere=elsewhere,
        )
    is_mixed = not all(waiting.values())
    directory = run if run.is_dir() else None
    judged: Iterator[Batch] = (
        [result]
        for result in rescore_judged(
            lambda: lines(waits=True) if is_mixed else rollout_lines(path),
            JudgedJob(reading, find, env_args, keeps_lines, judges.concurrency),
            lambda: _asked_anew(judges) if repeat else _opened(judges, directory, out, warn),
        )
    )
    if not is_mixed:
        return judged
    alone = rescore_batches(
        lines(waits=False), job, size=size, scrubber=judges.scrubber(), elsewhere=elsewhere
    )
    return itertools.chain(alone, judged)


@asynccontextmanager
async def _opened(
    judges: Judges, run: Path | None, out: Path | None, warn: Callable[[str], None]
) -> AsyncIterator[Shared]:
    with rescoring_verdicts(run, out, warn, judges.scrubber()) as verdicts:
        async with judging(judges, verdicts) as shared:
            yield shared


def _asked_anew(judges: Judges) -> AbstractAsyncContextManager[Shared]:
    return judging(judges, Verdicts(), asks_anew=True)


def _waits(found: Found, judges: Judges, *, is_in_worker: bool) -> bool:
    """Say whether lines are scored in this process; another does not know a server's class."""
    environment = found.environment
    is_remote = issubclass(environment, RemoteEnvironment)
    return is_remote or waits_to_score(environment, judges.sources, is_in_worker=is_in_worker)
