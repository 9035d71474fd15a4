"""Tasks that are the same but for what their answers say."""

from gymcli.metrics.task_scores import by_votes


def test_by_votes_puts_together_what_agrees_in_the_same_way():
    rewards = (1.0, 0.0, 1.0)
    counts = {(rewards, (7, 2, 7)): 3, (rewards, (1, 9, 1)): 2, (rewards, (1, 1, 0)): 1}

    assert by_votes(counts) == {(rewards, (1, 2, 1)): 5, (rewards, (1, 1, 0)): 1}
    assert by_votes({(rewards, ()): 4}) == {(rewards, ()): 4}
