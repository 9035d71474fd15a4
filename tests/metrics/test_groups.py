"""The groups that an environment's own metrics are made of."""

from gymcli.metrics.answers import Answers
from gymcli.metrics.attempts import ScoredAttempts
from gymcli.metrics.grouping import Values
from gymcli.metrics.groups import AttemptScore, Group, groups_of


def column(*texts):
    """Give a column of texts, one a line."""
    made = Answers()
    made.add_all(0, texts)
    made.complete(len(texts))
    return made


def test_groups_of_gives_each_task_with_its_scores_in_order_of_attempt():
    attempts = ScoredAttempts("quiz")
    attempts.extend(["a", "b", "a"], [1, 0, 0], [1.0, 0.5, 0.0])
    attempts.answers.add_all(0, ["x", None, "y"])
    attempts.fields = {"kind": column('"sum"', None, '"sum"'), "level": column("3", "4", "3")}
    style = Values()
    style.add(2, 0.25)
    length = Values()
    for line in range(3):
        length.add(line, float(line))

    groups = groups_of(
        attempts,
        attempts.stretches(),
        components={"style": style},
        metrics={"length": length},
    )

    assert sorted(groups) == [
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


def test_groups_of_an_environment_that_says_little():
    attempts = ScoredAttempts("quiz")
    attempts.extend(["a"], [0], [1.0])
    [group] = groups_of(attempts, attempts.stretches(), components={}, metrics={})
    assert group == Group("a", {}, [AttemptScore(0, 1.0, {}, {}, None)])
