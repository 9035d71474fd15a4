"""Tests of the program itself: common options, exit codes, and how quickly it starts."""

import logging
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from gymcli import __version__
from gymcli.cli import app
from tests.builders import clean_environment, gym, gym_process, write_sums

HEAVY = (
    "aiohttp",
    "pydantic",
    "msgspec",
    "numpy",
    "rich",
    "asyncio",
    "uvloop",
    "yaml",
    "jsonlines",
    "regex",
    "numpy",
)


def test_import_is_light():
    """`gym --help` must answer immediately, so nothing heavy is imported for it."""
    program = f"import gymcli.cli, sys\nprint([name for name in {HEAVY} if name in sys.modules])\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"[]\n"


@pytest.mark.parametrize("argument", ["--help", "--version", "--wrong"])
def test_nothing_heavy_is_imported_to_answer_at_once(argument):
    """Imports while the process exits count as well."""
    commands = [f"gymcli.commands.{name}" for name in typer.main.get_command(app).commands]
    program = f"""
import sys
sys.argv = ["gym", "{argument}"]
from gymcli.cli import main
try:
    main()
except SystemExit:
    pass
print([name for name in {[*HEAVY, *commands]} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.splitlines()[-1] == b"[]"


def test_help_lists_commands_and_exit_codes():
    done = gym("--help", exit_code=0)
    for command in ("collect", "verify", "metrics", "envs", "show"):
        assert re.search(rf"^  {command} ", done.stdout, re.MULTILINE)
    for line in (
        "  0    success",
        "  2    a usage error",
        "  4    the run",
        "  6    stopped at a budget",
        "  130  inter",
        "  141  the",
        "  143  term",
    ):
        assert line in done.stdout


def test_help_lists_commands_in_groups():
    text = gym("--help").stdout
    listed = re.findall(r"^(?:(\S.*):|  ([a-z]+) .*)$", text, re.MULTILINE)
    headings = [heading for heading, _ in listed if heading]
    assert headings == [
        *("Options", "Documentation", "Run and score", "Look at runs", "Tasks and data"),
        *("Write environments", "Serve", "Exit codes"),
    ]
    names = [name for _, name in listed if name]
    assert names[:3] == ["docs", "collect", "verify"]
    assert len(names) == len(set(names)) == len(typer.main.get_command(app).commands)


@pytest.mark.parametrize("command", ["collect", "verify", "metrics", "envs", "show"])
def test_help_of_every_command(command):
    assert gym(command, "--help", exit_code=0).stdout.startswith(f"Usage: gym {command}")


def test_no_arguments_print_the_help():
    assert "Usage: gym" in gym(exit_code=2).output


@pytest.mark.parametrize("line", [("--version",), ("envs", "--version"), ("collect", "--version")])
def test_version_everywhere(line):
    done = gym(*line)
    assert (done.exit_code, done.stdout) == (0, f"gymcli {__version__}\n")


@pytest.mark.parametrize(
    "line",
    [
        ("--log-file", "log", "collect", "t.jsonl", "--model", "oracle"),
        ("collect", "t.jsonl", "--log-file", "log", "--model", "oracle"),
        ("collect", "t.jsonl", "--model", "oracle", "--log-file=log"),
    ],
)
def test_log_file_everywhere(working_folder, line):
    write_sums(Path("t.jsonl"), 2)
    assert "gymcli.runner" not in gym(*line, exit_code=0).stderr
    first, last = Path("log").read_text().splitlines()
    assert "INFO" in first
    assert ": 2 of 2 attempts" in first
    assert last.endswith("2 of 2 scored")


@pytest.mark.parametrize("place", [0, 1, 4])
def test_verbose_everywhere(working_folder, place):
    write_sums(Path("t.jsonl"), 2)
    line = ["collect", "t.jsonl", "--model", "oracle"]
    line.insert(place, "--verbose")
    assert "INFO gymcli.runner.collection: start runs/" in gym(*line, exit_code=0).stderr


@pytest.mark.slow
def test_a_failed_attempt_is_logged_and_is_no_warning(working_folder):
    """With a log file, which takes records of all levels, only warnings are printed."""
    Path("t.jsonl").write_text(
        '{"env": "arithmetic", "prompt": "?", "answer": 1, "max_turns": 1}\n', encoding="utf-8"
    )
    address = "http://127.0.0.1:9/v1"  # nothing listens there
    done = gym(
        "collect",
        "t.jsonl",
        "--model",
        "m",
        "--base-url",
        address,
        "--log-file",
        "log",
        exit_code=4,
    )

    assert "EndpointConnectionError" in Path("log").read_text(encoding="utf-8")
    assert "warning: arithmetic" not in done.stderr


def test_a_log_file_needs_a_name():
    assert "--log-file needs a file name" in gym("envs", "--log-file", exit_code=2).stderr


def test_options_end_at_two_dashes():
    """What follows is an argument, whatever it looks like."""
    done = gym("show", "--", "--verbose", "--version", exit_code=2)
    assert "--verbose: no such run directory" in done.stderr


def test_logging_is_left_as_it_was(tmp_path):
    logger = logging.getLogger("gymcli")
    before = (logger.level, list(logger.handlers))
    gym("envs", "--verbose", "--log-file", tmp_path / "log")
    assert (logger.level, list(logger.handlers)) == before


def test_interrupted_before_anything_ran(working_folder):
    """The interrupt comes while an endless task file is being read."""
    Path("slow.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    write_sums(Path("t.jsonl"), 1)
    done = subprocess.run(
        gym_process("collect", "t.jsonl", "--model", "oracle", "--env", "slow.py:Slow"),
        env=clean_environment(),
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"interrupted\n")


def test_help_ends_quietly_when_its_reader_leaves():
    with subprocess.Popen(
        gym_process("--help"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_live_display_in_a_terminal(working_folder, mock_server):
    """In a terminal: a bar while it runs, one line that stays, and no other trace."""
    write_sums(Path("t.jsonl"), 12)
    mock_server.latency = 0.2
    ours, theirs = pty.openpty()
    where = ("--model", "m", "--base-url", mock_server.base_url, "--concurrency", "4")
    process = subprocess.Popen(
        gym_process("collect", "t.jsonl", *where),
        env={**clean_environment(), "TERM": "xterm", "COLUMNS": "100", "LINES": "20"},
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    # With the only other end in the command, its exit ends the reading below.
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65_536):
            shown += piece
    except OSError:  # Linux raises EIO when the other side has closed
        pass
    os.close(ours)
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    text = shown.decode()
    assert "━" in text
    assert "waiting for the first answers" in text
    assert re.search(r"12/12  [\d.]+/s  in [\d.]+ s  mean reward 0\.\d+", text)
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1
    assert b"\x1b" not in output


def test_the_command_is_installed():
    """It runs as a separate process, with the exit code of wrong use."""
    done = subprocess.run(
        gym_process("envs", "nothing"), env=clean_environment(), capture_output=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == b'error: no environment "nothing" (gym envs lists them)\n'
