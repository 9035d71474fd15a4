"""Rescores the lines of a file: in processes where verifiers compute, here where they wait."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from gymcli.registry import Found, Registry
from gymcli.remote import RemoteEnvironment, remote_environment, reverify_mode
from gymcli.role_models import RoleSource, check_declared, waits_to_verify
from gymcli.runner.judged import JudgedJob, rescore_judged
from gymcli.runner.judging import Judges, judging
from gymcli.runner.own_loop import OwnLoop
from gymcli.runner.recorded import find_recorded
from gymcli.scoring import Rescored, RescoreJob, rescore
from gymcli.store.manifest import read_manifest
from gymcli.store.rollouts import RolloutReading, environment_names, rollout_lines, rollouts_file
from gymcli.store.verdicts import Verdicts
from gymcli.types import JSONObject

__all__ = ["recorded_environments", "rescore_file", "verify"]


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

    Long files are scored by processes, so a script that calls this needs the usual
    `if __name__ == "__main__":`. Where verifiers ask models, or score all attempts of a task
    together, results come as they are there, else in the order of the lines.

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
        RunError: A worker process died.

    """
    return rescore_file(
        Path(run),
        recorded_environments(Path(run), env),
        env=env,
        env_args=env_args or {},
        row_fields=row_fields or {},
        judges=Judges(roles or {}, role_params or {}),
        keeps_lines=keeps_lines,
    )


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
) -> Iterator[Rescored]:
    """Rescore every line of a run or a file, whose environments are known."""
    path = rollouts_file(run)
    reading = RolloutReading(str(path), env, row_fields)
    classes = {name: found.environment for name, found in environments.items()}
    check_declared(judges.sources, (), classes)
    if not _waits(environments.values(), judges):
        specs = (env,) if env is not None else ()
        job = RescoreJob(reading, specs, env_args, keeps_lines)
        return rescore(rollout_lines(path), job, size=path.stat().st_size)
    registry = Registry((env,) if env else ())

    def find(name: str) -> Found:
        return environments.get(name) or find_recorded(registry, name, run)

    folder = run if run.is_dir() else None
    is_kept = folder is not None and os.access(folder, os.W_OK)
    return rescore_judged(
        partial(rollout_lines, path),
        JudgedJob(reading, find, env_args, keeps_lines, judges.concurrency),
        lambda: judging(judges, Verdicts(folder, is_kept=is_kept)),
    )


def _waits(environments: Iterable[Found], judges: Judges) -> bool:
    """Say whether lines are scored in this process; another does not know a server's class."""
    classes = [found.environment for found in environments]
    return any(
        issubclass(environment, RemoteEnvironment) or waits_to_verify(environment, judges.sources)
        for environment in classes
    )
