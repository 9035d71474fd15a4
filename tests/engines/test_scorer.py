"""One worker of a cluster that scores blocks, without the cluster."""

import pickle

import msgspec
import pytest

from gymcli.engines.code import code_of
from gymcli.engines.messages import Block, ScoredBlock
from gymcli.engines.scorer import Scorer, ScoringJob
from gymcli.environment.registry import Registry
from gymcli.rollout.rescored import RescoreJob
from gymcli.secrets import NOTHING_SECRET
from gymcli.store.lines import Line
from gymcli.store.rollout_files import RolloutReading
from gymcli.types import Rollout

SOURCE = '''"""Says which process a verifier is in, and how often it was called."""

import itertools
import os

from gymcli import Context, Environment, Rollout, Score, Task

CALLS = itertools.count(1)


class Processes(Environment[Task]):
    """Say anything."""

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        return Score(float(os.getpid()), metrics={"calls": float(next(CALLS))})
'''


@pytest.fixture
def scorer(tmp_path):
    """Give a worker that is ready, and its lines."""
    spec = f"{tmp_path / 'processes.py'}:Processes"
    (tmp_path / "processes.py").write_text(SOURCE)
    reading = RolloutReading("r.jsonl")
    job = RescoreJob(reading, (spec,), env_names=frozenset({"processes"}))
    hashes = {"processes": Registry((spec,)).find("processes").source_hash}
    scorer = Scorer()
    scorer.open(pickle.dumps(ScoringJob(code_of(spec), job, hashes, NOTHING_SECRET)))
    yield scorer
    scorer.close()


def scored(scorer, repeat):
    records = [
        Rollout(schema_version=1, env="processes", task_id=f"t{n}", attempt=0, messages=[])
        for n in range(2)
    ]
    lines = [
        Line(number, msgspec.json.encode(record), is_complete=True)
        for number, record in enumerate(records, 1)
    ]
    block = Block(lines=lines, repeat=repeat)
    data = scorer.score(msgspec.msgpack.encode(block))
    block = msgspec.msgpack.decode(data, type=ScoredBlock)
    assert block.error is None
    process = {item.new_reward for item in block.results}
    return process.pop(), [item.numbers[1].metrics["calls"] for item in block.results]


def test_each_repeat_has_a_process_of_its_own(scorer):
    """Which has called the verifier another number of times before."""
    first, calls = scored(scorer, 1)
    assert calls == [1, 2]
    assert scored(scorer, 1) == (first, [3, 4])
    second, calls = scored(scorer, 2)
    assert second != first
    assert calls == [2, 3]
