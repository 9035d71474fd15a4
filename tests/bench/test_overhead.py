"""The bench of the overhead: that it measures what it says; how fast anything is, is not asked."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from gymcli.mock.script import read_script

SCRIPT = Path(__file__).parents[2] / "bench" / "overhead.py"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the bench reads /proc")


def run_bench(*arguments: str) -> str:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_overhead_reports_both_shapes(tmp_path):
    file = tmp_path / "report.json"
    table = run_bench("--rollouts", "30", "--runs", "1", "--json", str(file))
    report = msgspec.json.decode(file.read_bytes())
    assert (report["num_rollouts"], report["num_runs"], report["concurrency"]) == (30, 1, 64)
    assert {name: shape["num_requests"] for name, shape in report["shapes"].items()} == {
        "single-turn": 1,
        "4 tool calls": 5,
    }
    for name, shape in report["shapes"].items():
        assert name in table
        assert 0 < shape["lowest_ratio"] <= shape["ratio"] <= shape["highest_ratio"]
        for contestant in ("gym", "bare"):
            [run] = shape["runs"][contestant]
            assert run["num_rollouts"] == 30
            # The warm-up is as large as such a small run.
            assert run["num_requests"] == 60 * shape["num_requests"]
            assert run["microseconds"] > 0
            assert 0 <= run["server_share"] < 0.8


def test_contestants_ask_and_write_the_same(tmp_path, mock_server):
    """Both send the same bodies, and their lines hold the same conversations and rewards."""
    task = {"messages": [{"role": "user", "content": "Add 5."}], "expected_count": 5}
    calls = [["increment_counter", {"count": 5}], ["get_counter_value", {}]]
    answers = [{"tool_calls": [call]} for call in calls] + [{"text": "It is at 5."}]
    lines = [msgspec.json.encode({"id": str(number), **task}) + b"\n" for number in range(3)]
    (tmp_path / "tasks.jsonl").write_bytes(b"".join(lines))
    (tmp_path / "warm-up.jsonl").write_bytes(lines[0])
    (tmp_path / "script.jsonl").write_bytes(msgspec.json.encode({"answers": answers}))
    mock_server.behaviour = read_script(tmp_path / "script.jsonl")
    job = {
        "env": "example_session_state_mgmt",
        "base_url": mock_server.base_url,
        "server_id": os.getpid(),
        "folder": str(tmp_path),
        "turn": 0,
    }
    run_bench("--job", msgspec.json.encode({**job, "contestant": "gym", "tools": []}).decode())
    ours = [request.body for request in mock_server.requests]
    mock_server.requests.clear()
    tools = ours[0]["tools"]
    run_bench("--job", msgspec.json.encode({**job, "contestant": "bare", "tools": tools}).decode())
    assert len(ours) == 12
    assert as_counts(ours) == as_counts(request.body for request in mock_server.requests)
    written = [tmp_path / "gym-0" / "rollouts.jsonl", tmp_path / "bare-0"]
    gym, bare = (
        {line["task_id"]: (line["messages"], line["tools"], line["reward"]) for line in read(file)}
        for file in written
    )
    assert len(gym) == 3
    assert gym == bare


def as_counts(bodies) -> Counter:
    return Counter(msgspec.json.encode(body, order="sorted") for body in bodies)


def read(file: Path) -> list:
    return [msgspec.json.decode(line) for line in file.read_bytes().splitlines()]
