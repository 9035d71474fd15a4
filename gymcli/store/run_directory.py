"""The run directory: its lock, the files it appends to, and what of the run is done already."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import NamedTuple

import msgspec

from gymcli.errors import (
    EpisodeError,
    RunDirectoryError,
    RunFileError,
    RunMismatchError,
    UsageError,
)
from gymcli.secrets import NOTHING_SECRET, REDACTED, Scrubber, environment_secrets
from gymcli.store.begun import BEGUN, BegunFile
from gymcli.store.durability import (
    LineAppender,
    Syncer,
    mend_file,
    replace_file,
    sync_folder,
    write_error,
)
from gymcli.store.lines import MAX_LINE_BYTES, TOO_LONG, lines_of, read_errors
from gymcli.store.locking import LOCK, RunLock
from gymcli.store.manifest import MANIFEST, Manifest, differences, read_manifest
from gymcli.store.rollout_files import (
    FAILURES,
    GENERATIONS,
    METRICS,
    ROLLOUTS,
    VERDICTS,
    Done,
    DoneTasks,
    read_done,
    read_structs,
    redacted,
    structs_of,
)
from gymcli.store.supervised import STACK_FILE
from gymcli.types import JSON_ERRORS, AttemptKey, ErrorRecord, Failure, JSONObject, Rollout

__all__ = [
    "UNFINISHED",
    "RunDirectory",
    "Waiting",
    "check_unused",
    "new_run_directory",
]


_NUM_SPARE = 8
"""Files that are open at once when the numbers of a run are counted and written."""

_APPENDED = (ROLLOUTS, FAILURES, GENERATIONS, VERDICTS)
_NEW_MANIFEST = f".{MANIFEST}.*tmp"
_LEFT_BEHIND = (LOCK, _NEW_MANIFEST, f".{METRICS}.*tmp", BEGUN, STACK_FILE)
"""What a process that was killed leaves beside the files of a run; it may be ignored."""


class Waiting(NamedTuple):
    """A finished conversation that waits for its score, and where in its file it stands."""

    key: AttemptKey
    task_hash: str
    group_size: int
    start: int
    num_bytes: int


class RunDirectory:
    """One run on disk, held by one process while it is open for writing.

    A line is safe from the death of this process once it is appended, and from that of the machine
    about a second later.

    Args:
        path: The directory.
        scrubber: Takes the keys in use out of all that is written.

    """

    def __init__(self, path: Path, scrubber: Scrubber = NOTHING_SECRET) -> None:
        self.path = path
        self.scrubber = scrubber
        self._errors = scrubber.also(environment_secrets(os.environ))
        """Takes the values of other variables out of errors, too."""
        self.warnings: list[str] = []
        """What was mended when the directory was opened."""
        self.begun = BegunFile(path)
        """The attempts in flight, where a supervisor starts the run again."""
        self._lock = RunLock(path)
        self._place = path.absolute()
        self._spare: list[int] = []
        self._on_failure: Callable[[RunDirectoryError], None] | None = None
        self._syncer = Syncer(self._sync_beside)
        self._rollouts = LineAppender(path / ROLLOUTS, scrubber)
        self._failures = LineAppender(path / FAILURES, scrubber)
        self._generations = LineAppender(path / GENERATIONS, scrubber)
        self._conversations: FileIO | None = None
        """The file of waiting conversations, once one of them was read."""
        # Conversations reach the disk before the scores that others of their group wait for.
        self._files = (self._generations, self._failures, self._rollouts)

    def lock(self, on_failure: Callable[[RunDirectoryError], None] | None = None) -> None:
        """Make the directory and take it; the system frees it when this process ends.

        Args:
            on_failure: Told once, in another thread, when nothing more can be written.

        Raises:
            RunDirectoryError: It cannot be made, or another process writes it.

        """
        self._lock.take()
        self._on_failure = on_failure
        for path in self.path.glob(_NEW_MANIFEST):
            with suppress(OSError):  # it means nothing where it stays
                path.unlink()
        self._syncer.start()

    @property
    def is_held_here(self) -> bool:
        """Whether this very process holds the directory, in another object."""
        return self._lock.is_held_here()

    def reserve(self) -> None:
        """Hold enough descriptors for all that is written, before connections take them.

        Raises:
            RunDirectoryError: There are too few.

        """
        for file in self._files:
            file.reserve()
        try:
            while len(self._spare) < _NUM_SPARE:
                self._spare.append(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            raise write_error(self.path, error) from error

    def free_spare(self) -> None:
        """Free what was kept for the end of the run: its numbers and the manifest."""
        while self._spare:
            os.close(self._spare.pop())

    def sync(self) -> None:
        """Sync all that was appended.

        Raises:
            RunDirectoryError: That failed, now or while the run worked, or a file or the directory
                is no longer where it was.

        """
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
        failure = next(filter(None, (file.failure for file in self._files)), None)
        if failure is not None and self._on_failure is not None:
            self._on_failure(RunDirectoryError(failure))
            self._on_failure = None

    def close(self) -> None:
        """Sync the files, close them and free the directory.

        Raises:
            RunDirectoryError: They are not on the disk, and no call before said so.

        """
        self.free_spare()
        is_told = any(file.is_told for file in self._files)
        with ExitStack() as stack:
            stack.callback(self._lock.free)
            if self._conversations is not None:
                stack.callback(self._conversations.close)
                self._conversations = None
            for file in self._files:
                file.is_told = is_told
                stack.callback(file.close)
            stack.callback(self._syncer.close)

    def mend(self, names: Sequence[str] = _APPENDED) -> None:
        """Cut off a last line that its writer did not finish, in files that are appended.

        Raises:
            RunDirectoryError: A file cannot be written.

        """
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
        """Compare with the run that is there already.

        Raises:
            RunMismatchError: It was made with other settings; the message names them.
            UsageError: The directory holds other files and no run.

        """
        manifest = read_manifest(self.path)
        if manifest is None:
            if not all(map(_is_left_behind, self.path.iterdir())):
                raise UsageError(f"{self.path}: is not empty and holds no run; give another --out")
            return
        # As they would be read back: a tuple here equals the list there. Neither has a key in use,
        # nor what was none when the run was begun.
        there, here = (
            msgspec.json.decode(self.scrubber.line(msgspec.json.encode(one)))
            for one in (manifest.identity, identity)
        )
        if found := "; ".join(differences(there, here)):
            hint = f"; what reads {REDACTED} was a key in use when the run was begun: use it again"
            raise RunMismatchError(
                f"{self.path}: this run was made with other settings: {found}. Give another "
                f"--out, or --fresh for a new run{hint if REDACTED in found else ''}"
            )

    def done(self) -> DoneTasks:
        """Read which attempts are scored, by environment and task id.

        Raises:
            RunFileError: A line is damaged, or an attempt is there twice.

        """
        return read_done(self.path / ROLLOUTS)

    def pending(self, done: Mapping[tuple[str, str], Done]) -> dict[AttemptKey, Waiting]:
        """Find the finished conversations that wait for their score.

        Raises:
            RunFileError: A line is damaged.

        """
        path = self.path / GENERATIONS
        if not path.is_file():
            return {}
        waiting: dict[AttemptKey, Waiting] = {}
        decoder = msgspec.json.Decoder(Rollout)
        end = 0
        with path.open("rb") as file, read_errors(path):
            for _, rollout in structs_of(lines_of(file, path), path, decoder):
                start, end = end, file.tell()
                scored = done.get((rollout.env, rollout.task_id))
                if scored is None or not scored.has(rollout.attempt):
                    waiting[rollout.key] = Waiting(
                        rollout.key, rollout.task_hash, rollout.group_size, start, end - start
                    )
        return waiting

    def conversation(self, waiting: Waiting) -> Rollout:
        """Read a conversation that waits for its score.

        Raises:
            RunFileError: It does not stand there any more.

        """
        try:
            if self._conversations is None:
                # Stays open, since connections may take what descriptors there are.
                self._conversations = (self._place / GENERATIONS).open("rb", buffering=0)
            self._conversations.seek(waiting.start)
            line = self._conversations.read(waiting.num_bytes)
            return msgspec.json.decode(line, type=Rollout)
        except (OSError, *JSON_ERRORS) as error:
            raise RunFileError(
                f"{self.path / GENERATIONS}: was changed while the run went on: {error}; run the "
                "same command again"
            ) from error

    def scored_members(self, done: Mapping[tuple[str, str], Done]) -> tuple[Rollout, ...]:
        """Read the conversations that are scored already, while others of their group are not.

        A process that dies while it writes the scores of a group leaves such.
        """
        tasks = {task for task, scored in done.items() if scored.is_torn}
        if not tasks:
            return ()
        lines = read_structs(self.path / ROLLOUTS, msgspec.json.Decoder(Rollout))
        return tuple(line.unscored() for line in lines if (line.env, line.task_id) in tasks)

    def append_rollout(self, rollout: Rollout | bytes) -> None:
        """Append a scored rollout, or its line.

        Raises:
            EpisodeError: It is longer than any line that is read.
            RunDirectoryError: It cannot be written.

        """
        line = rollout if isinstance(rollout, bytes) else msgspec.json.encode(rollout)
        if len(line) > MAX_LINE_BYTES:
            raise EpisodeError(f"the record {TOO_LONG}")
        self._rollouts.append(line)

    def append_generation(self, rollout: Rollout | bytes) -> None:
        """Append a finished conversation that waits for its score, or its line."""
        line = rollout if isinstance(rollout, bytes) else msgspec.json.encode(rollout)
        if len(line) <= MAX_LINE_BYTES:  # else its score could not be written either
            self._generations.append(line)

    def append_failure(self, failure: Failure) -> Failure:
        """Append an attempt that could not be scored; return it as it is there.

        Secrets of environment variables are taken out of the error; a conversation that is too
        long is left out.
        """
        told = msgspec.json.encode(failure.error)
        clean = self._errors.line(told)
        if clean is not told:
            error = msgspec.json.decode(clean, type=ErrorRecord)
            failure = msgspec.structs.replace(failure, error=error)
        failure = redacted(failure, self.scrubber)
        line = msgspec.json.encode(failure)
        if len(line) > MAX_LINE_BYTES:
            failure = msgspec.structs.replace(failure, messages=[])
            line = msgspec.json.encode(failure)
        self._failures.append(line)
        return failure

    def write_manifest(self, manifest: Manifest) -> None:
        """Write run.json by rename, after all that was appended is on the disk.

        Raises:
            RunDirectoryError: It, or what was appended before, cannot be brought to the disk.

        """
        self.sync()
        self._write(MANIFEST, msgspec.json.encode(manifest))

    def write_metrics(self, metrics: bytes) -> None:
        """Write metrics.json by rename.

        Raises:
            RunDirectoryError: It cannot be written.

        """
        self._write(METRICS, metrics)

    def _write(self, name: str, data: bytes) -> None:
        readable = msgspec.json.format(self.scrubber.line(data), indent=2)
        replace_file(self._place / name, readable + b"\n", shown=self.path / name)


def _is_left_behind(path: Path) -> bool:
    return any(path.match(pattern) for pattern in _LEFT_BEHIND)


UNFINISHED = ".unfinished"
"""The folder in the directory where the run is written until it is whole."""

_FILES = (GENERATIONS, FAILURES, METRICS, ROLLOUTS, VERDICTS, MANIFEST)
"""In the order in which they are shown: the last one makes the run."""


def check_unused(path: Path) -> None:
    """Refuse what is there already, unless it is empty or was left before the run was whole.

    Raises:
        UsageError: It holds something else.

    """
    left = path / UNFINISHED
    if left.is_dir() and not left.is_symlink() and not (path / MANIFEST).exists():
        return
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path}: exists already; --out takes a new directory")


@contextmanager
def new_run_directory(
    path: Path, scrubber: Scrubber, *, keeps_unfinished: bool = True
) -> Iterator[RunDirectory]:
    """Open a run to be written; its files appear in `path` only once the block has ended well.

    What an earlier try left is overwritten, except for the answers of judges, which cost money.

    Args:
        path: The directory.
        scrubber: Takes the keys in use out of all that is written.
        keeps_unfinished: Keep what was written where the block fails.

    Raises:
        RunDirectoryError: The directory cannot be written, or another process writes it.

    """
    is_new = not path.exists()
    lock = RunLock(path)
    lock.take()
    try:
        try:
            with _unfinished(path / UNFINISHED, scrubber, keeps_unfinished) as directory:
                yield directory
        except BaseException:
            if not keeps_unfinished:
                shutil.rmtree(path / UNFINISHED, ignore_errors=True)
            raise
        _show(path / UNFINISHED, path)
    finally:
        lock.free()
        if is_new:
            with suppress(OSError):  # something is in it
                path.rmdir()


@contextmanager
def _unfinished(folder: Path, scrubber: Scrubber, keeps_verdicts: bool) -> Iterator[RunDirectory]:
    """Open the folder where the run is written, without what an earlier try left."""
    directory = RunDirectory(folder, scrubber)
    directory.lock()
    try:
        _clear(folder, [name for name in _FILES if name != VERDICTS or not keeps_verdicts])
        directory.mend((VERDICTS,))
        yield directory
    finally:
        directory.close()


def _clear(folder: Path, names: Iterable[str]) -> None:
    try:
        for name in names:
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise write_error(folder, error) from error


def _show(folder: Path, path: Path) -> None:
    """Move the files of a run to where they belong."""
    try:
        for name in _FILES:
            (path / name).unlink(missing_ok=True)  # of a try that ended in the middle of this
            with suppress(FileNotFoundError):
                (folder / name).rename(path / name)
        shutil.rmtree(folder, ignore_errors=True)
        sync_folder(path)
    except OSError as error:
        raise write_error(path, error) from error
