"""Reads the lines of a run's files and NeMo Gym's rollouts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from sys import intern
from typing import Annotated, NamedTuple, TypeAlias, TypeVar

import msgspec

from gymcli.errors import RunFileError, UsageError
from gymcli.nemo_gym.rows import agent_name, is_nemo_rollout, own_task_id, read_rollout
from gymcli.secrets import Scrubber
from gymcli.store.durability import unfinished_end
from gymcli.store.lines import Line, decode_block, is_plain, iterate_blocks, iterate_lines
from gymcli.types import JSON_ERRORS, Failure, JSONObject, RecordHead, Rollout, Verifier

ROLLOUTS = "rollouts.jsonl"
FAILURES = "failures.jsonl"
GENERATIONS = "generations.jsonl"
VERDICTS = "verdicts.jsonl"
TOKENS = "tokens.jsonl"
METRICS_FILE = "metrics.json"

WAYS_OUT = {
    ROLLOUTS: "delete the line: its attempt is collected again",
    FAILURES: "delete the line: it only records why an attempt failed",
    GENERATIONS: "delete the line: its attempt is collected again",
    VERDICTS: "delete the line: the judge is asked again",
    TOKENS: 'delete the line, and the key "play" of its attempt in rollouts.jsonl',
}
"""What to do about a damaged line, by file name."""

T = TypeVar("T")
Record = TypeVar("Record", Rollout, Failure)


def redacted(record: Record, scrubber: Scrubber) -> Record:
    """Return a record without keys in use, marked as redacted; the same object if it held none."""
    line = msgspec.json.encode(record)
    clean = scrubber.line(line)
    if clean is line:
        return record
    clean_record = msgspec.json.decode(clean, type=type(record))
    clean_record.redacted = True
    return clean_record


def read_structs(path: Path, decoder: msgspec.json.Decoder[T]) -> Iterator[T]:
    """Decode the lines of a run's file except a torn last line; RunFileError for a damaged line."""
    for _, struct in lines_with_structs(path, decoder):
        yield struct


def lines_with_structs(
    path: Path, decoder: msgspec.json.Decoder[T], lines: Iterable[Line] | None = None
) -> Iterator[tuple[Line, T]]:
    """Yield lines with their decoded structs, as `read_structs` does; default: the whole file."""
    for line in iterate_lines(path) if lines is None else lines:
        try:
            yield line, decoder.decode(line.data)
        except JSON_ERRORS as error:
            if not line.is_complete:  # its writer died, or is still writing it
                return
            remedy = WAYS_OUT.get(path.name, "delete the line")
            raise RunFileError(f"{path}:{line.number}: is damaged: {error}; {remedy}") from error


MAX_ATTEMPT = 1_000_000
"""A larger number is a damaged one; each attempt takes one bit of memory."""


class _ScoredAttempt(RecordHead, kw_only=True):
    """The fields of a rollout that resuming needs."""

    attempt: Annotated[int, msgspec.Meta(ge=0, le=MAX_ATTEMPT)] = 0
    group_size: Annotated[int, msgspec.Meta(ge=0, le=MAX_ATTEMPT)] = 0
    verifier: Verifier = msgspec.field(default_factory=Verifier)


class Done(NamedTuple):
    """The scored attempts of one task."""

    task_hash: str
    attempts: int
    """A bit mask of the scored attempts."""
    group_size: int = 0
    """Attempts that were scored together; 0 if each was scored separately."""

    def has(self, attempt: int) -> bool:
        return bool(self.attempts >> attempt & 1)

    @property
    def is_torn(self) -> bool:
        """Whether some attempts of a group that is scored together are missing."""
        return self.attempts.bit_count() < self.group_size


DoneTasks: TypeAlias = dict[tuple[str, str], Done]
"""The scored attempts by environment and task id: about 350 bytes a task."""


def read_done(path: Path, num_scored: Counter[tuple[str, str]] | None = None) -> DoneTasks:
    """Read which attempts are scored; none if the file does not exist.

    `num_scored` counts them by environment and source hash.
    """
    done: DoneTasks = {}
    if not path.is_file():
        return done
    for line, scored in lines_with_structs(path, msgspec.json.Decoder(_ScoredAttempt)):
        task = intern(scored.env), scored.task_id  # one string for all tasks of an environment
        before = done.get(task, Done(scored.task_hash, 0, scored.group_size))
        if before.has(scored.attempt):
            raise RunFileError(
                f"{path}:{line.number}: attempt {scored.attempt} of task {scored.task_id} "
                f"({scored.env}) appears twice; delete one of the lines"
            )
        if num_scored is not None:
            num_scored[task[0], scored.verifier.source_hash] += 1
        done[task] = before._replace(attempts=before.attempts | 1 << scored.attempt)
    return done


class _Head(msgspec.Struct):
    schema_version: int = 0


class _Named(_Head):
    env: str = ""


_DECODER = msgspec.json.Decoder(Rollout)
_HEAD_DECODER = msgspec.json.Decoder(_Head)
_NAMED_DECODER = msgspec.json.Decoder(_Named)


class RolloutReading(NamedTuple):
    """How to read the lines of a rollout file."""

    path: str
    """For messages."""
    default_env: str | None = None
    """The environment of lines that do not name one."""
    row_fields: Mapping[str, JSONObject] = {}
    """Fields of task rows by task id and by row index, for rollouts that lack them."""


def rollouts_file(path: Path) -> Path:
    """Return the rollout file of a run directory, or the file itself; UsageError if neither."""
    if path.is_dir():
        file = path / ROLLOUTS
        if not file.is_file():
            expected = "expected a run directory or rollout file"
            if any(path.glob("*/run.json")):
                expected = f"gym runs {path} lists the runs in it"
            raise UsageError(f"{path}: holds no {ROLLOUTS}; {expected}")
        return file
    if not path.exists():
        raise UsageError(f"{path}: no such run directory or rollout file")
    return path


def rollout_lines(path: Path) -> Iterator[Line]:
    return without_torn(iterate_lines(path))


def without_torn(lines: Iterable[Line]) -> Iterator[Line]:
    """Skip a last line that its writer did not finish."""
    return (line for line in lines if line.is_complete or is_json(line.data))


def torn_line_warning(run: Path) -> str | None:
    """Return the warning that a torn last line is left out; None if no line is torn."""
    path = run / ROLLOUTS if run.is_dir() else run
    if not is_plain(path) or not unfinished_end(path):
        return None
    return f"{path}: the last line was not finished when its writer stopped; left out"


def is_json(data: bytes) -> bool:
    try:
        msgspec.json.decode(data)
    except JSON_ERRORS:
        return False
    return True


def decode_rollout(number: int, data: bytes, reading: RolloutReading) -> Rollout:
    """Decode one line of gymcli or NeMo Gym; RunFileError if it is not a rollout."""
    try:
        rollout = _gymcli_rollout(data)
        if rollout is None:
            rollout = _nemo_gym_rollout(msgspec.json.decode(data), reading)
    except (*JSON_ERRORS, ValueError) as error:
        text = f"{reading.path}:{number}: is not a rollout: {error}"
        # Only a run's own file is completed when the command is repeated.
        if isinstance(error, JSON_ERRORS) and Path(reading.path).name == ROLLOUTS:
            text += f"; {WAYS_OUT[ROLLOUTS]}"
        raise RunFileError(text) from error
    return rollout


def _gymcli_rollout(data: bytes) -> Rollout | None:
    """Decode a line that gymcli wrote; None for any other line."""
    try:
        rollout = _DECODER.decode(data)
    except msgspec.ValidationError:
        # A foreign row may have fields with our names and other types.
        if _HEAD_DECODER.decode(data).schema_version:
            raise
        return None
    if not rollout.schema_version:
        return None
    if not (rollout.env and rollout.task_id) or rollout.attempt < 0:
        raise ValueError('"env", "task_id" or "attempt" is missing')
    return rollout


def _nemo_gym_rollout(line: object, reading: RolloutReading) -> Rollout:
    if not isinstance(line, dict) or not is_nemo_rollout(line):
        raise ValueError('has neither "schema_version" (gymcli) nor "response" (NeMo Gym)')
    agent = line.get("agent_ref")
    env = reading.default_env if agent is None else agent_name(agent) or reading.default_env
    if env is None:
        raise ValueError("the line names no environment; use --env NAME")
    own_id = own_task_id(line)
    row = None if own_id is None else reading.row_fields.get(own_id)
    if row is None:  # rows without an id are found by NeMo Gym's index
        row = reading.row_fields.get(f"#{line.get('_ng_task_index')}")
    return read_rollout(line, env=env, row_fields=row)


def environment_names(path: Path, reading: RolloutReading) -> set[str]:
    names: set[str] = set()
    for block in iterate_blocks(path):
        heads = decode_block(block, _NAMED_DECODER)
        # A line of another program names its environment in another field.
        if heads is None or not all(head.schema_version and head.env for head in heads):
            lines = without_torn(block.lines(path))
            names.update(line_environment(line, reading) for line in lines)
        else:
            names.update(head.env for head in heads)
    return names


def line_environment(line: Line, reading: RolloutReading) -> str:
    """Return the environment of a line; for gymcli's own lines only the name is decoded."""
    try:
        head = _NAMED_DECODER.decode(line.data)
    except JSON_ERRORS:
        head = _Named()
    if head.schema_version and head.env:
        return head.env
    return decode_rollout(line.number, line.data, reading).env


def find_record(run: Path, task: str, *, env: str | None = None) -> Rollout | Failure | None:
    """Find the rollout of `TASK` or `TASK/ATTEMPT`, else its last failure, in a run or a file.

    `TASK` means its lowest scored attempt.
    """
    failures = run / FAILURES
    has_failures = run.is_dir() and failures.is_file()
    if (run / ROLLOUTS).is_file() or not has_failures:
        best: Rollout | None = None
        reading = RolloutReading(str(run), env)
        for line in rollout_lines(rollouts_file(run)):
            rollout = decode_rollout(line.number, line.data, reading)
            if env is not None and rollout.env != env:
                continue
            if f"{rollout.task_id}/{rollout.attempt}" == task:
                return rollout
            if rollout.task_id == task and (best is None or rollout.attempt < best.attempt):
                best = rollout
        if best is not None or not has_failures:
            return best
    last = None
    for failure in read_structs(failures, msgspec.json.Decoder(Failure)):
        names = (failure.task_id, f"{failure.task_id}/{failure.attempt}")
        if task in names and env in (None, failure.env):
            last = failure  # an earlier one was retried
    return last
