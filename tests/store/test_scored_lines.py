"""The fields that metrics read from a line, and the facts of an environment."""

import msgspec
import pytest

from gymcli.store.scored_lines import EnvironmentFacts, FailureLine, ScoredLine, ScoredTiming
from gymcli.types import ErrorRecord, Failure, Message, Rollout, Timing, Usage


def test_scored_line_reads_a_rollout():
    rollout = Rollout(
        schema_version=1,
        task_id="t1",
        attempt=2,
        env="quiz",
        messages=[Message(role="user", content="How many legs has a spider?")],
        stop_reason="length",
        usage=Usage(prompt_tokens=9),
        timing=Timing(started_at=1.7e9, model_seconds=1.25, total_seconds=1.5),
        reward=0.5,
        components={"form": 1.0},
        answer="8",
        details={"reason": "half"},
    )

    line = msgspec.json.decode(msgspec.json.encode(rollout), type=ScoredLine)

    assert (line.env, line.task_id, line.attempt) == ("quiz", "t1", 2)
    assert (line.reward, line.answer, line.stop_reason) == (0.5, "8", "length")
    assert line.components == {"form": 1.0}
    assert line.usage.prompt_tokens == 9
    assert line.timing == ScoredTiming(model_seconds=1.25, total_seconds=1.5)


@pytest.mark.parametrize("reward", ["", '"reward":null,'])
def test_scored_line_refuses_a_line_without_a_reward(reward):
    with pytest.raises(msgspec.ValidationError, match="reward"):
        msgspec.json.decode(f'{{{reward}"task_id":"t1"}}', type=ScoredLine)


def test_failure_line_reads_a_failure():
    failure = Failure(
        task_id="t1",
        env="quiz",
        error=ErrorRecord(error_class="RateLimitError", phase="model", status=429),
        retries={"RateLimitError": 5},
    )

    line = msgspec.json.decode(msgspec.json.encode(failure), type=FailureLine)

    assert line.error.error_class == "RateLimitError"
    assert line.attempt == 0
    assert line.retries == {"RateLimitError": 5}


def test_success_threshold_is_the_best_reward_unless_another_is_given():
    assert EnvironmentFacts().success_threshold is None
    assert EnvironmentFacts(max_reward=2.0).success_threshold == 2.0
    assert EnvironmentFacts(max_reward=2.0, pass_threshold=1.0).success_threshold == 1.0
