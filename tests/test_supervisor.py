"""Tests of the supervisor: `gym collect` survives the death of the process that runs it."""

import os
import resource
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from gymcli.supervisor import _scoring_command
from tests.builders import clean_environment, gym, lines_of, write_rows
from tests.processes import TOO_LONG, heed_signals, state_of, wait_until

ENVIRONMENT = '''"""Does what its row says."""

import asyncio
import ctypes
import fcntl
import os
import re
import signal
import stat
import sys
from pathlib import Path

from gymcli import Context, Environment, Message, Rollout, Score, Step, Task


FILES: list[int] = []


class Row(Task):
    do: str = ""


def is_written(number: int) -> bool:
    try:
        mode = os.fstat(number).st_mode
        return stat.S_ISFIFO(mode) and bool(fcntl.fcntl(number, fcntl.F_GETFL) & os.O_WRONLY)
    except OSError:
        return False


class Rough(Environment[Row]):
    """Say anything."""

    blocking_timeout = 1.0
    close_timeout = 1.0

    async def step(self, message: Message) -> Step:
        if self.task.do:
            await getattr(self, "do_" + self.task.do)()
        return Step([])

    async def do_exit(self) -> None:
        os._exit(0)

    async def do_exit_once(self) -> None:
        if not Path("once").exists():
            Path("once").touch()
            os._exit(7)

    async def do_crash(self) -> None:
        ctypes.string_at(0)

    async def do_block(self) -> None:
        sum(range(10**12))

    async def do_block_alone(self) -> None:
        Path("reached").write_text(str(os.getpid()))
        while Path("held").exists():
            await asyncio.sleep(0.01)

    async def do_search(self) -> None:
        Path("reached").write_text(str(os.getpid()))
        re.match(r"(a+)+$", "a" * 40 + "!")

    async def do_scribble(self) -> None:
        # The first pipe that can be written is the one to the supervisor.
        number = 3
        while not is_written(number):
            number += 1
        os.write(number, b"finished x\\nfinished 7a\\n\\xff\\xff")

    async def do_cancel(self) -> None:
        for task in asyncio.all_tasks():
            task.cancel()
        await asyncio.sleep(0)

    async def do_stop(self) -> None:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)

    async def do_patch(self) -> None:
        asyncio.wait = None

    async def do_shut(self) -> None:
        folder = os.stat("run")
        for number in range(3, 256):
            try:
                if os.path.samestat(os.fstat(number), folder):
                    os.close(number)
            except OSError:
                pass

    async def do_leave(self) -> None:
        async def leave() -> None:
            left.set()
            sys.exit(0)

        left = asyncio.Event()
        self.leaving = asyncio.create_task(leave())
        await left.wait()

    async def do_print(self) -> None:
        print("printed by Python")
        sys.stdout.flush()
        os.write(1, b"written to 1\\n")
        os.system("echo said by a child")

    async def do_close(self) -> None:
        print("printed before")
        sys.stdout.close()
        os.close(1)
        print("printed after")

    async def do_fork(self) -> None:
        for _ in range(3):
            os.fork()

    async def do_fill(self) -> None:
        try:
            while True:
                FILES.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass

    async def do_move(self) -> None:
        os.chdir("/")

    async def oracle(self, rollout: Rollout) -> Message:
        return Message(role="assistant", content="anything")

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        return Score(1.0)
'''

COMMAND = ("collect", "t.jsonl", "--env", "rough.py:Rough", "--model", "oracle", "--out", "run")


class Running(NamedTuple):
    """A supervised command, with its output in files."""

    process: subprocess.Popen
    number: int

    @property
    def stderr(self) -> str:
        """What it has written to stderr so far."""
        return Path(f"stderr-{self.number}").read_text()

    @property
    def stdout(self) -> str:
        """What it has written to stdout so far."""
        return Path(f"stdout-{self.number}").read_text()

    def end(self) -> int:
        """Wait for the end and return the exit code."""
        return self.process.wait(TOO_LONG)

    def run_of(self, path: str = "reached") -> int:
        """Return the id of the run's process, once an environment has written it."""
        self.wait_until(lambda: Path(path).exists() and Path(path).read_text())
        return int(Path(path).read_text())

    def wait_until(self, is_reached: Callable[[], object]) -> None:
        """Wait until this holds; fail if the process ends first."""
        wait_until(lambda: is_reached() or self.process.poll() is not None)
        assert is_reached(), self.stderr


@pytest.fixture
def start(working_folder, monkeypatch):
    """Return a function that starts a supervised command."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    Path("rough.py").write_text(ENVIRONMENT)
    started = []

    def start(*arguments: str, redirection: str = "", before: str = "") -> Running:
        program = f"{heed_signals()}; from gymcli.supervisor import main; main()"
        line = shlex.join([sys.executable, "-c", program, *arguments])
        number = len(started)
        places = Path(f"stdout-{number}"), Path(f"stderr-{number}")
        with places[0].open("wb") as out, places[1].open("wb") as err:
            # `exec`: a signal to this process must reach the supervisor, not bash.
            process = subprocess.Popen(
                ["bash", "-c", f"{before} exec {line} {redirection}"],
                env=clean_environment(),
                stdout=out,
                stderr=err,
                process_group=0,  # as a shell does, so that a test can stop it
            )
        started.append(process)
        return Running(process, number)

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()


def write_tasks(*do: str) -> None:
    """Write a task for each thing to do."""
    rows = ({"id": f"t{n}", "prompt": "Go.", "do": what} for n, what in enumerate(do))
    write_rows("t.jsonl", rows)


def allow_blocking() -> None:
    """Make the blocking timeout of the environment longer than any test."""
    source = Path("rough.py").read_text()
    source = source.replace("blocking_timeout = 1.0", "blocking_timeout = 600.0")
    Path("rough.py").write_text(source)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("collect t.jsonl", "collect"),
        ("--verbose --log-file l collect t.jsonl", "collect"),
        ("--log-file=l collect t.jsonl", "collect"),
        ("collect t.jsonl -- --help", "collect"),
        ("collect --help", ""),
        ("collect t.jsonl --dry-run", ""),
        ("--version collect", ""),
        ("--log-file collect", ""),
        ("verify run", "verify"),
        ("verify --help", ""),
        ("metrics run", ""),
        ("", ""),
    ],
)
def test_a_command_that_scores_is_known_by_its_arguments(line, expected):
    assert _scoring_command(line.split()) == expected


INTERRUPTED = """
import os, signal, sys
from gymcli.supervisor import main
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name in ("gymcli.cli", "gymcli.rollout.fork_server"):
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
main()
"""


@pytest.mark.parametrize("line", ["envs", "verify run"])
def test_an_interrupt_of_an_import_shows_no_traceback(line):
    command = [sys.executable, "-c", INTERRUPTED, *line.split()]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 130
    assert (run.stdout, run.stderr) == ("", "interrupted\n")


def test_the_supervisor_imports_nothing_heavy():
    program = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "import gymcli.supervisor\n"
        "heavy = {'typer', 'asyncio', 'threading', 'subprocess', 'gymcli.cli'}\n"
        "print(sorted(heavy & set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"[]\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("do", "how"),
    [
        ("exit", "it exited with status 0 before it was finished"),
        ("crash", "it was killed by SIGSEGV"),
        ("block", "an environment blocked it for too long"),
    ],
)
def test_an_attempt_that_ends_the_process_twice_is_recorded(start, do, how):
    """The command scores all others; this one is only retried on request."""
    write_tasks("", "", do, "", "")
    command, tasks, *options = COMMAND
    running = start(command, *options, "--concurrency", "2", "--min-coverage", "0", "--", tasks)
    assert running.end() == 0, running.stderr
    assert running.stderr.count(f"the run died: {how}; restarting it\n") == 2
    assert len(lines_of(Path("run/rollouts.jsonl"))) == 4
    (failure,) = lines_of(Path("run/failures.jsonl"))
    assert failure["task_id"] == "t2"
    assert failure["error"]["class"] == "CrashedAttemptError"
    assert failure["error"]["phase"] == "environment"
    assert how in failure["error"]["message"]
    if do != "exit":
        assert f"in do_{do}" in failure["error"]["message"]
    assert not Path("run/begun").exists()
    assert not Path("run/blocked.stack").exists()
    warning = running.stderr.splitlines()[-1]
    assert warning.startswith("warning: 1 attempt is not retried")
    name, *again = shlex.split(warning.partition("retry with: ")[2])
    assert (name, again[-3:]) == ("gym", ["--retry-crashed", "--", tasks])
    gym(*again[:-3], *again[-2:], exit_code=0)  # with it this process would end here


@pytest.mark.slow
@pytest.mark.parametrize(
    ("do", "num_deaths"), [("cancel", 2), ("stop", 0), ("patch", 0), ("shut", 1)]
)
def test_an_attempt_that_breaks_the_run_affects_no_other(start, do, num_deaths):
    write_tasks("", "", do, "", "")
    running = start(*COMMAND, "--concurrency", "2", "--min-coverage", "0")
    assert running.end() == 0, running.stderr
    assert running.stderr.count("exited with status 1 before it was finished") == num_deaths
    assert "Traceback" not in running.stderr
    assert len(lines_of(Path("run/rollouts.jsonl"))) == (4 if do == "cancel" else 5)
    if do == "cancel":
        (failure,) = lines_of(Path("run/failures.jsonl"))
        assert failure["task_id"] == "t2"
        assert failure["error"]["class"] == "CrashedAttemptError"


def test_an_attempt_that_ends_the_process_once_is_scored(start):
    """A restart goes on with the directory that --fresh made."""
    write_tasks("", "exit_once", "", "exit_once")
    running = start(*COMMAND[:-2], "--fresh")
    assert running.end() == 0, running.stderr
    assert running.stderr.count("exited with status 7") == 1
    (run,) = Path("runs").iterdir()
    assert len(lines_of(run / "rollouts.jsonl")) == 4
    assert not (run / "failures.jsonl").exists()


@pytest.mark.slow
def test_an_attempt_that_ends_the_process_is_recorded_for_each_model(start, mock_server):
    """After a death the models take turns, so that the attempt that was alone is known."""
    write_tasks("", "exit", "", "")
    models = ("--model", "a", "--model", "b", "--base-url", mock_server.base_url)
    Path("run").mkdir()
    Path("run/other").touch()
    line = (*COMMAND[:4], *models, "--out", "run", "--fresh")
    running = start(*line)
    assert running.end() == 4, running.stderr
    for model in "ab":
        assert len(lines_of(Path(f"run-2/{model}/rollouts.jsonl"))) == 3
        failures = lines_of(Path(f"run-2/{model}/failures.jsonl"))
        assert [(one["task_id"], one["error"]["class"]) for one in failures] == [
            ("t1", "CrashedAttemptError")
        ]
    assert running.stderr.count("restarting it") == 3
    assert sorted(path.name for path in Path("run-2").iterdir()) == ["a", "b"]
    assert not Path("run-3").exists()


@pytest.mark.parametrize("do", [pytest.param("exit", marks=pytest.mark.slow), "cancel"])
def test_three_deaths_without_a_record_end_the_command(start, do):
    write_tasks(do, do, do)
    running = start(*COMMAND, "--concurrency", "1")
    assert running.end() == 4
    if do == "cancel":
        assert "the stack is in run/blocked.stack; fix" in running.stderr
        assert Path("run/blocked.stack").read_text().endswith("CancelledError\n")
    last = running.stderr.splitlines()[-1]
    assert last.startswith("error: the run died 3 times without a new record")
    assert shlex.split(last.partition("resume with: ")[2]) == [
        "gym",
        *COMMAND,
        "--concurrency",
        "1",
    ]


def test_a_killed_run_is_started_again(start):
    """The system may kill it when memory is short."""
    write_tasks("block_alone", "")
    Path("held").touch()
    running = start(*COMMAND)
    first = running.run_of()
    Path("reached").unlink()
    os.kill(first, signal.SIGKILL)
    assert running.run_of() != first
    Path("held").unlink()
    assert running.end() == 0, running.stderr
    assert "the run died: it was killed by SIGKILL" in running.stderr
    assert len(lines_of(Path("run/rollouts.jsonl"))) == 2


def test_nothing_outlives_a_killed_supervisor(start):
    """On Linux, not even a search without end, during which Python runs no other thread."""
    write_tasks("search" if sys.platform == "linux" else "block_alone")
    Path("held").touch()
    allow_blocking()
    running = start(*COMMAND)
    pid = running.run_of()
    running.process.kill()
    running.process.wait()
    wait_until(lambda: not state_of(pid))


@pytest.mark.slow
@pytest.mark.parametrize("is_group", [False, True])
def test_a_stop_is_no_death(start, is_group):
    """It is longer than the blocking timeout, whose clock runs on, and than a wait for a signal."""
    write_tasks("block_alone", "")
    Path("held").touch()
    running = start(*COMMAND)
    pid = running.run_of()
    Path("reached").unlink()
    send = os.killpg if is_group else os.kill  # Ctrl-Z stops the group
    stopped = running.process.pid if is_group else pid
    for num_seconds in (1.5, 4.0):
        send(stopped, signal.SIGSTOP)
        wait_until(lambda: state_of(stopped).startswith("T"))
        stopped_at = time.monotonic()
        wait_until(lambda seconds=num_seconds, at=stopped_at: time.monotonic() > at + seconds)
        send(stopped, signal.SIGCONT)
        wait_until(lambda: not state_of(stopped).startswith("T"))
    Path("held").unlink()
    assert running.end() == 0, running.stderr
    assert "the run died" not in running.stderr
    assert not Path("reached").exists(), "the attempt was played again"
    assert not Path("run/failures.jsonl").exists()


@pytest.mark.slow
def test_a_stop_takes_nothing_from_the_time_in_which_a_run_may_end(start):
    """The run ends by itself, and records what it cuts off."""
    write_tasks("block_alone")
    Path("held").touch()
    running = start(*COMMAND, "--grace", "1")
    running.run_of()
    running.process.send_signal(signal.SIGINT)
    running.wait_until(lambda: "again to stop now" in running.stderr)
    os.killpg(running.process.pid, signal.SIGSTOP)
    stopped_at = time.monotonic()
    wait_until(lambda: time.monotonic() > stopped_at + 8)  # grace, closing and 5 s make 7 s
    os.killpg(running.process.pid, signal.SIGCONT)
    assert running.end() == 130
    (failure,) = lines_of(Path("run/failures.jsonl"))
    assert failure["error"]["class"] == "CancelledAttemptError"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits another process")
@pytest.mark.parametrize("dies", [False, True])
def test_a_supervisor_that_fails_goes_on_watching(start, dies):
    """Without any descriptor it can neither wait for a signal nor start another process."""
    write_tasks("block_alone", "")
    Path("held").touch()
    running = start(*COMMAND)
    pid = running.run_of()
    resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE, (0, 0))
    running.wait_until(lambda: "the supervisor failed and goes on watching" in running.stderr)
    if dies:
        os.kill(pid, signal.SIGKILL)
    Path("held").unlink()
    assert running.end() == (4 if dies else 0)
    assert running.stderr.count("the supervisor failed") == 1
    # Not any traceback: the package coverage, too, cannot write without descriptors.
    assert 'gymcli/supervisor.py", line' not in running.stderr
    errors = [line for line in running.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == dies
    for error in errors:
        assert error.startswith(
            "error: the run cannot be started: Too many open files; resume with"
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "word"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "terminated"),
        (signal.SIGHUP, 143, "terminated"),
    ],
)
def test_a_signal_to_the_supervisor_stops_the_run(start, number, code, word):
    """The run itself prints how to resume."""
    write_tasks("block_alone", "")
    Path("held").touch()
    running = start(*COMMAND, "--grace", "0")
    running.run_of()
    rollouts = Path("run/rollouts.jsonl")
    running.wait_until(lambda: rollouts.exists() and rollouts.read_bytes().endswith(b"\n"))
    running.process.send_signal(number)
    assert running.end() == code
    last = running.stderr.splitlines()[-1]
    assert last.startswith(f"{word}: 1 of 2 attempts are scored; resume with: gym collect")


@pytest.mark.slow
def test_a_terminal_sends_its_signal_to_both(start):
    """The run gets two signals of one kind almost simultaneously, and counts them as one."""
    write_tasks("block_alone", "")
    Path("held").touch()
    running = start(*COMMAND, "--grace", "60")
    pid = running.run_of()
    os.kill(pid, signal.SIGINT)
    running.process.send_signal(signal.SIGINT)
    running.wait_until(lambda: "again to stop now" in running.stderr)
    Path("held").unlink()
    assert running.end() == 130
    assert "cancelling" not in running.stderr
    assert len(lines_of(Path("run/rollouts.jsonl"))) == 2


def test_a_blocked_run_ends_at_the_third_signal(start):
    """The run cannot handle them; the supervisor says what is saved."""
    write_tasks("search")
    allow_blocking()
    running = start(*COMMAND, "--grace", "600")
    pid = running.run_of()
    # In the order of their numbers, in which pending signals are taken.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        running.process.send_signal(number)
    assert running.end() == 143
    assert not state_of(pid)
    last = running.stderr.splitlines()[-1]
    head, _, command = last.partition("; resume with: ")
    assert head == "terminated: records so far are in run"
    assert shlex.split(command) == ["gym", *COMMAND, "--grace", "600"]


@pytest.mark.slow
def test_a_background_task_cannot_end_the_command(start):
    write_tasks("leave", "")
    running = start(*COMMAND, "--gate", "pass@1 < 0.5", "--gate-on", "point")
    assert running.end() == 3, running.stderr
    assert len(lines_of(Path("run/rollouts.jsonl"))) == 2


def test_an_environment_disturbs_neither_the_result_nor_the_files(start):
    """What it prints is no result, and what it writes to the supervisor is no report.

    Files are written where the command was started, also after it changed the working directory.
    """
    write_tasks("scribble", "print", "move", "")
    running = start(
        *COMMAND, "--json", "--junit", "junit.xml", "--log-file", "log", "--concurrency", "1"
    )
    assert running.end() == 0, running.stderr
    assert "the run died" not in running.stderr
    assert msgspec.json.decode(running.stdout)["num_scored"] == 4
    for text in ("printed by Python", "written to 1", "said by a child"):
        assert text in running.stderr
    assert len(lines_of(Path("run/rollouts.jsonl"))) == 4
    for name in ("run/metrics.json", "junit.xml", "log"):
        assert Path(name).stat().st_size


def test_an_environment_may_close_its_stdout(start):
    """Messages, results and verifier workers started later use other streams."""
    write_tasks("close", "")
    running = start(*COMMAND, "--json", "--concurrency", "1")
    assert running.end() == 0, running.stderr
    assert msgspec.json.decode(running.stdout)["num_scored"] == 2
    for text in ("printed before", "printed after", "2/2"):
        assert text in running.stderr


def test_forked_copies_of_the_run_end(start):
    write_tasks("fork", "")
    running = start(*COMMAND)
    assert running.end() == 0, running.stderr
    assert sorted(line["task_id"] for line in lines_of(Path("run/rollouts.jsonl"))) == ["t0", "t1"]
    assert "restarting it" not in running.stderr


def test_an_environment_that_takes_every_descriptor_leaves_those_of_the_run(start):
    """The run's files are written although nothing else can be opened."""
    write_tasks("fill", "")
    running = start(*COMMAND, "--concurrency", "1", before="ulimit -n 100;")
    assert running.end() == 0, running.stderr
    assert len(lines_of(Path("run/rollouts.jsonl"))) == 2
    assert Path("run/metrics.json").stat().st_size


@pytest.mark.parametrize("redirection", [pytest.param(">&-", marks=pytest.mark.slow), "<&- >&-"])
def test_a_closed_stdout_is_an_error_after_the_run(start, redirection):
    """No descriptor of the supervisor or of the run gets the number of stdout."""
    write_tasks("print", "")
    running = start(*COMMAND, redirection=redirection)
    assert running.end() == 4
    last = running.stderr.splitlines()[-1]
    assert last == "error: standard output cannot be written: Bad file descriptor"
    assert len(lines_of(Path("run/rollouts.jsonl"))) == 2


@pytest.mark.slow
def test_a_new_command_waits_for_one_that_is_ending(start):
    write_tasks("block_alone")
    source = Path("rough.py").read_text()
    Path("rough.py").write_text(source.replace("blocking_timeout = 1.0", "blocking_timeout = 99.0"))
    Path("held").touch()
    first = start(*COMMAND)
    first.run_of()
    second = start(*COMMAND)
    second.wait_until(lambda: "waiting up to 99 s for it to end" in second.stderr)
    Path("held").unlink()
    assert (first.end(), second.end()) == (0, 0)
    assert len(lines_of(Path("run/rollouts.jsonl"))) == 1
