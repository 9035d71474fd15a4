"""Tests of console output: escaped text, guaranteed results, and messages that may be lost."""

import asyncio
import contextlib
import io
import os
import pty
import shlex
import subprocess
import sys
import threading
import unicodedata
from contextlib import redirect_stdout
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.commands.console import (
    guard_descriptors,
    harmless,
    one_line,
    paced_message,
    print_json,
    print_table,
    result,
    warn,
)
from gymcli.commands.signals import run_async
from tests.builders import (
    HOSTILE,
    UNSAFE,
    clean_environment,
    gym_line,
    gym_process,
    lines_of,
    write_sums,
)

COMMANDS = [
    "--help",
    "--version",
    "envs",
    "metrics run",
    "metrics run --json",
    "show run sum-0",
    "verify run",
    "data stats t.jsonl",
    "data validate t.jsonl",
    "collect t.jsonl --model oracle --out run",
]

needs_full = pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="no device here that is always full"
)


@given(st.text())
def test_harmless_leaves_no_control_character(text):
    shown = harmless(text)
    assert all(c in "\n\t" or unicodedata.category(c) != "Cc" for c in shown)
    assert not set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f") & set(
        shown
    )
    assert harmless(shown) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31m", "\\x1b[31m"),
        ("\x9b", "\\x9b"),
        ("\u202etxt", "\\u202etxt"),
        ("\ud800", "\\ud800"),
        ("a\r\nb\tc", "a\\x0d\nb\tc"),
        ("naïve 数 🙂", "naïve 数 🙂"),
        ("[bold]x[/bold]", "[bold]x[/bold]"),
    ],
)
def test_harmless(text, shown):
    assert harmless(text) == shown


def test_result_writes_what_the_stream_can_carry(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    result("x\u00e9\ud800")
    stream.flush()
    assert stream.buffer.getvalue() == b"x\\xe9\\ud800\n"


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
@given(value=st.text(st.characters(exclude_categories=["Cs"])))
def test_print_json_is_harmless_and_still_json(encoding, value):
    """Whatever the terminal can show, parsing the output returns the encoded value."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    with redirect_stdout(stream):
        print_json(msgspec.json.encode([value + HOSTILE]))
    stream.flush()
    printed = stream.buffer.getvalue()
    assert not set(UNSAFE) & set(printed.decode(encoding))
    assert msgspec.json.decode(printed.decode(encoding)) == [value + HOSTILE]


TABLE = (
    ("environment", "present", "mean reward", "95 %", "verdict"),
    [("arithmetic", "1,000", "0.500", "0.469 .. 0.531", "PASS"), ("x", "2", "-", "-", "FAIL")],
)


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (
            "60",
            """\
environment  present  mean reward            95 %  verdict
arithmetic     1,000        0.500  0.469 .. 0.531     PASS
x                  2            -               -     FAIL
""",
        ),
        (
            "55",
            """\
                        mean
environment  present  reward            95 %  verdict
arithmetic     1,000   0.500  0.469 .. 0.531     PASS
x                  2       -               -     FAIL
""",
        ),
        (
            "45",
            """\
               mean
environment  reward            95 %  verdict
arithmetic    0.500  0.469 .. 0.531     PASS
x                 -               -     FAIL
""",
        ),
        (
            "40",
            """\
environment
arithmetic
  present 1,000   mean reward 0.500
  95 % 0.469 .. 0.531   verdict PASS
x
  present 2   mean reward -   95 % -
  verdict FAIL
""",
        ),
    ],
)
def test_print_table_fits_the_terminal(capsys, monkeypatch, width, shown):
    """Heads are stacked first, then columns are left out, then rows are folded."""
    monkeypatch.setenv("COLUMNS", width)
    print_table(*TABLE, optional=["present"])
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (
            "45",
            """\
task  reward  answer
a        0.5  one two three four five six se…
b/0        1  x
""",
        ),
        (
            "30",
            """\
task
a
  reward 0.5
  answer one two three four …
b/0
  reward 1   answer x
""",
        ),
    ],
)
def test_print_table_cuts_the_last_column(capsys, monkeypatch, width, shown):
    monkeypatch.setenv("COLUMNS", width)
    rows = [("a", "0.5", "one two three four five six seven"), ("b/0", "1", "x")]
    print_table(("task", "reward", "answer"), rows, left=["answer"], is_last_cut=True)
    assert capsys.readouterr().out == shown


@given(
    table=st.integers(1, 5).flatmap(
        lambda size: st.lists(st.lists(st.text(), min_size=size, max_size=size), min_size=2)
    ),
    width=st.integers(1, 60),
)
def test_print_table_shows_every_word_at_any_width(table, width):
    """No word is broken or lost, however narrow the terminal is."""
    stream = io.StringIO()
    with redirect_stdout(stream), pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        print_table(table[0], table[1:])
    cells = [harmless(" ".join(cell.split())) for row in table for cell in row]
    words = {word for cell in cells for word in cell.split()}
    assert words <= set(stream.getvalue().split())


def test_fields_are_folded_below_their_value(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    result("stop reasons  12 done, 3 max_turns, 2 length, 1 refusal")
    result("a line that is no field stays as it is, whatever its length")
    assert capsys.readouterr().out == (
        "stop reasons  12 done, 3 max_turns, 2\n              length, 1 refusal\n"
        "a line that is no field stays as it is, whatever its length\n"
    )


def in_terminal(folder, line, **variables):
    """Run a command in a terminal; return what it writes there."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        gym_process(*line.split()),
        cwd=folder,
        env={**clean_environment(), "TERM": "xterm", **variables},
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65_536):
            shown += piece
    except OSError:  # Linux raises EIO when the other side has closed
        pass
    os.close(ours)
    process.wait(20)
    return shown.decode().replace("\r\n", "\n")


RED_ERROR = '\x1b[31merror:\x1b[0m -c: has no command "nothing"; -c --help lists them\n'


def test_errors_are_red_on_a_terminal(tmp_path):
    assert in_terminal(tmp_path, "nothing") == RED_ERROR


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_can_be_refused(tmp_path, variables):
    assert "\x1b" not in in_terminal(tmp_path, "nothing", **variables)


def test_roles_are_coloured_and_model_text_is_not(folder, tmp_path):
    """What a model wrote reaches the terminal escaped, next to the colours of gymcli."""
    record = lines_of(folder / "run" / "rollouts.jsonl")[0]
    record["messages"][-1]["content"] = f"{HOSTILE} error: FAIL"
    (tmp_path / "r.jsonl").write_bytes(msgspec.json.encode(record) + b"\n")
    shown = in_terminal(tmp_path, f"show r.jsonl {record['task_id']}")
    assert "── \x1b[36muser\x1b[0m (prompt)\n" in shown
    assert "── \x1b[34massistant\x1b[0m\n" in shown
    assert shown.count("\x1b") == 4
    assert "[bold red]markup[/]" in shown


def test_print_table_keeps_a_row_on_its_line(capsys):
    print_table(("name", "answer"), [(f"a\n{HOSTILE}", "1"), ("b", "two\t\nlines")])
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) == 3
    assert not set(UNSAFE) & set(printed)


@given(st.text(), st.integers(2, 50))
def test_one_line_is_one_line_and_short(text, limit):
    line = one_line(text, limit)
    assert len(line) <= limit
    assert len(line.splitlines()) <= 1


def test_run_async_without_uvloop(monkeypatch):
    """Without uvloop the standard loop is used."""
    monkeypatch.setitem(sys.modules, "uvloop", None)

    async def answer():
        return 7

    assert run_async(answer()) == 7


@pytest.mark.parametrize("has_uvloop", [True, False])
def test_run_async_waits_for_no_thread(monkeypatch, has_uvloop):
    if not has_uvloop:
        monkeypatch.setitem(sys.modules, "uvloop", None)
    release, results = threading.Event(), []

    async def main():
        assert await asyncio.to_thread(lambda: 7) == 7
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 / 0)
        waiting = asyncio.create_task(asyncio.to_thread(lambda: results.append(release.wait(60))))
        await asyncio.sleep(0)
        waiting.cancel()

    run_async(main())
    assert results == []
    release.set()


def test_warn_is_one_line(capsys):
    warn("gone: a\nwarning: b\r\nc")
    assert capsys.readouterr().err == "warning: gone: a warning: b c\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with tasks and a run of them."""
    folder = tmp_path_factory.mktemp("outputs")
    write_sums(folder / "t.jsonl", 2)
    with contextlib.chdir(folder):
        gym_line("collect t.jsonl --model oracle --out run", exit_code=0)
    return folder


def run(folder, line, redirection=""):
    """Run a command in a shell, which can redirect and close its streams."""
    return subprocess.run(
        ["bash", "-c", f"exec {shlex.join(gym_process(*line.split()))} {redirection}"],
        cwd=folder,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )


def errors_of(done):
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    return [line for line in done.stderr.splitlines() if "standard output" in line]


@needs_full
@pytest.mark.slow
@pytest.mark.parametrize("line", COMMANDS)
def test_results_on_a_full_disk(folder, line):
    done = run(folder, line, ">/dev/full")
    assert done.returncode == 4
    assert errors_of(done) == ["error: standard output cannot be written: No space left on device"]


@pytest.mark.slow
@pytest.mark.parametrize("line", COMMANDS)
def test_results_with_stdout_closed(folder, line):
    done = run(folder, line, ">&-")
    assert done.returncode == 4
    assert errors_of(done) == ["error: standard output cannot be written: Bad file descriptor"]


@needs_full
@pytest.mark.slow
@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-", "2> >(true)"])
def test_lost_messages_end_nothing(folder, tmp_path, redirection):
    write_sums(tmp_path / "t.jsonl", 3)
    done = run(tmp_path, "collect t.jsonl --model oracle --out run", redirection)
    assert done.returncode == 0
    assert "files         run" in done.stdout
    assert len(lines_of(tmp_path / "run" / "rollouts.jsonl")) == 3
    assert run(tmp_path, "metrics nowhere", redirection).returncode == 2
    assert run(tmp_path, "nothing", redirection).returncode == 2


@needs_full
@pytest.mark.parametrize(
    "redirection",
    [
        pytest.param(">&- 2>&-", marks=pytest.mark.slow),
        ">/dev/full 2>/dev/full",
        "<&- >&- 2>&-",
    ],
)
def test_a_run_is_written_when_nothing_can_be_printed(tmp_path, redirection):
    """The run's own files do not get the numbers of closed descriptors."""
    write_sums(tmp_path / "t.jsonl", 3)
    done = run(tmp_path, "collect t.jsonl --model oracle --out run", redirection)
    assert (done.returncode, done.stdout, done.stderr) == (4, "", "")
    assert len(lines_of(tmp_path / "run" / "rollouts.jsonl")) == 3
    assert (tmp_path / "run" / "metrics.json").exists()


def test_the_error_of_a_command_precedes_that_of_a_closed_stdout(folder):
    done = run(folder, "metrics run nowhere", ">&-")
    assert done.returncode == 2
    assert done.stderr == "error: nowhere: no such run directory or rollout file\n"


@pytest.mark.slow
def test_a_reader_that_leaves_is_no_error(folder):
    with subprocess.Popen(
        gym_process("metrics", "run"),
        cwd=folder,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    # 128 + SIGPIPE, as a shell reports it.
    assert process.returncode == 141


SLOW_READER = """
import os, subprocess, sys, threading
ours, theirs = os.pipe()
os.set_blocking(theirs, False)
process = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=theirs)
os.close(theirs)
process.poll()
size = 0
while part := os.read(ours, 1000):
    size += len(part)
print(process.wait(), size)
"""


def test_results_wait_for_a_slow_reader_that_does_not_block():
    """A pipe that another program made non-blocking gets what fits now, and the rest later."""
    program = (
        "from gymcli.commands.console import guard_descriptors; import sys; guard_descriptors(); "
        "sys.stdout.write('x' * 3_000_000); sys.stdout.flush()"
    )
    done = subprocess.run(
        [sys.executable, "-c", SLOW_READER, program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "0 3000000\n"


def test_guard_descriptors_leaves_streams_that_stand_in(capsys):
    before = sys.stdout, sys.stderr
    guard_descriptors()
    assert (sys.stdout, sys.stderr) == before


@needs_full
def test_a_log_that_cannot_be_written_is_warned_of_once(tmp_path, working_folder):
    write_sums(tmp_path / "t.jsonl", 2)
    done = gym_line("--log-file /dev/full collect t.jsonl --model oracle --out run", exit_code=0)
    warnings = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    assert warnings == [f"warning: /dev/full: cannot be written: {os.strerror(28)}"]


def test_paced_message_prints_a_line_every_few_seconds(capsys):
    paced_message(0.0)("half of it")
    paced_message(60.0)("all of it")
    assert capsys.readouterr().err == "half of it\n"
