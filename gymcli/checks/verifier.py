"""The verifier says the same of the same record, at any time and in any order, and quickly."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec

from gymcli.checks.answers import broken
from gymcli.checks.report import Finding, failed, not_applicable, passed
from gymcli.checks.subject import Episode, Subject
from gymcli.metrics.percentiles import percentile
from gymcli.types import JSONObject, Rollout

__all__ = ["repeatable", "speed"]

_NUM_ROUNDS = 5
_MAX_TASKS = 30
_SLOW_SECONDS = 1.0

_Scored = tuple[float | None, dict[str, float], dict[str, float], str | None, JSONObject]


async def repeatable(subject: Subject) -> Finding:
    """Check that records are scored alike 5 times in shuffled order, and not changed by it.

    Every second time the record comes back from JSON, as `gym verify` reads it.
    """
    policies = (await subject.oracles(), await subject.silences(), await subject.echoes())
    played = [episode for episodes in policies for episode in episodes[:_MAX_TASKS]]
    episodes = [episode for episode in played if not episode.error]
    if not episodes:
        return broken(played) or not_applicable("no episodes")
    rng = Random(0)
    changed: list[str] = []
    differing: list[str] = []
    for number in range(_NUM_ROUNDS):
        for episode in rng.sample(episodes, len(episodes)):
            record = episode.record.unscored()
            line = msgspec.json.encode(record)
            if number % 2:
                record = msgspec.json.decode(line, type=Rollout)
            again = await subject.scored(episode.row, record)
            if msgspec.json.encode(record) != line:
                changed.append(episode.row.id)
            if again.error or _score(again.record) != _score(episode.record):
                differing.append(episode.row.id)
    if changed:
        return failed("verify changes the record that it scores", changed)
    if differing:
        return failed("the same record is scored differently", differing)
    if subject.environment.scores_groups() and (unequal := await _unequal_groups(subject, played)):
        return failed("the same group is scored differently, or by the order of it", unequal)
    return passed(f"{len(episodes)} records, {_NUM_ROUNDS} times each")


async def speed(subject: Subject) -> Finding:
    """Measure how long `verify` takes; never fails, since the machine has a part in it."""
    await subject.silences()
    if not subject.verify_seconds:
        return not_applicable("nothing was scored")
    milliseconds = sorted(1000.0 * seconds for seconds in subject.verify_seconds)
    middle, slow = percentile(milliseconds, 0.5), percentile(milliseconds, 0.99)
    note = ", slow" if slow > 1000.0 * _SLOW_SECONDS else ""
    text = f"p50 {middle:.3g} ms, p99 {slow:.3g} ms of {len(milliseconds)} calls{note}"
    return passed(text, p50_milliseconds=middle, p99_milliseconds=slow)


async def _unequal_groups(subject: Subject, played: Sequence[Episode]) -> list[str]:
    """Give the tasks whose attempts get other rewards when they are scored again, turned round."""
    unequal = []
    for row in subject.rows[:_MAX_TASKS]:
        records = [e.record.unscored() for e in played if e.row.id == row.id and not e.error]
        first = await subject.scored_together(row, records)
        again = await subject.scored_together(row, records[::-1])
        if [_score(one) for one in first] != [_score(one) for one in again[::-1]]:
            unequal.append(row.id)
    return unequal


def _score(record: Rollout) -> _Scored:
    return record.reward, record.components, record.metrics, record.answer, record.details
