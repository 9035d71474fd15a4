"""Tests of real signals to real processes: what they end, what is saved, what survives."""

import functools
import os
import pty
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.builders import clean_environment, gym, gym_process, lines_of
from tests.processes import TOO_LONG, heed_signals, wait_until

# 128 + the number of the signal; a hangup counts as SIGTERM.
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 143}
WORDS = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "terminated",
}
OTHERS = {
    signal.SIGINT: signal.SIGTERM,
    signal.SIGTERM: signal.SIGHUP,
    signal.SIGHUP: signal.SIGINT,
}
"""A different kind, because two signals of one kind in quick succession count as one."""

HELD = ("--model", "oracle", "--env", "tests.commands.held:Held", "--concurrency", "2")


class Running(NamedTuple):
    """A command in a separate process, with its stderr in a file."""

    process: subprocess.Popen
    said: Path

    @property
    def text(self) -> str:
        """What it has written to stderr so far."""
        return self.said.read_text()

    def wait_until(self, is_reached: Callable[[], object]) -> None:
        """Wait until this holds; fail if the process ends first."""
        wait_until(lambda: is_reached() or self.process.poll() is not None)
        assert is_reached(), self.text

    def end(self) -> int:
        """Wait for the end and return the exit code."""
        return self.process.wait(TOO_LONG)


@pytest.fixture
def start(tmp_path, working_folder, monkeypatch):
    """Return a function that starts a command; the fixture ends it whatever the test does."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    rows = (f'{{"id": "t{n}", "prompt": "Go."}}\n' for n in range(6))
    Path("t.jsonl").write_text("".join(rows))
    started = []

    def start(*arguments: str | Path, hangup: signal.Handlers = signal.SIG_DFL) -> Running:
        said = tmp_path / f"stderr-{len(started)}"
        with said.open("wb") as file, Path("stdout").open("wb") as out:
            process = subprocess.Popen(
                gym_process(*arguments, hangup=hangup),
                env=clean_environment(),
                stdout=out,
                stderr=file,
            )
        started.append(process)
        return Running(process, said)

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()


def reached() -> list[str]:
    """Return the tasks whose attempts have reached their step."""
    return sorted(path.name.removeprefix("reached-") for path in Path().glob("reached-*"))


def collect_held(start, *options: str) -> Running:
    """Start a collection whose first two attempts wait in their step."""
    Path("held").touch()
    running = start("collect", "t.jsonl", *HELD, "--out", "run", *options)
    running.wait_until(lambda: len(reached()) == 2)
    return running


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, marks=pytest.mark.slow),
    ],
)
def test_a_first_signal_lets_what_is_in_flight_end(start, number):
    """No attempt starts after it; the command that it prints does the rest."""
    running = collect_held(start, "--grace", "600")
    running.process.send_signal(number)
    again = "press Ctrl-C again" if number == signal.SIGINT else "send the signal again"
    told = f"{WORDS[number]}: no new attempts; 2 in flight get 600 s; {again} to stop now\n"
    running.wait_until(lambda: told in running.text)
    Path("held").unlink()
    assert running.end() == CODES[number]
    assert len(lines_of(Path("run/rollouts.jsonl"))) == 2
    assert not Path("run/failures.jsonl").exists()
    assert len(reached()) == 2
    last = running.text.splitlines()[-1]
    head, _, command = last.partition("resume with: ")
    assert head == f"{WORDS[number]}: 2 of 6 attempts are scored; "
    assert "mean reward" in Path("stdout").read_text()
    name, *arguments = shlex.split(command)
    assert name == "gym"
    gym(*arguments, exit_code=0)
    assert len(lines_of(Path("run/rollouts.jsonl"))) == 6


def test_a_hangup_that_is_ignored_ends_nothing(start):
    """As under nohup, which starts a command with SIGHUP ignored."""
    running = collect_held(functools.partial(start, hangup=signal.SIG_IGN))
    running.process.send_signal(signal.SIGHUP)
    Path("held").unlink()
    assert running.end() == 0, running.text
    assert len(lines_of(Path("run/rollouts.jsonl"))) == 6


def test_what_outlasts_the_grace_is_cut_off_and_recorded(start):
    running = collect_held(start, "--grace", "0.05")
    running.process.send_signal(signal.SIGINT)
    assert running.end() == 130
    failures = lines_of(Path("run/failures.jsonl"))
    assert sorted(line["task_id"] for line in failures) == reached()
    for line in failures:
        assert line["error"] == {
            "class": "CancelledAttemptError",
            "phase": "environment",
            "message": "the run was ended first: interrupted",
        }
        assert [message["role"] for message in line["messages"]] == ["user", "assistant"]
    assert "0 of 6 attempts are scored" in running.text
    assert "Traceback" not in running.text
    Path("held").unlink()
    gym("collect", "t.jsonl", *HELD, "--out", "run", "--no-retry", exit_code=0)
    assert len(lines_of(Path("run/rollouts.jsonl"))) == 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "options", "code"),
    [
        ("signal", ("--grace", "0.05"), 143),
        ("budget", ("--grace", "0", "--max-run-time", "3"), 6),
        ("signal while it closes", ("--grace", "0.05"), 143),
        ("two signals", ("--grace", "0.05"), 143),
    ],
)
def test_a_record_is_written_before_its_environment_closes(start, how, options, code):
    """The environment may then take its time to close; only a second signal cuts that short."""
    Path("stuck").touch()
    running = collect_held(start, *options)
    if how == "signal while it closes":
        Path("held").unlink()
        running.wait_until(lambda: len([*Path().glob("closing-*")]) == 2)
    if how != "budget":
        running.process.send_signal(signal.SIGTERM)
    failures = Path("run/failures.jsonl")
    running.wait_until(lambda: failures.exists() and len(lines_of(failures)) == 2)
    assert running.process.poll() is None
    if how == "two signals":
        running.process.send_signal(signal.SIGINT)
    else:
        Path("stuck").unlink()
    assert running.end() == code, running.text
    closed = sorted(path.name.removeprefix("closed-") for path in Path().glob("closed-*"))
    assert closed == ([] if how == "two signals" else reached())
    assert sorted(line["task_id"] for line in lines_of(failures)) == reached()


@pytest.mark.slow
@pytest.mark.parametrize("second", CODES)
def test_a_second_signal_ends_at_once(start, second):
    """Even if an environment's `close` never ends; the records are whole."""
    Path("stuck").touch()
    running = collect_held(start, "--grace", "600")
    first = OTHERS[second]
    running.process.send_signal(first)
    running.wait_until(lambda: "again to stop now" in running.text)
    running.process.send_signal(second)
    assert running.end() == CODES[first]
    assert sorted(line["task_id"] for line in lines_of(Path("run/failures.jsonl"))) == reached()


def test_the_command_to_go_on_names_what_fresh_made(start):
    """Without `--out` the same command would start another run."""
    Path("runs").mkdir()
    Path("held").touch()
    running = start("collect", "t.jsonl", "--fresh", *HELD, "--grace", "0")
    running.wait_until(lambda: len(reached()) == 2)
    running.process.send_signal(signal.SIGINT)
    assert running.end() == 130
    (run,) = Path("runs").iterdir()
    command = running.text.splitlines()[-1].partition("resume with: ")[2]
    expected = ["gym", "collect", "t.jsonl", *HELD, "--grace", "0", "--out", str(run)]
    assert shlex.split(command) == expected


def test_a_signal_while_the_last_attempts_end_leaves_nothing_to_go_on_with(start):
    running = collect_held(start, "--limit", "2")
    running.process.send_signal(signal.SIGHUP)
    running.wait_until(lambda: "send the signal again to stop now" in running.text)
    Path("held").unlink()
    assert running.end() == CODES[signal.SIGHUP]
    last = f"{WORDS[signal.SIGHUP]}: 2 of 2 attempts are scored"
    assert running.text.splitlines()[-1] == last
    assert '"ended_at"' in Path("run/run.json").read_text()


def test_a_signal_after_the_run_directory_was_deleted(start):
    """The message says that the run was deleted, not that no such run exists."""
    running = collect_held(start, "--grace", "600")
    shutil.rmtree("run")
    running.process.send_signal(signal.SIGINT)
    Path("held").unlink()
    assert running.end() == 4
    assert "run: was deleted while it was being written" in running.text.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("number", CODES)
def test_a_third_signal_ends_what_computes_in_the_loop(start, number):
    """The command reports each signal immediately, and no more attempts start."""
    Path("blocking").touch()
    running = start("collect", "t.jsonl", *HELD, "--out", "run")
    running.wait_until(reached)
    running.process.send_signal(number)
    running.wait_until(lambda: "again to stop now" in running.text)
    running.process.send_signal(OTHERS[number])
    running.wait_until(lambda: "again to quit now" in running.text)
    running.process.send_signal(OTHERS[OTHERS[number]])
    assert running.end() == CODES[number]
    assert running.text.splitlines()[-1] == WORDS[number]
    assert "Traceback" not in running.text
    assert len(reached()) <= 2
    Path("blocking").unlink()
    gym("collect", "t.jsonl", *HELD, "--out", "run", exit_code=0)
    assert len(lines_of(Path("run/rollouts.jsonl"))) == 6


def test_a_thread_that_is_stuck_keeps_no_run(start):
    """Neither the summary nor the end of the process waits for it."""
    Path("threaded").touch()
    running = start("collect", "t.jsonl", *HELD, "--out", "run", "--grace", "0")
    running.wait_until(lambda: len(reached()) == 2)
    running.process.send_signal(signal.SIGTERM)
    assert running.end() == 143
    assert running.text.splitlines()[-1].startswith("terminated: 0 of 6 attempts are scored; ")
    assert len(lines_of(Path("run/failures.jsonl"))) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "line"),
    [
        (signal.SIGINT, ("collect", "t.jsonl", "--model", "oracle", "--env", "sudden.py:Sudden")),
        (signal.SIGTERM, ("check", "sudden.py:Sudden")),
        *((number, ("envs", "sudden.py:Sudden")) for number in CODES),
    ],
)
def test_a_signal_ends_any_command(start, number, line):
    """It prints one line, exits with the code of the signal, and runs `finally` blocks."""
    Path("sudden.py").write_text(
        f"import os\nfrom pathlib import Path\ntry:\n    os.kill(os.getpid(), {int(number)})\n"
        "finally:\n    Path('closed').touch()\n"
    )
    running = start(*line)
    assert running.end() == CODES[number]
    assert running.text == f"{WORDS[number]}\n"
    assert Path("closed").exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", CODES)
def test_a_signal_ends_a_command_that_waits(start, number):
    """This holds inside an event loop too; the waiting conversation still waits for its score."""
    Path("computing").touch()
    first = start("collect", "t.jsonl", *HELD, "--out", "run", "--limit", "1")
    first.wait_until(Path("computing-t0").exists)
    first.process.kill()
    assert first.end() == -signal.SIGKILL
    Path("computing-t0").unlink()
    line = ("verify", "run", "--pending", "--env", "tests.commands.held:Held")
    running = start(*line)
    running.wait_until(Path("computing-t0").exists)
    running.process.send_signal(number)
    assert running.end() == CODES[number]
    assert running.text == f"{WORDS[number]}\n"
    assert not Path("run/failures.jsonl").exists()
    Path("computing").unlink()
    gym(*line, exit_code=0)
    assert len(lines_of(Path("run/rollouts.jsonl"))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("number", CODES)
def test_a_signal_ends_a_rescoring_that_waits(start, number):
    gym("collect", "t.jsonl", *HELD, "--out", "run", exit_code=0)
    Path("computing").touch()
    running = start("verify", "run", "--env", "tests.commands.held:Held")
    running.wait_until(lambda: list(Path().glob("computing-*")))
    running.process.send_signal(number)
    assert running.end() == CODES[number]
    assert running.text == f"{WORDS[number]}\n"


def is_alive(pid: int) -> bool:
    """Return whether a process still runs; a zombie does not."""
    asked = ["ps", "-o", "stat=", "-p", str(pid)]
    state = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return bool(state) and not state.startswith("Z")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_no_worker_outlives_a_run(start, number):
    """The finished conversation is saved, and the next command scores it."""
    Path("computing").touch()
    running = start("collect", "t.jsonl", *HELD, "--out", "run", "--limit", "1")
    worker = Path("computing-t0")
    running.wait_until(worker.exists)
    pid = int(worker.read_text())
    assert is_alive(pid)
    running.process.send_signal(number)
    if number is not signal.SIGKILL:
        running.wait_until(lambda: "again to stop now" in running.text)
        running.process.send_signal(OTHERS[number])
    assert running.end() == CODES.get(number, -signal.SIGKILL)
    wait_until(lambda: not is_alive(pid))
    Path("computing").unlink()
    reached_before = Path("reached-t0").stat().st_mtime_ns
    gym("collect", "t.jsonl", *HELD, "--out", "run", "--limit", "1", exit_code=0)
    assert Path("reached-t0").stat().st_mtime_ns == reached_before


@pytest.mark.parametrize("number", CODES)
def test_a_signal_when_the_command_is_over_ends_the_process(number):
    """It ends quietly with the command's exit code, whatever else still runs."""
    code = (
        f"{heed_signals()}\n"
        "import threading\n"
        "from gymcli.commands.signals import exit_at_signals, raise_at_signals\n"
        "raise_at_signals()\n"
        "exit_at_signals(6)\n"
        "threading.Thread(target=threading.Event().wait).start()\n"
        "print('over', flush=True)\n"
    )
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "over\n"
        process.send_signal(number)
        assert process.communicate(timeout=TOO_LONG)[1] == ""
    assert process.returncode == 6


def test_the_live_display_survives_a_signal(start):
    """The line is printed above the display, and the cursor is visible again at the end."""
    Path("held").touch()
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        gym_process("collect", "t.jsonl", *HELD, "--out", "run", "--grace", "0.05"),
        env={**clean_environment(), "TERM": "xterm", "COLUMNS": "100", "LINES": "20"},
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    # With the only other end in the command, its exit ends the reading below.
    os.close(theirs)
    try:
        shown = b""
        while b"waiting for the first answers" not in shown:
            shown += os.read(ours, 65_536)
        wait_until(lambda: len(reached()) == 2)
        process.send_signal(signal.SIGINT)
        try:
            while piece := os.read(ours, 65_536):
                shown += piece
        except OSError:  # Linux raises EIO when the other side has closed
            pass
        assert process.wait(TOO_LONG) == 130
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    text = shown.decode()
    assert "interrupted: no new attempts; 2 in flight get 0.05 s" in text
    assert "failed: 2 CancelledAttemptError" in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1
