"""Checks of scores: right answers get the top reward, wrong ones do not, and scores repeat.

The oracle's turns are right. Silence, an echo of the user and the oracle's turns of other tasks are
wrong; guessers must stay at chance. If attempts are scored together, these form a group, in which
the oracle's attempt must be the best.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Literal, NamedTuple

import msgspec

from gymcli.checks.subject import (
    CheckedEpisode,
    Finding,
    PolicyName,
    ScriptedPolicy,
    Subject,
    UnscoredError,
    assistant_message,
    failed,
    not_applicable,
    passed,
)
from gymcli.metrics.estimators import mean, percentile, standard_error
from gymcli.metrics.intervals import t_interval
from gymcli.types import Message, Rollout, canonical_json, json_or_text

_CHANCE = 0.05
"""The chance that a guess is right if a task has no choices: one in twenty."""
_LEVEL = 0.01
"""The share of sound environments that may fail: the level of the tests."""
_MAX_OTHERS = 3
"""Answers of other tasks to try on a task while they get the top reward."""

_NUM_ROUNDS = 5
"""The number of times that `repeatable` scores each record."""
_MAX_TASKS = 30
"""The most records of each policy that `repeatable` scores."""
_SLOW_SECONDS = 1.0

_Policy = Literal["oracle", "empty", "echo", "swapped"]
"""The policy of an attempt in a group; also the name of its check."""


async def oracle(subject: Subject) -> Finding:
    """Check that the oracle gets exactly the top reward in every task."""
    if subject.environment.scores_groups():
        return await _compare_in_groups(subject, "oracle")
    episodes = await subject.episodes("oracle")
    _require_scores(episodes)
    rewards = [episode.reward for episode in episodes]
    top = subject.environment.max_reward
    if top is None:
        return passed(f"mean reward {mean(rewards):.3g} (no max_reward)", mean=mean(rewards))
    wrong_episodes = [episode for episode in episodes if not math.isclose(episode.reward, top)]
    if wrong_episodes:
        return failed(
            f"reward {wrong_episodes[0].reward:g} instead of {top:g} in {len(wrong_episodes)} of "
            f"{len(episodes)} tasks",
            [episode.row.id for episode in wrong_episodes],
            mean=mean(rewards),
        )
    return passed(f"{top:g} in all {len(episodes)} tasks", mean=mean(rewards))


async def empty(subject: Subject) -> Finding:
    """Check that an empty answer stays below the top reward."""
    if subject.environment.scores_groups():
        return await _compare_in_groups(subject, "empty")
    return await _below_top(subject, await subject.episodes("empty"))


async def echo(subject: Subject) -> Finding:
    """Check that an echo of the user's words stays below the top reward."""
    if subject.environment.scores_groups():
        return await _compare_in_groups(subject, "echo")
    return await _below_top(subject, await subject.episodes("echo"))


async def swapped(subject: Subject) -> Finding:
    """Check that the oracle's turns of another task, with a different gold, stay below the top.

    One answer may be right in two tasks by chance. So a task fails only if the answers of three
    other tasks are all right in it, and the environment if more than one in twenty first answers
    are, beyond luck.
    """
    if subject.environment.scores_groups():
        return await _compare_in_groups(subject, "swapped")
    golds = await subject.golds()
    tries = [await _play_other_answers(subject, golds, number) for number in range(len(golds))]
    tries = [episodes for episodes in tries if episodes]
    if not tries:
        return not_applicable("no two tasks have different oracle answers")
    _require_scores([episode for episodes in tries for episode in episodes])
    first_episodes = [episodes[0] for episodes in tries]
    if subject.environment.max_reward is None:
        return await _below_top(subject, first_episodes)
    num_right = sum(_is_top(subject, episode) for episode in first_episodes)
    numbers = {
        "mean": mean([episode.reward for episode in first_episodes]),
        "right": float(num_right),
    }
    wrong_ids = [group[0].row.id for group in tries if all(_is_top(subject, e) for e in group)]
    if not wrong_ids and exceeds_chance(num_right, len(first_episodes), _CHANCE):
        wrong_ids = [episode.row.id for episode in first_episodes if _is_top(subject, episode)]
    if wrong_ids:
        share = f"{len(wrong_ids)} of {len(first_episodes)}"
        text = f"other tasks' answers get the top reward in {share} tasks"
        example = next(episode for episode in first_episodes if episode.row.id == wrong_ids[0])
        return failed(text, wrong_ids, turns=example.turns, **numbers)
    by_chance = f"; {num_right} were right by chance" if num_right else ""
    return passed(f"below the top in all {len(first_episodes)} tasks{by_chance}", **numbers)


async def _play_other_answers(
    subject: Subject, golds: Sequence[CheckedEpisode], number: int
) -> list[CheckedEpisode]:
    row, episodes = golds[number].row, []
    for other in itertools.islice(_golds_with_other_answers(golds, number), _MAX_OTHERS):
        episode = await subject.play_task(row, ScriptedPolicy(other.turns))
        episodes.append(episode)
        # One that is not right is enough: the task fails only if all of them are.
        if episode.error or not _is_top(subject, episode):
            break
    return episodes


def _golds_with_other_answers(
    golds: Sequence[CheckedEpisode], number: int
) -> Iterator[CheckedEpisode]:
    """Yield the golds of tasks with a different answer, the following tasks first."""
    gold = golds[number]
    for other in (*golds[number + 1 :], *golds[:number]):
        answers = (gold.record.answer, other.record.answer)
        # The same answer in other words is right in both tasks.
        has_same_answer = answers[0] is not None and answers[0] == answers[1]
        if turns_key(gold.turns) != turns_key(other.turns) and not has_same_answer:
            yield other


async def _below_top(subject: Subject, episodes: list[CheckedEpisode]) -> Finding:
    """Check that no episode has the top reward; without one, that the oracle's mean is higher."""
    _require_scores(episodes)
    average = mean([episode.reward for episode in episodes])
    if subject.environment.max_reward is not None:
        at_top = [episode for episode in episodes if _is_top(subject, episode)]
        if at_top:
            text = f"the top reward in {len(at_top)} of {len(episodes)} tasks"
            ids = [episode.row.id for episode in at_top]
            return failed(text, ids, turns=at_top[0].turns, mean=average)
        return passed(f"below the top in all {len(episodes)} tasks", mean=average)
    golds = await subject.golds()
    if not golds:
        return not_applicable("neither a max_reward nor an oracle to compare with")
    best = mean([episode.reward for episode in golds])
    text = f"mean reward {average:.3g}, the oracle's is {best:.3g}"
    return passed(text, mean=average) if average < best else failed(text, mean=average)


def _is_top(subject: Subject, episode: CheckedEpisode) -> bool:
    top = subject.environment.max_reward
    return top is not None and (episode.reward > top or math.isclose(episode.reward, top))


def _require_scores(episodes: Sequence[CheckedEpisode]) -> None:
    unscored_episodes = [episode for episode in episodes if episode.error]
    if unscored_episodes:
        raise UnscoredError(unscored_episodes, len(episodes))


def turns_key(turns: Sequence[Message]) -> bytes:
    """Encode the texts and calls of turns; equal turns have equal bytes."""
    return canonical_json(
        [
            # Arguments as values: neither spaces nor the order of keys make a difference.
            [turn.text, [[call.name, json_or_text(call.arguments)] for call in turn.tool_calls]]
            for turn in turns
        ]
    )


def exceeds_chance(
    total: float, num_trials: int, chance: float, *, num_candidates: int = 1
) -> bool:
    """Return whether guesses are right more often than luck explains, at a level of 1 %.

    `total` is the sum of the rewards as shares of the top one, `num_candidates` the number of
    guessers of which this one was the best.
    """
    if chance >= 1.0:
        return False
    # Rounded down, so that shares never count for more; 1e-9 makes up for errors of floats.
    num_successes = math.floor(total + 1e-9)
    # The exact binomial tail: the Wilson bound would reject luck in 3 of 100 cases at a chance of
    # one in twenty. The tail holds even if the tasks' chances differ (Hoeffding 1956, "On the
    # distribution of the number of successes in independent trials").
    tail = math.fsum(_binomial(k, num_trials, chance) for k in range(num_successes, num_trials + 1))
    # Bonferroni's correction for the best of several candidates.
    return tail < _LEVEL / num_candidates


def _binomial(num_right: int, num_trials: int, chance: float) -> float:
    num_wrong = num_trials - num_right
    ways = math.lgamma(num_trials + 1) - math.lgamma(num_right + 1) - math.lgamma(num_wrong + 1)
    # By logarithms, since the factorials of large numbers overflow.
    return math.exp(ways + num_right * math.log(chance) + num_wrong * math.log1p(-chance))


async def _compare_in_groups(subject: Subject, policy: _Policy) -> Finding:
    """Check that the oracle's attempt is the best of each group, or another policy's below it.

    A group has the oracle, an empty answer, an echo and the oracle's answer to another task. The
    last may be as good by chance, in one task of twenty, but never better.
    """
    if policy == "oracle":
        _require_scores(await subject.episodes("oracle"))
    groups = [group for group in await _play_groups(subject) if policy in group]
    if not groups:
        return not_applicable("no two tasks have different oracle answers")
    _require_scores([episode for group in groups for episode in group.values()])
    rewards_by_task = {
        group["oracle"].row.id: await _group_rewards(subject, group) for group in groups
    }
    rivals: list[_Policy] = ["empty", "echo", "swapped"] if policy == "oracle" else [policy]
    wrong_ids = [
        task_id
        for task_id, rewards in rewards_by_task.items()
        if any(_is_rival(rewards, name) for name in rivals)
    ]
    even_ids = [task for task, rewards in rewards_by_task.items() if _is_even(rewards, "swapped")]
    if (
        policy == "swapped"
        and not wrong_ids
        and exceeds_chance(len(even_ids), len(rewards_by_task), _CHANCE)
    ):
        wrong_ids = even_ids
    average = mean([rewards[policy] for rewards in rewards_by_task.values()])
    if wrong_ids:
        who = "another policy does" if policy == "oracle" else "it does"
        share = f"{len(wrong_ids)} of {len(rewards_by_task)}"
        text = f"{who} as well as the oracle in the groups of {share} tasks"
        rival = next(group[policy] for group in groups if group["oracle"].row.id == wrong_ids[0])
        turns = () if policy == "oracle" else rival.turns
        return failed(text, wrong_ids, turns=turns, mean=average)
    rank = "the best of its group" if policy == "oracle" else "below the oracle in its group"
    by_chance = (
        f"; {len(even_ids)} were as good by chance" if policy == "swapped" and even_ids else ""
    )
    return passed(f"{rank} in all {len(rewards_by_task)} tasks{by_chance}", mean=average)


async def _play_groups(subject: Subject) -> list[dict[_Policy, CheckedEpisode]]:
    golds = await subject.golds()
    empty_episodes = {episode.row.id: episode for episode in await subject.episodes("empty")}
    echo_episodes = {episode.row.id: episode for episode in await subject.episodes("echo")}
    groups: list[dict[_Policy, CheckedEpisode]] = []
    for number, gold in enumerate(golds):
        task_id = gold.row.id
        groups.append(
            {"oracle": gold, "empty": empty_episodes[task_id], "echo": echo_episodes[task_id]}
        )
        other = next(_golds_with_other_answers(golds, number), None)
        if other is not None:
            groups[-1]["swapped"] = await subject.play_task(gold.row, ScriptedPolicy(other.turns))
    return groups


async def _group_rewards(
    subject: Subject, group: Mapping[_Policy, CheckedEpisode]
) -> dict[_Policy, float]:
    row = group["oracle"].row
    # All were played as attempt 0; the attempts of a group have different numbers.
    records = [
        msgspec.structs.replace(episode.record.unscored(), attempt=number)
        for number, episode in enumerate(group.values())
    ]
    rollouts = await subject.score_together(row, records)
    return {
        policy: CheckedEpisode(row, record).reward
        for policy, record in zip(group, rollouts, strict=True)
    }


def _is_rival(rewards: Mapping[_Policy, float], policy: _Policy) -> bool:
    if policy not in rewards:
        return False
    if _is_even(rewards, policy):
        return policy != "swapped"  # which may be right by chance
    return rewards[policy] > rewards["oracle"]


def _is_even(rewards: Mapping[_Policy, float], policy: _Policy) -> bool:
    return policy in rewards and math.isclose(rewards[policy], rewards["oracle"], abs_tol=1e-9)


class _Guesser(NamedTuple):
    """A policy that knows the choices of a task, or the answers of other tasks, and no more."""

    name: str
    turns: dict[str, list[Message]]
    """Its turns by task, without the tasks that it cannot guess."""
    num_candidates: int = 1
    """The number of guessers among which this one looked best."""


class _GuesserResult(NamedTuple):
    rate: float
    limit: float
    """The rate that must not be exceeded."""
    is_above: bool
    """Whether the rate exceeds the limit by more than luck explains."""


async def guessing(subject: Subject) -> Finding:
    """Check that no guesser does better than chance.

    Chance is one in the number of a task's choices, or one in twenty if it has none. The check
    fails if a guesser's mean share of the top reward is above chance by more than luck explains;
    without a top reward, if its mean reward is above the oracle's by more than luck explains.
    """
    golds = {episode.row.id: episode for episode in await subject.golds()}
    choices = {row.id: subject.choices(row) for row in subject.rows}
    guessers = [guesser for guesser in _guessers(golds, choices) if guesser.turns]
    if not guessers:
        return not_applicable("no choices, and no other tasks whose answers could be guessed")
    has_top = subject.environment.max_reward is not None
    results: dict[str, _GuesserResult] = {}
    lucky_episodes: list[CheckedEpisode] = []
    for guesser in guessers:
        rows = [row for row in subject.rows if row.id in guesser.turns]
        policies = [ScriptedPolicy(guesser.turns[row.id]) for row in rows]
        pairs = zip(rows, policies, strict=True)
        episodes = [await subject.play_task(row, policy) for row, policy in pairs]
        _require_scores(episodes)
        results[guesser.name] = (
            _against_chance(subject, guesser, episodes, choices)
            if has_top
            else _against_oracle(episodes, golds)
        )
        if results[guesser.name].is_above and not lucky_episodes:
            top = max(episode.reward for episode in episodes)
            lucky_episodes = [episode for episode in episodes if episode.reward == top]
    limit = "chance" if has_top else "the oracle"
    text = ", ".join(f"{name} {r.rate:.2f} ({limit} {r.limit:.2f})" for name, r in results.items())
    numbers = {name: result.rate for name, result in results.items()}
    numbers |= {f"{name} limit": result.limit for name, result in results.items()}
    if not lucky_episodes:
        return passed(text, **numbers)
    return failed(
        text, [e.row.id for e in lucky_episodes], turns=lucky_episodes[0].turns, **numbers
    )


def _guessers(
    golds: Mapping[str, CheckedEpisode], choices: Mapping[str, list[str]]
) -> list[_Guesser]:
    rng = Random(0)
    options = {task_id: texts for task_id, texts in choices.items() if texts}
    free_tasks = [task_id for task_id, texts in choices.items() if not texts and task_id in golds]
    constants = _constants(options)
    # Chosen with the golds in view, hence the correction for `num_candidates`.
    best = _best_constant(constants, golds, options)
    # A task that lacks the constant gets its first option.
    constant = {
        task_id: [assistant_message(best.get(task_id) or texts[0])]
        for task_id, texts in options.items()
    }
    at_random = {task: [assistant_message(rng.choice(texts))] for task, texts in options.items()}
    for task_id in free_tasks:
        other_tasks = [other for other in free_tasks if other != task_id]
        if other_tasks:
            # Without choices, the guess is the answer to another task.
            at_random[task_id] = _guess(golds[rng.choice(other_tasks)])
    first_options = {task_id: [assistant_message(texts[0])] for task_id, texts in options.items()}
    free_answers = {turns_key(_guess(golds[task_id])) for task_id in free_tasks}
    num_candidates = max(1, len(constants) + len(free_answers))
    return [
        _Guesser("constant", constant | _commonest_guesses(golds, free_tasks), num_candidates),
        _Guesser("random", at_random),
        _Guesser("first option", first_options),
    ]


def _constants(options: Mapping[str, list[str]]) -> list[dict[str, str]]:
    """Return what a constant is in each task: a position, or a text that half of them have."""
    text_counts = Counter(text for task_options in options.values() for text in set(task_options))
    positions = range(max(map(len, options.values()), default=0))
    return [
        *(
            {task_id: texts[place] for task_id, texts in options.items() if place < len(texts)}
            for place in positions
        ),
        *(
            {task_id: text for task_id, texts in options.items() if text in texts}
            for text, num_tasks in text_counts.items()
            if 2 * num_tasks >= len(options)
        ),
    ]


def _best_constant(
    constants: Sequence[Mapping[str, str]],
    golds: Mapping[str, CheckedEpisode],
    options: Mapping[str, list[str]],
) -> Mapping[str, str]:
    gold_choices = {
        task_id: _gold_choice(golds[task_id], texts)
        for task_id, texts in options.items()
        if task_id in golds
    }

    def num_right(constant: Mapping[str, str]) -> int:
        return sum(
            choice is not None and constant.get(task_id) == choice
            for task_id, choice in gold_choices.items()
        )

    return max(constants, key=num_right, default={})


def _gold_choice(gold: CheckedEpisode, options: Sequence[str]) -> str | None:
    texts = (gold.record.last_text.strip(), gold.record.answer)
    return next((option for option in options if option.strip() in texts), None)


def _commonest_guesses(
    golds: Mapping[str, CheckedEpisode], task_ids: Sequence[str]
) -> dict[str, list[Message]]:
    guesses = {task_id: _guess(golds[task_id]) for task_id in task_ids}
    keys = {task_id: turns_key(guess) for task_id, guess in guesses.items()}
    turns = {key: guesses[task_id] for task_id, key in keys.items()}
    counts = Counter(keys.values())
    guess_by_task = {}
    for task_id, key in keys.items():
        # Without the task's own answer, which no guesser knows.
        if other_counts := counts - Counter([key]):
            guess_by_task[task_id] = turns[other_counts.most_common(1)[0][0]]
    return guess_by_task


def _guess(gold: CheckedEpisode) -> list[Message]:
    """Return the turns of a gold that a guesser uses: all if tools are called, else the last."""
    has_calls = any(message.tool_calls for message in gold.turns)
    return gold.turns if has_calls else gold.turns[-1:]


def _against_chance(
    subject: Subject,
    guesser: _Guesser,
    episodes: Sequence[CheckedEpisode],
    choices: Mapping[str, list[str]],
) -> _GuesserResult:
    top = subject.environment.max_reward
    assert top is not None
    shares = [share_of_top(episode.reward, top) for episode in episodes]
    task_choices = [choices[episode.row.id] for episode in episodes]
    chance = mean([1.0 / len(options) if options else _CHANCE for options in task_choices])
    is_above = exceeds_chance(
        math.fsum(shares), len(shares), chance, num_candidates=guesser.num_candidates
    )
    return _GuesserResult(mean(shares), chance, is_above)


def share_of_top(reward: float, top: float) -> float:
    if top > 0.0:
        return min(1.0, max(0.0, reward / top))
    # A top of 0 or less has no shares: it is reached or not.
    return float(reward >= top)


def _against_oracle(
    episodes: Sequence[CheckedEpisode], golds: Mapping[str, CheckedEpisode]
) -> _GuesserResult:
    pairs = [(e.reward, golds[e.row.id].reward) for e in episodes if e.row.id in golds]
    if not pairs:
        return _GuesserResult(mean([episode.reward for episode in episodes]), 0.0, is_above=False)
    rate, best = (mean(rewards) for rewards in zip(*pairs, strict=True))
    differences = [guess - gold for guess, gold in pairs]
    error = standard_error(differences)
    # One task has no standard error, and decides nothing.
    if error is None:
        return _GuesserResult(rate, best, is_above=False)
    # The lower end of a 98 % interval is a one-sided bound of 99 %.
    bound = t_interval(mean(differences), error, num_clusters=len(pairs), level=0.98)
    return _GuesserResult(rate, best, is_above=bound.low > 0.0)


async def repeatable(subject: Subject) -> Finding:
    """Check that records get the same score 5 times in shuffled order, and are not changed.

    Every second time the record is first decoded from JSON, as in `gym verify`.
    """
    policies: tuple[PolicyName, ...] = ("oracle", "empty", "echo")
    all_episodes = [
        episode for policy in policies for episode in (await subject.episodes(policy))[:_MAX_TASKS]
    ]
    episodes = [episode for episode in all_episodes if not episode.error]
    if not episodes:
        _require_scores(all_episodes)
        return not_applicable("no episodes")
    rng = Random(0)
    changed_episodes: list[CheckedEpisode] = []
    differing_episodes: list[CheckedEpisode] = []
    for number in range(_NUM_ROUNDS):
        # In a new order each time, to find scores that depend on earlier calls.
        for episode in rng.sample(episodes, len(episodes)):
            record = episode.record.unscored()
            line = msgspec.json.encode(record)
            # As read from disk, to find a verifier that compares objects by identity.
            if number % 2:
                record = msgspec.json.decode(line, type=Rollout)
            new_episode = await subject.score_record(episode.row, record)
            if msgspec.json.encode(record) != line:
                changed_episodes.append(episode)
            if new_episode.error or _score(new_episode.record) != _score(episode.record):
                differing_episodes.append(episode)
    if wrong_episodes := changed_episodes or differing_episodes:
        fault = "verify changes the record it scores"
        text = fault if changed_episodes else "the same record is scored differently"
        return failed(
            text, [episode.row.id for episode in wrong_episodes], turns=wrong_episodes[0].turns
        )
    if subject.environment.scores_groups() and (
        unequal_ids := await _unequal_groups(subject, episodes)
    ):
        return failed("the same group is scored differently, or its order matters", unequal_ids)
    return passed(f"{len(episodes)} records, {_NUM_ROUNDS} times each")


async def _unequal_groups(subject: Subject, episodes: Sequence[CheckedEpisode]) -> list[str]:
    task_ids = []
    for row in subject.rows[:_MAX_TASKS]:
        records = [e.record.unscored() for e in episodes if e.row.id == row.id]
        rollouts = await subject.score_together(row, records)
        # Backwards, since the order of the attempts in a group must not matter.
        rollouts_backwards = await subject.score_together(row, records[::-1])
        if [_score(rollout) for rollout in rollouts] != [
            _score(rollout) for rollout in rollouts_backwards[::-1]
        ]:
            task_ids.append(row.id)
    return task_ids


def _score(record: Rollout) -> tuple[object, ...]:
    return record.reward, record.components, record.metrics, record.answer, record.details


async def speed(subject: Subject) -> Finding:
    """Measure the duration of `verify`; never fails, since it depends on the machine."""
    await subject.episodes("empty")
    if not subject.verify_seconds:
        return not_applicable("nothing was scored")
    milliseconds = sorted(1000.0 * seconds for seconds in subject.verify_seconds)
    median, p99 = percentile(milliseconds, 0.5), percentile(milliseconds, 0.99)
    note = ", slow" if p99 > 1000.0 * _SLOW_SECONDS else ""
    text = f"p50 {median:.3g} ms, p99 {p99:.3g} ms of {len(milliseconds)} calls{note}"
    return passed(text, p50_milliseconds=median, p99_milliseconds=p99)
