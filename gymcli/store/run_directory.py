"""The run directory: its lock, its append-only files and the attempts that are done."""

from __future__ import annotations

import faulthandler
import os
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from gymcli.errors import (
    EpisodeError,
    RunDirectoryError,
    RunFileError,
    RunMismatchError,
    UsageError,
)
from gymcli.secrets import NOTHING_SECRET, REDACTED, Scrubber, environment_secrets
from gymcli.store.durability import (
    LineAppender,
    Syncer,
    mend_file,
    open_file,
    replace_file,
    reserved_descriptor,
    sync_folder,
    write_error,
)
from gymcli.store.lines import TOO_LONG, lines_of, read_errors
from gymcli.store.locking import LOCK, RunLock
from gymcli.store.manifest import MANIFEST, Manifest, differences, read_manifest
from gymcli.store.rollout_files import (
    FAILURES,
    GENERATIONS,
    METRICS_FILE,
    ROLLOUTS,
    TOKENS,
    VERDICTS,
    Done,
    DoneTasks,
    lines_with_structs,
    read_done,
    read_structs,
    redacted,
)
from gymcli.store.supervised import STACK_FILE, out_of_reach
from gymcli.types import JSON_ERRORS, AttemptKey, ErrorRecord, Failure, JSONObject, Rollout

BEGUN = "begun"
"""The file with the attempts in flight."""

_NUM_SPARE = 8
"""Files that are open at the same time when the metrics of a run are computed and written."""

_MAX_CLASS_CHARACTERS = 1000
"""Of the name of an error's class, if its record is too long."""

_APPENDED = (ROLLOUTS, FAILURES, GENERATIONS, VERDICTS, TOKENS)
_NEW_MANIFEST = f".{MANIFEST}.*tmp"
_LEFT_BEHIND = (LOCK, _NEW_MANIFEST, f".{METRICS_FILE}.*tmp", BEGUN, STACK_FILE)
"""Files that a killed process leaves; they do not make a folder a run."""
_IS_VERSION = re.compile(r"environments\.\S+\.version ")


class Waiting(NamedTuple):
    """A finished conversation that waits for its score, and its place in the file."""

    key: AttemptKey
    task_hash: str
    group_size: int
    start: int
    num_bytes: int


def rescoring_command(run: Path, manifest: Manifest) -> str:
    env = manifest.options.get("env")
    # A plain name stands on the lines; a file of code or an address does not.
    option = f" --env {shlex.quote(env)}" if isinstance(env, str) and not env.isidentifier() else ""
    return f"gym verify {shlex.quote(str(run))}{option} --out DIR"


class RunDirectory:
    """One run on disk, held by one process while it is open for writing.

    A line survives the death of this process once it is appended, and a crash of the machine about
    a second later. `scrubber` removes the keys in use from everything that is written.
    """

    def __init__(self, path: Path, scrubber: Scrubber = NOTHING_SECRET) -> None:
        self.path = path
        self.scrubber = scrubber
        self._errors = scrubber.also(environment_secrets(os.environ))
        """Also removes the values of other environment variables from errors."""
        self.warnings: list[str] = []
        """Warnings about repairs when the directory was opened."""
        self.begun = BegunFile(path)
        """The attempts in flight, noted if a supervisor may restart the run."""
        self._lock = RunLock(path)
        self._place = path.absolute()
        self._spare: list[int] = []
        self._on_failure: Callable[[RunDirectoryError], None] | None = None
        self._syncer = Syncer(self._sync_beside)
        self._rollouts = LineAppender(path / ROLLOUTS, scrubber)
        self._failures = LineAppender(path / FAILURES, scrubber)
        self._generations = LineAppender(path / GENERATIONS, scrubber)
        self._tokens = LineAppender(path / TOKENS, scrubber)
        self._conversations: FileIO | None = None
        """The open file of waiting conversations, once one was read."""
        # In sync order: conversations must reach the disk before the scores of their group, and
        # token ids before the conversations that name them.
        self._files = (self._tokens, self._generations, self._failures, self._rollouts)

    def lock(self, on_failure: Callable[[RunDirectoryError], None] | None = None) -> None:
        """Create the directory and lock it; the system unlocks it when this process ends.

        `on_failure` is called once, in another thread, when writing has failed for good.
        """
        self._lock.take()
        self._on_failure = on_failure
        for path in self.path.glob(_NEW_MANIFEST):
            with suppress(OSError):  # a leftover does no harm
                path.unlink()
        self._syncer.start()

    @property
    def is_held_here(self) -> bool:
        """Whether this process holds the directory through any `RunDirectory`."""
        return self._lock.is_held_here()

    def reserve(self, *, records_tokens: bool) -> None:
        """Reserve descriptors for all files to write, before connections use them up."""
        for file in self._files:
            if records_tokens or file is not self._tokens:
                file.reserve()
        try:
            while len(self._spare) < _NUM_SPARE:
                self._spare.append(reserved_descriptor())
        except OSError as error:
            raise write_error(self.path, error) from error

    def free_spare(self) -> None:
        """Free the descriptors that were reserved for the end of the run."""
        while self._spare:
            os.close(self._spare.pop())

    def sync(self) -> None:
        """Sync all appended lines; RunDirectoryError if this or an earlier sync failed."""
        self._sync()
        for file in self._files:
            file.check()

    def _sync(self) -> None:
        try:
            fate = self._lock.displaced()
        except OSError as error:
            fate = str(write_error(self.path, error))
        for file in self._files:
            if fate is not None and file.failure is None:
                file.failure = fate
            file.sync()

    def _sync_beside(self) -> None:
        self._sync()
        failures = [file.failure for file in self._files if file.failure]
        if failures and self._on_failure is not None:
            self._on_failure(RunDirectoryError(failures[0]))
            self._on_failure = None

    def close(self) -> None:
        self.free_spare()
        is_told = any(file.is_told for file in self._files)
        # The stack runs in reverse: the thread stops first, and the lock is freed last.
        with ExitStack() as stack:
            stack.callback(self._lock.free)
            if self._conversations is not None:
                stack.callback(self._conversations.close)
                self._conversations = None
            for file in reversed(self._files):
                file.is_told = is_told
                stack.callback(file.close)
            stack.callback(self._syncer.close)

    def mend(self, names: Sequence[str] = _APPENDED) -> None:
        for name in names:
            path = self.path / name
            if not os.path.lexists(path):
                continue
            try:
                is_cut = mend_file(path)
            except OSError as error:
                raise write_error(path, error) from error
            if is_cut:
                self.warnings.append(
                    f"{path}: the last line was not finished when its writer stopped; cut off"
                )

    def check_identity(self, identity: JSONObject) -> None:
        """Compare an identity with that of the run in the directory.

        Raises:
            RunMismatchError: The settings differ; the message names them.
            UsageError: The directory holds other files but no run.
        """
        manifest = read_manifest(self.path)
        if manifest is None:
            if not all(any(map(file.match, _LEFT_BEHIND)) for file in self.path.iterdir()):
                raise UsageError(f"{self.path}: is not empty and holds no run; use another --out")
            return
        # Compared as JSON, where a tuple equals a list. Keys in use are removed from both, since a
        # value may not have been a key when the run began.
        run_identity, identity = (
            msgspec.json.decode(self.scrubber.line(msgspec.json.encode(settings)))
            for settings in (manifest.identity, identity)
        )
        if texts := differences(run_identity, identity):
            remedy = "Use another --out, or --fresh for a new run"
            if all(map(_IS_VERSION.match, texts)):
                command = rescoring_command(self.path, manifest)
                remedy += (
                    f"; or score this one by the present code with {command}, and continue it "
                    "with --out DIR"
                )
            settings = "; ".join(texts)
            hint = f"; {REDACTED} stands for a key in use when the run began: use it again"
            raise RunMismatchError(
                f"{self.path}: this run was made with other settings: {settings}. {remedy}"
                f"{hint if REDACTED in settings else ''}"
            )

    def done(self, num_scored: Counter[tuple[str, str]] | None = None) -> DoneTasks:
        """Read which attempts are scored, by environment and task id; see `read_done`."""
        return read_done(self.path / ROLLOUTS, num_scored)

    def pending(self, done: Mapping[tuple[str, str], Done]) -> dict[AttemptKey, Waiting]:
        path = self.path / GENERATIONS
        if not path.is_file():
            return {}
        waiting: dict[AttemptKey, Waiting] = {}
        decoder = msgspec.json.Decoder(Rollout)
        end = 0
        with path.open("rb") as file, read_errors(path):
            for _, rollout in lines_with_structs(path, decoder, lines_of(file, path)):
                start, end = end, file.tell()
                scored = done.get((rollout.env, rollout.task_id))
                if scored is None or not scored.has(rollout.attempt):
                    waiting[rollout.key] = Waiting(
                        rollout.key, rollout.task_hash, rollout.group_size, start, end - start
                    )
        return waiting

    def conversation(self, waiting: Waiting) -> Rollout:
        """Read a conversation that waits for its score; RunFileError if the file changed."""
        try:
            if self._conversations is None:
                # Stays open, since connections may use up all descriptors.
                descriptor = os.open(self._place / GENERATIONS, os.O_RDONLY)
                self._conversations = FileIO(out_of_reach(descriptor))
            self._conversations.seek(waiting.start)
            line = self._conversations.read(waiting.num_bytes)
            return msgspec.json.decode(line, type=Rollout)
        except (OSError, *JSON_ERRORS) as error:
            raise RunFileError(
                f"{self.path / GENERATIONS}: was changed during the run: {error}; run the "
                "same command again"
            ) from error

    def scored_members(self, done: Mapping[tuple[str, str], Done]) -> tuple[Rollout, ...]:
        """Read the scored conversations of groups that are only partly scored.

        A process that died while writing the scores of a group leaves such groups.
        """
        tasks = {task for task, scored in done.items() if scored.is_torn}
        if not tasks:
            return ()
        lines = read_structs(self.path / ROLLOUTS, msgspec.json.Decoder(Rollout))
        return tuple(line.unscored() for line in lines if (line.env, line.task_id) in tasks)

    def append_rollout(self, rollout: Rollout | bytes) -> None:
        """Append a scored rollout or its line; EpisodeError if it is too long to be read again."""
        line = rollout if isinstance(rollout, bytes) else msgspec.json.encode(rollout)
        self._rollouts.append(line)

    def append_generation(self, rollout: Rollout | bytes) -> None:
        """Append a finished conversation that waits for its score, or its line, unless too long."""
        line = rollout if isinstance(rollout, bytes) else msgspec.json.encode(rollout)
        with suppress(EpisodeError):  # a line that is too long could not be scored either
            self._generations.append(line)

    def append_tokens(self, line: bytes) -> None:
        """Append a line of token ids; its conversation is appended later."""
        self._tokens.append(line)

    def append_failure(self, failure: Failure) -> Failure:
        """Append a failed attempt without secrets; return the record that was written.

        Of a record that is too long, the conversation is left out, then the text of the error.
        """
        # Only in the error: a conversation may hold the value of a variable by chance.
        encoded = msgspec.json.encode(failure.error)
        clean = self._errors.line(encoded)
        if clean is not encoded:
            error = msgspec.json.decode(clean, type=ErrorRecord)
            failure = msgspec.structs.replace(failure, error=error)
        failure = redacted(failure, self.scrubber)
        shorter = msgspec.structs.replace(failure, messages=[])
        for record in (failure, shorter):
            with suppress(EpisodeError):
                self._failures.append(msgspec.json.encode(record))
                return record
        error = msgspec.structs.replace(
            failure.error,
            error_class=failure.error.error_class[:_MAX_CLASS_CHARACTERS],
            message=f"the text of the error {TOO_LONG}",
            frames=[],
        )
        shortest = msgspec.structs.replace(shorter, error=error)
        self._failures.append(msgspec.json.encode(shortest))
        return shortest

    def write_manifest(self, manifest: Manifest) -> None:
        """Write run.json by rename after syncing all appended lines."""
        self.sync()
        self._write(MANIFEST, msgspec.json.encode(manifest))

    def write_metrics(self, metrics: bytes) -> None:
        self._write(METRICS_FILE, metrics)

    def _write(self, name: str, data: bytes) -> None:
        readable = msgspec.json.format(self.scrubber.line(data), indent=2)
        replace_file(self._place / name, readable + b"\n", display_path=self.path / name)


class Suspects(NamedTuple):
    """The attempts that may have killed the process of a run."""

    keys: frozenset[AttemptKey] = frozenset()
    """Attempts that were in flight when the process died and have had no outcome since."""
    proved: AttemptKey | None = None
    """The suspect that was alone in flight when the process died again; not among the keys."""


class _Header(msgspec.Struct):
    """The first line of the `begun` file."""

    num_failure_bytes: int
    """The size of failures.jsonl when this process started."""
    suspects: list[AttemptKey]
    """The suspects of earlier deaths."""


class _BegunLine(msgspec.Struct, omit_defaults=True):
    """The start of an attempt; without a key, the start of playing one attempt at a time."""

    key: AttemptKey | None = None


_HEADER, _LINE = msgspec.json.Decoder(_Header), msgspec.json.Decoder(_BegunLine)
_KEY = msgspec.json.Decoder(AttemptKey)


class BegunFile:
    """Records each attempt of a run as it starts.

    It writes without syncing, since only the death of the process matters, not the machine's.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / BEGUN
        self._place = folder.absolute() / BEGUN
        self._failures = folder.absolute() / FAILURES
        self._descriptor: int | None = None

    def open(self, suspects: Collection[AttemptKey]) -> None:
        size = self._failures.stat().st_size if self._failures.exists() else 0
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC
            self._descriptor = open_file(self._place, flags)
        except OSError as error:
            raise write_error(self._path, error) from error
        self._write(_Header(size, sorted(suspects)))

    def add(self, key: AttemptKey) -> None:
        self._write(_BegunLine(key))

    def begin_alone(self) -> None:
        """Record that attempts are played one at a time from now on, if the file is open."""
        self._write(_BegunLine())

    def _write(self, line: _Header | _BegunLine) -> None:
        if self._descriptor is None:
            return
        try:
            os.write(self._descriptor, msgspec.json.encode(line) + b"\n")
        except OSError as error:
            raise write_error(self._path, error) from error

    def remove(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        for path in (self._place, self._place.with_name(STACK_FILE)):
            with suppress(OSError):  # a leftover is ignored by other commands
                path.unlink()

    def suspects(self, done: Mapping[tuple[str, str], Done]) -> Suspects:
        try:
            lines = self._place.read_bytes().split(b"\n")[:-1]  # the last one may be torn
            header = _HEADER.decode(lines[0])
        except (OSError, IndexError, *JSON_ERRORS):
            return Suspects()
        failed = set(self._failed_since(header.num_failure_bytes))

        def is_open(key: AttemptKey) -> bool:
            scored = done.get((key.env, key.task_id))
            return key not in failed and not (scored is not None and scored.has(key.attempt))

        before = {key for key in header.suspects if is_open(key)}
        in_flight: set[AttemptKey] = set()
        is_alone = False
        last: AttemptKey | None = None
        for data in lines[1:]:
            try:
                key = _LINE.decode(data).key
            except JSON_ERRORS:
                continue
            if key is None:
                is_alone = True
            elif is_open(key):
                # One at a time, all attempts but the last are only waiting for their group.
                last = key if is_alone else None
                if not is_alone:
                    in_flight.add(key)
        proved = last if last in before else None
        if last is not None:
            in_flight.add(last)
        return Suspects(frozenset(before | in_flight) - {proved}, proved)

    def _failed_since(self, num_bytes: int) -> Iterator[AttemptKey]:
        try:
            with self._failures.open("rb") as file:
                file.seek(num_bytes)
                for line in file:
                    with suppress(*JSON_ERRORS):  # torn, or reported by full readers
                        yield _KEY.decode(line)
        except FileNotFoundError:
            return
        except OSError as error:
            raise RunDirectoryError(
                f"{self._path.with_name(FAILURES)}: {error.strerror}"
            ) from error


UNFINISHED = ".unfinished"
"""The subfolder where a run is written until it is complete."""

_FILES = (TOKENS, GENERATIONS, FAILURES, METRICS_FILE, ROLLOUTS, VERDICTS, MANIFEST)
"""In the order in which they are moved: the last one makes the folder a run."""


@contextmanager
def open_stack_file(folder: Path) -> Iterator[IO[str]]:
    """Open the stack file of a run directory; a crash in C code leaves its stack there too."""
    path = folder.absolute() / STACK_FILE
    try:
        descriptor = open_file(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC)
    except OSError as error:
        raise write_error(folder / STACK_FILE, error) from error
    with os.fdopen(descriptor, "w") as file:
        faulthandler.enable(file)  # for instance, of a segmentation fault
        try:
            yield file
        finally:
            faulthandler.disable()


def check_unused(path: Path) -> None:
    """Raise UsageError if a path exists, unless it is empty or holds an unfinished run."""
    left = path / UNFINISHED
    if left.is_dir() and not left.is_symlink() and not (path / MANIFEST).exists():
        return
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path}: already exists; --out needs a new directory")


@contextmanager
def new_run_directory(
    path: Path, scrubber: Scrubber, *, keeps_unfinished: bool = True
) -> Iterator[RunDirectory]:
    """Open a new run for writing; its files appear in `path` only if the block succeeds.

    The remains of an earlier try are overwritten, except judges' answers, which cost money. If the
    block fails, the files written so far stay with `keeps_unfinished`, else they are deleted.
    """
    is_new, folder = not path.exists(), path / UNFINISHED
    lock = RunLock(path)
    lock.take()
    try:
        directory = RunDirectory(folder, scrubber)
        try:
            with closing(directory):
                directory.lock()
                _clear(folder, _FILES if not keeps_unfinished else set(_FILES) - {VERDICTS})
                directory.mend((VERDICTS,))
                yield directory
        except BaseException:
            if not keeps_unfinished:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        try:
            for name in _FILES:
                (path / name).unlink(missing_ok=True)  # from a try that died in this loop
                with suppress(FileNotFoundError):
                    (folder / name).rename(path / name)
            shutil.rmtree(folder, ignore_errors=True)
            sync_folder(path)
        except OSError as error:
            raise write_error(path, error) from error
    finally:
        lock.free()
        if is_new:
            with suppress(OSError):  # it is not empty
                path.rmdir()


def _clear(folder: Path, names: Iterable[str]) -> None:
    try:
        for name in names:
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise write_error(folder, error) from error
