"""The numbers of a run directory or a rollout file, read line by line."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from gymcli.errors import EnvironmentImportError, RunFileError, UnknownNameError
from gymcli.metrics import Aggregator, EnvironmentFacts, FailureLine, ScoredLine
from gymcli.registry import Found, Registry
from gymcli.store.blocks import Block, decode_block, iterate_blocks
from gymcli.store.manifest import EnvironmentRecord, read_manifest
from gymcli.store.rollouts import (
    RolloutReading,
    decode_rollout,
    environment_names,
    rollouts_file,
    without_torn,
)
from gymcli.store.run import FAILURES, ROLLOUTS, read_structs
from gymcli.types import JSON_ERRORS, ErrorRecord, Rollout

__all__ = ["measure"]


_LINES_AT_A_TIME = 512
"""Lines that are counted together; each as an object takes about 500 bytes until then."""


_schema_version = operator.attrgetter("schema_version")


class _Line(ScoredLine, gc=False):
    """A scored line that also tells ours from those of other programs."""

    schema_version: int = 0


def measure(path: Path, *, env: str | None = None) -> Aggregator:
    """Read a run directory, or a rollout file of ours or of NeMo Gym.

    Args:
        path: The directory, or a bare file, of which expected counts and failures are unknown.
        env: The environment of lines that name none.

    Raises:
        UsageError: The path or one of its lines is wrong.

    """
    manifest = read_manifest(path) if path.is_dir() else None
    failures = path / FAILURES
    has_scored = path.is_file() or (path / ROLLOUTS).is_file()
    if not has_scored and (manifest is not None or failures.is_file()):
        file = None  # a run of which nothing is scored yet
    else:
        file = rollouts_file(path)
    reading = RolloutReading(str(file), env)
    known = {} if file is None or manifest is not None else _looked_up(file, reading)
    if manifest is not None:
        facts = {name: _recorded(record) for name, record in manifest.environments.items()}
    else:
        facts = {found.name: _told(found) for found in known.values()}
    aggregator = Aggregator(facts)
    if file is not None:
        _add_lines(aggregator, file, reading, known)
    if path.is_dir() and failures.is_file():
        for failure in read_structs(failures, msgspec.json.Decoder(FailureLine)):
            aggregator.add_failure(failure)
    return aggregator


def _add_lines(
    aggregator: Aggregator, file: Path, reading: RolloutReading, known: Mapping[str, Found]
) -> None:
    """Add what a rollout file says; of lines of ours only what is counted is decoded."""
    decoder = msgspec.json.Decoder(_Line)
    renamed = {name: found.name for name, found in known.items() if name != found.name}
    waiting: list[ScoredLine] = []
    for block in iterate_blocks(file):
        scored = decode_block(block, decoder)
        if scored is not None and all(map(_schema_version, scored)):
            waiting += scored
        else:
            for line in _one_by_one(block, file, reading, decoder):
                if isinstance(line, ScoredLine):
                    waiting.append(line)
                else:
                    line.env = renamed.get(line.env, line.env)
                    aggregator.add_failure(line)
        if len(waiting) >= _LINES_AT_A_TIME:
            _add_scored(aggregator, waiting, renamed)
            waiting = []
    _add_scored(aggregator, waiting, renamed)


def _add_scored(
    aggregator: Aggregator, lines: list[ScoredLine], renamed: Mapping[str, str]
) -> None:
    if renamed:
        for line in lines:
            line.env = renamed.get(line.env, line.env)
    aggregator.add_scored_lines(lines)


def _one_by_one(
    block: Block, file: Path, reading: RolloutReading, decoder: msgspec.json.Decoder[_Line]
) -> Iterator[ScoredLine | FailureLine]:
    for line in without_torn(block.lines(file)):
        try:
            scored = decoder.decode(line.data)
        except JSON_ERRORS:
            scored = None
        if scored is not None and scored.schema_version:
            yield scored
            continue
        rollout = decode_rollout(line.number, line.data, reading)
        yield _measured(rollout, f"{file}:{line.number}")


def _measured(rollout: Rollout, place: str) -> ScoredLine | FailureLine:
    """Give the numbers of a rollout of others; where their verifier failed it counts as failed."""
    env, task_id, attempt = rollout.env, rollout.task_id, rollout.attempt
    reason = rollout.details.get("reason")
    if rollout.reward is None and isinstance(reason, str):
        error = ErrorRecord(error_class=reason, phase="verify")
        return FailureLine(env=env, task_id=task_id, attempt=attempt, error=error)
    if rollout.reward is None:
        raise RunFileError(f"{place}: the rollout has no reward")
    return ScoredLine(
        env=env,
        task_id=task_id,
        attempt=attempt,
        reward=rollout.reward,
        components=rollout.components,
        answer=rollout.answer,
        stop_reason=rollout.stop_reason or "done",
        usage=rollout.usage,
    )


def _recorded(record: EnvironmentRecord) -> EnvironmentFacts:
    return EnvironmentFacts(
        max_reward=record.max_reward,
        pass_threshold=record.pass_threshold,
        can_be_negative=record.max_reward is None,
        num_expected=record.num_expected,
    )


def _told(found: Found) -> EnvironmentFacts:
    environment = found.environment
    return EnvironmentFacts(
        max_reward=environment.max_reward,
        pass_threshold=environment.pass_threshold,
        can_be_negative=environment.max_reward is None,
    )


def _looked_up(file: Path, reading: RolloutReading) -> dict[str, Found]:
    """Find the environments that lines name; one that is not here leaves its facts unknown."""
    registry = Registry((reading.default_env,) if reading.default_env else ())
    if reading.default_env is not None:
        registry.find(reading.default_env)
    found = {}
    for name in environment_names(file, reading):
        try:
            found[name] = registry.find(name)
        except (UnknownNameError, EnvironmentImportError):
            continue
    return found
