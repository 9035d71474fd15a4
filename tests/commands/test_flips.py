"""What a person reads of flips and of repeats: as many digits as show something, in a table."""

import pytest

from gymcli.commands.flips import print_repeats, print_rescoring
from gymcli.metrics import Effect, EnvironmentFacts
from gymcli.metrics.paired_differences import RescoredAttempts, reward_effects
from gymcli.runner.rescoring_report import (
    EnvironmentAgreement,
    EnvironmentFlips,
    RepeatReport,
    RescoringReport,
)

LONG = "a name that is longer than any table has room for"


def effects_of(pairs, facts):
    """Give the effects on tasks of one attempt, with its reward before and after."""
    scores = RescoredAttempts("quiz")
    for number, (before, after) in enumerate(pairs):
        scores.extend([f"t{number}"], [0], [before], [after])
    return reward_effects(scores, facts)


def shown(capsys, effects: dict[str, Effect]) -> list[str]:
    flips = EnvironmentFlips(effects=effects)
    print_rescoring(RescoringReport(environments={"quiz": flips}), is_quiet=False)
    return capsys.readouterr().out.splitlines()


def test_a_change_of_one_rollout_among_many_is_seen(capsys):
    pairs = [(1.0, float(number > 0)) for number in range(3_000)]
    effects = effects_of(pairs, EnvironmentFacts(max_reward=1.0))
    assert shown(capsys, effects)[3].split() == [
        *("mean_reward", "1.000", "1.000", "-0.000333"),
        *("-0.000987", "..", "+0.00032", "3,000"),
    ]


@pytest.mark.parametrize("size", [0.0, 1e-9, 99_999.4, 1e99])
def test_a_table_of_effects_has_100_columns(capsys, size):
    effects = effects_of([(0.0, -size), (size, 0.0)] * 2, EnvironmentFacts())
    lines = shown(capsys, {LONG: effects["mean_reward"]})
    assert len(lines) == 4
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("size", [0.0, 1e-9, 99_999.4, 1e99])
def test_a_table_of_repeats_has_100_columns(capsys, size):
    found = EnvironmentAgreement(
        asks_models=True,
        num_rollouts=1_000_000,
        num_disagreeing=1,
        agreement=1.0,
        largest_spread=size,
        mean_rewards=[-size] * 9,
        standard_error=size,
        verifier_error=size,
        verifier_share=1.0,
    )
    print_repeats(RepeatReport(num_repeats=9, environments={LONG: found}), is_quiet=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[3].endswith(" (100%)")
    assert max(map(len, lines)) <= 100
