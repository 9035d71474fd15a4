"""Write runs without collecting them, for the tests of comparing."""

from pathlib import Path

import msgspec

from tests.builders import write_rows

MANIFEST = {
    "identity": {"prompt": None, "model": "m", "params": {}, "seed": 0, "dialect": "chat"},
    "model": "m",
}
ENVIRONMENT = {"version": "1", "source_hash": "s1", "max_reward": 1.0}


def line(task, attempt=0, reward=1.0, *, fields=None, **more):
    """Return a scored line in gymcli's format; keys whose value is None are left out."""
    said = {
        "schema_version": 1,
        "task_id": task,
        "task_hash": "00000000000000aa",
        "attempt": attempt,
        "env": "arithmetic",
        "env_version": "1",
        "seed": 7,
        "task": {"answer": 2} if fields is None else fields,
        "messages": [
            {"role": "user", "content": f"What is {task}?"},
            {"role": "assistant", "content": "2"},
        ],
        "num_prompt_messages": 1,
        "model": "m",
        "reward": reward,
        "verifier": {"version": "1", "source_hash": "s1"},
        **more,
    }
    return {name: value for name, value in said.items() if value is not None}


def failure(task, attempt=0):
    """Return a line of an attempt that was not scored."""
    return {
        "schema_version": 1,
        "task_id": task,
        "attempt": attempt,
        "env": "arithmetic",
        "error": {"class": "ServerError", "phase": "model"},
    }


def nemo(task, reward=1.0, *, attempt=0, prompt="What is it?", **more):
    """Return a line in NeMo Gym's format."""
    return {
        "responses_create_params": {"input": [{"role": "user", "content": prompt}]},
        "response": {"output": [], "model": "theirs"},
        "agent_ref": {"name": "arithmetic"},
        "task_id": task,
        "_ng_rollout_index": attempt,
        "reward": reward,
        **more,
    }


def write_run(folder: Path, lines, *, failures=(), identity=None, num_expected=None, **env) -> Path:
    """Write a run of one environment; by default it expects as many attempts as it has."""
    write_rows(folder / "rollouts.jsonl", lines)
    if failures:
        write_rows(folder / "failures.jsonl", failures)
    expected = len(lines) + len(failures) if num_expected is None else num_expected
    manifest = {
        **MANIFEST,
        "identity": {**MANIFEST["identity"], **(identity or {})},
        "environments": {"arithmetic": {**ENVIRONMENT, "num_expected": expected, **env}},
    }
    (folder / "run.json").write_bytes(msgspec.json.encode(manifest))
    return folder


def mixed(num_tasks=20, num_attempts=2, *, every=3, **more):
    """Return lines of which about every third fails."""
    return [
        line(f"t{task:03}", attempt, float((task + attempt) % every > 0), **more)
        for task in range(num_tasks)
        for attempt in range(num_attempts)
    ]
