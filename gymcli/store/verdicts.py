"""verdicts.jsonl: judges' answers, so that rescoring does not ask the same question twice."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from gymcli.errors import RunDirectoryError
from gymcli.secrets import NOTHING_SECRET, Scrubber
from gymcli.store.durability import LineAppender, Syncer
from gymcli.store.rollout_files import VERDICTS, read_structs
from gymcli.store.run_directory import RunDirectory
from gymcli.types import JSONObject, Message, digest


class _VerdictLine(msgspec.Struct, omit_defaults=True, kw_only=True):
    key: str
    role: str = ""
    model: str = ""
    message: Message


def verdict_key(
    model: str,
    messages: list[Message],
    *,
    schema: JSONObject | None,
    params: JSONObject,
    cache: str,
) -> str:
    """Return the key of an answer: a digest of everything that the answer depends on."""
    return digest([model, messages, schema, params, cache])


def compact_answer(message: Message) -> Message:
    """Return an answer for the cache in memory, without long fields that score nothing."""
    return msgspec.structs.replace(
        message, reasoning=None, response_items=[], logprobs=None, extra={}
    )


class Verdicts:
    """The answers of one run's judges by key, without failed calls and empty answers.

    Answers are read from the run directory `folder`. New answers are appended, without secrets, to
    the files in the directories `kept_in`, by default in `folder`.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        kept_in: Sequence[Path] | None = None,
        scrubber: Scrubber = NOTHING_SECRET,
    ) -> None:
        if kept_in is None:
            kept_in = [] if folder is None else [folder]
        self.num_unkept = 0
        """New answers that were written to no file."""
        self._answers: dict[str, Message] = {}
        self._files = [LineAppender(path / VERDICTS, scrubber) for path in kept_in]
        self._syncer = Syncer(self._sync)
        if folder is not None:
            self._answers = {line.key: compact_answer(line.message) for line in _lines(folder)}
        for file in self._files:
            file.reserve()

    def get(self, key: str) -> Message | None:
        return self._answers.get(key)

    def items(self) -> Iterable[tuple[str, Message]]:
        return self._answers.items()

    def add(self, key: str, message: Message, *, role: str, model: str) -> None:
        """Record an answer; it is written before it is used."""
        line = msgspec.json.encode(_VerdictLine(key=key, role=role, model=model, message=message))
        for file in self._files:
            file.append(line)
            self._syncer.start()  # no thread for a run that asks no judge
        self.num_unkept += not self._files
        self._answers[key] = compact_answer(message)

    def _sync(self) -> None:
        for file in self._files:
            file.sync()

    def close(self) -> None:
        with ExitStack() as stack:
            for file in self._files:
                stack.callback(file.close)
            stack.callback(self._syncer.close)


def copy_verdicts(run: Path, out: Path, scrubber: Scrubber = NOTHING_SECRET) -> None:
    """Copy the answers that `out` lacks from `run`, without secrets."""
    file = LineAppender(out / VERDICTS, scrubber)
    keys = {line.key for line in _lines(out)}
    try:
        for line in _lines(run):
            if line.key not in keys:
                file.append(msgspec.json.encode(line))
    finally:
        file.close()


@contextmanager
def rescoring_verdicts(
    run: Path | None,
    out: Path | None,
    warn: Callable[[str], None],
    scrubber: Scrubber = NOTHING_SECRET,
) -> Iterator[Verdicts]:
    """Open the answers of a run for rescoring; new answers are written to it and to `out`.

    A run that is read-only or locked by another process is not changed; `warn` is called if new
    answers are lost because of that.

    `run` is locked until the block ends, and None for a bare file; `out` already has the answers of
    `run`.
    """
    kept_in = [] if out is None else [out]
    reason = ""
    with ExitStack() as stack:
        if run is not None:
            directory = RunDirectory(run)
            stack.callback(directory.close)
            reason = _lock_failure(directory, warn)
            kept_in += [] if reason else [run]
        verdicts = Verdicts(run if out is None else out, kept_in=kept_in, scrubber=scrubber)
        try:
            yield verdicts
        finally:
            if verdicts.num_unkept and reason:
                warn(f"{verdicts.num_unkept} new answers of judges were not saved: {reason}")


def _lock_failure(directory: RunDirectory, warn: Callable[[str], None]) -> str:
    """Lock a run and mend its verdicts; return why that fails, or an empty string."""
    if not os.access(directory.path, os.W_OK):
        return f"{directory.path}: cannot be written"
    try:
        directory.lock()
        directory.mend((VERDICTS,))
    except RunDirectoryError as error:
        return str(error)
    for text in directory.warnings:
        warn(text)
    return ""


def _lines(folder: Path) -> Iterator[_VerdictLine]:
    path = folder / VERDICTS
    if not path.is_file():
        return
    for line in read_structs(path, msgspec.json.Decoder(_VerdictLine)):
        # An empty answer judges nothing, so the judge is asked again.
        if line.message.text.strip() or line.message.tool_calls:
            yield line
