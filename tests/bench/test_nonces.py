"""The tasks whose answers show which task they belong to."""

import msgspec
import pytest

from bench.nonces import answers_own, foreign_nonces, nonce_of, write_tasks
from bench.runs import NONCES
from gymcli.types import Message, Rollout
from tests.builders import collect_all

OWN, OTHER = nonce_of(0, 0), nonce_of(0, 1)


def talk(*texts: str) -> list[Message]:
    roles = ["user", "assistant"] * len(texts)
    return [Message(role=role, content=text) for role, text in zip(roles, texts, strict=False)]


def test_nonces_differ_by_seed_and_number(tmp_path):
    write_tasks(tmp_path / "a.jsonl", 50, seed=1)
    write_tasks(tmp_path / "b.jsonl", 50, seed=2)
    rows = [
        msgspec.json.decode(line)
        for name in ("a.jsonl", "b.jsonl")
        for line in (tmp_path / name).read_bytes().splitlines()
    ]
    assert len({row["nonce"] for row in rows}) == 100
    assert all(row["prompt"].endswith(row["nonce"]) for row in rows)


def test_foreign_nonces_are_found_anywhere():
    assert not foreign_nonces(talk(OWN, OWN), own=OWN)
    assert foreign_nonces(talk(OWN, f"{OWN}{OTHER}"), own=OWN) == {OTHER}
    thought = [*talk(OWN), Message(role="assistant", content=OWN, reasoning=f"not {OTHER}")]
    assert foreign_nonces(thought, own=OWN) == {OTHER}


def test_answers_own_reads_the_last_message():
    assert answers_own(Rollout(task={"nonce": OWN}, messages=talk(OWN, OWN)))
    assert not answers_own(Rollout(task={"nonce": OWN}, messages=talk(OWN, OTHER)))
    assert not answers_own(Rollout(task={"nonce": OWN}, messages=talk(OWN, "")))


@pytest.mark.parametrize("environment", ["Nonces", "NoncesWithTool"])
def test_only_the_own_nonce_is_rewarded(tmp_path, environment):
    write_tasks(tmp_path / "tasks.jsonl", 2)
    answers = {"task-0": 1.0, "task-1": 0.0}
    records, _ = collect_all(
        tmp_path / "tasks.jsonl", lambda request: OWN, env=f"{NONCES}:{environment}"
    )
    assert {record.task_id: record.reward for record in records} == answers
