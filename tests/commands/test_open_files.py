"""Tests of the limit of open files: raised as far as a run needs, with a warning otherwise."""

import subprocess
import sys
from pathlib import Path

from tests.builders import clean_environment, gym_process, lines_of, write_sums

SHOWN = """
import resource
from gymcli.commands.open_files import MOST_OPEN_FILES, allow_open_files
allow_open_files(MOST_OPEN_FILES)
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def limited(soft: int, hard: int, command: list[str], **options) -> subprocess.CompletedProcess:
    """Run a process with this limit of open files."""
    limit = (
        f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))"
    )
    # The limit survives exec, so that the command has it from its start.
    start = f"import os, resource, sys; {limit}; os.execv(sys.argv[1], sys.argv[1:])"
    return subprocess.run(
        [sys.executable, "-c", start, *command],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=True,
        **options,
    )


def collect_limited(folder: Path, mock_server, soft: int, hard: int) -> str:
    """Run 200 sums concurrently; return stderr."""
    write_sums(folder / "sums.jsonl", 200)
    line = gym_process("collect", "sums.jsonl", "--base-url", mock_server.base_url, "--out", "run")
    line += ["--model", "m", "--concurrency", "200"]
    said = limited(soft, hard, line, cwd=folder).stderr
    assert len(lines_of(folder / "run" / "rollouts.jsonl")) == 200
    return said


def test_collect_raises_its_limit_of_open_files(tmp_path, mock_server):
    """The soft limit does not allow 120 connections."""
    mock_server.latency = 0.5
    assert "warning" not in collect_limited(tmp_path, mock_server, 120, 400)
    assert mock_server.max_in_flight > 120


def test_collect_says_what_limit_of_open_files_it_needs(tmp_path, mock_server):
    said = collect_limited(tmp_path, mock_server, 250, 250)
    assert (
        "warning: --concurrency 200 may need 328 open files, but only 250 are allowed: raise the "
        "limit (ulimit -n 328) or lower --concurrency\n"
    ) in said


def test_allow_open_files_takes_what_the_hard_limit_gives():
    assert limited(120, 300, [sys.executable, "-c", SHOWN]).stdout.split() == ["300", "300"]
