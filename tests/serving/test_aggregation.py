"""Tests that `/aggregate_metrics` returns NeMo Gym's numbers under its keys."""

import pytest

from gymcli.serving.protocol import HttpStatusError
from gymcli.serving.service import aggregate_metrics
from gymcli.store.scored_lines import EnvironmentFacts, OwnMetrics

FACTS = EnvironmentFacts(max_reward=1.0)


def verified(task, attempt, reward, answer=None, **fields):
    usage = {"input_tokens": 10, "output_tokens": 2 * attempt}
    stamps = {"_ng_task_index": task, "_ng_rollout_index": attempt}
    said = {} if answer is None else {"extracted_answer": answer}
    return {"response": {"usage": usage}, "reward": reward, **stamps, **said, **fields}


def test_aggregated_gives_the_worked_example():
    """Two tasks of four rollouts; NeMo Gym computes the same numbers for them."""
    rewards = ((1.0, 0.0, 1.0, 0.0), (0.0, 0.0, 1.0, 1.0))
    answers = (("x", "y", "x", None), ("z", "z", "w", "w"))
    rows = [
        verified(task, attempt, rewards[task][attempt], answers[task][attempt])
        for task in (0, 1)
        for attempt in range(4)
    ]
    found = aggregate_metrics(rows, env="e", facts=FACTS)
    agent = found["agent_metrics"]
    assert agent["mean/reward"] == 0.5
    assert agent["std/reward"] == pytest.approx(0.5345, abs=1e-4)
    assert (agent["min/output_tokens"], agent["max/output_tokens"]) == (0.0, 6.0)
    assert agent["median/output_tokens"] == 3.0
    assert agent["pass@1/accuracy"] == 50.0
    assert agent["pass@2/accuracy"] == pytest.approx(83.33, abs=0.01)
    assert agent["pass@4/accuracy"] == 100.0
    assert agent["pass@1[avg-of-2]/accuracy"] == 25.0
    assert "majority@4/accuracy" in agent
    assert {"mean/reward", "pass@4/accuracy"} <= set(found["key_metrics"])
    assert "std/reward" not in found["key_metrics"]
    first, second = found["group_level_metrics"]
    assert (first["_ng_task_index"], first["mean/reward"]) == (0, 0.5)
    assert (second["_ng_task_index"], second["max/reward"]) == (1, 1.0)


def test_aggregated_leaves_out_what_has_no_score():
    rows = [verified(0, 0, 1.0), verified(1, 0, 0.0, _ng_failure_class="judge_failed")]
    found = aggregate_metrics(rows, env="e", facts=FACTS)
    assert found["agent_metrics"]["mean/reward"] == 1.0
    assert len(found["group_level_metrics"]) == 1


def test_aggregated_makes_up_no_index():
    row = {"reward": 1.0, "id": "9" * 5000}
    [group] = aggregate_metrics([row], env="e", facts=FACTS)["group_level_metrics"]
    assert group["task_id"] == row["id"]
    assert "_ng_task_index" not in group


def test_aggregated_of_nothing_is_nothing():
    assert aggregate_metrics([], env="e", facts=FACTS) == {
        "group_level_metrics": [],
        "agent_metrics": {},
        "key_metrics": {},
    }


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (None, "must be a list"),
        ([3], r"verify_responses\[0\] is not an object"),
        ([verified(0, 0, 1.0), verified(0, 0, 1.0)], "twice|two"),
        ([verified(0, 0, 1.0, size=10**400)], "too large"),
        ([verified(0, 0, 1.0, reward_components={"a": 10**400})], "too large"),
        ([verified(n, 0, 1.0, size=1e308) for n in (0, 1)], "too large"),
    ],
)
def test_aggregated_refuses_what_is_no_list_of_attempts(rows, words):
    with pytest.raises(HttpStatusError, match=words):
        aggregate_metrics(rows, env="e", facts=FACTS)


def test_aggregated_has_what_the_environment_computes_itself():
    def highest(groups):
        return {"highest": max(g.fields["level"] for g in groups if g.scores[0].reward)}

    rows = [verified(n, 0, reward, level=n) for n, reward in enumerate((1.0, 1.0, 0.0))]
    own = OwnMetrics(highest, ("level",))
    found = aggregate_metrics(rows, env="e", facts=FACTS, environment_metrics=own)
    assert found["agent_metrics"]["highest"] == found["key_metrics"]["highest"] == 1.0


def test_aggregated_goes_on_where_the_environment_fails(caplog):
    def fail(groups):
        raise ValueError("no level")

    found = aggregate_metrics(
        [verified(0, 0, 1.0)], env="e", facts=FACTS, environment_metrics=OwnMetrics(fail)
    )
    assert found["agent_metrics"]["pass@1/accuracy"] == 100.0
    [record] = caplog.records
    assert "the metrics of environment e failed: ValueError: no level" in record.getMessage()
