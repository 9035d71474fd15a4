"""The script about judges: an endpoint without verdicts gets no answer scored."""

import asyncio

import pytest

from bench.judges import ANSWERS, JUDGES, SETTINGS, count


@pytest.mark.slow
def test_judges_score_nothing_that_no_judge_said():
    """A smaller table than the script's, with the answers that most resemble verdicts."""
    tallies = asyncio.run(count(SETTINGS, ANSWERS[2:12:3]))

    assert [tally.judge for tally in tallies] == list(JUDGES)
    num_restoring = sum(judge.restores for judge in JUDGES.values())
    num_json = sum(setting.is_json for setting in SETTINGS)
    num_judged = len(JUDGES) * len(SETTINGS) - num_restoring * num_json
    assert sum(tally.num_pairs for tally in tallies) == 4 * num_judged
    assert [text for tally in tallies for text in tally.broken] == []
