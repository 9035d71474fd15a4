"""The agreement of rewards with labels, against statsmodels and published values."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.inter_rater import cohens_kappa

from gymcli.errors import UsageError
from gymcli.metrics.aggregate import Aggregator
from gymcli.metrics.agreement import agreement, agreement_of, is_pass, labels_of_rows
from gymcli.store.scored_lines import EnvironmentFacts, ScoredLine

CELLS = ((True, True), (True, False), (False, True), (False, False))


def outcomes(*counts):
    """Return tasks with one attempt each, by the counts of `CELLS`."""
    return [[cell] for cell, count in zip(CELLS, counts, strict=True) for _ in range(count)]


@given(st.lists(st.integers(1, 60), min_size=4, max_size=4))
def test_kappa_and_its_interval_agree_with_statsmodels(counts):
    found = agreement_of(outcomes(*counts), threshold=1.0)
    expected = cohens_kappa([counts[:2], counts[2:]])
    assert found.agreement == pytest.approx((counts[0] + counts[3]) / sum(counts))
    assert found.kappa == pytest.approx(expected.kappa, abs=1e-12)
    ends = max(-1.0, expected.kappa_low), min(1.0, expected.kappa_upp)
    assert (found.interval.low, found.interval.high) == pytest.approx(ends, abs=1e-9)


def test_kappa_by_hand():
    """20 + 15 of 50 agree: 0.7 observed, 0.5 * 0.6 + 0.5 * 0.4 = 0.5 by chance, kappa 0.4."""
    found = agreement_of(outcomes(20, 5, 10, 15), threshold=1.0)
    assert found.agreement == pytest.approx(0.7)
    assert found.kappa == pytest.approx(0.4)
    # Fleiss, Cohen and Everitt 1969, formula 13, on these shares.
    error = (found.interval.high - found.interval.low) / 2 / 1.959964
    agreeing = 0.4 * (1 - (0.5 + 0.6) * 0.6) ** 2 + 0.3 * (1 - (0.5 + 0.4) * 0.6) ** 2
    others = 0.6**2 * (0.1 * (0.6 + 0.5) ** 2 + 0.2 * (0.4 + 0.5) ** 2)
    rest = (0.4 - 0.5 * (1 - 0.4)) ** 2
    assert error == pytest.approx(math.sqrt((agreeing + others - rest) / 50) / 0.5, rel=1e-4)
    assert (found.num_both_pass, found.num_only_label_passes) == (20, 5)
    assert (found.num_only_reward_passes, found.num_both_fail) == (10, 15)


def test_kappa_is_no_surer_with_duplicated_attempts():
    once = agreement_of(outcomes(20, 5, 10, 15), threshold=1.0)
    again = agreement_of([task * 4 for task in outcomes(20, 5, 10, 15)], threshold=1.0)
    assert again.num_values == 4 * once.num_values
    assert again.kappa == pytest.approx(once.kappa)
    assert again.interval.low == pytest.approx(once.interval.low)


@pytest.mark.parametrize(
    ("counts", "kappa"), [((9, 0, 0, 0), None), ((5, 0, 0, 4), 1.0), ((0, 5, 5, 0), -1.0)]
)
def test_kappa_of_equal_or_opposite_labels_has_no_interval(counts, kappa):
    found = agreement_of(outcomes(*counts), threshold=1.0)
    assert found.kappa == (None if kappa is None else pytest.approx(kappa))
    assert found.interval is None


@pytest.mark.parametrize("value", [True, 1, 1.0, "1", "pass", " PASS ", "true"])
def test_is_pass_takes_passes(value):
    assert is_pass(value) is True


@pytest.mark.parametrize("value", [False, 0, 0.0, "0", "fail", "False"])
def test_is_pass_takes_fails(value):
    assert is_pass(value) is False


@pytest.mark.parametrize("value", [0.7, 2, "maybe", "0.5", [1], {"a": 1}, math.nan])
def test_is_pass_refuses_others(value):
    with pytest.raises(ValueError, match="is neither pass nor fail; write pass or fail, true or"):
        is_pass(value)


def labelled(*rows):
    """Return the labels of rows, read from a file."""
    return labels_of_rows((f"l.csv:{number}", row) for number, row in enumerate(rows, 2))


def test_blanks_around_the_cells_of_a_label_are_left_out():
    row = {"task_id": " a ", "label": " pass", "attempt": " 1", "env": "quiz "}
    assert labelled(row) == labelled({name: cell.strip() for name, cell in row.items()})
    assert not labelled({"task_id": "a", "label": " "})


def counted(envs=("quiz",), *, threshold=1.0):
    """Return an aggregator of tasks a and b in each environment, with two attempts each."""
    aggregator = Aggregator(
        {env: EnvironmentFacts(pass_threshold=threshold) for env in envs}, fields=["human"]
    )
    for env in envs:
        for task_id, rewards in {"a": (1.0, 0.0), "b": (1.0, 1.0)}.items():
            for attempt, reward in enumerate(rewards):
                line = ScoredLine(env=env, task_id=task_id, attempt=attempt, reward=reward)
                human = {"a": '"pass"', "b": None}[task_id]
                aggregator.add_scored(line, [human])
    return aggregator


def table(found):
    """Return the counts of an agreement in the order of `CELLS`."""
    return (
        *(found.num_both_pass, found.num_only_label_passes),
        *(found.num_only_reward_passes, found.num_both_fail),
    )


def test_labels_of_tasks_hold_for_all_attempts_but_those_with_their_own():
    labels = labelled(
        {"task_id": "a", "label": "pass"},
        {"task_id": "a", "attempt": "1", "label": "fail"},
        {"task_id": "b", "label": ""},
        {"task_id": "other", "label": "pass"},
    )
    said: list[str] = []
    found = agreement(counted(), labels, source="l.csv", warn=said.append)["quiz"]
    assert said == ["--labels l.csv: 1 of 3 labels apply to no scored attempt of this run"]
    assert table(found) == (1, 0, 0, 1)
    assert (found.num_values, found.num_clusters, found.num_unlabelled) == (2, 1, 2)


def test_labels_may_name_the_environment():
    labels = labelled(
        {"task_id": "a", "env": "quiz", "label": 1}, {"task_id": "a", "env": "game", "label": 0}
    )
    found = agreement(counted(("quiz", "game", "more")), labels, source="l.csv")
    assert {env: table(own) for env, own in found.items()} == {
        "game": (0, 0, 1, 1),
        "quiz": (1, 1, 0, 0),
    }


def test_labels_may_stand_in_the_task_rows():
    found = agreement(counted(), "human", source="task.human")["quiz"]
    assert table(found) == (1, 1, 0, 0)
    assert found.num_unlabelled == 2


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"task_id": "a"}, 'l.csv:2: "label" is missing; a row has task_id and label'),
        ({"label": "pass"}, 'l.csv:2: "task_id" is missing'),
        ({"task_id": "a", "label": "0.7"}, "l.csv:2: the label '0.7' is neither pass nor fail"),
        ({"task_id": "a", "label": 1, "attempt": "x"}, "l.csv:2: the attempt 'x' is not a whole"),
        ("is not JSON", "l.csv:2: is not JSON"),
    ],
)
def test_labels_refuse_wrong_rows(row, message):
    with pytest.raises(UsageError, match=message):
        labelled(row)


def test_labels_refuse_a_second_label():
    with pytest.raises(UsageError, match="3: the task a has a label already"):
        labelled({"task_id": "a", "label": 1}, {"task_id": "a", "label": 1})


def test_agreement_needs_labels_and_a_threshold():
    with pytest.raises(UsageError, match="csv: no scored attempt of this run has a lab"):
        agreement(counted(), labelled({"task_id": "x", "label": 1}), source="l.csv")
    labels = labelled({"task_id": "a", "label": 1})
    with pytest.raises(UsageError, match="environment quiz has no threshold of success"):
        agreement(counted(threshold=None), labels, source="l.csv")
