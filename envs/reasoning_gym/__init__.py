r"""Asks puzzles that the library reasoning-gym generates, and scores answers with its scorers.

Source: the resources server reasoning_gym of NVIDIA NeMo Gym 0.7 (Apache-2.0), reimplemented
independently; generators and scorers are those of the package reasoning-gym (extra
`reasoning-gym`). The answer is the content of the last `<answer>` tags, else of the first
`\boxed{...}` up to its first closing brace, else the whole text. The reward is the scorer's,
partial rewards included. A row has either an entry or an address. An entry is `question`, `answer`
and `metadata` with its `source_dataset`; it is scored with that generator's default options. An
address is `generator`, `config`, `seed` and `index`; the environment asks its question, with the
format of the answer, after the row's own messages. The record keeps the entry, and that one is
scored: isomorphic_strings, knight_swap, list_functions, polynomial_multiplication, ransom_note and
word_ladder make different entries in another process. An answer without a record of its entry is
scored with the entry that the library generates from the address now; with these six generators it
is unscored. Differences from the reference:

- A scorer that fails leads to a reward of 0 only if the answer made it fail, that is, if it can
  score the gold answer. The reason is `unreadable` if the scorer raises or returns no finite
  number, `too_large` if its process dies. If the gold answer fails too, the attempt is unscored. So
  it is if the scorer takes longer than 10 seconds, as with a tower of powers: on a busy machine any
  answer might.
- Some scorers evaluate answers as Python. Here such an answer may only contain lists, numbers and
  terms of elementary functions; at anything else the scorer fails, as at text that is not Python.
- Rewards are at most 1, and these answers get less, though the library finds them right.
  `unreadable`: NaN and Infinity, if the gold answer has digits and neither of them; in countdown
  and puzzle24 anything but digits, parentheses, spaces and + - * /, so no ** or //. Less than 1:
  numbers other than the puzzle's, or 24.5, in puzzle24; the gold word with more text in
  spell_backward; a number that begins like the gold answer in coin_flip; an answer without the gold
  word, or with both "true" and "false", in game_of_life_halting; an integral that is only written
  down, unless the gold answer has one. In rows with an entry, gold answers of arc_agi and rearc are
  right too.
- A row with an unknown generator is refused. A `config` is trusted to need no more memory than is
  available; an entry that takes longer than a minute to make fails the attempt.

Not corrected: other answers that the library's scorers reward too much. Among them, numbers that
are off by 1 are right in number_sorting, a wrong "0:0" gets 0.98 in some time_intervals, "everybody
is a saint" gets 0.65 and more in knights_knaves, the gold answer with other text gets its share of
the length wherever texts are compared, and an integral written down gets 1 in
intermediate_integration if the gold answer does the same.

Two generators cannot be played: composite, which only mixes others, and codeio, which makes entries
by running programs from its data; rows with an entry of codeio are scored. All others were tried
with version 0.1.25 and score their gold answers 1. boxnet and rush_hour have no gold answer, and so
no oracle; the gold answer of propositional_logic, rubiks_cube and graph_color is the example in
their metadata.

One row:
{"id": "puzzle-0", "difficulty": "easy", "messages": [{"role": "system", "content": "..."}],
"generator": "chain_sum", "config": {"min_terms": 2, "max_terms": 3}, "seed": 7, "index": 0}
"""

from collections.abc import Iterator, Mapping
from random import Random
from typing import Literal, Self

from pydantic import Field, model_validator

from gymcli import (
    JSON,
    Context,
    Environment,
    EnvironmentOptions,
    JSONObject,
    Message,
    Properties,
    Rollout,
    Score,
    Task,
    VerifierError,
    VerifierTimeoutError,
)
from gymcli.envs import load_generator

from .library import (
    UNREPEATABLE,
    Address,
    check_address,
    check_generator,
    is_installed,
    made_entry,
    require,
    version,
)
from .scoring import Outcome, gold_in, scored

__all__ = ["Puzzle", "ReasoningGym", "extracted"]

MAX_ANSWER = 1000
"""Characters of the answer that the record keeps."""

FORM = "Put your final answer, and nothing else, between <answer> and </answer>."


class Puzzle(Task):
    """An entry of the library, or its address."""

    question: str | None = None
    """The question of an entry."""
    answer: str | None = None
    """The gold answer; null if the scorer needs only the metadata."""
    metadata: JSONObject | None = None
    """Data for the scorer; `source_dataset` names the generator."""

    generator: str | None = None
    """The generator, if the row is an address."""
    config: JSONObject = {}
    """Options of the generator, such as `size`, that differ from their default."""
    seed: int = Field(0, ge=0)
    """The generator's seed."""
    index: int = Field(0, ge=0)
    """The position of the puzzle among those of the seed."""

    @property
    def address(self) -> Address | None:
        """The address, if the row is one."""
        if self.generator is None:
            return None
        return Address(self.generator, self.config, self.seed, self.index)

    @property
    def entry(self) -> JSONObject | None:
        """The entry, if the row has one."""
        if self.generator is not None:
            return None
        return {"question": self.question, "answer": self.answer, "metadata": self.metadata}

    @model_validator(mode="after")
    def _can_be_scored(self) -> Self:
        """Check that the library knows the task; `prepare` reports a missing library."""
        name = (self.metadata or {}).get("source_dataset")
        if self.address is None and (self.question is None or not isinstance(name, str)):
            raise ValueError(
                'the row needs a "generator", or "question" and "metadata.source_dataset"'
            )
        if not is_installed():
            return self
        if self.address is not None:
            check_address(self.address)
        else:
            check_generator(str(name), is_addressed=False)
        return self


class ReasoningGym(Environment[Puzzle]):
    """Solve generated puzzles of a hundred kinds; the library reasoning-gym scores the answer."""

    version = "2"
    waits_to_verify = True
    properties = Properties("single-step", "reasoning", "puzzles", "short answer", "library")
    skipped_checks = {"leaks": "many kinds of puzzles name the possible answers"}

    class Options(EnvironmentOptions):
        """Where the answer is read, and how long the library may take."""

        answer_place: Literal["tags_or_text", "tags"] = "tags_or_text"
        """`tags_or_text`: the last tags, else the first box, else the whole text; `tags`: the last
        tags alone, as in the evaluation of reasoning-gym's authors."""
        generator_timeout: float = 60.0
        """Seconds to make the entry of an address."""
        library_timeout: float = 10.0
        """Seconds to score one answer."""

    options: Options
    entry: JSONObject | None

    @classmethod
    def prepare(cls, options: EnvironmentOptions) -> None:
        """Check that the library is installed before the model is asked."""
        require()

    async def setup(self) -> list[Message]:
        """Make the entry if the row is an address, and ask its question."""
        self.entry = self.task.entry
        if self.task.address is None:
            return []
        self.entry = await made_entry(self.task.address, self.options.generator_timeout)
        return [Message(role="user", content=f"{self.entry['question']}\n\n{FORM}")]

    async def final_state(self) -> JSON:
        """Record the entry of an address: another process or version may make a different one."""
        if self.task.address is None:
            return None
        return {"library_version": version(), "entry": self.entry}

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward the answer as the library's scorer does.

        Raises:
            VerifierError: The gold answer cannot be scored either, or the record does not have the
                question and the library cannot generate it again.
            VerifierTimeoutError: The scorer took too long.

        """
        require()
        task = cls.parse_task(rollout.task)
        entry = task.entry or _recorded(rollout)
        if entry is None:
            if not rollout.responses:
                return Score(0.0, details={"reason": "no_answer"})
            entry = await _regenerated(context, task.address)
        gold = gold_in(entry)
        answer = tagged(rollout.output_text)
        if answer is None and cls.options_of(context).answer_place == "tags":
            expected = {"expected": gold[:MAX_ANSWER]} if gold else {}
            return Score(0.0, details={"reason": "no_answer", **expected})
        answer = extracted(rollout.output_text) if answer is None else answer
        try:
            reward = (await _outcome(context, answer, entry, task.address)).reward
            reason = _reason(reward)
        except VerifierTimeoutError:
            # Perhaps the machine was busy. A worker that dies is the answer's fault, if the gold
            # answer can be scored.
            raise
        except VerifierError:
            reward, reason = None, "too_large"
        if reward is None:
            gold_outcome = await _outcome(context, gold, entry, task.address)
            if gold_outcome.reward is None:
                raise VerifierError(
                    f"reasoning-gym cannot score the gold answer of this task: {gold_outcome.fault}"
                )
        # An empty text may be the answer to a puzzle about texts.
        if not answer and reason != "right":
            reason = "no_answer"
        return Score(
            reward or 0.0,
            answer=None if reason == "no_answer" else answer[:MAX_ANSWER],
            details={"reason": reason, **({"expected": gold[:MAX_ANSWER]} if gold else {})},
        )

    async def oracle(self, rollout: Rollout) -> Message | None:
        """Return the gold answer, or the example of one, if the entry has any."""
        assert self.entry is not None
        gold = gold_in(self.entry)
        if gold is None:
            return None
        return Message(role="assistant", content=f"<answer>{gold}</answer>")

    @classmethod
    def generate(
        cls,
        rng: Random,
        num: int,
        *,
        suite: Mapping[str, Mapping[str, JSONObject]] | None = None,
        seed: int = 0,
    ) -> Iterator[JSONObject]:
        """Write addresses of every series in turn: our own, from easy to hard, or those of `suite`.

        A suite has the options of each of its generators by category and name.
        """
        yield from load_generator("reasoning_gym").generate(rng, num, suite=suite, seed=seed)


def tagged(text: str) -> str | None:
    """Return the content of the last tags; None if there are none."""
    *closed, _ = text.split("</answer>")
    for piece in reversed(closed):
        _, tag, inner = piece.partition("<answer>")
        if tag:
            return inner.strip()
    return None


def extracted(text: str) -> str:
    """Return the answer in a text, in linear time, unlike the patterns of the reference."""
    if (answer := tagged(text)) is not None:
        return answer
    # The reference's pattern, `\boxed{([^}]+)}`, needs a character: an empty box is skipped.
    start = text.find("\\boxed{")
    while start >= 0:
        start += len("\\boxed{")
        end = text.find("}", start)
        if end > start:
            return text[start:end].strip()
        start = text.find("\\boxed{", start) if end == start else -1
    return text.strip()


async def _outcome(
    context: Context, answer: str | None, entry: JSONObject, address: Address | None
) -> Outcome:
    """Score an answer in a worker."""
    timeout = ReasoningGym.options_of(context).library_timeout
    return await context.isolated(
        scored, answer, entry, address, timeout=timeout, imports=("reasoning_gym",)
    )


async def _regenerated(context: Context, address: Address | None) -> JSONObject:
    """Generate the entry of an answer whose record lacks it."""
    assert address is not None
    if address.generator in UNREPEATABLE:
        raise VerifierError(
            "the record has no final_state, which holds the question, and "
            f"{address.generator} makes a different one in each process"
        )
    return await made_entry(address, ReasoningGym.options_of(context).generator_timeout)


def _recorded(rollout: Rollout) -> JSONObject | None:
    """Return the recorded entry, if there is one."""
    state = rollout.final_state
    entry = state.get("entry") if isinstance(state, dict) else None
    return entry if isinstance(entry, dict) else None


def _reason(reward: float | None) -> str:
    if reward is None:
        return "unreadable"
    return "right" if reward >= 1.0 else "partly_right" if reward > 0.0 else "wrong"
