"""The environment arithmetic: how the last number is read, and the generated sums."""

from random import Random

import pytest

from gymcli.envs.arithmetic import Arithmetic
from tests.envs.episodes import answered, scored


@pytest.mark.parametrize(
    ("text", "reward", "answer"),
    [
        pytest.param("7", 1.0, "7", id="bare"),
        pytest.param("3 + 4 = 7.", 1.0, "7", id="last of several"),
        pytest.param("**7**", 1.0, "7", id="in markdown"),
        pytest.param("7.0", 1.0, "7.0", id="decimal"),
        pytest.param("10-7", 1.0, "7", id="a minus between numbers"),
        pytest.param("7, no: 8", 0.0, "8", id="last one wrong"),
        pytest.param("7.5", 0.0, "7.5", id="not a whole number"),
        pytest.param("-7", 0.0, "-7", id="negative"),
        pytest.param("= \u22127", 0.0, "-7", id="minus sign"),
        pytest.param("seven", 0.0, None, id="in words"),
        pytest.param("", 0.0, None, id="empty"),
        pytest.param("7" * 5000, 0.0, "7" * 5000, id="too long for a number"),
    ],
)
def test_verify_takes_the_last_number(text, reward, answer):
    rollout = scored(answered("arithmetic", {"answer": 7}, text))

    assert (rollout.reward, rollout.answer) == (reward, answer)
    reason = "correct" if reward else "wrong_answer" if answer else "no_answer"
    assert rollout.details == {"reason": reason, "expected": "7"}


def test_generate_says_how_hard_a_sum_is():
    for row in Arithmetic.generate(Random(3), 100):
        first, second = row["id"].split("+")

        assert row["answer"] == int(first) + int(second)
        assert row["difficulty"] == {2: "easy", 3: "medium", 4: "hard"}[len(first + second)]
        assert f"{first} + {second}" in row["prompt"]


def test_generate_gives_all_sums_once():
    ids = {row["id"] for row in Arithmetic.generate(Random(0), 361)}

    assert len(ids) == 361
    with pytest.raises(ValueError):
        list(Arithmetic.generate(Random(0), 362))
