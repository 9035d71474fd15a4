"""Rescores the lines of a file: in workers if verifiers compute, in a loop if they wait."""

from __future__ import annotations

import functools
import logging
from collections import Counter, deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from gymcli.environment.registry import Registration, Registry, environment_options
from gymcli.environment.remote import RemoteEnvironment, remote_environment, reverify_mode
from gymcli.environment.tool import EnvironmentOptions
from gymcli.errors import UnknownNameError, UsageError
from gymcli.models.roles import RoleSource, check_declared, declared_roles
from gymcli.rescoring.line_rescoring import (
    Rescored,
    RescoreJob,
    calls_before,
    compared,
    kept,
    new_line,
    rescore_file,
    rescore_lines,
    unscored,
)
from gymcli.rollout.event_loop import LoopRunner
from gymcli.rollout.fork_server import forget_fork_servers
from gymcli.rollout.scoring import Workers, verifies_in_loop
from gymcli.rollout.verifier_worker import ErrorReply
from gymcli.runner.attempts import Attempt, Engine, Shared, run_attempts
from gymcli.runner.judges import Judges, open_shared
from gymcli.store.lines import Line, is_plain
from gymcli.store.manifest import Manifest, read_manifest
from gymcli.store.rollout_files import (
    RolloutReading,
    decode_rollout,
    environment_names,
    line_environment,
    rollout_lines,
    rollouts_file,
)
from gymcli.store.verdicts import Verdicts, rescoring_verdicts
from gymcli.types import AttemptKey, Failure, JSONObject, Rollout, Verifier


class LoopJob(NamedTuple):
    """The settings with which the lines of a file are rescored."""

    reading: RolloutReading
    find: Callable[[str], Registration]
    env_args: Mapping[str, Mapping[str, str]] = {}
    keeps_lines: bool = False
    concurrency: int = 64
    asks_nobody: bool = False
    """Whether no model scores: then a line with the same score stays as it is, and results keep the
    order of the lines."""


class _EarlierRecord(NamedTuple):
    rollout: Rollout
    registration: Registration
    options: EnvironmentOptions
    kept_result: Rescored | None
    """The result if it keeps its score."""
    number: int
    line: bytes
    """The old line; empty if it must be written as a whole, since roles change its usage fields."""


async def rescore_in_loop(
    read_lines: Callable[[], Iterable[Line]],
    job: LoopJob,
    opened: Callable[[], AbstractAsyncContextManager[Shared]],
    run: Callable[..., AsyncGenerator[Rollout | Failure]] = run_attempts,
) -> AsyncGenerator[list[Rescored]]:
    """Rescore raw lines concurrently and yield each result when it is ready.

    The lines are read twice if records of a group lack its size. `opened` opens what the verifiers
    may ask, and `run` runs the attempts.
    """
    # Several by key, since a file may hold an attempt twice.
    before: dict[AttemptKey, deque[_EarlierRecord]] = {}
    numbers: deque[int] = deque()
    ready: dict[int, Rescored] = {}
    sizes = functools.cache(lambda: _group_sizes(read_lines(), job))

    def attempts() -> Iterator[Attempt]:
        for line in read_lines():
            earlier = _earlier_record(line, job)
            rollout, environment = earlier.rollout, earlier.registration.environment
            keeps_score, group_size = earlier.kept_result is not None, 0
            if not keeps_score and environment.scores_groups():
                group_size = rollout.group_size or sizes()[rollout.env, rollout.task_id]
            if job.asks_nobody:
                numbers.append(line.number)
            before.setdefault(rollout.key, deque()).append(earlier)
            yield Attempt(
                environment,
                earlier.options,
                Verifier(environment.version, earlier.registration.source_hash),
                None,
                rollout.unscored(),
                group_size,
                keeps_score=keeps_score,
            )

    async with opened() as shared:
        # Nothing is written here: every result goes to the caller.
        records = run(
            attempts(), shared, concurrency=job.concurrency, write=lambda outcome: outcome
        )
        async with aclosing(records):
            async for record in records:
                same_key = before[record.key]
                earlier = same_key.popleft()
                if not same_key:
                    del before[record.key]
                result = earlier.kept_result or _compared(earlier, record, job)
                if not job.asks_nobody:
                    yield [result]
                    continue
                # Held back until the results of all earlier lines have arrived.
                ready[earlier.number] = result
                while numbers and numbers[0] in ready:
                    yield [ready.pop(numbers.popleft())]


def _earlier_record(line: Line, job: LoopJob) -> _EarlierRecord:
    rollout = decode_rollout(line.number, line.data, job.reading)
    registration = job.find(rollout.env)
    environment, name = registration.environment, registration.name
    # If the environment has another name here, more than the end of the line changes.
    data = line.data if job.asks_nobody and rollout.env == name else b""
    rollout.env = name
    if environment.rescore == "recorded":
        result = kept(line, rollout, keeps_line=job.keeps_lines)
        default: EnvironmentOptions = environment.Options()
        return _EarlierRecord(rollout, registration, default, result, line.number, data)
    env_args = job.env_args.get(name, {})
    options = environment_options(environment, name, env_args, rollout.env_options)
    return _EarlierRecord(rollout, registration, options, None, line.number, data)


def _group_sizes(lines: Iterable[Line], job: LoopJob) -> Counter[tuple[str, str]]:
    sizes: Counter[tuple[str, str]] = Counter()
    for line in lines:
        rollout = decode_rollout(line.number, line.data, job.reading)
        if not rollout.group_size and job.find(rollout.env).environment.scores_groups():
            sizes[job.find(rollout.env).name, rollout.task_id] += 1
    return sizes


def _compared(before: _EarlierRecord, record: Rollout | Failure, job: LoopJob) -> Rescored:
    if isinstance(record, Failure):
        error = record.error
        text = ErrorReply(error.error_class, error.message, error.frames)
        return unscored(before.rollout, text, keeps_line=job.keeps_lines)
    result = compared(before.rollout, record)
    if job.keeps_lines:
        result.line = new_line(
            before.line, before.rollout, record, before.registration.environment, before.options
        )
    return result


def find_recorded(
    registry: Registry, name: str, run: Path, manifest: Manifest | None = None
) -> Registration:
    """Find the environment of a run's record.

    An environment that is not installed is found without its code if the manifest says that it
    cannot be rescored: its records keep their scores.

    Raises:
        UnknownNameError: There is no such environment; the message explains how to name its code.
    """
    try:
        return registry.find(name)
    except UnknownNameError as error:
        record = None if manifest is None else manifest.environments.get(name)
        if record is not None and record.rescore == "recorded":
            return Registration(name, RemoteEnvironment, record.source_hash)
        raise UnknownNameError(
            f"{run}: {error}; if it is your own code, set --env FILE.py:CLASS; "
            f"if it is a server, set --env {name}=http://HOST:PORT"
        ) from error


T = TypeVar("T")

_LOGGER = logging.getLogger(__name__)


def rescore(
    run: str | Path,
    *,
    env: str | None = None,
    env_args: Mapping[str, Mapping[str, str]] | None = None,
    row_fields: Mapping[str, JSONObject] | None = None,
    roles: Mapping[str, RoleSource] | None = None,
    role_params: Mapping[str, JSONObject] | None = None,
    keeps_lines: bool = False,
) -> Iterator[Rescored]:
    """Rescore a run directory or a rollout file, of gymcli or NeMo Gym.

    Results come in the order of the lines. Results of environments whose verifiers wait, for models
    or for all attempts of a task, follow in order of completion. New answers of judges are appended
    to the verdicts of a run directory.

    Args:
        run: The directory or file.
        env: The environment of lines that name none, or the code of one.
        env_args: Options by environment name, as texts; they override the recorded ones.
        row_fields: Fields of task rows, for foreign rollout files that lack them.
        roles: Models of roles, as in `gymcli.collect`.
        role_params: Request parameters of roles, as in `gymcli.collect`.
        keeps_lines: Return every line with its new score.

    Raises:
        UsageError: A file, a line, an environment or an option is wrong, or a role has no model.
    """
    environments = recorded_environments(Path(run), env)
    for name, options in (env_args or {}).items():
        if name not in environments or not isinstance(options, Mapping):
            names = ", ".join(environments)
            raise UsageError(
                f"env_args={env_args}: options stand below the name of their environment ({names})"
            )
    batches = rescore_run(
        Path(run),
        environments,
        env=env,
        env_args=env_args or {},
        row_fields=row_fields or {},
        judges=Judges(
            roles or {}, role_params or {}, named_roles=(*(roles or ()), *(role_params or ()))
        ),
        keeps_lines=keeps_lines,
    )
    return (result for batch in iterate_async(batches) for result in batch)


def recorded_environments(run: Path, env: str | None) -> dict[str, Registration]:
    """Return the environments that a run or a file names, by name."""
    manifest = read_manifest(run) if run.is_dir() else None
    if manifest is not None:
        names = set(manifest.environments)
    else:
        file = rollouts_file(run)
        names = environment_names(file, RolloutReading(str(file), env))
    registry = Registry((env,) if env else ())
    if env is not None and env.isidentifier() and env not in names:
        registry.find(env)  # a misspelt name would have no effect
    environments = (find_recorded(registry, name, run, manifest) for name in sorted(names))
    registrations = map(_with_stateless_server, environments)
    return {registration.name: registration for registration in registrations}


def _with_stateless_server(registration: Registration) -> Registration:
    """Return the environment, rescorable if its server reports that verifying needs no session."""
    environment = registration.environment
    if not (issubclass(environment, RemoteEnvironment) and environment.base_url):
        return registration
    with LoopRunner() as loop:
        if loop.run(reverify_mode(environment.base_url)) != "stateless":
            return registration
    again = remote_environment(registration.name, environment.base_url, rescore="verify")
    return registration._replace(environment=again)


def rescore_run(
    run: Path,
    environments: Mapping[str, Registration],
    *,
    env: str | None,
    env_args: Mapping[str, Mapping[str, str]],
    row_fields: Mapping[str, JSONObject],
    judges: Judges,
    keeps_lines: bool,
    out: Path | None = None,
    warn: Callable[[str], None] = _LOGGER.warning,
    engine: Engine | None = None,
    repeat: int = 0,
) -> AsyncGenerator[list[Rescored]]:
    """Rescore every line of a run or a file whose environments are known; yield the results.

    Lines whose verifiers run in workers come first. New verdicts are stored in the run, if it is
    writable, and in `out`; `warn` is called if they are not. An `engine`, if any, scores the lines
    whose verifiers await nothing. In a `repeat` (1 or higher), judges are asked again although
    their answers are known, and nothing is stored.

    Raises:
        UsageError: There is no file, or no environment has a role that options name.
    """
    path = rollouts_file(run)
    reading = RolloutReading(str(path), env, row_fields)
    check_declared(
        judges.sources,
        judges.named_roles,
        {name: registration.environment for name, registration in environments.items()},
    )
    specs = (env,) if env is not None else ()
    registry = Registry(specs)

    def find(name: str) -> Registration:
        return environments.get(name) or find_recorded(registry, name, run)

    # The class of an environment that the manifest does not list is looked up per line.
    waiting = {name: _waits(registration, judges) for name, registration in environments.items()}

    def lines(*, waits: bool) -> Iterator[Line]:
        for line in rollout_lines(path):
            name = line_environment(line, reading)
            if name not in waiting:
                waiting[name] = _waits(find(name), judges)
            if waiting[name] == waits:
                yield line

    job = RescoreJob(reading, specs, env_args, keeps_lines, frozenset(environments), repeat)
    is_mixed = not all(waiting.values())
    directory = run if run.is_dir() else None

    # New processes: forks of an earlier repeat's server would have its hash seed.
    if repeat:
        forget_fork_servers()
    sources = []
    judged = LoopJob(reading, find, env_args, keeps_lines, judges.concurrency)
    if engine is not None and is_mixed:
        alone = judged._replace(asks_nobody=True)
        opened = functools.partial(_opened, judges, None, None, warn, repeat)
        sources.append(rescore_in_loop(lambda: lines(waits=False), alone, opened, engine.run))
    elif not any(waiting.values()):
        sources.append(_in_workers(rollout_lines(path), path, job, judges))
    elif is_mixed:
        sources.append(_in_workers(lines(waits=False), None, job, judges))
    if any(waiting.values()):
        opened = functools.partial(_opened, judges, directory, out, warn, repeat)
        read = (lambda: lines(waits=True)) if is_mixed else (lambda: rollout_lines(path))
        sources.append(rescore_in_loop(read, judged, opened))
    return _in_turn(sources)


async def _in_turn(
    sources: Sequence[AsyncGenerator[list[Rescored]]],
) -> AsyncGenerator[list[Rescored]]:
    for source in sources:
        # Closed here, not whenever the garbage collector finds it: its workers must end now.
        async with aclosing(source):
            async for batch in source:
                yield batch


async def _in_workers(
    lines: Iterator[Line], file: Path | None, job: RescoreJob, judges: Judges
) -> AsyncGenerator[list[Rescored]]:
    """Rescore lines in workers, which read the file themselves if it holds only these lines."""
    async with Workers(scrubber=judges.scrubber()) as workers:
        if file is not None and is_plain(file):
            batches = rescore_file(file, job, workers)
        else:
            batches = rescore_lines(lines, job, workers)
        async with aclosing(batches):
            async for batch in batches:
                yield batch


@asynccontextmanager
async def _opened(
    judges: Judges, run: Path | None, out: Path | None, warn: Callable[[str], None], repeat: int
) -> AsyncIterator[Shared]:
    if repeat:
        async with open_shared(judges, Verdicts(), ignores_verdicts=True) as shared:
            shared.workers.calls_before = calls_before(repeat)
            yield shared
        return
    with rescoring_verdicts(run, out, warn, judges.scrubber()) as verdicts:
        async with open_shared(judges, verdicts) as shared:
            yield shared


def _waits(registration: Registration, judges: Judges) -> bool:
    """Return whether lines are scored in this process; workers do not know a server's class."""
    environment = registration.environment
    return (
        environment.waits_to_verify
        or environment.scores_groups()
        or issubclass(environment, RemoteEnvironment)
        or any(role in judges.sources for role in declared_roles(environment))
        or (environment.rescore != "recorded" and verifies_in_loop(environment, {}))
    )


def iterate_async(items: AsyncGenerator[T]) -> Iterator[T]:
    """Yield the items of an async generator, driven by a new event loop."""

    async def next_item() -> T | None:
        return await anext(items, None)

    with LoopRunner() as loop:
        try:
            while (item := loop.run(next_item())) is not None:
                yield item
        finally:
            # Also if the caller stops reading: the workers must end before their loop.
            loop.run(items.aclose())
