"""The console script: `gym collect` survives the death of its process.

The code of an environment may block, crash or exit the process in which it runs. So this process
stays small: it forks the run before anything heavy is imported, passes signals on, and restarts the
run if it dies without reporting that it is finished. All other commands run in this process. The
fork stays in the same process group, so that job control and `breakpoint()` work.

`faulthandler` in the run writes the stack of code that blocks for too long, and this process kills
the run then: it also sees when both were stopped, which is no blocking.
"""

from __future__ import annotations

import math
import os
import select
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from gymcli.store.supervised import STACK_FILE, Death, Supervised, Tag, out_of_reach

_TICK_SECONDS = 1.0
_LATE_SECONDS = 2.0
"""A wait that ends this much too late was prolonged: this process was stopped."""
_REPEAT_SECONDS = 0.2
"""Two signals of one kind within this time are one."""
_START_PATIENCE = 10.0
"""Seconds that a run gets to end after a signal if it has not reported its own patience yet."""
_SECOND_PATIENCE = 5.0
_FINISHED_PATIENCE = 10.0
"""Seconds that a finished process gets to exit: a thread of an environment may hold it up."""
_STOP_SECONDS = 5.0
"""If a process is reported as blocked this soon after it was stopped, it was not blocked: the time
limit ran on while it was stopped."""
_STACK_SECONDS = 0.5
"""Seconds that a blocked process gets to write its whole stack."""
_MAX_DEATHS = 3
_BLOCKED = "Timeout ("
"""The start of faulthandler's report about a blocked process."""
_MAX_STACK_CHARACTERS = 2000
_ONLY_SHOWS = {"--help", "-h", "--dry-run", "--version"}
_AFTER_DISPLAY = "\r\n\x1b[?25h"  # a new line, and the cursor is shown again


def main() -> None:
    """Run the command line; `collect` runs in a process that is restarted when it dies."""
    command = _scoring_command(sys.argv[1:])
    supervised = _supervise(sys.argv[1:]) if command == "collect" else None
    if supervised is None:  # else it has blocked the signals already
        # Ctrl-C would end an import with a traceback; `run_command` handles it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    if command:
        from gymcli.rollout.fork_server import start_fork_server  # late, as below

        start_fork_server("gymcli.rollout.verifier_worker")  # it imports while this process does
    from gymcli.cli import main as run_command  # late: the supervisor itself stays small

    run_command(supervised)


def _scoring_command(arguments: Sequence[str]) -> str:
    """Return `collect` or `verify` if the arguments run it, rather than show help or a plan."""
    left = list(arguments)
    # Read by hand, since typer would make this process large. These are the options that may come
    # before the command's name.
    while left and left[0].startswith("-"):
        if left[0] == "--log-file":
            del left[1:2]
        elif left[0] != "--verbose" and not left[0].startswith("--log-file="):
            return ""
        del left[0]
    options = left[: left.index("--")] if "--" in left else left
    if left[:1] not in (["collect"], ["verify"]) or _ONLY_SHOWS & set(options):
        return ""
    return left[0]


def _supervise(arguments: Sequence[str]) -> Supervised:
    """Fork the run until it is finished, and exit with its code; return only in a forked run."""
    signals = _Signals()
    death: Death | None = None
    directory: str | None = None
    command = shlex.join(["gym", *arguments])
    num_deaths = 0
    while True:
        try:
            report, reported = map(out_of_reach, os.pipe())
            # Only this process holds the second end: the run reads its end of file when it dies.
            guard, guarded = map(out_of_reach, os.pipe())
            process = signals.fork()
        except OSError as error:  # memory, processes or descriptors are short
            _say(f"error: the run cannot be started: {error.strerror}; resume with: {command}")
            sys.exit(4)
        if not process:
            os.close(report)
            os.close(guarded)
            return Supervised(reported, guard, os.getpid(), signals.passed_on, death, directory)
        os.close(reported)
        os.close(guard)
        run = _Run(process, report, command, directory)
        run.watch(signals)
        os.close(report)
        os.close(guarded)
        command, directory = run.command, run.directory
        if run.exit_code is not None:
            sys.exit(run.exit_code)
        if run.cause is not None:
            _end_stopped(run)
        death = run.death()
        # A run that makes progress may die any number of times.
        num_deaths = 1 if run.has_recorded else num_deaths + 1
        if num_deaths == _MAX_DEATHS:
            _end_dead(run, death)
        _clear_stack(directory)
        _say(f"the run died: {death.how}; restarting it")


class _Signals:
    """The signals that reach this process, read from a wake-up descriptor."""

    def __init__(self) -> None:
        self._before = {
            number: handler
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
            if (handler := signal.getsignal(number)) is not signal.SIG_IGN
        }
        self.passed_on = frozenset(self._before)
        self._before[signal.SIGCHLD] = signal.SIG_DFL  # a parent may have left it ignored
        self._arrivals, wake_up = map(out_of_reach, os.pipe())
        os.set_blocking(self._arrivals, False)
        os.set_blocking(wake_up, False)
        # Not `signal.sigtimedwait`: in CPython 3.6 to 3.13 it returns garbage if a stop (Ctrl-Z)
        # interrupts it and its time is over by then, and macOS does not have it.
        signal.set_wakeup_fd(wake_up, warn_on_full_buffer=False)
        for number in self._before:
            signal.signal(number, _do_nothing)
        self._poll = select.poll()
        self._poll.register(self._arrivals, select.POLLIN)

    def wait(self, seconds: float) -> bytes:
        """Return the numbers of the signals that arrived; wait for one if there is none."""
        self._poll.poll(seconds * 1000)
        try:
            return os.read(self._arrivals, 1024)
        except BlockingIOError:
            return b""

    def fork(self) -> int:
        """Fork as `os.fork` does; the child has its old handlers, and blocks what is passed on."""
        # While they are blocked, they stay pending: neither process misses one.
        signal.pthread_sigmask(signal.SIG_BLOCK, self.passed_on)
        process = os.fork()
        if process:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, self.passed_on)
            return process
        os.close(signal.set_wakeup_fd(-1))
        os.close(self._arrivals)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        return 0


def _do_nothing(number: int, frame: FrameType | None) -> None:
    pass  # Python has written the number to the wake-up descriptor


def _say(text: str) -> None:
    with suppress(OSError):  # stderr is closed or its reader has left
        # A run that was killed has not cleared its live display or shown the cursor again.
        mark = _AFTER_DISPLAY if os.isatty(2) and os.environ.get("TERM") != "dumb" else ""
        os.write(2, f"{mark}{text}\n".encode(errors="backslashreplace"))


def _end_stopped(run: _Run) -> NoReturn:
    saved = f"records so far are in {run.directory}" if run.directory else "nothing was started"
    word, code = ("interrupted", 130) if run.cause == signal.SIGINT else ("terminated", 143)
    _say(f"{word}: {saved}; resume with: {run.command}")
    sys.exit(code)


def _end_dead(run: _Run, death: Death) -> NoReturn:
    where = f"; the stack is in {run.directory}/{STACK_FILE}" if death.stack else ""
    _say(
        f"error: the run died {_MAX_DEATHS} times without a new record, the last time: {death.how}"
        f"{where}; fix the environment or its task, or lower --concurrency if memory is short, "
        f"and resume with: {run.command}"
    )
    sys.exit(4)


class _Run:
    """One process of the run, from its fork to its end."""

    def __init__(self, process: int, report: int, command: str, directory: str | None) -> None:
        self.command = command
        self.directory = directory
        self.has_recorded = False
        self.exit_code: int | None = None
        """Reported by the run; None: it has not finished."""
        self.cause: signal.Signals | None = None
        """The first signal that was passed on, if any."""
        self._process = process
        self._report = report
        os.set_blocking(report, False)
        self._unread = b""
        self._patience = _START_PATIENCE
        self._ends = math.inf
        """When the run is killed."""
        self._num_signals = 0
        self._last: dict[signal.Signals, float] = {}
        self._status = 0
        self._is_stopped = False
        self._stopped_at = -math.inf
        self._has_failed = False

    def watch(self, signals: _Signals) -> None:
        """Pass signals on, and kill the run when its time is over; return when it has ended."""
        while not self._has_ended():
            try:
                self._look_at_stack()
                self._wait(signals)
            except Exception as error:  # noqa: BLE001  # the run would end with this process
                if not self._has_failed:
                    _say(f"the supervisor failed and goes on watching the run: {error!r}")
                self._has_failed = True
                time.sleep(_TICK_SECONDS)
        self._read_report()

    def _wait(self, signals: _Signals) -> None:
        began = time.monotonic()
        seconds = max(0.0, min(self._ends - began, _TICK_SECONDS))
        numbers = signals.wait(seconds)
        now = time.monotonic()
        late = now - began - seconds
        if late > _LATE_SECONDS:  # nothing could end in this time
            self._ends += late
            self._stopped_at = now
        self._read_report()
        for number in sorted(signals.passed_on.intersection(numbers)):
            self._pass_on(number)
        if now >= self._ends:
            os.kill(self._process, signal.SIGKILL)

    def _look_at_stack(self) -> None:
        stack = _end_of_stack(self.directory)
        now = time.monotonic()
        if stack and (self._is_stopped or now - self._stopped_at < _STOP_SECONDS):
            _clear_stack(self.directory)  # if it is blocked as well, it writes its stack again
        elif stack.startswith(_BLOCKED):
            self._ends = min(self._ends, now + _STACK_SECONDS)

    def death(self) -> Death:
        stack = _end_of_stack(self.directory)
        if stack.startswith(_BLOCKED):
            return Death("an environment blocked it for too long", stack)
        code = os.waitstatus_to_exitcode(self._status)
        if code >= 0:
            return Death(f"it exited with status {code} before it was finished", stack)
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        hint = ", perhaps because memory was short" if name == "SIGKILL" else ""
        return Death(f"it was killed by {name}{hint}", stack)

    def _has_ended(self) -> bool:
        while True:
            # Also when Ctrl-Z stops the run and `fg` continues it.
            process, status = os.waitpid(self._process, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if not process:
                return False
            if not os.WIFSTOPPED(status) and not os.WIFCONTINUED(status):
                self._status = status
                return True
            self._is_stopped = os.WIFSTOPPED(status)
            self._stopped_at = time.monotonic()

    def _pass_on(self, number: signal.Signals) -> None:
        now = time.monotonic()
        before = self._last.get(number, -_REPEAT_SECONDS)
        if now - before < _REPEAT_SECONDS:
            return
        self._last[number] = now
        self._num_signals += 1
        self.cause = self.cause or number
        # The run stops after its grace at the first signal and now at the second. If both had no
        # effect, its code is stuck.
        if self._num_signals > 2:
            os.kill(self._process, signal.SIGKILL)
            return
        os.kill(self._process, number)
        ends = now + (self._patience if self._num_signals == 1 else _SECOND_PATIENCE)
        self._ends = min(self._ends, ends)  # a later signal never gives the run more time

    def _read_report(self) -> None:
        """Read the reports of the run without waiting: its forks may keep the pipe open."""
        with suppress(BlockingIOError):
            while data := os.read(self._report, 65_536):
                self._unread += data
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            tag, _, value = line.partition(b" ")
            # Environment code may write anything to the descriptors that it inherits.
            with suppress(ValueError):
                self._note(tag.decode(), os.fsdecode(bytes.fromhex(value.decode())))

    def _note(self, tag: str, text: str) -> None:
        if tag == Tag.DIRECTORY:
            self.directory = text
        elif tag == Tag.COMMAND:
            self.command = text
        elif tag == Tag.PATIENCE:
            self._patience = float(text)
        elif tag == Tag.RECORDED:
            self.has_recorded = True
        elif tag == Tag.FINISHED:
            self.exit_code = int(text)
            self._ends = time.monotonic() + _FINISHED_PATIENCE


def _end_of_stack(directory: str | None) -> str:
    """Return the first line of faulthandler's report and the stack of the thread at fault."""
    if directory is None:
        return ""
    try:
        with open(os.path.join(directory, STACK_FILE), "rb") as file:  # noqa: PTH118, PTH123  # light
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    # A fatal error names its thread; otherwise it is the main thread, which comes last.
    threads = text.rstrip().split("\n\n")
    thread = next((stack for stack in threads if "Current thread" in stack), threads[-1])
    first = text.partition("\n")[0]
    return (thread if thread.startswith(first) else f"{first}\n{thread}")[:_MAX_STACK_CHARACTERS]


def _clear_stack(directory: str | None) -> None:
    if directory is not None:
        with suppress(OSError):  # the run has removed it
            os.truncate(os.path.join(directory, STACK_FILE), 0)  # noqa: PTH118  # light
