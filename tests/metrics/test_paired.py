"""The means of two rewards of the same attempts are those that `Aggregator` gives of either."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.errors import RunFileError
from gymcli.metrics import PairedMeans, ScoredLine, aggregate

rewards = st.floats(-10.0, 10.0)
attempts = st.dictionaries(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 4)),
    st.tuples(rewards, rewards),
    min_size=1,
)


@given(attempts)
def test_paired_means_are_those_of_the_aggregator(found):
    means = PairedMeans()
    for (task_id, attempt), (reward, other) in found.items():
        means.add("quiz", [task_id], [attempt], [reward], [other])

    expected = tuple(
        aggregate(
            ScoredLine(env="quiz", task_id=task_id, attempt=attempt, reward=both[which])
            for (task_id, attempt), both in found.items()
        ).mean_reward
        for which in (0, 1)
    )
    assert means.means() == expected


def test_paired_means_of_nothing_and_of_several_environments():
    means = PairedMeans()
    assert means.means() == (None, None)
    means.add("quiz", ["t"], [0], [1.0], [0.0])
    means.add("code", ["t"], [0], [1.0], [0.0])

    assert means.means() == (None, None)


def test_paired_means_refuse_an_attempt_that_is_there_twice():
    means = PairedMeans()
    means.add("quiz", ["t", "t"], [1, 1], [0.0, 1.0], [0.0, 1.0])

    with pytest.raises(RunFileError, match="attempt 1, is scored by two lines"):
        means.means()
