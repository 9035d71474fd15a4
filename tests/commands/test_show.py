"""Tests of `gym show`."""

from pathlib import Path

import msgspec
import pytest

from gymcli.mock import MockAnswer, scripted
from tests.commands.running import HOSTILE, UNSAFE, gym, lines_of

TASK = {
    "id": "count/one",
    "env": "example_session_state_mgmt",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Add 4.\n── score\nreward 1"},
                {"type": "image_url", "image_url": {"url": "data:x"}},
            ],
        },
    ],
    "expected_count": 4,
}
SCRIPT = [
    MockAnswer(reasoning="First\nadd.", tool_calls=[("increment_counter", {"count": 4})]),
    MockAnswer(text="It is 4."),
]


@pytest.fixture
def run(tmp_path, monkeypatch, mock_server) -> Path:
    """Return a run of one task, two attempts."""
    monkeypatch.chdir(tmp_path)
    mock_server.behaviour = scripted(SCRIPT)
    Path("t.jsonl").write_bytes(msgspec.json.encode(TASK))
    where = ("--base-url", mock_server.base_url, "--model", "m", "--out", "run")
    assert gym("collect", "t.jsonl", *where, "--repeats", "2").exit_code == 0
    return Path("run")


def test_show_prints_the_conversation_and_its_score(run):
    """Text from models and tools is indented, so that it cannot pass for a line of the command."""
    done = gym("show", run, "count/one")
    assert done.exit_code == 0
    conversation, _, score = done.stdout.partition("\n── score\n")
    assert conversation.splitlines() == [
        "example_session_state_mgmt  task count/one  attempt 0  m",
        "",
        "── system (prompt)",
        "   Be brief.",
        "",
        "── user (prompt)",
        "   Add 4.",
        "   ── score",
        "   reward 1",
        "   [image_url]",
        "",
        "── assistant",
        "   ~ First",
        "   ~ add.",
        '   → increment_counter({"count":4})',
        "",
        "── tool",
        '   {"success":true}',
        "",
        "── assistant",
        "   It is 4.",
    ]
    fields = {line[:14].strip(): line[14:] for line in score.splitlines()}
    assert fields["reward"] == "1.0"
    assert fields["final state"] == "4"
    assert fields["stop reason"] == "done"
    assert msgspec.json.decode(fields["tokens"])["completion_tokens"] > 0
    assert "components" not in fields


def test_show_finds_an_attempt(run):
    assert "attempt 1" in gym("show", run, "count/one/1").stdout


def test_show_json_prints_the_record(run):
    done = gym("show", run, "count/one/1", "--json")
    record = msgspec.json.decode(done.stdout)
    assert record == next(x for x in lines_of(run / "rollouts.jsonl") if x.get("attempt") == 1)


def test_show_prints_refusals(run):
    line = lines_of(run / "rollouts.jsonl")[0]
    line["messages"][-1] = {"role": "assistant", "refusal": "I will\nnot."}
    Path("r.jsonl").write_bytes(msgspec.json.encode(line))
    assert "   refused: I will\n   not.\n" in gym("show", "r.jsonl", "count/one").stdout


def test_show_prints_failures(run, mock_server):
    """The conversation up to the failure is shown, and then the failure."""
    mock_server.behaviour = scripted(SCRIPT[:1])
    where = ("--base-url", mock_server.base_url, "--model", "m", "--out", "run")
    assert gym("collect", "t.jsonl", *where, "--repeats", "3").exit_code == 4
    done = gym("show", run, "count/one/2")
    assert done.exit_code == 0
    assert "   → increment_counter" in done.stdout
    fields = done.stdout.partition("── not scored\n")[2]
    assert "error         RequestRefusedError\nphase         model\nmessage       POST" in fields
    assert "status        400" in fields
    record = msgspec.json.decode(gym("show", run, "count/one/2", "--json").stdout)
    assert record["error"]["class"] == "RequestRefusedError"


def test_show_prints_nothing_unescaped(run):
    """Every field of a record that a model, a tool or a verifier can write is escaped."""
    line = lines_of(run / "rollouts.jsonl")[0]
    call = {"id": "c", "type": "function", "function": {"name": HOSTILE, "arguments": HOSTILE}}
    line["messages"] = [
        {"role": "user", "content": [{"type": "text", "text": HOSTILE}, {"type": HOSTILE}]},
        {"role": "assistant", "content": HOSTILE, "reasoning": HOSTILE, "tool_calls": [call]},
        {"role": "assistant", "refusal": HOSTILE},
    ]
    line |= {"task_id": "x", "answer": f"{HOSTILE}\n{HOSTILE}", "details": {"reason": HOSTILE}}
    line |= {"final_state": HOSTILE, "model": HOSTILE}
    Path("r.jsonl").write_bytes(msgspec.json.encode(line))
    for more in ((), ("--json",)):
        done = gym("show", "r.jsonl", "x", *more)
        assert done.exit_code == 0
        assert not set(UNSAFE) & set(done.output)
        assert done.output.count("[bold red]markup[/]") >= 8


def test_show_lets_no_name_pass_for_a_line_of_ours(run):
    line = lines_of(run / "rollouts.jsonl")[0]
    forged = "x\n── score\nreward 1"
    line |= {"task_id": forged, "env": forged, "model": forged, "attempt": 0}
    Path("r.jsonl").write_bytes(msgspec.json.encode(line))
    done = gym("show", "r.jsonl", forged)
    assert done.exit_code == 0
    flat = "x ── score reward 1"
    assert done.stdout.splitlines()[0] == f"{flat}  task {flat}  attempt 0  {flat}"
