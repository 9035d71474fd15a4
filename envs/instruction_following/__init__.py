"""Asks for a short text that follows instructions which a program can check.

Source: the resources server instruction_following of NVIDIA NeMo Gym (Apache-2.0) and its library
of checks, which goes back to IFEval (arXiv 2311.07911) and IF-RLVR (arXiv 2507.02833),
reimplemented independently. The text of the last message is checked; `binary` gives 1 where all
instructions are followed, `fraction` the share of them. A row without instructions gets 1 in
`binary` and 0 in `fraction`, whatever the answer. Leniency kept from the reference: a keyword is a
regular expression and is found within other words, `exclude_word_harder` sees a word between two
spaces only, "a" is a palindrome, a postscript may stand anywhere, one of the three sentences of
`constrained_response` may stand among others, any JSON value is JSON, of `repeat_phrase` only the
last variant must differ, and an answer of digits is in every language. Strictness that is kept, and
said in the prompts of our own: the first word of an answer or a sentence has no mark before or
after it, and a variant of `repeat_phrase` is looked for in the phrase's case, from wherever its
first word stands. Differences from the reference:

- An answer without text follows nothing, as in IFEval's own evaluation; the checks alone would
  take silence for an answer without commas.
- A row that names an unknown id, or lacks an argument, is refused when it is read; the reference
  counts every answer as wrong, or draws the argument anew each time. So is one that names
  `language:response_language` where its package langdetect is not installed (the extra
  `langdetect`), or that names a language which langdetect does not know.
- `language:response_language` draws from a fixed seed and says the same of a text each time, right
  or wrong, as it may be of a few words. It looks at the first 10,000 characters, web addresses
  included. A damaged package leaves the rollout unscored, where IFEval takes the instruction for
  followed.
- `letter` may be any character; the reference draws one from A to Z in place of any other.
- Sentences and words are split by rules of our own, not by NLTK's data: `number_sentences`,
  `first_word_sent`, `last_word_sent`, `sentence_hyphens`, `keyword_specific_position`,
  `counting_composition`, `count_unique`, `capital_word_frequency` and `start_end` may see them
  otherwise. Punctuation is no word, so that two full stops are no repetition.
- `english_capital` and `english_lowercase` do not look at the language: no score hangs on what is
  installed.
- A keyword is a regular expression of the package regex. One that is none is looked for as it
  stands; one that takes too long leaves the rollout unscored.
- `n_start` of `copy_span_idx` and other arguments may be 0.

One row:
{"id": "instructions-0", "difficulty": "easy", "prompt": "Write a diary entry about ...",
"instruction_id_list": ["keywords:frequency"], "kwargs": [{"keyword": "gull", "frequency": 4,
"relation": "at least"}], "grading_mode": "binary"}
"""

from collections.abc import Iterator
from random import Random
from typing import Literal, Self

from pydantic import model_validator

from gymcli import (
    Context,
    Environment,
    JSONObject,
    Message,
    Properties,
    Rollout,
    Score,
    Task,
)
from gymcli.envs import load_generator

from .answer import Answer, Arguments
from .checks import CHECKS
from .composing import compose

__all__ = ["InstructionFollowing", "Instructions"]


class Instructions(Task):
    """The instructions that an answer has to follow."""

    instruction_id_list: list[str]
    kwargs: list[Arguments | None]
    """The arguments of each instruction, in the same order."""
    grading_mode: Literal["binary", "fraction"] = "binary"

    @property
    def instructions(self) -> list[tuple[str, Arguments]]:
        """Each instruction's id with its arguments."""
        given = (arguments or Arguments() for arguments in self.kwargs)
        return list(zip(self.instruction_id_list, given, strict=True))

    @model_validator(mode="after")
    def _can_be_checked(self) -> Self:
        if len(self.instruction_id_list) != len(self.kwargs):
            raise ValueError("instruction_id_list and kwargs differ in length")
        for name, given in self.instructions:
            if name not in CHECKS:
                raise ValueError(f"there is no check {name!r}, only {', '.join(CHECKS)}")
            check = CHECKS[name]
            missing = [need for need in check.needs if not given.has(need)]
            if missing:
                raise ValueError(f"{name} needs {', '.join(missing)} in kwargs")
            if check.require:
                check.require(given)
        return self


class InstructionFollowing(Environment[Instructions]):
    """Write a text that follows every instruction on its words and form."""

    properties = Properties(
        "single-step",
        "meta-data instruction following",
        "general",
        "writing",
        "programmatic checks",
    )

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if all instructions are followed, or the share of them."""
        task = cls.parse_task(rollout.task)
        answer = Answer(rollout.last_text, context)
        has_text = bool(answer.text.strip())
        results = [
            (name, has_text and CHECKS[name].is_followed(answer, given))
            for name, given in task.instructions
        ]
        num_followed = sum(is_followed for _, is_followed in results)
        follows_all = num_followed == len(results)
        share = num_followed / len(results) if results else 0.0
        return Score(
            float(follows_all) if task.grading_mode == "binary" else share,
            metrics={"follow_all_instructions": float(follows_all), "share_followed": share},
            details={
                "reason": _reason(share, has_text=has_text, follows_all=follows_all),
                "not_followed": [name for name, is_followed in results if not is_followed],
            },
        )

    async def oracle(self, rollout: Rollout) -> Message | None:
        """Compose a text; None for rows of others with an instruction that is beyond it."""
        text = compose(self.task.instructions)
        return None if text is None else Message(role="assistant", content=text)

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Write tasks with one, two and four instructions that go together."""
        yield from load_generator("instruction_following").generate(rng, num)


def _reason(share: float, *, has_text: bool, follows_all: bool) -> str:
    if follows_all:
        return "all_followed"
    if not has_text:
        return "empty_answer"
    return "some_followed" if share else "none_followed"
