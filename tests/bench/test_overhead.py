"""The benchmark of the overhead: it measures what it reports; the speed is not tested."""

import os
import sys
from collections import Counter

import msgspec
import pytest

from bench.overhead import Job, Run, check
from gymcli.mock.behaviours import read_script
from tests.bench.scripts import run_script
from tests.builders import lines_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmark reads /proc")


def test_check_names_the_first_failure(tmp_path):
    error = {"class": "SetupError", "phase": "setup"}
    (tmp_path / "gym-0").mkdir()
    (tmp_path / "gym-0" / "failures.jsonl").write_bytes(msgspec.json.encode({"error": error}))
    job = Job("gym", "arithmetic", "", 0, str(tmp_path), 0, [])
    run = Run(
        num_rollouts=1, num_requests=2, microseconds=1.0, tree_microseconds=1.0, server_share=0.1
    )
    check(run, job, num_rollouts=1, num_requests=2)
    with pytest.raises(SystemExit, match=r"1 rollouts, not 2, .* first failure: .*SetupError"):
        check(run, job, num_rollouts=2, num_requests=2)


def test_check_refuses_a_server_that_set_the_pace():
    run = Run(
        num_rollouts=1, num_requests=1, microseconds=1.0, tree_microseconds=1.0, server_share=0.8
    )
    job = Job("gym", "arithmetic", "", 0, "", 0, [])
    with pytest.raises(SystemExit, match="the mock server used 80% of a core"):
        check(run, job, num_rollouts=1, num_requests=1)


def test_contestants_ask_and_write_the_same(tmp_path, mock_server):
    """Both send the same bodies and record the same conversations and rewards."""
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
    run_job({**job, "contestant": "gym", "tools": []})
    ours = [request.body for request in mock_server.requests]
    mock_server.requests.clear()
    tools = ours[0]["tools"]
    run_job({**job, "contestant": "bare", "tools": tools})
    assert len(ours) == 15
    assert as_counts(ours) == as_counts(request.body for request in mock_server.requests)
    written = [tmp_path / "gym-0" / "rollouts.jsonl", tmp_path / "bare-0"]
    gym, bare = (
        {
            line["task_id"]: (line["messages"], line["tools"], line["reward"])
            for line in lines_of(file)
        }
        for file in written
    )
    assert len(gym) == 3
    assert gym == bare


def run_job(job: dict[str, object]) -> None:
    ended = run_script("overhead", "--job", msgspec.json.encode(job).decode())
    assert ended.returncode == 0, ended.stderr


def as_counts(bodies) -> Counter:
    return Counter(msgspec.json.encode(body, order="sorted") for body in bodies)
