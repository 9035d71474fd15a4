"""Guessers stay at or below chance: one that is constant, one at random, one of first options."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple

from gymcli.checks.answers import CHANCE, broken, exceeds, said, share
from gymcli.checks.report import Finding, failed, not_applicable, passed
from gymcli.checks.subject import Episode, Scripted, Subject, says
from gymcli.metrics.estimators import mean, standard_error
from gymcli.metrics.intervals import t_interval
from gymcli.types import Message

__all__ = ["guessing"]


class Guesser(NamedTuple):
    """A policy that knows the choices of a task, or the answers of other tasks, and no more."""

    name: str
    turns: dict[str, list[Message]]
    """What it says, by task; tasks that it cannot guess at are left out."""
    num_candidates: int = 1
    """How many there were of which this one looked best."""


class _Constant(NamedTuple):
    """Always the same place in the list of choices, or always the same text."""

    place: int | None = None
    text: str = ""

    def choice(self, choices: Sequence[str]) -> str | None:
        if self.place is None:
            return self.text if self.text in choices else None
        return choices[self.place] if self.place < len(choices) else None


class _Result(NamedTuple):
    """How a guesser did."""

    rate: float
    limit: float
    """What the rate must not exceed."""
    is_above: bool
    """The rate exceeds the limit by more than luck."""


async def guessing(subject: Subject) -> Finding:
    """Check that no guesser does better than chance.

    Chance is one in as many choices as a task has, else one in twenty. A guesser fails where its
    mean share of the top reward is above that by more than luck, and without a top reward where
    it beats the oracle so.
    """
    golds = {episode.row.id: episode for episode in await subject.golds()}
    choices = {row.id: subject.choices(row) for row in subject.rows}
    guessers = [guesser for guesser in _guessers(golds, choices) if guesser.turns]
    if not guessers:
        return not_applicable("no choices, and no answers of other tasks to guess by")
    has_top = subject.environment.max_reward is not None
    results: dict[str, _Result] = {}
    for guesser in guessers:
        rows = [row for row in subject.rows if row.id in guesser.turns]
        episodes = [await subject.episode(row, Scripted(guesser.turns[row.id])) for row in rows]
        if unscored := broken(episodes):
            return unscored
        results[guesser.name] = (
            _against_chance(subject, guesser, episodes, choices)
            if has_top
            else _against_oracle(episodes, golds)
        )
    limit = "chance" if has_top else "the oracle"
    text = ", ".join(f"{name} {r.rate:.2f} ({limit} {r.limit:.2f})" for name, r in results.items())
    numbers = {name: result.rate for name, result in results.items()}
    numbers |= {f"{name} limit": result.limit for name, result in results.items()}
    is_above = any(result.is_above for result in results.values())
    return failed(text, (), **numbers) if is_above else passed(text, **numbers)


def _guessers(golds: Mapping[str, Episode], choices: Mapping[str, list[str]]) -> list[Guesser]:
    rng = Random(0)
    own = {name: options for name, options in choices.items() if options}
    blind = [name for name, options in choices.items() if not options and name in golds]
    best, num_constants = _best_constant(golds, own)
    constant = {
        name: [says(best.choice(options) or options[0])] for name, options in own.items()
    } | _commonest(golds, blind)
    at_random = {name: [says(rng.choice(options))] for name, options in own.items()}
    for name in blind:
        others = [other for other in blind if other != name]
        if others:
            at_random[name] = _guess(golds[rng.choice(others)])
    num_candidates = num_constants + len({said(_guess(golds[name])) for name in blind})
    return [
        Guesser("constant", constant, max(1, num_candidates)),
        Guesser("random", at_random),
        Guesser("first option", {name: [says(options[0])] for name, options in own.items()}),
    ]


def _best_constant(
    golds: Mapping[str, Episode], choices: Mapping[str, list[str]]
) -> tuple[_Constant, int]:
    """Give the constant that is right most often, as far as the oracle shows, and of how many."""
    places = range(max(map(len, choices.values()), default=0))
    texts = Counter(text for options in choices.values() for text in set(options))
    recurring = [text for text, count in texts.items() if 2 * count >= len(choices)]
    constants = [
        *(_Constant(place=place) for place in places),
        *(_Constant(text=text) for text in recurring),
    ]
    right = {name: _gold_choice(golds.get(name), options) for name, options in choices.items()}

    def num_right(constant: _Constant) -> int:
        picks = (constant.choice(options) == right[name] for name, options in known)
        return sum(picks)

    known = [(name, options) for name, options in choices.items() if right[name] is not None]
    return max(constants, key=num_right, default=_Constant(place=0)), len(constants)


def _gold_choice(gold: Episode | None, options: Sequence[str]) -> str | None:
    """Give the choice that the oracle made, where it said just that."""
    if gold is None:
        return None
    texts = (gold.record.last_text.strip(), gold.record.answer)
    return next((option for option in options if option.strip() in texts), None)


def _commonest(golds: Mapping[str, Episode], names: Sequence[str]) -> dict[str, list[Message]]:
    """Give each task the commonest answer of the others: what is common to all is guessable."""
    guesses = {name: _guess(golds[name]) for name in names}
    keys = {name: said(guess) for name, guess in guesses.items()}
    turns = {key: guesses[name] for name, key in keys.items()}
    counts = Counter(keys.values())
    chosen = {}
    for name in names:
        counts[keys[name]] -= 1
        [(key, count)] = counts.most_common(1)
        if count:
            chosen[name] = turns[key]
        counts[keys[name]] += 1
    return chosen


def _guess(gold: Episode) -> list[Message]:
    """Give what a guesser takes from a gold: its last words, or every turn if tools are called."""
    has_calls = any(message.tool_calls for message in gold.turns)
    return gold.turns if has_calls else gold.turns[-1:]


def _against_chance(
    subject: Subject,
    guesser: Guesser,
    episodes: Sequence[Episode],
    choices: Mapping[str, list[str]],
) -> _Result:
    """Compare shares of the top reward with one in as many choices as there are."""
    top = subject.environment.max_reward
    assert top is not None
    shares = [share(episode.reward, top) for episode in episodes]
    own = [choices[episode.row.id] for episode in episodes]
    chance = mean([1.0 / len(options) if options else CHANCE for options in own])
    num_candidates = guesser.num_candidates
    is_above = exceeds(math.fsum(shares), len(shares), chance, num_candidates=num_candidates)
    return _Result(mean(shares), chance, is_above)


def _against_oracle(episodes: Sequence[Episode], golds: Mapping[str, Episode]) -> _Result:
    """Compare mean rewards with the oracle's, by the difference in each task."""
    pairs = [(e.reward, golds[e.row.id].reward) for e in episodes if e.row.id in golds]
    if not pairs:
        return _Result(mean([episode.reward for episode in episodes]), 0.0, is_above=False)
    rate, best = (mean(rewards) for rewards in zip(*pairs, strict=True))
    differences = [guess - gold for guess, gold in pairs]
    error = standard_error(differences)
    if error is None:
        return _Result(rate, best, is_above=False)
    # Its lower end is a one-sided bound of 99 %.
    bound = t_interval(mean(differences), error, num_clusters=len(pairs), level=0.98)
    return _Result(rate, best, is_above=bound.low > 0.0)
