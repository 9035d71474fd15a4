"""The counts that the scripts of bench/ take from a run's files."""

from pathlib import Path

from bench.nonces import nonce_of
from bench.runs import Tally, counted, tally
from gymcli.types import ErrorRecord, Failure, Message, Rollout
from tests.builders import write_rows


def rollout(number: int, answer: str, **fields) -> Rollout:
    nonce = nonce_of(0, number)
    return Rollout(
        schema_version=1,
        task_id=f"task-{number}",
        attempt=0,
        env="nonces",
        task={"nonce": nonce},
        messages=[
            Message(role="user", content=f"Say back: {nonce}"),
            Message(role="assistant", content=answer),
        ],
        num_prompt_messages=1,
        reward=float(nonce in answer),
        **fields,
    )


def failure(number: int, name: str, **fields) -> Failure:
    error = ErrorRecord(error_class=name, phase="model")
    return Failure(task_id=f"task-{number}", attempt=0, env="nonces", error=error, **fields)


def write(run: Path, name: str, lines: list) -> None:
    run.mkdir(exist_ok=True)
    write_rows(run / name, lines)


def test_tally_counts_every_kind_of_line(tmp_path):
    right = rollout(0, nonce_of(0, 0), retries={"ServerError": 2})
    lines = [right, rollout(1, "nothing"), rollout(2, nonce_of(0, 1)), right]
    write(tmp_path, "rollouts.jsonl", lines)
    failures = [
        failure(0, "RateLimitError"),  # scored by a later try
        failure(3, "RateLimitError"),
        failure(3, "ServerError", retries={"ServerError": 5}),
    ]
    write(tmp_path, "failures.jsonl", failures)
    assert tally(tmp_path) == Tally(
        num_scored=3,
        num_right=2,
        num_own=2,
        num_foreign=1,
        num_twice=1,
        unscored={"ServerError": 1},
        retries={"ServerError": 9},
    )


def test_tally_of_a_run_that_wrote_nothing(tmp_path):
    assert tally(tmp_path) == Tally()
    assert tally(tmp_path).num_unscored == 0


def test_counted_names_each_class():
    assert counted({"ServerError": 2, "RateLimitError": 1}) == "1 RateLimitError, 2 ServerError"
    assert counted({}) == "-"
