r"""Compares the attempts of a task in pairs; a generative reward model scores them.

Source: the resources server genrm_compare of NVIDIA NeMo Gym (Apache-2.0), reimplemented
independently. The model of the role `reward` sees the conversation and the final answers of two
attempts. It scores each from 1 to 5 and ranks the pair from 1 (the first is better) to 6. If the
scores are equal, the ranking moves them apart (`simple_tiebreaker`). The reward of an attempt is
the mean of its scores; options add bonuses and penalties for length and style. An attempt without
others to compare with gets `default_score`. Differences from the reference:

- A comparison that stays unreadable after `parse_retries` is recorded and counted, but enters no
  mean; in the reference it is two scores of 3. An attempt without any readable comparison gets
  `default_score` with the reason "unparseable". A comparison is readable if it has all three
  numbers, each within its range. A failed call leaves the group unscored.
- An attempt with an empty answer has the reason `no_answer`; its reward comes from its comparisons.
- Both answers are in one prompt that any chat model takes, not in special chat roles. It always
  shows a principle: the row's, or else our own, by which the better response is correct, does what
  was asked, and is clear. Sampling follows the role's own parameters.
- The attempts are sorted before they are paired, and late comparisons are not dropped.
- Emoji are the characters of Unicode's emoji blocks; no Chinese or Japanese character is one.

`verify` returns 0 as a placeholder, since a single attempt has no reward; `verify_group` replaces
it.

One row:
{"id": "list-0", "difficulty": "easy", "messages": [{"role": "user", "content": "Write a packing
list for a picnic in the park: 6 items, …"}], "dataset": "lists", "principle": "", "wanted":
{"theme": "a picnic in the park", "include": ["napkins", "a corkscrew"], "num_items": 6}}
"""

import asyncio
import itertools
import json
import re
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from random import Random
from statistics import fmean
from typing import Literal, NamedTuple

from pydantic import BaseModel, Field, FiniteFloat

from gymcli import (
    Comparison,
    Context,
    Environment,
    EnvironmentOptions,
    JSONObject,
    Message,
    Model,
    PairwiseJudge,
    Properties,
    RoleError,
    Rollout,
    Score,
    StandIn,
    Task,
)
from gymcli.envs import load_generator

__all__ = [
    "GenrmCompare",
    "PackingList",
    "Result",
    "Talk",
    "centred",
    "comparing",
    "score_of",
    "shortest",
    "style_density",
    "top_threshold",
    "without_tie",
    "written",
]


class PackingList(BaseModel):
    """The wishes that a list has to fulfil in the end."""

    theme: str
    include: list[str] = Field(min_length=1)
    exclude: list[str] = []
    num_items: int = Field(ge=1)
    top: str = ""
    """The item to begin with."""
    closing: str = ""
    """The line after the list."""

    def fulfilled(self, text: str) -> list[bool]:
        """Return for each wish whether a text fulfils it."""
        lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
        items = [line[2:].strip().casefold() for line in lines if line.startswith("- ")]
        others = [line for line in lines if not line.startswith("- ")]
        found = [any(wish.casefold() in item for item in items) for wish in self.include]
        found += [all(wish.casefold() not in item for item in items) for wish in self.exclude]
        found += [len(items) == self.num_items, others == [self.closing] * bool(self.closing)]
        if self.top:
            found.append(items[:1] == [self.top.casefold()])
        # Without items, a text would fulfil every wish to leave something out.
        return [is_fulfilled and bool(items) for is_fulfilled in found]


class Talk(Task):
    """A conversation to continue; only its messages are required."""

    principle: str | None = None
    """What makes an answer better; without it, the judge is shown a principle of ours."""
    wanted: PackingList | None = None
    """What the answer has to be like; for the oracle and the stand-in of the reward model."""


class GenrmCompare(Environment[Talk]):
    """Continue a conversation; every attempt is compared with others at the same task."""

    # Rewards are relative to the other attempts of a task.
    max_reward = None
    required_roles = ("reward",)
    properties = Properties(
        "single-step", "instruction following", "chat", "free text", "pairwise reward model"
    )
    skipped_checks = {
        "guessing": "a reward is relative to the other attempts of a task: a guess alone has none"
    }

    class Options(EnvironmentOptions):
        """Which attempts are compared, and what else the reward depends on."""

        pairs: Literal["circular", "all_pairs"] = "circular"
        """`circular`: each attempt with the next one and the last with the first. `all_pairs`: each
        with every other."""
        judges_per_comparison: int = Field(default=1, ge=1)
        """How often each pair is compared."""
        parse_retries: int = Field(default=3, ge=0)
        """How often the model is asked again if its answer cannot be read."""
        default_score: FiniteFloat = 3.0
        """The reward of an attempt without a readable comparison."""
        reasoning_bonus: FiniteFloat = 0.0
        """Added for the shortest reasoning of the group, if its score is among the top ones."""
        answer_bonus: FiniteFloat = 0.0
        """Added for the shortest answer of the group, if its score is among the top ones."""
        top_percentile: float = Field(default=0.2, ge=0.0, le=1.0)
        """The share of the scores that counts as the top."""
        reasoning_length_penalty: FiniteFloat = 0.0
        """The advantage of the shortest reasoning over the longest; it does not move the mean."""
        answer_length_penalty: FiniteFloat = 0.0
        """The same for the length of the answer."""
        style_penalty: FiniteFloat = 0.0
        """The same for headers, list items, bold words and emoji per character, outside code."""

    options: Options

    async def setup(self) -> list[Message]:
        """Refuse a scalar reward model before the policy is asked for an answer."""
        if "reward" in self.roles:
            _refuse_scalar(self.roles["reward"])
        return []

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Return a placeholder for `verify_group` to replace."""
        return Score(0.0, details={"reason": _reason(rollout, "not_compared")})

    @classmethod
    async def verify_group(cls, rollouts: list[Rollout], context: Context) -> list[Score]:
        """Reward each attempt with the mean of its scores and what the options add.

        Raises:
            RoleError: A call failed, and the others have ended; or the model is scalar.

        """
        options = cls.options_of(context)
        if len(rollouts) < 2:
            return [
                Score(options.default_score, details={"reason": _reason(rollout, "alone")})
                for rollout in rollouts
            ]
        model = context.roles["reward"]
        _refuse_scalar(model)
        # Sorted, because the order decides who is paired and who is shown first, and attempts may
        # arrive in any order.
        order = sorted(
            range(len(rollouts)), key=lambda n: (rollouts[n].attempt, rollouts[n].last_text)
        )
        scores = await _scores([rollouts[n] for n in order], model, options)
        by_place = dict(zip(order, scores, strict=True))
        return [by_place[n] for n in range(len(rollouts))]

    async def oracle(self, rollout: Rollout) -> Message | None:
        """Return a list that fulfils all wishes; None if the row has none."""
        if self.task.wanted is None:
            return None
        return Message(role="assistant", content=written(self.task.wanted))

    @classmethod
    def stand_ins(cls, task: Talk) -> Mapping[str, Model]:
        """Return a judge that counts fulfilled wishes; none if the row has no wishes."""
        return {"reward": comparing(task.wanted)} if task.wanted else {}

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Yield requests for packing lists, in one turn or with wishes that change over several."""
        yield from load_generator("genrm_compare").generate(rng, num)


def paired(num: int, options: GenrmCompare.Options) -> list[tuple[int, int]]:
    """Return the positions of the attempts to compare; the first of a pair is shown first."""
    if options.pairs == "all_pairs":
        return list(itertools.combinations(range(num), 2))
    return [(place, (place + 1) % num) for place in range(num)]


def adjusted(
    scores: Sequence[float], rollouts: Sequence[Rollout], options: GenrmCompare.Options
) -> list[float]:
    """Add the bonuses and penalties of the options, in the reference's order."""
    answers = [rollout.last_text.strip() for rollout in rollouts]
    answer_lengths = [len(answer) for answer in answers]
    reasoning_lengths = [len(_reasoning(rollout)) for rollout in rollouts]
    rewards = list(scores)
    threshold = top_threshold(scores, options.top_percentile)
    for lengths, bonus in (
        (reasoning_lengths, options.reasoning_bonus),
        (answer_lengths, options.answer_bonus),
    ):
        place = shortest(lengths)
        # For the second bonus, the reward includes the first.
        if place is not None and rewards[place] >= threshold:
            rewards[place] += bonus
    for values, penalty in (
        (reasoning_lengths, options.reasoning_length_penalty),
        (answer_lengths, options.answer_length_penalty),
        ([style_density(answer) for answer in answers], options.style_penalty),
    ):
        rewards = [r + penalty * w for r, w in zip(rewards, centred(values), strict=True)]
    return rewards


def _reasoning(rollout: Rollout) -> str:
    thoughts = [m.reasoning or "" for m in rollout.responses if m.role == "assistant"]
    return "".join(thoughts).strip()


async def _scores(
    rollouts: Sequence[Rollout], model: Model, options: GenrmCompare.Options
) -> list[Score]:
    """Compare all pairs of attempts concurrently, and score the attempts."""
    results = await _together(
        [
            _compared(model, rollouts, pair, judge, options.parse_retries)
            for pair in paired(len(rollouts), options)
            for judge in range(options.judges_per_comparison)
        ]
    )
    scores = [
        score_of(place, results, rollouts, options.default_score) for place in range(len(rollouts))
    ]
    rewards = adjusted([score.reward for score in scores], rollouts, options)
    for score, reward in zip(scores, rewards, strict=True):
        score.components = {"comparison": score.reward, "adjustment": reward - score.reward}
        score.reward = reward
    return scores


def _refuse_scalar(model: Model) -> None:
    if model.is_scalar:
        raise RoleError(
            "genrm_compare compares two answers in one prompt, which a scalar endpoint cannot "
            "read; give --role reward=… a chat model"
        )


class Result(NamedTuple):
    """One comparison, with the positions of its attempts in the group."""

    first: int
    second: int
    comparison: Comparison


async def _compared(
    model: Model, rollouts: Sequence[Rollout], pair: tuple[int, int], judge: int, retries: int
) -> Result:
    """Compare two attempts, and try again if the answer cannot be read."""
    first, second = (rollouts[place] for place in pair)
    history = first.messages[: first.num_prompt_messages]
    for number in range(retries + 1):
        # The version is part of the cache key: no judge or try may get the answer of another.
        comparison = await PairwiseJudge(version=f"1/{judge}/{number}").compare(
            model,
            history,
            first.last_text.strip(),
            second.last_text.strip(),
            principle=GenrmCompare.parse_task(first.task).principle or "",
        )
        if comparison.is_parsed:
            break
    return Result(*pair, comparison)


async def _together(comparing: Sequence[Coroutine[object, object, Result]]) -> list[Result]:
    """Wait for all comparisons, then raise the first error."""
    results = []
    # No error is raised while others are under way: their answers are paid for, and are cached.
    for result in await asyncio.gather(*comparing, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        results.append(result)
    return results


MIDDLE = 3.5
"""The ranking of two equally good answers."""

# Possessive where a long run without its end would otherwise be searched over and over.
CODE = re.compile(r"```.*?```", re.DOTALL)
STYLE = (
    re.compile(r"^#{1,6}\s", re.MULTILINE),
    re.compile(r"^[^\S\n]*+(?:\d++\.|[-*+])\s", re.MULTILINE),
    re.compile(r"\*\*[^*\n]++\*\*"),
    re.compile(r"__[^_\n]++__"),
    re.compile("[\u2600-\u27bf\U0001f1e6-\U0001f1ff\U0001f300-\U0001faff]"),
)
"""Headers, list items, bold words in either form, emoji."""


def without_tie(comparison: Comparison) -> tuple[float, float]:
    """Return both scores; the ranking moves equal ones apart."""
    # The reference's `simple_tiebreaker`; a ranking below the middle prefers the first.
    first, second, ranking, _ = comparison
    shift = MIDDLE - ranking if first == second else 0.0
    return first + shift, second - shift


def score_of(
    place: int, results: Sequence[Result], rollouts: Sequence[Rollout], default: float
) -> Score:
    """Return the mean score of one attempt, with all comparisons that it was part of."""
    own = [result for result in results if place in (result.first, result.second)]
    read = [result for result in own if result.comparison.is_parsed]
    scores = [without_tie(result.comparison)[result.second == place] for result in read]
    num_ties = sum(result.comparison.score_1 == result.comparison.score_2 for result in read)
    return Score(
        fmean(scores) if scores else default,
        metrics={
            "comparisons": len(own),
            "unparseable": len(own) - len(read),
            "ties": num_ties,
        },
        details={
            "reason": _reason(rollouts[place], "compared" if scores else "unparseable"),
            "comparisons": [_record(place, result, rollouts) for result in own],
        },
    )


def _reason(rollout: Rollout, reason: str) -> str:
    return reason if rollout.last_text.strip() else "no_answer"


def _record(place: int, result: Result, rollouts: Sequence[Rollout]) -> JSONObject:
    """Return a comparison for the details of an attempt; without scores if it was unreadable."""
    other = result.first if place == result.second else result.second
    shown: JSONObject = {
        "with_attempt": rollouts[other].attempt,
        "shown_as": 1 if place == result.first else 2,
    }
    if not result.comparison.is_parsed:
        return {**shown, "is_parsed": False}
    score_1, score_2, ranking, _ = result.comparison
    return {**shown, "score_1": score_1, "score_2": score_2, "ranking": ranking}


def top_threshold(scores: Sequence[float], share: float) -> float:
    """Return the lowest of the top scores: a share of all, and at least one."""
    return sorted(scores, reverse=True)[max(0, int(len(scores) * share) - 1)]


def shortest(lengths: Sequence[int]) -> int | None:
    """Return the position of the first shortest text that is not empty; None if all are."""
    places = [place for place, length in enumerate(lengths) if length]
    return min(places, key=lambda place: lengths[place], default=None)


def centred(values: Sequence[float]) -> list[float]:
    """Return a weight per value: the lowest value's is 1 above the highest's, and the mean is 0."""
    low, high = min(values), max(values)
    if low == high:
        return [0.0] * len(values)
    weights = [(high - value) / (high - low) for value in values]
    mean = fmean(weights)
    return [weight - mean for weight in weights]


def style_density(text: str) -> float:
    """Return the headers, list items, bold words and emoji per character, outside code."""
    prose = CODE.sub("", text)
    length = len(prose.strip())
    return sum(len(pattern.findall(prose)) for pattern in STYLE) / length if length else 0.0


SHOWN_ANSWERS = re.compile(
    r"<response_1>\n(.*)\n</response_1>\n\n<response_2>\n(.*)\n</response_2>", re.DOTALL
)


def comparing(wanted: PackingList) -> StandIn:
    """Return a scripted judge that prefers the list that fulfils more wishes."""

    def compare(messages: list[Message]) -> str:
        shown = SHOWN_ANSWERS.search(messages[-1].text)
        if shown is None:
            raise RoleError("the prompt shows no two answers")
        wishes = [wanted.fulfilled(answer) for answer in shown.groups()]
        first, second = (sum(found) / len(found) for found in wishes)
        # On the scales of the prompt, where the lowest ranking prefers the first answer.
        verdict = {
            "score_1": 1.0 + 4.0 * first,
            "score_2": 1.0 + 4.0 * second,
            "ranking": 3.5 + 2.5 * (second - first),
        }
        return json.dumps(verdict)

    return StandIn(compare)


def written(wanted: PackingList) -> str:
    """Return a list that fulfils all wishes of a generated task."""
    kept = [wanted.top, *wanted.include] if wanted.top else wanted.include
    items = list(dict.fromkeys(kept))
    spare = [item for item in THEMES[wanted.theme] if item not in (*items, *wanted.exclude)]
    return _text(items + spare[: wanted.num_items - len(items)], wanted.closing)


def _text(items: Sequence[str], closing: str = "") -> str:
    return "\n".join([*(f"- {item}" for item in items), *([closing] if closing else [])])


THEMES = {
    "a week of camping by a lake": (
        "a rain jacket",
        "tent pegs",
        "a head torch",
        "matches",
        "a water filter",
        "insect spray",
        "a tin opener",
        "a sleeping mat",
        "dry socks",
        "a fishing rod",
        "a washing line",
        "a first-aid kit",
    ),
    "a picnic in the park": (
        "a blanket",
        "napkins",
        "a corkscrew",
        "lemonade",
        "a bread knife",
        "paper plates",
        "sun cream",
        "a frisbee",
        "cherry tomatoes",
        "a cool box",
        "a rubbish bag",
        "salt",
    ),
    "a long train journey with two children": (
        "crayons",
        "a pack of cards",
        "apple slices",
        "wet wipes",
        "headphones",
        "a picture book",
        "a change of clothes",
        "water bottles",
        "a soft toy",
        "the tickets",
        "a travel pillow",
        "a puzzle",
    ),
    "a winter weekend in the mountains": (
        "woollen gloves",
        "thick socks",
        "a thermos flask",
        "snow boots",
        "lip balm",
        "a trail map",
        "ski goggles",
        "a scarf",
        "tea bags",
        "a whistle",
        "a pocket lamp",
        "chocolate",
    ),
    "the first night in an empty flat": (
        "a mattress",
        "light bulbs",
        "toilet paper",
        "a screwdriver",
        "a kettle",
        "two mugs",
        "a towel",
        "a phone charger",
        "soap",
        "a doormat",
        "a broom",
        "the keys",
    ),
}
