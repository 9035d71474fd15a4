"""The state of a tally: failures until their attempt is scored, and the groups of tasks."""

from gymcli.metrics.tally import EnvironmentTally
from gymcli.store.scored_lines import (
    AttemptScore,
    EnvironmentFacts,
    FailureLine,
    Group,
    ScoredLine,
)
from gymcli.types import ErrorRecord, Usage


def failed(task_id, attempt, error_class="Timeout", *, prompt_tokens=0, cost=None):
    error = ErrorRecord(error_class=error_class, phase="verify")
    usage = Usage(prompt_tokens=prompt_tokens)
    return FailureLine(task_id=task_id, attempt=attempt, error=error, usage=usage, cost=cost)


def tally_of(*lines, scored=(), fields=()):
    tally = EnvironmentTally("quiz", EnvironmentFacts(), fields)
    tally.add_scored(
        [ScoredLine(task_id=task, attempt=number, reward=1.0) for task, number in scored]
    )
    for line in lines:
        tally.add_failure(line)
    return tally


def absent(part):
    """Return for each task the numbers of its scored and absent attempts."""
    return [
        (group.num_attempts, number)
        for group, own in zip(part.tasks, part.num_absent, strict=True)
        for number in own.tolist()
    ]


def test_the_last_failure_of_an_attempt_counts():
    tally = tally_of(failed("a", 0, "First"), last := failed("a", 0, "Last"))

    assert tally.unscored() == [last]
    assert absent(tally.part()) == [(0, 1)]


def test_failures_that_were_scored_later_do_not_count():
    rest = failed("b", 1)
    scored = [("b", 0), ("b", 2), ("a", 0)]
    tally = tally_of(rest, failed("b", 0), failed("a", 0), scored=scored)

    assert tally.unscored() == [rest]
    assert absent(tally.part()) == [(1, 0), (2, 1)]


def test_failures_come_by_task_and_attempt():
    lines = [failed("b", 1), failed("a", 10), failed("b", 0), failed("a", 9)]

    assert tally_of(*lines).unscored() == [lines[3], lines[1], lines[2], lines[0]]


def test_failures_are_looked_at_again_when_lines_are_added():
    tally = tally_of(failed("a", 0))
    assert len(tally.unscored()) == 1
    tally.add_scored([ScoredLine(task_id="a", reward=1.0)])

    assert tally.unscored() == []
    assert absent(tally.part()) == [(1, 0)]


def test_usage_of_failures_counts_until_they_are_scored():
    """A failure without an answer costs nothing, even where prices are unknown."""
    tally = tally_of(
        failed("a", 0, prompt_tokens=3, cost=0.5), failed("a", 1), failed("b", 0, prompt_tokens=7)
    )
    for _ in range(2):
        assert tally.part().totals.usage.prompt_tokens == 10
        assert tally.part().totals.cost is None
    tally.add_scored([ScoredLine(task_id="b", reward=1.0, cost=0.25)])

    assert tally.part().totals.usage.prompt_tokens == 3
    assert tally.part().totals.cost == 0.75


def test_groups_have_each_task_with_its_scores_in_order_of_attempt():
    tally = EnvironmentTally("quiz", EnvironmentFacts(), ["kind", "level"])
    lines = [
        ScoredLine(task_id="a", attempt=1, reward=1.0, answer="x", metrics={"length": 0.0}),
        ScoredLine(task_id="b", attempt=0, reward=0.5, metrics={"length": 1.0}),
        ScoredLine(
            task_id="a",
            attempt=0,
            reward=0.0,
            answer="y",
            components={"style": 0.25},
            metrics={"length": 2.0},
        ),
    ]
    tally.add_scored(lines, [['"sum"', "3"], [None, "4"], ['"sum"', "3"]])

    assert sorted(tally.groups()) == [
        Group(
            "a",
            {"kind": "sum", "level": 3},
            [
                AttemptScore(0, 0.0, {"style": 0.25}, {"length": 2.0}, "y"),
                AttemptScore(1, 1.0, {}, {"length": 0.0}, "x"),
            ],
        ),
        Group("b", {"kind": None, "level": 4}, [AttemptScore(0, 0.5, {}, {"length": 1.0}, None)]),
    ]


def test_groups_of_lines_without_optional_fields():
    [group] = tally_of(scored=[("a", 0)]).groups()
    assert group == Group("a", {}, [AttemptScore(0, 1.0, {}, {}, None)])
