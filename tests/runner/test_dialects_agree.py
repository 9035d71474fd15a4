"""Tests that the same tasks yield the same rollouts in every dialect."""

import pytest

from gymcli.mock import MockAnswer, scripted
from tests.builders import gym, lines_of, write_rows

NEXT = MockAnswer(
    text="I shall look.",
    reasoning="Two calls at once.",
    tool_calls=[("increment_counter", {"count": 4}), ("increment_counter", {"count": 3})],
)
SCRIPT = {
    "four": [
        NEXT,
        MockAnswer(tool_calls=[("get_counter_value", {}), ("fly", "not json")]),
        MockAnswer(text="It is 7.", reasoning="7 it is."),
    ],
    "nothing": [MockAnswer(text="It is 0.")],
    "refuse": [MockAnswer(refusal="I cannot count.")],
    "long": [MockAnswer(text="It is", finish_reason="length")],
}
TASKS = [
    {"id": word, "prompt": f"Count {word}.", "expected_count": 7 * (word == "four")}
    for word in SCRIPT
]


def rollouts(out) -> list[dict]:
    """Read rollouts without what may differ: times, and fields of one format only."""
    lines = sorted(lines_of(out / "rollouts.jsonl"), key=lambda line: line["task_id"])
    for line in lines:
        del line["timing"]
        for call in line["calls"]:
            del call["seconds"], call["response_id"]
        ids: dict[str, str] = {}
        for message in line["messages"]:
            message.pop("response_items", None)
            for call in message.get("tool_calls", []):
                call["id"] = ids.setdefault(call["id"], f"call {len(ids)}")
            if "tool_call_id" in message:
                message["tool_call_id"] = ids[message["tool_call_id"]]
    return lines


@pytest.mark.parametrize("row_shape", ["prompt", "responses_create_params"])
def test_dialects_agree(tmp_path, mock_server, row_shape):
    mock_server.behaviour = scripted(SCRIPT)
    rows = []
    for task in TASKS:
        row = {**task, "env": "example_session_state_mgmt"}
        if row_shape == "responses_create_params":
            row[row_shape] = {"input": [{"role": "user", "content": row.pop("prompt")}]}
        rows.append(row)
    write_rows(tmp_path / "t.jsonl", rows)
    found = []
    for dialect in ("chat", "responses"):
        where = ("--base-url", mock_server.base_url, "--model", "m", "--dialect", dialect)
        gym(
            "collect",
            tmp_path / "t.jsonl",
            *where,
            "--out",
            tmp_path / dialect,
            "--quiet",
            exit_code=0,
        )
        found.append(rollouts(tmp_path / dialect))
    chat, responses = found
    assert chat == responses
    four, long, nothing, refuse = chat
    assert [rollout["reward"] for rollout in chat] == [1.0, 1.0, 1.0, 1.0]
    assert four["messages"][1]["reasoning"] == "Two calls at once."
    assert len(four["messages"][1]["tool_calls"]) == 2
    assert four["tool_errors"] == {"unknown_tool": 1}
    assert (long["stop_reason"], refuse["stop_reason"]) == ("length", "refusal")
    assert nothing.get("stop_reason", "done") == "done"
