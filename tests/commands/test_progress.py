"""Tests of the progress display of a collection."""

import asyncio
import io
import time
from collections import Counter
from dataclasses import dataclass, field

import pytest

from gymcli.commands.progress import Progress, SeveralRuns, _duration
from gymcli.types import AttemptKey, ErrorRecord, Failure, Rollout, Timing, Usage

GOOD = Rollout(env="sums", reward=0.5, usage=Usage(completion_tokens=1_000))
BAD = Failure(env="sums", error=ErrorRecord(error_class="ServerError", phase="model"))


@dataclass
class Run:
    """A collection as its display sees it."""

    left: dict[str, int]
    begun_at: dict[AttemptKey, float] = field(default_factory=dict)
    retries: Counter[str] = field(default_factory=Counter)
    is_stopping: bool = False

    @property
    def num_in_flight(self) -> int:
        return len(self.begun_at)

    def begin(self, env: str, *ages: float) -> None:
        """Begin attempts that many seconds ago."""
        for age in ages:
            key = AttemptKey(env, "t", len(self.begun_at))
            self.begun_at[key] = time.monotonic() - age


def sums(num: int) -> Run:
    return Run({"sums": num})


def ended(env: str, seconds: float, reward: float = 1.0) -> Rollout:
    return Rollout(env=env, reward=reward, timing=Timing(total_seconds=seconds))


class Terminal(io.StringIO):
    """A stream that reports being a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_elsewhere_prints_plain_lines(capsys):
    with Progress(sums(4), is_quiet=False) as progress:
        progress.add(GOOD)
        progress.print_line()
        progress.add(BAD)
        progress.add(BAD)
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("1/4  ")
    assert " left  mean reward 0.500" in first
    assert last.endswith("failed: 2 ServerError")
    assert "tokens/s" in last


def test_progress_counts_what_is_in_flight_and_tried_again(capsys):
    run = sums(4)
    with Progress(run, is_quiet=False) as progress:
        run.begin("sums", 1.0, 2.0)
        run.retries["RateLimitError"] += 19
        progress.add(GOOD)
        progress.print_line()
        run.begun_at.clear()
        run.retries.clear()
        run.is_stopping = True
        progress.add(GOOD)
    first, last = capsys.readouterr().err.splitlines()
    assert " left" in first
    assert " left" not in last
    assert "  2 in flight  mean reward 0.500" in first
    assert first.endswith("  retries: 19 RateLimitError")
    assert "in flight" not in last
    assert "retries" not in last


def test_progress_of_rewards_on_different_scales_has_a_mean_for_each_environment(capsys):
    run = Run({f"env{n}": 1 for n in range(7)})
    with Progress(run, is_quiet=False, has_one_scale=False) as progress:
        progress.add(ended("env0", 1.0, 0.25))
        progress.add(ended("env1", 1.0, 80.0))
        progress.print_line()
        for n in range(2, 6):
            progress.add(ended(f"env{n}", 1.0, float(n)))
        progress.print_line()
        progress.add(ended("env6", 1.0))
    first, second, last = capsys.readouterr().err.splitlines()
    assert first.endswith("mean reward env0 0.250, env1 80.000")
    assert second.endswith("mean reward env0 0.250, env1 80.000, env2 2.000, env3 3.000 and 2 more")
    assert "mean reward" not in last  # the summary follows


def test_progress_prints_at_a_steady_pace(capsys):
    """Lines appear at a steady pace, even while no attempt ends."""

    async def wait_for_lines():
        with Progress(sums(4), is_quiet=False, plain_seconds=0.001) as progress:
            async with progress.ticking():
                for _ in range(10_000):
                    if capsys.readouterr().err.count("0/4") >= 1:
                        return True
                    await asyncio.sleep(0.001)
        return False

    assert asyncio.run(wait_for_lines())


def test_progress_quiet_prints_nothing(capsys):
    with Progress(sums(1), is_quiet=True, stream=Terminal()) as progress:
        progress.add(GOOD)
    assert capsys.readouterr().err == ""


def test_progress_on_a_terminal_is_live(monkeypatch, capsys):
    """A bar with counts, rate and time left, quality and failures below; all cleared at the end."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    terminal = Terminal()
    with Progress(sums(3), is_quiet=False, stream=terminal) as progress:
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


def screen(run: Run, records, columns: int, monkeypatch) -> list[str]:
    """Return the lines of the live display after these outcomes."""
    from rich.console import Console

    monkeypatch.setenv("TERM", "xterm")
    with Progress(run, is_quiet=False, stream=Terminal()) as progress:
        for record in records:
            progress.add(record)
        shown = io.StringIO()
        Console(file=shown, width=columns).print(progress._rendered())
        progress._all.num_ended = 0  # no last line
    return shown.getvalue().splitlines()


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_progress_takes_the_width_of_the_terminal(columns, monkeypatch):
    run = Run({"sums": 3, "a_game_with_a_very_long_name_that_is_cut_where_it_must_be": 2})
    run.begin("sums", 1.0)
    run.retries["RateLimitError"] += 19
    lines = screen(run, [GOOD, BAD], columns, monkeypatch)
    assert len(lines[0]) == columns
    assert lines[0].endswith("  2/5")
    assert all(len(line) <= columns for line in lines)
    shown = " ".join(" ".join(lines).split())
    for part in ("1 in flight", "mean reward 0.500", "retries: 19 RateLimitError"):
        assert part in shown
    assert "failed: 1 ServerError" in shown
    assert lines[-2].split() == ["sums", "2/3", "mean", "reward", "0.500", "1", "in", "flight"]
    assert lines[-1].startswith("a_game_with_")
    assert "0/2  mean reward -" in lines[-1]


def test_progress_shows_the_environments_in_flight_first(monkeypatch):
    run = Run({f"env{n}": 2 for n in range(11)})
    run.begin("env9", 1.0)
    rows = screen(run, [ended("env0", 1.0)], 80, monkeypatch)[-9:]
    assert [row.split()[0] for row in rows] == [
        *("env9", "env0", "env1", "env2", "env3", "env4", "env5", "env6", "and"),
    ]
    assert rows[-1].strip() == "and 3 more"


def seconds_left(run: Run, *records: Rollout) -> float | None:
    progress = Progress(run, is_quiet=True)
    for record in records:
        progress.add(record)
    return progress._seconds_left()


def test_time_left_knows_the_long_attempts_in_flight():
    """Two sums are to come, and a game has run for 20 s; games took a minute."""
    run = Run({"sums": 12, "games": 3})
    run.begin("games", 20.0)
    short = [ended("sums", 0.1)] * 10
    assert seconds_left(run, *short, *[ended("games", 60.0)] * 2) == pytest.approx(40.0, abs=0.5)


def test_time_left_is_unknown_where_all_that_is_left_is_in_flight():
    """The estimate was how long they had taken already, and grew with it."""
    short = [ended("sums", 0.1)] * 10
    run = Run({"sums": 12})
    run.begin("sums", 20.0, 30.0)
    assert seconds_left(run, *short) is None
    run.left["sums"] += 1  # another one is to come, but those two take much longer
    assert seconds_left(run, *short) is None
    run.left["sums"] += 10_000
    assert seconds_left(run, *short) > 30.0


def test_progress_says_no_time_left_while_the_last_attempts_are_in_flight(capsys):
    run = sums(2)
    with Progress(run, is_quiet=False) as progress:
        run.begin("sums", 1.0)
        progress.add(GOOD)
        progress.print_line()
        run.begun_at.clear()
        progress.add(GOOD)
    running, over = capsys.readouterr().err.splitlines()
    assert running.startswith("1/2  ")
    assert "1 in flight" in running
    assert " left" not in running
    assert "  in " in over


def test_time_left_counts_new_attempts_over_those_in_flight():
    """100 attempts of 2 s, 4 at a time: about 50 s, and a second while the last ones end."""
    run = sums(200)
    run.begin("sums", 0.5, 1.0, 1.5, 1.9)
    assert seconds_left(run, *[ended("sums", 2.0)] * 100) == pytest.approx(50.0, abs=2.0)


def test_time_left_where_none_of_an_environment_has_ended_counts_its_new_attempts():
    """24 games have run for 40 s, and 96 more are to come: at least four times as long."""
    run = Run({"sums": 100, "games": 120})
    run.begin("games", *[40.0] * 24)
    short = [ended("sums", 1.0)] * 100
    assert seconds_left(run, *short) > 160.0
    # The first game that ends is no reason to believe in hours.
    run.left["games"] += 1
    assert 160.0 < seconds_left(run, *short, ended("games", 40.0)) < 600.0


def test_time_left_of_an_environment_that_has_not_begun_is_that_of_the_others():
    run = Run({"sums": 10, "games": 10})
    run.begin("sums", 0.5)
    assert seconds_left(run, *[ended("sums", 1.0)] * 9) == pytest.approx(11.0, abs=1.5)


async def _enter(progress):
    """Enter and leave `ticking`, which a live display does not need."""
    async with progress.ticking():
        await asyncio.sleep(0)


def test_progress_on_a_dumb_terminal_is_plain(monkeypatch, capsys):
    monkeypatch.setenv("TERM", "dumb")
    terminal = Terminal()
    with Progress(sums(1), is_quiet=False, stream=terminal) as progress:
        progress.add(GOOD)
    assert terminal.getvalue() == ""
    assert capsys.readouterr().err.startswith("1/1")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1:00"), (754, "12:34"), (3_725, "1:02:05")],
)
def test_duration(seconds, shown):
    assert _duration(seconds) == shown


def test_progress_of_several_models_names_each(capsys):
    a, b = Run({"sums": 3}, retries=Counter(ServerError=1)), Run({"sums": 2, "games": 1})
    b.begin("games", 1.0)
    runs = SeveralRuns({"a": a, "b": b})
    terminal = Terminal()
    with Progress(runs, is_quiet=False, has_one_scale=False, stream=terminal) as progress:
        progress.add(ended("sums", 1.0, 0.25), "a")
        progress.add(ended("sums", 1.0, 0.75), "b")
        progress.print_line()
    line = capsys.readouterr().err.splitlines()[0]
    assert line.startswith("2/6  ")
    assert "  1 in flight  mean reward a 0.250, b sums 0.750  retries: 1 ServerError" in line
    for shown in ("a        1/3", "b sums   1/2", "b games  0/1"):
        assert shown in terminal.getvalue()


def test_progress_of_several_models_says_no_time_left_once_one_has_stopped(capsys):
    a, b = sums(3), sums(2)
    runs = SeveralRuns({"a": a, "b": b})
    with Progress(runs, is_quiet=False, has_one_scale=False) as progress:
        progress.add(ended("sums", 1.0), "a")
        progress.print_line()
        b.is_stopping = True  # its second attempt does not begin
        progress.add(ended("sums", 1.0), "b")
    running, stopped = capsys.readouterr().err.splitlines()
    assert (" left" in running, " left" in stopped) == (True, False)
