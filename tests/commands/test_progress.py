"""Tests of the progress display of a collection."""

import asyncio
import io

import pytest

from gymcli.commands.progress import Progress, _duration
from gymcli.types import ErrorRecord, Failure, Rollout, Usage

GOOD = Rollout(reward=0.5, usage=Usage(completion_tokens=1_000))
BAD = Failure(error=ErrorRecord(error_class="ServerError", phase="model"))


class Terminal(io.StringIO):
    """A stream that reports being a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_elsewhere_prints_plain_lines(capsys):
    with Progress(4, is_quiet=False) as progress:
        progress.add(GOOD)
        progress.print_line()
        progress.add(BAD)
        progress.add(BAD)
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("1/4  ")
    assert " left  mean reward 0.500" in first
    assert last.endswith("failed: 2 ServerError")
    assert "tokens/s" in last


def test_progress_of_rewards_on_different_scales_has_no_mean(capsys):
    with Progress(1, is_quiet=False, has_one_scale=False) as progress:
        progress.add(GOOD)
    assert "mean reward" not in capsys.readouterr().err


def test_progress_prints_at_a_steady_pace(capsys):
    """Lines appear at a steady pace, even while no attempt ends."""

    async def wait_for_lines():
        with Progress(4, is_quiet=False, plain_seconds=0.001) as progress:
            async with progress.ticking():
                for _ in range(10_000):
                    if capsys.readouterr().err.count("0/4") >= 1:
                        return True
                    await asyncio.sleep(0.001)
        return False

    assert asyncio.run(wait_for_lines())


def test_progress_quiet_prints_nothing(capsys):
    with Progress(1, is_quiet=True, stream=Terminal()) as progress:
        progress.add(GOOD)
    assert capsys.readouterr().err == ""


def test_progress_on_a_terminal_is_live(monkeypatch, capsys):
    """A bar with counts, rate and time left, quality and failures below; all cleared at the end."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    terminal = Terminal()
    with Progress(3, is_quiet=False, stream=terminal) as progress:
        progress._live.refresh()
        progress.add(GOOD)
        progress.add(BAD)
        progress._live.refresh()
        shown = terminal.getvalue()
        asyncio.run(_enter(progress))
    assert "0/3" in shown
    assert "waiting for the first answers" in shown
    for part in ("2/3", "/s", " left", "mean reward 0.500", "tokens/s", "failed: 1 ServerError"):
        assert part in shown
    assert terminal.getvalue().endswith("\x1b[2K") or "\x1b[?25h" in terminal.getvalue()
    assert capsys.readouterr().err.startswith("2/3")


async def _enter(progress):
    """Enter and leave `ticking`, which a live display does not need."""
    async with progress.ticking():
        await asyncio.sleep(0)


def test_progress_on_a_dumb_terminal_is_plain(monkeypatch, capsys):
    monkeypatch.setenv("TERM", "dumb")
    terminal = Terminal()
    with Progress(1, is_quiet=False, stream=terminal) as progress:
        progress.add(GOOD)
    assert terminal.getvalue() == ""
    assert capsys.readouterr().err.startswith("1/1")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1:00"), (754, "12:34"), (3_725, "1:02:05")],
)
def test_duration(seconds, shown):
    assert _duration(seconds) == shown
