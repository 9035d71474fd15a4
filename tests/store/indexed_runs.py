"""Runs of a few attempts, written as gymcli writes them."""

from pathlib import Path

import msgspec

from gymcli.store.manifest import EnvironmentRecord, Manifest
from gymcli.types import (
    ErrorRecord,
    Failure,
    FunctionCall,
    Message,
    Rollout,
    Timing,
    ToolCall,
    Usage,
)


def scored(task_id="a", attempt=0, reward=1.0, env="quiz", **fields):
    said = fields.pop("said", "I say B")
    messages = [Message(role="user", content="A or B?"), Message(role="assistant", content=said)]
    given = {
        "messages": messages,
        "num_prompt_messages": 1,
        "task": {"category": "letters"},
        "stop_reason": "done",
        "model": "m",
        "usage": Usage(prompt_tokens=7, completion_tokens=3, reasoning_tokens=1),
        "timing": Timing(total_seconds=2.5),
        **fields,
    }
    key = {"schema_version": 1, "env": env, "task_id": task_id, "attempt": attempt}
    return Rollout(**key, reward=reward, **given)


def waiting(task_id="a", attempt=0, **fields):
    return scored(task_id, attempt, None, **fields)


def failed(
    task_id="a", attempt=0, error="ServerError", phase="model", env="quiz", said="sorry", **fields
):
    record = ErrorRecord(error_class=error, phase=phase, message=said)
    key = {"schema_version": 1, "env": env, "task_id": task_id, "attempt": attempt}
    return Failure(**key, error=record, **fields)


def with_tools(task_id="t", **fields):
    """Return a rollout of two turns, the first of which calls a tool twice."""
    call = ToolCall(id="1", function=FunctionCall("weather", '{"city": "Oslo"}'))
    other = ToolCall(id="2", function=FunctionCall("weather", '{"city": "Rom"}'))
    messages = [
        Message(role="system", content="Be brief."),
        Message(role="assistant", content="Hello"),
        Message(role="user", content=[{"type": "text", "text": "Where is it warm?"}]),
        Message(role="assistant", reasoning="let me look", tool_calls=[call, other]),
        Message(role="tool", tool_call_id="1", content="cold"),
        Message(role="tool", tool_call_id="2", content="warm"),
        Message(role="assistant", content="In Rom."),
    ]
    return scored(task_id, messages=messages, num_prompt_messages=3, **fields)


def lines(*records):
    return b"".join(msgspec.json.encode(record) + b"\n" for record in records)


def append(path: Path, *records):
    with path.open("ab") as file:
        file.write(lines(*records))


def write_run(path: Path, *, rollouts=(), failures=(), generations=(), threshold=1.0):
    """Write a run directory with these records in its files."""
    path.mkdir(exist_ok=True)
    record = EnvironmentRecord(version="1", max_reward=1.0, pass_threshold=threshold)
    manifest = Manifest(environments={"quiz": record}, model="m")
    (path / "run.json").write_bytes(msgspec.json.encode(manifest))
    for name, records in (
        ("rollouts", rollouts),
        ("failures", failures),
        ("generations", generations),
    ):
        if records:
            (path / f"{name}.jsonl").write_bytes(lines(*records))
    return path
