"""Tests that rollouts in NeMo Gym's format are rescored by the rules of their environments."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gymcli.cli import app

JSON = dict[str, object]


def message(text: str) -> JSON:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": None}
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": [part]}


def call(name: str, arguments: object, result: str) -> list[JSON]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return [
        {"type": "function_call", "call_id": "c1", "name": name, "arguments": text, "id": "fc_1"},
        {"type": "function_call_output", "call_id": "c1", "output": result, "id": None},
    ]


def rollout(fields: JSON, output: list[JSON], *, index: int, reward: float, env: str) -> JSON:
    return {
        "responses_create_params": {
            "input": [{"role": "user", "content": "The question.", "type": "message"}],
            "temperature": None,
            "tools": [],
        },
        "response": {
            "id": "resp_1",
            "model": "a-model",
            "object": "response",
            "output": output,
            "usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
        },
        **fields,
        "reward": reward,
        "_ng_task_index": index,
        "_ng_rollout_index": 0,
        "agent_ref": {"name": f"{env}_simple_agent"},
    }


CHOICE: JSON = {
    "options": [{"A": "moss"}, {"B": "granite"}],
    "expected_answer": "B",
    "grading_mode": "strict_single_letter_boxed",
}
SYNONYMS: JSON = {
    "expected_synonyms": ["Tiny", "Little"],
    "expected_synonym_values": [5, 7],
    "minefield_label": "Small",
    "minefield_label_value": 9,
}
COUNTER: JSON = {"initial_count": 3, "expected_count": 6}
ADDED = '{"success":true}'

CASES = {
    "mcqa": [
        (CHOICE, [message("So it is \\boxed{B}.")], 1.0),
        (CHOICE, [message("So it is \\boxed{A}.")], 0.0),
        (CHOICE, [message("Granite, surely.")], 0.0),
        (CHOICE, [], 0.0),
        (CHOICE, [message("\\boxed{A}"), message(" no: \\boxed{\\text{B}}")], 1.0),
    ],
    "example_multi_step": [
        (SYNONYMS, call("extract_synonym_values", {"synonym_values": [5, 7]}, ADDED), 1.0),
        (SYNONYMS, call("extract_synonym_values", {"synonym_values": [7, 5]}, ADDED), 0.0),
        (SYNONYMS, call("extract_synonym_values", "[5, 7", "an error of theirs"), 0.0),
        (
            SYNONYMS,
            [
                *call("extract_synonym_values", {"synonym_values": [1]}, ADDED),
                *call("extract_synonym_values", {"synonym_values": [5, 7]}, ADDED),
                message("Done."),
            ],
            1.0,
        ),
        (SYNONYMS, [message("5 and 7")], 0.0),
    ],
    "example_session_state_mgmt": [
        (COUNTER, [*call("increment_counter", {"count": 3}, ADDED), message("6")], 1.0),
        (COUNTER, [*call("increment_counter", {"count": 4}, ADDED), message("6")], 0.0),
        (COUNTER, [message("6")], 0.0),
        (
            COUNTER,
            [
                *call("increment_counter", '{"count": ', '{"error": "their own words"}'),
                *call("increment_counter", {"count": 1}, ADDED),
                *call("increment_counter", {"count": 2}, ADDED),
                *call("get_counter_value", {}, '{"count": 6}'),
            ],
            1.0,
        ),
        (COUNTER, call("get_counter_value", {}, '{"count":3}'), 0.0),
    ],
}


@pytest.mark.parametrize("env", sorted(CASES))
def test_rollouts_of_others_are_rescored(env: str, tmp_path: Path) -> None:
    """Every recorded reward is the opposite of the correct one, so that each must change."""
    lines = [
        json.dumps(rollout(fields, output, index=index, reward=1.0 - expected, env=env))
        for index, (fields, output, expected) in enumerate(CASES[env])
    ]
    file = tmp_path / "rollouts.jsonl"
    file.write_text("\n".join(lines) + "\n")

    ran = CliRunner().invoke(app, ["verify", str(file), "--json", "--out", str(tmp_path / "out")])

    assert ran.exit_code == 0, ran.output
    report = json.loads(ran.stdout)
    assert report["num_changed"] == report["num_rescored"] == len(lines)
    written = (tmp_path / "out" / "rollouts.jsonl").read_text().splitlines()
    rewards = [json.loads(line)["reward"] for line in written]
    assert rewards == [expected for _, _, expected in CASES[env]]


@pytest.mark.parametrize("env", sorted(CASES))
def test_fields_are_joined_from_the_task_rows(env: str, tmp_path: Path) -> None:
    """A rollout file without its rows' fields needs --tasks, joined by the row's index."""
    rows, lines = [], []
    for index, (fields, output, expected) in enumerate(CASES[env]):
        create_params = {"input": f"Question {index}."}
        rows.append(json.dumps({"responses_create_params": create_params, **fields}))
        lines.append(json.dumps(rollout({}, output, index=index, reward=expected, env=env)))
    (tmp_path / "tasks.jsonl").write_text("\n".join(rows))
    (tmp_path / "rollouts.jsonl").write_text("\n".join(lines))
    arguments = ["verify", str(tmp_path / "rollouts.jsonl"), "--json"]

    ran = CliRunner().invoke(app, [*arguments, "--tasks", str(tmp_path / "tasks.jsonl")])

    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["num_changed"] == 0
    assert json.loads(ran.stdout)["num_rescored"] == len(lines)
