"""The console script: `gym collect` survives the death of its process.

The code of an environment may block, crash or exit the process in which it runs. So this process
stays small: it forks the run before anything heavy is imported, passes signals on, and restarts the
run if it dies without reporting that it is finished. All other commands run in this process. The
fork stays in the same process group, so that job control and `breakpoint()` work.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from gymcli.store.supervised import STACK_FILE, Death, Supervised, Tag

__all__ = ["main"]

_HAS_TIMED_WAIT = sys.platform != "darwin"
_TICK_SECONDS = 1.0 if _HAS_TIMED_WAIT else 0.05
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
_MAX_DEATHS = 3
_BLOCKED = "Timeout ("
"""The start of faulthandler's report about a blocked process."""
_MAX_STACK_CHARACTERS = 2000
_ONLY_SHOWS = {"--help", "-h", "--dry-run", "--version"}
_AFTER_DISPLAY = "\r\n\x1b[?25h"  # a new line, and the cursor is shown again
_AGAIN = "restarting it"


def main() -> None:
    """Run the command line; `collect` runs in a process that is restarted when it dies."""
    command = _scoring_command(sys.argv[1:])
    supervised = _supervise(sys.argv[1:]) if command == "collect" else None
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
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a parent may have left it ignored
    passed_on = frozenset(
        number
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    )
    # Blocked, so that they stay pending until `_next_signal` takes them: none is lost in between.
    signal.pthread_sigmask(signal.SIG_BLOCK, {*passed_on, signal.SIGCHLD})
    death: Death | None = None
    directory: str | None = None
    command = shlex.join(["gym", *arguments])
    num_deaths = 0
    while True:
        report, reported = map(_above_standard, os.pipe())
        # Only this process holds the second end, so the run reads its end of file when it dies.
        guard, guarded = map(_above_standard, os.pipe())
        process = os.fork()
        if not process:
            os.close(report)
            os.close(guarded)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            return Supervised(reported, guard, os.getpid(), passed_on, death, directory)
        os.close(reported)
        os.close(guard)
        run = _Run(process, report, passed_on, command, directory)
        run.wait()
        os.close(report)
        os.close(guarded)
        command, directory = run.command, run.directory
        if run.exit_code is not None:
            sys.exit(run.exit_code)
        if run.cause is not None:
            _end_stopped(run)
        found = run.death()
        if run.was_stopped and found.stack.startswith(_BLOCKED):
            death = None
            _say(f"the run was stopped for longer than its blocking_timeout; {_AGAIN}")
            continue
        death = found
        # A run that makes progress may die any number of times.
        num_deaths = 1 if run.has_recorded else num_deaths + 1
        if num_deaths == _MAX_DEATHS:
            _end_dead(run, death)
        _say(f"the run died: {death.how}; {_AGAIN}")


def _above_standard(descriptor: int) -> int:
    """Move a descriptor above 2: stdin, stdout and stderr may be closed and their numbers free."""
    if descriptor > 2:
        return descriptor
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return moved


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

    def __init__(
        self,
        process: int,
        report: int,
        passed_on: frozenset[signal.Signals],
        command: str,
        directory: str | None,
    ) -> None:
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
        self._awaited = {*passed_on, signal.SIGCHLD}
        self._patience = _START_PATIENCE
        self._ends: float | None = None
        """When the run is killed; None: never."""
        self._num_signals = 0
        self._last: dict[signal.Signals, float] = {}
        self._status = 0
        self._is_stopped = False
        self._stopped_at = -_STOP_SECONDS

    def wait(self) -> None:
        looked_at = time.monotonic()
        while not self._has_ended():
            left = _TICK_SECONDS if self._ends is None else self._ends - time.monotonic()
            number = _next_signal(self._awaited, max(0.0, min(left, _TICK_SECONDS)))
            before, looked_at = looked_at, time.monotonic()
            if self._is_stopped or looked_at - before > 2 + _TICK_SECONDS:
                self._stopped_at = looked_at  # a late wake-up: this process was stopped as well
            self._read_report()
            if number is not None and number != signal.SIGCHLD:
                self._pass_on(number)
            if self._ends is not None and time.monotonic() >= self._ends:
                os.kill(self._process, signal.SIGKILL)
        self._read_report()

    @property
    def was_stopped(self) -> bool:
        return time.monotonic() - self._stopped_at < _STOP_SECONDS

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
            if os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
                self._is_stopped = os.WIFSTOPPED(status)
                self._stopped_at = time.monotonic()
                continue
            if self._is_stopped:
                self._stopped_at = time.monotonic()
            self._status = status
            return True

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
        # A later signal never gives the run more time.
        self._ends = ends if self._ends is None else min(self._ends, ends)

    def _read_report(self) -> None:
        """Read the reports of the run without waiting: its forks may keep the pipe open."""
        with suppress(BlockingIOError):
            while data := os.read(self._report, 65_536):
                self._unread += data
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            tag, _, value = line.decode().partition(" ")
            text = os.fsdecode(bytes.fromhex(value))
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


def _next_signal(awaited: set[signal.Signals], seconds: float) -> signal.Signals | None:
    if sys.platform == "darwin":
        # macOS has no sigtimedwait and drops a pending SIGCHLD, so the caller polls.
        pending = signal.sigpending() & awaited
        if not pending:
            time.sleep(seconds)
            pending = signal.sigpending() & awaited
        return signal.Signals(signal.sigwait(pending)) if pending else None
    else:  # noqa: RET505  # mypy follows one platform at a time
        info = signal.sigtimedwait(awaited, seconds)
        return None if info is None else signal.Signals(info.si_signo)


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
    thread = next((one for one in threads if "Current thread" in one), threads[-1])
    first = text.partition("\n")[0]
    return (thread if thread.startswith(first) else f"{first}\n{thread}")[:_MAX_STACK_CHARACTERS]
