r"""Compares all attempts of a task in pairs; what a generative reward model says is the reward.

Source: the resources server genrm_compare of NVIDIA NeMo Gym (Apache-2.0), its rules written anew.
The model of the role `reward` sees the conversation and the final answers of two attempts, and
gives each a score from 1 to 5 and the pair a ranking from 1 to 6. Where the scores are equal, the
ranking moves them apart (`simple_tiebreaker`). The reward of an attempt is the mean of its scores;
options add what shortness and plain style are worth. An attempt without a mate gets
`default_score`. Where this differs:

- A comparison that cannot be read, however often it is asked for (`parse_retries`), is recorded and
  counted, and enters no mean; there it is two scores of 3. An attempt that has no other comparison
  gets `default_score` with the reason "unparseable". Read is what has all three numbers, each
  within its range. A failed call leaves the group unscored.
- The pair stands in one prompt that any chat model takes, not in chat roles of its own. A row's
  `principle` is always shown, and where the row has none, one of ours: the better response is
  correct, does what was asked, and is clear. Sampling is left to the role's own parameters.
- The attempts are put in order before they are paired, and no comparison that comes late is lost.
- Emoji are those of Unicode's blocks of them: no Chinese or Japanese character is one.

`verify` gives 0 as a placeholder, since an attempt alone has no reward; `verify_group` replaces it.

{"id": "list-0", "difficulty": "easy", "messages": [{"role": "user", "content": "Write a packing
list for a picnic in the park: 6 items, …"}], "dataset": "lists", "principle": "", "wanted":
{"theme": "a picnic in the park", "include": ["napkins", "a corkscrew"], "num_items": 6}}
"""

import asyncio
import itertools
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from random import Random
from typing import Literal

from pydantic import Field, FiniteFloat

from gymcli import (
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
    Task,
)

from .aggregation import Result, centred, score_of, shortest, style_density, top_threshold
from .lists import PackingList, comparing, conversation, written

__all__ = ["GenrmCompare", "Talk"]

DIFFICULTIES = ("easy", "medium", "hard")


class Talk(Task):
    """A conversation to be continued; nothing but its messages is needed."""

    principle: str | None = None
    """What a better answer is; else the judge's own."""
    wanted: PackingList | None = None
    """What the answer has to be like."""


class GenrmCompare(Environment[Talk]):
    """Continue a conversation; every attempt is compared with others at the same task."""

    max_reward = None
    required_roles = ("reward",)
    properties = Properties(
        "single-step", "instruction following", "chat", "free text", "pairwise reward model"
    )
    skipped_checks = {
        "guessing": "a reward is relative to the other attempts of a task: a guess alone has none"
    }

    class Options(EnvironmentOptions):
        """Who is compared with whom, and what counts beside it."""

        pairs: Literal["circular", "all_pairs"] = "circular"
        """Each with the next one and the last with the first, or all with all."""
        judges_per_comparison: int = Field(default=1, ge=1)
        parse_retries: int = Field(default=3, ge=0)
        """How often the model is asked again where its words cannot be read."""
        default_score: FiniteFloat = 3.0
        """The reward of an attempt that could not be compared."""
        reasoning_bonus: FiniteFloat = 0.0
        """For the shortest reasoning of all, if its score is among the top ones."""
        answer_bonus: FiniteFloat = 0.0
        """For the shortest answer of all, if its score is among the top ones."""
        top_percentile: float = Field(default=0.2, ge=0.0, le=1.0)
        """The share of the group that counts as the top."""
        reasoning_length_penalty: FiniteFloat = 0.0
        """What the longest reasoning loses against the shortest; zero in the mean."""
        answer_length_penalty: FiniteFloat = 0.0
        style_penalty: FiniteFloat = 0.0
        """The same by headers, list items, bold words and emoji a character, outside code."""

    options: Options

    async def setup(self) -> list[Message]:
        """Refuse to ask the policy for what could not be compared."""
        if "reward" in self.roles:
            _refuse_scalar(self.roles["reward"])
        return []

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Give a placeholder for `verify_group` to replace."""
        return Score(0.0, details={"reason": "not_compared"})

    @classmethod
    async def verify_group(cls, rollouts: list[Rollout], context: Context) -> list[Score]:
        """Reward each attempt with the mean of its scores, and what the options add.

        Raises:
            RoleError: A call failed, once the others have ended; or the model gives numbers only.

        """
        options = context.options
        assert isinstance(options, cls.Options)
        if len(rollouts) < 2:
            return [Score(options.default_score, details={"reason": "alone"}) for _ in rollouts]
        model = context.roles["reward"]
        _refuse_scalar(model)
        # In order of the attempts, whatever order they come in: it decides who is shown first.
        order = sorted(
            range(len(rollouts)), key=lambda n: (rollouts[n].attempt, rollouts[n].last_text)
        )
        scores = await _scores([rollouts[n] for n in order], model, options)
        by_place = dict(zip(order, scores, strict=True))
        return [by_place[n] for n in range(len(rollouts))]

    async def oracle(self, rollout: Rollout) -> Message | None:
        """Give a list that is as wanted; a row that does not say how has no gold."""
        if self.task.wanted is None:
            return None
        return Message(role="assistant", content=written(self.task.wanted))

    @classmethod
    def stand_ins(cls, task: Talk) -> Mapping[str, Model]:
        """Give a judge of pairs that counts; none where there is nothing to count."""
        return {"reward": comparing(task.wanted)} if task.wanted else {}

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Ask for packing lists, at once or with wishes that change over two or three turns."""
        seen: set[str] = set()
        for number in range(num):
            difficulty = DIFFICULTIES[number % len(DIFFICULTIES)]
            talk = conversation(rng, difficulty)
            while str(talk.messages) in seen:
                talk = conversation(rng, difficulty)
            seen.add(str(talk.messages))
            yield {
                "id": f"list-{number}",
                "difficulty": difficulty,
                "messages": talk.messages,
                "dataset": "lists",
                "principle": talk.principle,
                "wanted": talk.wanted.model_dump(exclude_defaults=True),
            }


def paired(num: int, options: GenrmCompare.Options) -> list[tuple[int, int]]:
    """Give the places of the attempts to compare; the first of a pair is shown first."""
    if options.pairs == "all_pairs":
        return list(itertools.combinations(range(num), 2))
    return [(place, (place + 1) % num) for place in range(num)]


def adjusted(
    scores: Sequence[float], rollouts: Sequence[Rollout], options: GenrmCompare.Options
) -> list[float]:
    """Add what shortness and plain style are worth, in the order of the source."""
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
    """Compare the attempts, all pairs at once, and score them."""
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


async def _compared(
    model: Model, rollouts: Sequence[Rollout], pair: tuple[int, int], judge: int, retries: int
) -> Result:
    """Compare two attempts; each judge and each try is a question of its own."""
    first, second = (rollouts[place] for place in pair)
    history = first.messages[: first.num_prompt_messages]
    for number in range(retries + 1):
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
    """Wait for all, so that no answer that was paid for is lost; then raise the first error."""
    results = []
    for result in await asyncio.gather(*comparing, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        results.append(result)
    return results
