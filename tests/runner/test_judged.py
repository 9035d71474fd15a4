"""Rescoring in one process: lines are read as they are needed, and each gives one result."""

import itertools

import msgspec
import pytest

from gymcli.environment.registry import Registry
from gymcli.runner.judging import Judges, judging
from gymcli.runner.verifying import JudgedJob, iterated, rescore_judged
from gymcli.store.lines import Line
from gymcli.store.rollout_files import RolloutReading
from gymcli.store.verdicts import Verdicts
from gymcli.types import SCHEMA_VERSION, Message, Rollout, Verifier


def find(name):
    found = Registry((f"tests.runner.environments:{name}",)).find("environments")
    return found._replace(name=name)


class Lines:
    """Lines of a file that counts how often, and how far, it is read."""

    def __init__(self, rollouts):
        self._data = [msgspec.json.encode(rollout) for rollout in rollouts]
        self.num_readings = 0
        self.num_read = 0

    def read(self):
        self.num_readings += 1
        for number, data in enumerate(self._data, start=1):
            self.num_read += 1
            yield Line(number, data, is_complete=True)


def record_of(env, number, **fields):
    said = Message(role="assistant", content=f"{number} gold")
    fields = {"attempt": 0, "reward": 0.5, "messages": [said], **fields}
    return Rollout(
        schema_version=SCHEMA_VERSION, env=env, env_version="1", task_id=f"t{number}", **fields
    )


def rescoring(lines, **options):
    job = JudgedJob(RolloutReading("rollouts.jsonl"), find, **{"concurrency": 4, **options})
    judges = Judges({"judge": "oracle"})
    batches = rescore_judged(lines.read, job, lambda: judging(judges, Verdicts()))
    return (result for batch in iterated(batches) for result in batch)


@pytest.mark.parametrize("envs", [["Recorded"], ["Judged"], ["Judged", "Recorded", "Recorded"]])
def test_rescore_judged_reads_lines_as_they_are_needed(envs):
    """Memory does not grow with the file, whatever stands in it."""
    named = itertools.islice(itertools.cycle(envs), 200)
    lines = Lines([record_of(env, n) for n, env in enumerate(named)])
    ahead = [lines.num_read - number for number, _ in enumerate(rescoring(lines), start=1)]
    assert len(ahead) == 200
    assert max(ahead) <= 4 + 4 + 1
    assert lines.num_readings == 1


def test_rescore_judged_gives_a_result_for_every_line():
    lines = Lines([record_of(("Judged", "Recorded")[n % 2], n) for n in range(20)])
    results = {int(result.key.task_id[1:]): result for result in rescoring(lines)}
    assert len(results) == 20
    for number, result in results.items():
        is_judged = number % 2 == 0
        assert result.is_rescored is is_judged
        assert (result.old_reward, result.new_reward) == (0.5, 1.0 if is_judged else 0.5)


def test_rescore_judged_keeps_lines_as_they_are():
    record = record_of("Recorded", 1)
    [result] = rescoring(Lines([record]), keeps_lines=True)
    assert result.line == msgspec.json.encode(record)


def test_rescore_judged_keeps_order_and_lines_where_no_model_is_asked():
    """A line whose score is the same stays as it is, byte by byte."""
    verifier = Verifier("1", find("Unclosed").source_hash)
    records = [record_of("Unclosed", n, reward=float(n % 2), verifier=verifier) for n in range(9)]
    results = list(rescoring(Lines(records), keeps_lines=True, asks_nobody=True))
    assert [result.key.task_id for result in results] == [record.task_id for record in records]
    for record, result in zip(records, results, strict=True):
        assert result.new_reward == 1.0
        assert (result.line == msgspec.json.encode(record)) is (record.reward == 1.0)


def test_rescore_judged_tells_lines_of_one_key_apart():
    """A file that was put together may hold an attempt twice."""
    lines = Lines([record_of("Judged", 1, reward=reward) for reward in (0.25, 0.75)])
    assert [result.old_reward for result in rescoring(lines, concurrency=1)] == [0.25, 0.75]


@pytest.mark.parametrize(("group_size", "num_readings"), [(2, 1), (0, 2)])
def test_rescore_judged_counts_groups_only_where_records_do_not_tell(group_size, num_readings):
    said = [Message(role="assistant", content="5")]
    group = [
        record_of("Ranked", 1, attempt=n, group_size=group_size, messages=said) for n in range(2)
    ]
    lines = Lines([*group, record_of("Judged", 2)])
    results = list(rescoring(lines))
    assert lines.num_readings == num_readings
    assert [result.new_reward for result in results] == [1.0] * 3


def test_rescore_judged_scores_a_record_alone_where_its_environment_has_no_groups_any_more():
    [result] = rescoring(Lines([record_of("Judged", 1, group_size=3)]))
    assert (result.new_reward, result.error) == (1.0, None)
