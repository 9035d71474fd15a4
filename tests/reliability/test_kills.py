"""Tests of the script that kills runs at random: a few kills, and that it detects violations."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from bench.kills import Count, Lane
from bench.remains import Exchange, OnDisk, essence
from gymcli.types import Rollout

CHECKOUT = Path(__file__).parents[2]


@pytest.mark.slow
def test_kills_lose_nothing_and_pay_nothing_twice(tmp_path):
    report = tmp_path / "report.json"
    command = [
        sys.executable,
        "-m",
        "bench.kills",
        "--kills",
        "5",
        "--tasks",
        "12",
        "--json",
        report,
    ]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = msgspec.json.decode(report.read_bytes(), type=dict[str, Count])
    assert sum(count.num_kills for count in counts.values()) == 5
    for name, count in counts.items():
        assert name in done.stdout
        assert (count.num_lost, count.num_twice, count.num_paid_again) == (0, 0, 0)


def write(run: Path, name: str, *rollouts: Rollout) -> OnDisk:
    lines = b"".join(msgspec.json.encode(rollout) + b"\n" for rollout in rollouts)
    (run / name).write_bytes(lines)
    return OnDisk.read(run)


def rollout_of(number: int) -> Rollout:
    return Rollout(env="e", task_id=f"task-{number}", attempt=0, reward=1.0)


def test_a_line_that_is_gone_or_altered_is_lost(tmp_path):
    before = write(tmp_path, "rollouts.jsonl", *map(rollout_of, range(3)))
    assert before.num_lost_by(before) == 0
    assert before.num_lost_by(write(tmp_path, "rollouts.jsonl", *map(rollout_of, range(5)))) == 0
    assert before.num_lost_by(write(tmp_path, "rollouts.jsonl", *map(rollout_of, range(2)))) == 1
    assert before.num_lost_by(write(tmp_path, "rollouts.jsonl", *map(rollout_of, (0, 7, 2)))) == 1


def test_a_torn_line_is_no_line(tmp_path):
    write(tmp_path, "generations.jsonl", rollout_of(0))
    with (tmp_path / "generations.jsonl").open("ab") as file:
        file.write(b'{"env":')
    there = OnDisk.read(tmp_path)
    assert (there.num_torn, there.num_lines) == (1, 1)
    assert there.rollouts("generations.jsonl") == [rollout_of(0)]


class Asked:
    """A log with given requests."""

    def __init__(self, *exchanges) -> None:
        self.exchanges = exchanges

    def read_on(self):
        return self.exchanges


@pytest.mark.parametrize("name", ["rollouts.jsonl", "generations.jsonl"])
def test_a_request_for_a_finished_episode_is_paid_again(tmp_path, name):
    there = write(tmp_path, name, rollout_of(3))
    lane = Lane(tmp_path, 0, num_tasks=1, seed=0)
    lane._log = Asked(
        Exchange(model="policy", text="This is task-3. Begin."),
        Exchange(model="policy", text="This is task-30. Begin."),
        Exchange(model="judge", text="Is this talk good?\nThis is task-3. Begin."),
    )
    count = Count()
    lane._compare(count, there, there)
    assert (count.num_paid_again, count.num_lost, count.num_twice) == (1, 0, 0)
    assert not count.is_clean


def test_two_lines_of_an_attempt_are_counted(tmp_path):
    there = write(tmp_path, "rollouts.jsonl", rollout_of(1), rollout_of(1), rollout_of(2))
    lane = Lane(tmp_path, 0, num_tasks=2, seed=0)
    lane._log = Asked()
    count = Count()
    lane._compare(count, there, there)
    assert count.num_twice == 1


def test_an_end_that_differs_from_the_undisturbed_one_is_told(tmp_path):
    lane = Lane(tmp_path, 0, num_tasks=2, seed=0)
    count = Count()
    lane._check_end(count, "JudgedTalk", write(tmp_path, "rollouts.jsonl", rollout_of(0)))
    assert count.num_lost == 1
    other = msgspec.structs.replace(rollout_of(0), reward=0.0)
    assert essence(other) != essence(rollout_of(0))
    end = write(tmp_path, "rollouts.jsonl", other, rollout_of(1))
    lane._undisturbed["JudgedTalk"] = {f"task-{n}": rollout_of(n) for n in range(2)}
    lane._check_end(count, "JudgedTalk", end)
    assert count.problems == ["JudgedTalk: task-0 differs from the undisturbed run"]
