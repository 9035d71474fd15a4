"""Right answers get the top reward; nothing, an echo, and the answers of other tasks do not.

Where attempts are scored together, the right one has to be the best of a group of all four.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from gymcli.checks.report import Finding, failed, not_applicable, passed
from gymcli.checks.subject import Episode, Scripted, Subject
from gymcli.metrics.estimators import mean
from gymcli.types import JSON_ERRORS, Message, canonical_json

__all__ = [
    "CHANCE",
    "broken",
    "echo",
    "empty",
    "exceeds",
    "oracle",
    "said",
    "share",
    "swapped",
]

CHANCE = 0.05
"""How often a guess may be right where a task has no choices: one in twenty."""

_Place = Literal["oracle", "empty", "echo", "swapped"]
"""Who said it, of the attempts of a group; each is what one check looks at."""

_MAX_OTHERS = 3
"""Answers of other tasks that are tried on a task, as long as they get the top reward."""

_LEVEL = 0.01
"""How often a sound environment may be suspected."""


async def oracle(subject: Subject) -> Finding:
    """Check that the oracle gets exactly the top reward in every task."""
    if subject.environment.scores_groups():
        return await _in_groups(subject, "oracle")
    episodes = await subject.oracles()
    if unscored := broken(episodes):
        return unscored
    rewards = [episode.reward for episode in episodes]
    top = subject.environment.max_reward
    if top is None:
        return passed(f"mean reward {mean(rewards):.3g} (no max_reward)", mean=mean(rewards))
    missed = [episode for episode in episodes if not math.isclose(episode.reward, top)]
    if missed:
        return failed(
            f"reward {missed[0].reward:g} in place of {top:g} in {_of(missed, episodes)}",
            [episode.row.id for episode in missed],
            mean=mean(rewards),
        )
    return passed(f"{top:g} in all {len(episodes)} tasks", mean=mean(rewards))


async def empty(subject: Subject) -> Finding:
    """Check that a policy that says nothing stays below the top reward."""
    if subject.environment.scores_groups():
        return await _in_groups(subject, "empty")
    return await _below_top(subject, await subject.silences())


async def echo(subject: Subject) -> Finding:
    """Check that a policy that says the user's words back stays below the top reward."""
    if subject.environment.scores_groups():
        return await _in_groups(subject, "echo")
    return await _below_top(subject, await subject.echoes())


async def swapped(subject: Subject) -> Finding:
    """Check that the oracle's turns of another task, whose gold differs, stay below the top.

    Two answers may be right in one task by chance, so a task fails where all of three others'
    are, and the environment fails where more than one in twenty of the first ones are.
    """
    if subject.environment.scores_groups():
        return await _in_groups(subject, "swapped")
    golds = await subject.golds()
    tries = [await _tried(subject, golds, place) for place in range(len(golds))]
    tries = [episodes for episodes in tries if episodes]
    if not tries:
        return not_applicable("no two tasks with different answers of the oracle")
    if unscored := broken([episode for episodes in tries for episode in episodes]):
        return unscored
    first = [episodes[0] for episodes in tries]
    if subject.environment.max_reward is None:
        return await _below_top(subject, first)
    num_right = sum(_is_top(subject, episode) for episode in first)
    numbers = {"mean": mean([episode.reward for episode in first]), "right": float(num_right)}
    fooled = [one[0].row.id for one in tries if all(_is_top(subject, e) for e in one)]
    if not fooled and exceeds(num_right, len(first), CHANCE):
        fooled = [episode.row.id for episode in first if _is_top(subject, episode)]
    if fooled:
        text = f"other tasks' answers get the top reward in {len(fooled)} of {len(first)} tasks"
        return failed(text, fooled, **numbers)
    by_chance = f"; {num_right} were right by chance" if num_right else ""
    return passed(f"below the top in all {len(first)} tasks{by_chance}", **numbers)


def broken(episodes: Sequence[Episode]) -> Finding | None:
    """Give the finding that episodes could not be played or scored, if that is so."""
    unscored = [episode for episode in episodes if episode.error]
    if not unscored:
        return None
    text = f"{_of(unscored, episodes)} cannot be played or scored: {unscored[0].error}"
    return failed(text, [episode.row.id for episode in unscored], unscored[0].frames)


def exceeds(total: float, num_trials: int, chance: float, *, num_candidates: int = 1) -> bool:
    """Say whether guesses are right more often than luck explains, at a level of 1 %.

    The exact binomial tail: the Wilson bound would call luck in 3 of 100 cases at one in twenty.
    It holds also where the chances of the tasks differ (Hoeffding 1956, "On the distribution of
    the number of successes in independent trials"). Of the best of several candidates the level
    is as much stricter (Bonferroni).

    Args:
        total: The sum of the rewards as shares of the top one; a part of one counts for nothing.
        num_trials: How many tasks were guessed at.
        chance: The mean chance of a guess.
        num_candidates: How many guessers there were to choose from.

    """
    if chance >= 1.0:
        return False
    least = math.floor(total + 1e-9)
    tail = math.fsum(_binomial(k, num_trials, chance) for k in range(least, num_trials + 1))
    return tail < _LEVEL / num_candidates


def _binomial(num_right: int, num_trials: int, chance: float) -> float:
    """Give how likely it is that exactly so many of all trials are right."""
    num_wrong = num_trials - num_right
    ways = math.lgamma(num_trials + 1) - math.lgamma(num_right + 1) - math.lgamma(num_wrong + 1)
    return math.exp(ways + num_right * math.log(chance) + num_wrong * math.log1p(-chance))


def share(reward: float, top: float) -> float:
    """Give a reward as a share of the top one, from 0 to 1."""
    if top > 0.0:
        return min(1.0, max(0.0, reward / top))
    return float(reward >= top)


def said(turns: Sequence[Message]) -> bytes:
    """Give what was said and called, as bytes that are equal where that is the same."""
    return canonical_json([_content(message) for message in turns])


async def _below_top(subject: Subject, episodes: list[Episode]) -> Finding:
    """Check that no episode has the top reward; without one, that the oracle's mean is higher."""
    if unscored := broken(episodes):
        return unscored
    average = mean([episode.reward for episode in episodes])
    if subject.environment.max_reward is not None:
        at_top = [episode for episode in episodes if _is_top(subject, episode)]
        if at_top:
            text = f"the top reward in {_of(at_top, episodes)}"
            return failed(text, [episode.row.id for episode in at_top], mean=average)
        return passed(f"below the top in all {len(episodes)} tasks", mean=average)
    golds = await subject.golds()
    if not golds:
        return not_applicable("neither a max_reward nor an oracle to compare with")
    best = mean([episode.reward for episode in golds])
    text = f"mean reward {average:.3g}, the oracle's is {best:.3g}"
    return passed(text, mean=average) if average < best else failed(text, mean=average)


async def _in_groups(subject: Subject, place: _Place) -> Finding:
    """Check that the oracle's attempt is the best of each group, or that another one is below it.

    A group is the oracle, a policy that says nothing, an echo, and the oracle of another task. The
    last one may be as good by chance, in one task of twenty, and never better.
    """
    if place == "oracle" and (unscored := broken(await subject.oracles())):
        return unscored
    groups = [group for group in await _groups(subject) if place in group]
    if not groups:
        return not_applicable("no two tasks with different answers of the oracle")
    if unscored := broken([episode for group in groups for episode in group.values()]):
        return unscored
    found = {group["oracle"].row.id: await _group_rewards(subject, group) for group in groups}
    rivals: list[_Place] = ["empty", "echo", "swapped"] if place == "oracle" else [place]
    wrong = [row for row, own in found.items() if any(_is_rival(own, name) for name in rivals)]
    even = [row for row, own in found.items() if _is_even(own, "swapped")]
    if place == "swapped" and not wrong and exceeds(len(even), len(found), CHANCE):
        wrong = even
    average = mean([own[place] for own in found.values()])
    if wrong:
        who = "another one does" if place == "oracle" else "it does"
        text = f"in a group {who} as well as the oracle in {len(wrong)} of {len(found)} tasks"
        return failed(text, wrong, mean=average)
    standing = "the best of its group" if place == "oracle" else "below the oracle in its group"
    by_chance = f"; {len(even)} were as good by chance" if place == "swapped" and even else ""
    return passed(f"{standing} in all {len(found)} tasks{by_chance}", mean=average)


def _is_rival(rewards: Mapping[_Place, float], place: _Place) -> bool:
    """Say whether an attempt is better than the oracle's, or as good where chance has no part."""
    if place not in rewards:
        return False
    if _is_even(rewards, place):
        return place != "swapped"
    return rewards[place] > rewards["oracle"]


def _is_even(rewards: Mapping[_Place, float], place: _Place) -> bool:
    return place in rewards and math.isclose(rewards[place], rewards["oracle"], abs_tol=1e-9)


async def _groups(subject: Subject) -> list[dict[_Place, Episode]]:
    """Give the attempts that are scored together, of each task that has an oracle."""
    golds = await subject.golds()
    silences = {episode.row.id: episode for episode in await subject.silences()}
    echoes = {episode.row.id: episode for episode in await subject.echoes()}
    groups: list[dict[_Place, Episode]] = []
    for number, gold in enumerate(golds):
        own = gold.row.id
        groups.append({"oracle": gold, "empty": silences[own], "echo": echoes[own]})
        other = next(_others(golds, number), None)
        if other is not None:
            groups[-1]["swapped"] = await subject.episode(gold.row, Scripted(other.turns))
    return groups


async def _group_rewards(subject: Subject, group: dict[_Place, Episode]) -> dict[_Place, float]:
    """Score attempts of a task together."""
    records = [
        msgspec.structs.replace(episode.record.unscored(), attempt=number)
        for number, episode in enumerate(group.values())
    ]
    scored = await subject.scored_together(group["oracle"].row, records)
    episodes = [Episode(group["oracle"].row, record) for record in scored]
    return {place: one.reward for place, one in zip(group, episodes, strict=True)}


async def _tried(subject: Subject, golds: Sequence[Episode], place: int) -> list[Episode]:
    """Try other tasks' answers on a task, until one of them is not right."""
    row, tried = golds[place].row, []
    for other in itertools.islice(_others(golds, place), _MAX_OTHERS):
        episode = await subject.episode(row, Scripted(other.turns))
        tried.append(episode)
        if episode.error or not _is_top(subject, episode):
            break
    return tried


def _others(golds: Sequence[Episode], place: int) -> Iterator[Episode]:
    """Give the other tasks' gold episodes that differ from that of a task, the next ones first."""
    own = golds[place]
    for other in (*golds[place + 1 :], *golds[:place]):
        answers = (own.record.answer, other.record.answer)
        has_same_answer = answers[0] is not None and answers[0] == answers[1]
        if said(own.turns) != said(other.turns) and not has_same_answer:
            yield other


def _is_top(subject: Subject, episode: Episode) -> bool:
    top = subject.environment.max_reward
    return top is not None and (episode.reward > top or math.isclose(episode.reward, top))


def _content(message: Message) -> object:
    return [message.text, [[call.name, _decoded(call.arguments)] for call in message.tool_calls]]


def _decoded(arguments: str) -> object:
    try:
        return msgspec.json.decode(arguments)
    except JSON_ERRORS:
        return arguments


def _of(some: Sequence[Episode], episodes: Sequence[Episode]) -> str:
    return f"{len(some)} of {len(episodes)} tasks"
