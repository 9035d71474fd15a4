r"""Asks for a text; a reward model rates the whole conversation.

Source: the reward model environment of NVIDIA NeMo RL and the scalar reward models that NVIDIA NeMo
Gym sketches (both Apache-2.0), reimplemented independently: the reward is one number, without
limits, for the whole conversation. The role `reward` is a scalar endpoint (vLLM's /score, /pooling
or /classify), or a chat model that writes a number from `low` to `high`. A row needs only its
conversation. The rows that ship also have the requirements in fields, for the stand-in and the
oracle. Differences from the reference:

- The reward model is not shown the policy's reasoning. A conversation without an answer is rated
  with an empty one at its end, and the reason is `no_answer`.
- A chat model whose text has no rating is asked once more, for the rating alone. If it then has no
  number in range, the record has the reason `unparseable` and a metric of that name, and the reward
  is the option `unparseable_reward`.

One row:
{"id": "note-0", "difficulty": "easy", "prompt": "Write a short note about a new bicycle shed. Begin
with the word \"Now\". Use at most 41 words. Use the word \"key\".", "wanted": {"topic": "a new
bicycle shed", "mention": ["key"], "max_words": 41, "opening": "Now"}}
"""

import re
from collections.abc import Iterator, Mapping
from random import Random
from typing import Self

from pydantic import BaseModel, Field, FiniteFloat, model_validator

from gymcli import (
    Context,
    Environment,
    EnvironmentOptions,
    JSONObject,
    Message,
    Model,
    Properties,
    RewardModel,
    Rollout,
    Score,
    StandIn,
    Task,
)
from gymcli.envs import load_generator

__all__ = ["Note", "RatedConversation", "Writing", "written"]


class Note(BaseModel):
    """The requirements of a note."""

    topic: str
    mention: list[str] = Field(min_length=1)
    """Words that the note must contain."""
    avoid: list[str] = []
    """Words that the note must not contain."""
    max_words: int = Field(ge=1)
    num_sentences: int | None = Field(default=None, ge=1)
    opening: str = Field(min_length=1)
    """The first word."""
    ending: str = ""
    """The last sentence."""

    def fulfilled(self, text: str) -> list[bool]:
        """Return for each requirement whether a text fulfils it; an empty text fulfils none."""
        words = re.findall(r"\w+", text.casefold())
        found = [word.casefold() in words for word in self.mention]
        found += [word.casefold() not in words for word in self.avoid]
        found.append(len(text.split()) <= self.max_words)
        found.append(words[:1] == [self.opening.casefold()])
        if self.num_sentences is not None:
            found.append(len(SENTENCE_END.findall(text)) == self.num_sentences)
        if self.ending:
            found.append(text.rstrip().endswith(self.ending))
        # An empty text avoids every word and is short enough, but is no note.
        return [is_fulfilled and bool(words) for is_fulfilled in found]


class Writing(Task):
    """A request to write something; only the prompt is required."""

    wanted: Note | None = None
    """The requirements, for the stand-in and the oracle."""


class RatedConversation(Environment[Writing]):
    """Write the requested text; a reward model rates it."""

    version = "2"
    max_reward = None
    required_roles = ("reward",)
    properties = Properties(
        "single-step", "instruction following", "writing", "free text", "scalar reward model"
    )

    class Options(EnvironmentOptions):
        """The scale of a chat model, and the reward if it writes no rating."""

        low: FiniteFloat = 0.0
        """The worst rating of a chat model."""
        high: FiniteFloat = 10.0
        """The best rating of a chat model."""
        unparseable_reward: FiniteFloat = 0.0
        """The reward if a chat model's text has no number from `low` to `high`."""

        @model_validator(mode="after")
        def _is_a_range(self) -> Self:
            if not self.low < self.high:
                raise ValueError(f"low ({self.low:g}) has to be below high ({self.high:g})")
            return self

    options: Options

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Return the rating of the reward model.

        Raises:
            RoleError: The call failed, or a scalar model returned no finite number.

        """
        options = cls.options_of(context)
        model = RewardModel(low=options.low, high=options.high)
        rating = await model.score(context.roles["reward"], conversation_of(rollout))
        reason = "unparseable" if rating is None else "scored"
        return Score(
            options.unparseable_reward if rating is None else rating,
            metrics={"unparseable": float(rating is None)},
            details={"reason": reason if rollout.last_text.strip() else "no_answer"},
        )

    async def oracle(self, rollout: Rollout) -> Message | None:
        """Return a note that meets the requirements, if the row has them in fields."""
        if self.task.wanted is None:
            return None
        return Message(role="assistant", content=written(self.task.wanted))

    @classmethod
    def stand_ins(cls, task: Writing) -> Mapping[str, Model]:
        """Return a reward model that counts fulfilled requirements, if the row has any."""
        return {"reward": counting(task.wanted)} if task.wanted else {}

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Ask for notes with three, five or seven requirements."""
        yield from load_generator("reward_model").generate(rng, num)


def counting(wanted: Note) -> StandIn:
    """Return a stand-in that rates an answer by the share of requirements that it fulfils."""

    def rate(messages: list[Message]) -> str:
        found = wanted.fulfilled(messages[-1].text)
        return repr(sum(found) / len(found))

    return StandIn(rate, is_scalar=True)


def conversation_of(rollout: Rollout) -> list[Message]:
    """Return the conversation without reasoning; it ends with an answer, which may be empty."""
    said = [
        Message(
            role=message.role,
            content=message.content or message.refusal,
            tool_calls=message.tool_calls,
            tool_call_id=message.tool_call_id,
            name=message.name,
        )
        for message in rollout.messages
        if not message.is_reasoning_only
    ]
    # A reward model rates the last assistant message, so there must be one.
    if not said or said[-1].role != "assistant":
        said.append(Message(role="assistant", content=""))
    return said


SENTENCE_END = re.compile(r"[.!?](?=\s|$)")


def written(note: Note) -> str:
    """Write a note that meets requirements made by `datasets/reward_model/generate.py`."""
    things = " and the ".join(note.mention)
    sentences = [f"{note.opening} there is news about {note.topic}, and about the {things}."]
    endings = [note.ending] if note.ending else []
    num_fillers = (note.num_sentences or 2) - len(endings) - 1
    return " ".join([*sentences, *FILLERS[:num_fillers], *endings])


FILLERS = ("All are welcome.", "Bring a friend.", "It costs no money.")
