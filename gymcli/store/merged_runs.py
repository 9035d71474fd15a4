"""Merges runs: compares and combines their manifests and reads their lines one run at a time."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Annotated, NamedTuple, TypeAlias, TypeVar

import msgspec

from gymcli.errors import RunFileError, RunMismatchError
from gymcli.nemo_gym.payload import object_in
from gymcli.store.durability import unfinished_end
from gymcli.store.locking import shared_run_lock
from gymcli.store.manifest import EnvironmentRecord, Manifest, differences
from gymcli.store.rollout_files import (
    FAILURES,
    GENERATIONS,
    ROLLOUTS,
    TOKENS,
    VERDICTS,
    lines_with_structs,
)
from gymcli.store.scored_lines import FailureLine, ScoredLine
from gymcli.store.shards import Shard
from gymcli.store.tokens import TokenPlay
from gymcli.types import JSONObject, RecordHead, is_other_source
from gymcli.version import __version__

T = TypeVar("T")

_FACTS = ("version", "options", "max_reward", "pass_threshold", "rescore")
"""The fields that decide how an environment plays and scores."""
_MAX_NAMED = 5


class RunRecord(NamedTuple):
    """A run and its manifest."""

    path: Path
    manifest: Manifest


class _ShardedRun(NamedTuple):
    """The shards of one set of tasks, by number; an unsharded run is the only shard of its set."""

    num_shards: int
    shards: dict[int, RunRecord]

    @property
    def first(self) -> RunRecord:
        return next(iter(self.shards.values()))

    def missing(self) -> list[str]:
        numbers = range(1, self.num_shards + 1)
        return [str(Shard(n, self.num_shards)) for n in numbers if n not in self.shards]


def check_mergeable(runs: Sequence[RunRecord]) -> None:
    """Refuse runs that cannot be parts of one run.

    Raises:
        RunMismatchError: Their settings or environments differ, a shard appears twice, or shards
            belong to different tasks. The message names the keys and the runs.
    """
    first_runs: dict[str, RunRecord] = {}
    for run in runs:
        if run.manifest.missing_shards and len(runs) > 1:
            named = named_shards(run.manifest.missing_shards)
            raise RunMismatchError(
                f"{run.path}: was merged without shard {named} and still expects its attempts; "
                "merge all shards together, or collect the missing attempts into it with gym "
                "collect, without --shard"
            )
        _check_same(runs[0], run, _settings(runs[0].manifest), _settings(run.manifest))
        for name, record in run.manifest.environments.items():
            first = first_runs.setdefault(name, run)
            facts = _facts(name, first.manifest.environments[name])
            _check_same(first, run, facts, _facts(name, record))
    sharded_runs = [sharded for sharded in _sharded_runs(runs) if sharded.num_shards > 1]
    for sharded in sharded_runs:
        first = sharded.first
        for run in sharded.shards.values():
            if texts := differences(_num_expected(first.manifest), _num_expected(run.manifest)):
                raise RunMismatchError(
                    f"{run.path}: selects other attempts than {first.path}: "
                    f"{'; '.join(texts)} expected over all shards. Run both with the same "
                    "--limit, --task and --repeats"
                )
        if len(sharded_runs) > 1 and sharded.missing():
            other = next(other for other in sharded_runs if other is not sharded).first
            raise RunMismatchError(
                f"{first.path}: is shard {first.manifest.shard}, and {other.path} is shard "
                f"{other.manifest.shard} of other tasks files or another number of shards; merge "
                "each set of shards separately"
            )


def _settings(manifest: Manifest) -> JSONObject:
    # Without the environments, since not every run has all of them.
    settings = {key: value for key, value in manifest.identity.items() if key != "environments"}
    return {"schema_version": manifest.schema_version, **settings}


def _facts(name: str, record: EnvironmentRecord) -> JSONObject:
    return {f"environments.{name}.{key}": getattr(record, key) for key in _FACTS}


def _check_same(
    first: RunRecord, run: RunRecord, first_settings: JSONObject, settings: JSONObject
) -> None:
    if texts := differences(first_settings, settings):
        raise RunMismatchError(
            f"{run.path}: was made with other settings than {first.path}: {'; '.join(texts)}. "
            "Only runs with the same settings can be merged"
        )


def _num_expected(manifest: Manifest) -> JSONObject:
    """Return how many attempts all shards together expect, by environment."""
    records = manifest.environments.items()
    return {name: record.num_expected_of_all_shards for name, record in records}


def _sharded_runs(runs: Iterable[RunRecord]) -> list[_ShardedRun]:
    sharded_runs: dict[tuple[object, ...], _ShardedRun] = {}
    for run in runs:
        # By content, since shards come from machines where the files may have other paths.
        hashes = frozenset(str(file.get("sha256")) for file in run.manifest.tasks)
        if not run.manifest.shard:
            sharded_runs[str(run.path), hashes] = _ShardedRun(1, {1: run})
            continue
        number, num_shards = Shard.parse(run.manifest.shard)
        shards = sharded_runs.setdefault((num_shards, hashes), _ShardedRun(num_shards, {})).shards
        before = shards.setdefault(number, run)
        if before is not run:
            raise RunMismatchError(
                f"{run.path}: is shard {run.manifest.shard}, and so is {before.path}; leave out "
                "one of them"
            )
    return list(sharded_runs.values())


def missing_shards(runs: Sequence[RunRecord]) -> list[str]:
    unmerged = [shard for run in runs for shard in run.manifest.missing_shards]
    return unmerged + [shard for sharded in _sharded_runs(runs) for shard in sharded.missing()]


def named_shards(shards: Sequence[str]) -> str:
    return ", ".join(shards[:_MAX_NAMED]) + (", ..." if shards[_MAX_NAMED:] else "")


def version_warnings(runs: Sequence[RunRecord]) -> list[str]:
    """Return warnings about different versions and source hashes, which may explain scores."""
    versions: dict[str, Path] = {}
    sources: dict[str, dict[str, Path]] = defaultdict(dict)
    for path, manifest in runs:
        versions.setdefault(manifest.gymcli_version, path)
        for name, record in manifest.environments.items():
            sources[f"the source of environment {name}"].setdefault(record.source_hash, path)
    different = {"gymcli": versions} if len(versions) > 1 else {}
    different |= {
        subject: by_hash
        for subject, by_hash in sources.items()
        if any(is_other_source(*hashes) for hashes in combinations(by_hash, 2))
    }
    return [
        f"{subject} differs between runs: "
        + ", ".join(f"{value} in {path}" for value, path in [*by_value.items()][:_MAX_NAMED])
        for subject, by_value in different.items()
    ]


def merged_manifest(runs: Sequence[RunRecord]) -> Manifest:
    """Return the manifest of the merged run, without values that differ between its parts.

    It expects the attempts of missing shards too.
    """
    manifests = [run.manifest for run in runs]
    first = manifests[0]
    environments = _environments(runs)
    ends = [manifest.ended_at for manifest in manifests if manifest.ended_at is not None]
    is_whole = len(ends) == len(manifests) and not missing_shards(runs)
    commits = {manifest.git_commit for manifest in manifests}
    return msgspec.structs.replace(
        first,
        gymcli_version=__version__,
        identity=_identity(manifests),
        options=_shared([manifest.options for manifest in manifests]),
        tasks=_files(manifests),
        environments=environments,
        shard="",
        missing_shards=missing_shards(runs),
        roles=_first_of_each([manifest.roles for manifest in manifests]),
        role_params=_first_of_each([manifest.role_params for manifest in manifests]),
        libraries=_shared([manifest.libraries for manifest in manifests]),
        git_commit=first.git_commit if len(commits) == 1 else None,
        num_expected=sum(record.num_expected for record in environments.values()),
        num_tasks=sum(manifest.num_tasks for manifest in manifests),
        started_at=min(manifest.started_at for manifest in manifests),
        ended_at=max(ends) if is_whole else None,
        seconds=round(sum(manifest.seconds for manifest in manifests), 3),
    )


def _environments(runs: Sequence[RunRecord]) -> dict[str, EnvironmentRecord]:
    records = _first_of_each([run.manifest.environments for run in runs])
    num_expected = dict.fromkeys(records, 0)
    for sharded in _sharded_runs(runs):
        for name, record in sharded.first.manifest.environments.items():
            # One shard knows the number for all: those that are missing are expected too.
            is_whole = not sharded.first.manifest.shard
            num_expected[name] += (
                record.num_expected if is_whole else record.num_expected_of_all_shards
            )
    merged = {}
    for name, record in sorted(records.items()):
        environments = (run.manifest.environments for run in runs)
        parts = [by_name[name] for by_name in environments if name in by_name]
        hashes = {part.source_hash for part in parts}
        earlier = hashes.union(*[part.earlier_source_hashes for part in parts])
        shared = hashes.pop() if len(hashes) == 1 else ""
        merged[name] = msgspec.structs.replace(
            record,
            source_hash=shared,
            earlier_source_hashes=sorted(earlier - {"", shared}),
            num_expected=num_expected[name],
            num_expected_of_all_shards=0,
        )
    return merged


def _identity(manifests: Sequence[Manifest]) -> JSONObject:
    environments: JSONObject = {}
    for manifest in manifests:
        environments |= object_in(manifest.identity.get("environments"))
    first = manifests[0].identity
    return {**first, "environments": environments} if first else {}


def _files(manifests: Sequence[Manifest]) -> list[JSONObject]:
    files: list[JSONObject] = []
    for manifest in manifests:
        hashes = [file.get("sha256") for file in files]  # the same file may have several names
        files += (file for file in manifest.tasks if file.get("sha256") not in hashes)
    return files


def _shared(mappings: Sequence[Mapping[str, T]]) -> dict[str, T]:
    return {
        key: value
        for key, value in mappings[0].items()
        if all(key in mapping and mapping[key] == value for mapping in mappings)
    }


def _first_of_each(mappings: Iterable[Mapping[str, T]]) -> dict[str, T]:
    merged: dict[str, T] = {}
    for mapping in mappings:
        merged = {**mapping, **merged}
    return merged


_Number = Annotated[int, msgspec.Meta(ge=0)]


class _ScoredKey(ScoredLine, gc=False):
    """A scored line, with the fields that metrics read, so that they are validated."""

    env: str
    attempt: _Number


class _FailedKey(FailureLine):
    """A failed line, with the fields that metrics read, so that they are validated."""

    env: str
    attempt: _Number


class _WaitingKey(RecordHead, kw_only=True):
    """The fields of a line that identify its attempt."""

    env: str
    task_id: str
    attempt: _Number


_Key: TypeAlias = _ScoredKey | _FailedKey | _WaitingKey


class _Verdict(msgspec.Struct):
    key: str


_DECODERS: dict[str, msgspec.json.Decoder[_Key]] = {
    ROLLOUTS: msgspec.json.Decoder(_ScoredKey),
    GENERATIONS: msgspec.json.Decoder(_WaitingKey),
    FAILURES: msgspec.json.Decoder(_FailedKey),
}


class NamedLine(NamedTuple):
    """A line and the file of a run that it belongs to."""

    name: str
    data: bytes


class MergedLines:
    """Reads run directories one after another.

    Memory holds a digest of each attempt and each verdict, about 100 bytes. Among 10^9 attempts the
    chance that any two have the same digest is 10^-21.
    """

    def __init__(self, runs: Sequence[Path]) -> None:
        self.warnings: list[str] = []
        """Warnings about lines that were left out."""
        self._runs = runs
        self._attempts: dict[bytes, int] = {}
        """The index of the first run that has each attempt, by the attempt's digest."""
        self._verdicts: dict[bytes, int] = {}
        """The index of the first run that has each answer of a judge, by the digest of its key."""

    def read(self, names: Sequence[str] = (*_DECODERS, VERDICTS, TOKENS)) -> Iterator[NamedLine]:
        """Yield the lines of these files; an answer of a judge that two runs have is yielded once.

        Raises:
            RunDirectoryError: A run is being written.
            RunFileError: A line is damaged, or an attempt has two scores in one run.
            RunMismatchError: Two runs record the same attempt; the message names both places.
        """
        for index, run in enumerate(self._runs):
            with shared_run_lock(run):
                for name in names:
                    path = run / name
                    if not path.is_file():
                        if os.path.lexists(path):
                            raise RunFileError(f"{path}: is not a regular file")
                        continue
                    if name == VERDICTS:
                        lines = self._verdict_lines(path, index)
                    elif name == TOKENS:  # of plays, whose names are random
                        decoder = msgspec.json.Decoder(TokenPlay)
                        lines = (line.data for line, _ in lines_with_structs(path, decoder))
                    else:
                        lines = self._attempt_lines(path, index)
                    yield from (NamedLine(name, data) for data in lines)
                    # Only now, while the lock is held: no process is still writing the line.
                    if unfinished_end(path):
                        self.warnings.append(
                            f"{path}: the last line was not finished when its writer stopped; "
                            "left out"
                        )

    def _attempt_lines(self, path: Path, index: int) -> Iterator[bytes]:
        for line, key in lines_with_structs(path, _DECODERS[path.name]):
            digest = _digest(f"{key.env}\0{key.task_id}\0{key.attempt}")
            first = self._attempts.get(digest)
            # A run may record an attempt in several of its files, but score it only once.
            if first is None:
                self._attempts[digest] = index
            elif first < index or path.name == ROLLOUTS:
                first_place = _first_place(self._runs[first], key)
                attempt = f"{path}:{line.number}: attempt {key.attempt} of task {key.task_id}"
                attempt += f" ({key.env})"
                if first == index:
                    raise RunFileError(
                        f"{attempt} is also in {first_place}; delete one of the lines"
                    )
                raise RunMismatchError(
                    f"{attempt} is also recorded in {first_place}; merge runs with different "
                    "attempts"
                )
            yield line.data

    def _verdict_lines(self, path: Path, index: int) -> Iterator[bytes]:
        for line, verdict in lines_with_structs(path, msgspec.json.Decoder(_Verdict)):
            if self._verdicts.setdefault(_digest(verdict.key), index) == index:
                yield line.data


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _first_place(run: Path, key: _Key) -> str:
    attempt = key.env, key.task_id, key.attempt
    for path in (run / name for name in _DECODERS):
        if path.is_file():
            for line, line_key in lines_with_structs(path, _DECODERS[path.name]):
                if (line_key.env, line_key.task_id, line_key.attempt) == attempt:
                    return f"{path}:{line.number}"
    return str(run)
