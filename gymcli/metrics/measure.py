"""The numbers and the index of a run directory or a rollout file, read line by line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import combinations
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

import msgspec

from gymcli.errors import EnvironmentImportError, RunFileError, UnknownNameError
from gymcli.metrics.aggregate import Aggregator
from gymcli.metrics.results import TokenNumbers
from gymcli.metrics.slicing import field_of
from gymcli.store.lines import Block, decode_block, iterate_blocks
from gymcli.store.manifest import EnvironmentRecord, Manifest, read_manifest
from gymcli.store.rollout_files import (
    FAILURES,
    ROLLOUTS,
    RolloutReading,
    decode_rollout,
    environment_names,
    read_structs,
    rollouts_file,
    without_torn,
)
from gymcli.store.scored_lines import (
    LAST_ATTEMPT,
    EnvironmentFacts,
    FailureLine,
    OwnMetrics,
    ScoredDetails,
    ScoredLine,
)
from gymcli.store.sequences import TokenSequence, sequences
from gymcli.store.tokens import TokenCall, TokenFile, tokens_file
from gymcli.types import (
    JSON_ERRORS,
    LARGEST,
    AttemptKey,
    ErrorRecord,
    Rollout,
    Verifier,
    is_other_source,
)

if TYPE_CHECKING:
    from gymcli.environment.contract import Environment
    from gymcli.environment.registry import Registration, Registry
    from gymcli.environment.tool import Task
    from gymcli.store.run_index import RunIndex

_BLOCK_BYTES = 1 << 20
"""Bytes read at a time: some hundred lines, which are counted together."""
_source = attrgetter("env", "verifier.version", "verifier.source_hash")


_NOTHING = msgspec.Raw(b"")
_SCORING_ROLES = frozenset({"judge", "reward"})
"""Roles that do not influence the prompt."""
L = TypeVar("L", bound=ScoredLine)
K = TypeVar("K", bound=ScoredLine | FailureLine)


# `gc=False`: these objects form no cycles, and a run has too many of them to track.
class _Line(ScoredLine, gc=False):
    """A scored line of gymcli; lines of other programs lack the version, so decoding fails."""

    schema_version: Annotated[int, msgspec.Meta(ge=1)]
    verifier: Verifier = msgspec.field(default_factory=Verifier)


class _TaskLine(_Line, gc=False):
    """A scored line with its raw task row, which is valid until the next block is read."""

    task: dict[str, msgspec.Raw] = {}


class RunReading(NamedTuple):
    """The facts about a run that are needed before its lines are read."""

    manifest: Manifest | None
    """None for a bare file."""
    facts: dict[str, EnvironmentFacts]
    rollouts: Path | None
    """Its file; None if nothing is scored yet."""
    failures: Path | None
    reading: RolloutReading
    """How the lines are decoded."""
    registrations: dict[str, Registration]
    """For a bare file, the installed environments that its lines name."""

    @property
    def names(self) -> dict[str, str]:
        """Maps names of environments in the lines to their names here, where they differ."""
        names = {name: registration.name for name, registration in self.registrations.items()}
        return {name: local_name for name, local_name in names.items() if name != local_name}

    def facts_expecting(
        self, attempts: frozenset[AttemptKey] | None
    ) -> dict[str, EnvironmentFacts]:
        """Return the facts if only these attempts are expected; None: those of the run."""
        if attempts is None:
            return self.facts
        num_expected = Counter(key.env for key in attempts)
        return {
            name: msgspec.structs.replace(self.facts[name], num_expected=num)
            for name, num in num_expected.items()
        }


def open_run(path: Path, *, env: str | None = None) -> RunReading:
    """Inspect a run directory, or a rollout file of gymcli or NeMo Gym.

    For a bare file, expected counts and failures are unknown; `env` is the environment of lines
    that name none.

    Raises:
        UsageError: The path is wrong, or a line of a bare file is.
    """
    manifest = read_manifest(path) if path.is_dir() else None
    failures = path / FAILURES if (path / FAILURES).is_file() else None
    has_scored = path.is_file() or (path / ROLLOUTS).is_file()
    is_known = manifest is not None or failures is not None
    # A run may have only failures so far. Without a run there, `rollouts_file` raises the error.
    file = rollouts_file(path) if has_scored or not is_known else None
    reading = RolloutReading(str(file), env)
    registrations: dict[str, Registration] = {}
    if file is not None and manifest is None:
        registry = _registry_with(env)
        for name in environment_names(file, reading):
            # The facts of an environment that is not installed stay unknown.
            with suppress(UnknownNameError, EnvironmentImportError):
                registrations[name] = registry.find(name)
    if manifest is not None:
        recorded = manifest.environments.items()
        facts = {name: facts_of(record, record.num_expected) for name, record in recorded}
    else:
        facts = {
            registration.name: facts_of(registration.environment)
            for registration in registrations.values()
        }
    return RunReading(manifest, facts, file, failures, reading, registrations)


def measure(
    path: Path,
    *,
    env: str | None = None,
    by: Sequence[str] = (),
    fields: Sequence[str] = (),
    attempts: frozenset[AttemptKey] | None = None,
) -> Aggregator:
    """Compute the numbers of a run directory, or of a rollout file of gymcli or NeMo Gym.

    `env` is the environment of lines that name none, or the code of one with its own metrics; `by`
    are fields of the task rows to slice the numbers by, `fields` those that `Aggregator.groups`
    yields too. With `attempts` of a run directory, only these are expected and counted.

    Raises:
        UsageError: The path or one of its lines is wrong, or a field has too many values.
    """
    run = open_run(path, env=env)
    own_metrics, warnings = _own_metrics(run)
    facts = run.facts_expecting(attempts)
    aggregator = Aggregator(facts, own_metrics=own_metrics, by=by, fields=fields)
    aggregator.warnings += warnings
    if run.rollouts is not None:
        plays: list[tuple[AttemptKey, str]] | None = [] if tokens_file(path).is_file() else None
        sources = _add_lines(aggregator, run.rollouts, run, attempts, plays)
        aggregator.warnings += _mixed_sources(sources, path)
        if plays is not None:  # opened after the rollouts were read, whose ids precede them
            with TokenFile(path) as file:
                for key, play in plays:
                    rollout = Rollout(**msgspec.structs.asdict(key), play=play, reward=0.0)
                    calls = file.calls(rollout)
                    numbers = aggregator.tokens.setdefault(key.env, TokenNumbers())
                    numbers.add(_token_numbers(calls, sequences(rollout, calls)))
    if run.failures is not None:
        failures = read_structs(run.failures, msgspec.json.Decoder(FailureLine))
        for failure in selected(failures, attempts):
            aggregator.add_failure(failure)
    return aggregator


def _token_numbers(
    calls: Sequence[TokenCall], token_sequences: Sequence[TokenSequence]
) -> TokenNumbers:
    """Return the numbers of one attempt from its calls and sequences."""
    off_policy = next(
        (sequence.off_policy for sequence in token_sequences if sequence.off_policy), ""
    )
    num_sampled = sum(len(call.sampled) for call in calls if not call.problem)
    return TokenNumbers(
        num_attempts=1,
        num_in_one_sequence=len(token_sequences) == 1,
        num_forked=len(token_sequences) > 1,
        num_without_ids=not token_sequences,
        off_policy={off_policy: 1} if off_policy else {},
        problems=dict(Counter(call.kind_of_problem for call in calls if call.problem)),
        num_sampled=num_sampled,
        num_masked=num_sampled - sum(sum(sequence.loss_mask) for sequence in token_sequences),
    )


def selected(lines: Iterable[K], attempts: frozenset[AttemptKey] | None) -> Iterable[K]:
    """Return the lines of these attempts; None: all lines."""
    if attempts is None:
        return lines
    return (line for line in lines if _key_of(line) in attempts)


def _key_of(line: ScoredLine | FailureLine) -> AttemptKey:
    return AttemptKey(line.env, line.task_id, line.attempt)


def _add_lines(
    aggregator: Aggregator,
    file: Path,
    run: RunReading,
    attempts: frozenset[AttemptKey] | None,
    plays: list[tuple[AttemptKey, str]] | None,
) -> Counter[tuple[str, str, str]]:
    """Add a rollout file, or some of its attempts; return the number of lines by their source.

    A source is an environment, its version and its source hash. `plays` receives the attempts with
    the plays that count.
    """
    sources: Counter[tuple[str, str, str]] = Counter()
    fields, names = aggregator.fields, run.names
    decoder: msgspec.json.Decoder[_Line]
    decoder = msgspec.json.Decoder(_TaskLine if fields else _Line)
    for block in iterate_blocks(file, size=_BLOCK_BYTES):
        scored: list[ScoredLine] = []
        rows: list[Mapping[str, object]] = []
        # One call decodes all lines of a block; only if it fails are they decoded one by one.
        decoded = decode_block(block, decoder)
        if decoded is not None:
            if attempts is not None:
                decoded = list(selected(decoded, attempts))
            scored += decoded
            sources.update(map(_source, decoded))
            rows = [line.task for line in decoded if isinstance(line, _TaskLine)]
        else:
            for record, place in _one_by_one(block, file, run.reading, decoder):
                line: ScoredLine | FailureLine
                row: Mapping[str, object] = {}
                if isinstance(record, Rollout):
                    line, row = _measured(record, place), record.task
                else:
                    line = record
                    sources[_source(record)] += 1
                    if isinstance(record, _TaskLine):
                        row = record.task
                if attempts is not None and _key_of(line) not in attempts:
                    continue
                if isinstance(line, ScoredLine):
                    scored.append(line)
                    rows += [row] if fields else []
                else:
                    line.env = names.get(line.env, line.env)
                    values = [field_of(row, field) for field in fields]
                    aggregator.add_failure(line, values if fields else None)
        if names:
            for scored_line in scored:
                scored_line.env = names.get(scored_line.env, scored_line.env)
        if plays is not None:
            plays += [(_key_of(scored_line), scored_line.play) for scored_line in scored]
        values_of_rows = [[field_of(row, field) for field in fields] for row in rows]
        aggregator.add_scored_lines(scored, values_of_rows)
    return sources


def _mixed_sources(sources: Counter[tuple[str, str, str]], path: Path) -> Iterator[str]:
    by_version: dict[tuple[str, str], dict[str, int]] = {}
    for (env, version, source_hash), count in sources.items():
        by_version.setdefault((env, version), {})[source_hash] = count
    for (env, version), counts in by_version.items():
        if any(is_other_source(first, second) for first, second in combinations(counts, 2)):
            counted = ", ".join(f"{n} scored by {source or '?'}" for source, n in counts.items())
            yield (
                f"environment {env}: its code changed during this run, but its version is still "
                f"{version}: {counted}. gym verify {path} --out DIR scores all by the current code"
            )


def _one_by_one(
    block: Block, file: Path, reading: RolloutReading, decoder: msgspec.json.Decoder[L]
) -> Iterator[tuple[L | Rollout, str]]:
    """Yield lines of a block that could not be decoded together, with their place."""
    for line in without_torn(block.lines(file)):
        place = f"{file}:{line.number}"
        try:
            yield decoder.decode(line.data), place
        except JSON_ERRORS:
            yield decode_rollout(line.number, line.data, reading), place


def _measured(rollout: Rollout, place: str) -> ScoredLine | FailureLine:
    """Return the numbers of a foreign rollout, or its failure if its verifier failed."""
    env, task_id, attempt = rollout.env, rollout.task_id, rollout.attempt
    reason = rollout.details.get("reason")
    if rollout.reward is None and isinstance(reason, str):
        error = ErrorRecord(error_class=reason, phase="verify")
        return FailureLine(env=env, task_id=task_id, attempt=attempt, error=error)
    if rollout.reward is None:
        raise RunFileError(f"{place}: the rollout has no reward")
    if not 0 <= attempt <= LAST_ATTEMPT:
        raise RunFileError(f"{place}: there is no attempt {attempt}")
    named = {**rollout.components, **rollout.metrics}
    for name, number in {**named, "reward": rollout.reward, "cost": rollout.cost or 0.0}.items():
        if abs(number) > LARGEST:
            text = f"{number:g}; numbers beyond {LARGEST:g} cannot be averaged"
            raise RunFileError(f"{place}: {' '.join(name.split())} is {text}; take the line out")
    return ScoredLine(
        env=env,
        task_id=task_id,
        attempt=attempt,
        reward=rollout.reward,
        components=rollout.components,
        answer=rollout.answer,
        details=ScoredDetails(reason),
        stop_reason=rollout.stop_reason or "done",
        usage=rollout.usage,
    )


class ComparedLine(ScoredLine, kw_only=True, gc=False):
    """A scored line with its provenance; rarely used fields stay undecoded."""

    schema_version: Annotated[int, msgspec.Meta(ge=1)]
    task_hash: str = ""
    """Empty for rollouts of other programs, which do not mark the fields of the task."""
    seed: int = 0
    group_size: int = 0
    env_version: str = ""
    env_options: msgspec.Raw = _NOTHING
    task: msgspec.Raw = _NOTHING
    messages: list[msgspec.Raw] = []
    num_prompt_messages: int = 0
    tools: msgspec.Raw = _NOTHING
    model: str = ""
    sampling: msgspec.Raw = _NOTHING
    verifier: Verifier = msgspec.field(default_factory=Verifier)

    @property
    def prompt_hash(self) -> int:
        """A hash of prompt and tools, for this process; 0 if a model influenced the prompt."""
        # A simulated user may have written a part of it, differently in each run.
        if self.role_usage and not _SCORING_ROLES.issuperset(self.role_usage):
            return 0
        prompt = [*map(bytes, self.messages[: self.num_prompt_messages]), bytes(self.tools)]
        # Not 0, which stands for an unknown prompt.
        return hash(tuple(prompt)) or 1


def read_compared_lines(
    file: Path, reading: RolloutReading
) -> Iterator[list[ComparedLine | FailureLine]]:
    """Yield the lines of a rollout file, some hundred at a time; use each list before the next."""
    decoder = msgspec.json.Decoder(ComparedLine)
    for block in iterate_blocks(file, size=_BLOCK_BYTES):
        decoded = decode_block(block, decoder)
        if decoded is not None:
            yield list(decoded)
            continue
        yield [
            _of_others(record, place) if isinstance(record, Rollout) else record
            for record, place in _one_by_one(block, file, reading, decoder)
        ]


def _of_others(rollout: Rollout, place: str) -> ComparedLine | FailureLine:
    line = _measured(rollout, place)
    if isinstance(line, FailureLine):
        return line
    return ComparedLine(
        **msgspec.structs.asdict(line),
        schema_version=rollout.schema_version,
        task=_raw(rollout.task),
        messages=[_raw(message) for message in rollout.messages],
        num_prompt_messages=rollout.num_prompt_messages,
        tools=_raw(rollout.tools),
        model=rollout.model,
        sampling=_raw(rollout.sampling),
    )


def _raw(value: object) -> msgspec.Raw:
    """Encode a value as a run's line would; empty values are omitted there."""
    return msgspec.Raw(msgspec.json.encode(value)) if value else _NOTHING


def facts_of(
    record: EnvironmentRecord | type[Environment[Task]], num_expected: int | None = None
) -> EnvironmentFacts:
    """Return what a manifest or a class says about an environment's rewards."""
    return EnvironmentFacts(
        max_reward=record.max_reward,
        pass_threshold=record.pass_threshold,
        can_be_negative=record.max_reward is None,
        num_expected=num_expected,
    )


def _own_metrics(run: RunReading) -> tuple[dict[str, OwnMetrics], list[str]]:
    """Return the metrics functions of environments, and why some are left out.

    For a run directory, environments are imported only if the manifest says that they have metrics
    of their own, or if `--env` names one: an import takes longer than measuring a small run.
    """
    registrations = list(run.registrations.values())
    warnings = []
    recorded = run.manifest.environments if run.manifest is not None else {}
    named_env = run.reading.default_env
    is_given = named_env is not None and bool(recorded)
    if is_given or any(record.computes_metrics for record in recorded.values()):
        registry = _registry_with(named_env)
        for name, record in recorded.items():
            try:
                registrations.append(registry.find(name))
            except (UnknownNameError, EnvironmentImportError) as error:
                if record.computes_metrics:
                    text = f"{error}; if it is your own code, set --env FILE.py:CLASS"
                    warnings.append(f"the metrics of environment {name} are left out: {text}")
    own_metrics = {
        registration.name: OwnMetrics(
            registration.environment.metrics, registration.environment.slice_fields
        )
        for registration in registrations
        if registration.environment.computes_metrics()
    }
    return own_metrics, warnings


def _registry_with(env: str | None) -> Registry:
    from gymcli.environment.registry import Registry  # late: heavy

    registry = Registry((env,) if env else ())
    if env is not None:
        registry.find(env)
    return registry


def index_run(path: Path, *, env: str | None = None) -> RunIndex:
    """Return the index of a run directory or rollout file; the caller closes it.

    The pass threshold comes from the run's manifest, else from the environment; it is unknown for
    an environment that is not installed. `env` is the environment of lines that name none.

    Raises:
        UsageError: There is no such run, it is compressed, or a line of it is wrong.
    """
    from gymcli.environment.registry import Registry  # late: heavy
    from gymcli.store.run_index import RunIndex  # late: no collection needs it

    registry = Registry((env,) if env else ())

    def find(name: str) -> tuple[str, EnvironmentFacts]:
        try:
            registration = registry.find(name)
        except (UnknownNameError, EnvironmentImportError):
            if name == env:
                raise
            return name, EnvironmentFacts()
        return registration.name, facts_of(registration.environment)

    return RunIndex(path, env, facts_of=find)
