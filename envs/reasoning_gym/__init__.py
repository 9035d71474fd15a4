r"""Asks any of the puzzles that the library reasoning-gym generates, and scores with its scorers.

Source: the resources server reasoning_gym of NVIDIA NeMo Gym (Apache-2.0), reimplemented
independently; generators and scorers are those of the package reasoning-gym (extra
`reasoning-gym`). The answer is what stands in the last `<answer>` tags, else in the first
`\boxed{...}` up to its first brace, else the whole text. The reward is what the task's scorer
gives, partial ones as they are. A row has either `question`, `answer` and `metadata` with its
`source_dataset`, which is scored with that generator's default options, or an address: `generator`,
`config`, `seed` and `index`. An address is asked by the environment: its question, and how to
answer, follow the row's own messages. The record keeps the entry, and what is scored is the
record's, whatever the generator makes by then: isomorphic_strings, knight_swap, list_functions,
polynomial_multiplication, ransom_note and word_ladder make other entries in another process.
Differences from the reference:

- A scorer that fails is not a reward of 0, unless the answer made it fail: where the gold answer is
  scored, one at which the scorer raises, or gives no finite number, is `unreadable`, and one that
  ends the process in which it is scored `too_large`, each with 0. Where the gold answer fails too,
  the attempt is unscored, and so it is where the scorer takes longer than 10 seconds, as with a
  tower of powers: on a busy machine any answer might.
- Scorers evaluate some answers as Python. Here they can hold lists, numbers and terms of elementary
  functions, and nothing else: the scorer fails at other ones, as at any that is no Python.
- Rewards are at most 1, and these answers, which the library finds right, are not. `unreadable`:
  NaN and Infinity where the gold answer has digits, but neither of them; in countdown and puzzle24
  anything but digits, parentheses, spaces and + - * /, powers and whole quotients included. Less
  than 1: other numbers than the puzzle's, or 24.5, in puzzle24; the gold word and more in
  spell_backward; a number that begins as the gold does in coin_flip; what does not say the gold's
  word, or says "true" and "false", in game_of_life_halting; an integral that is merely written
  down, unless the gold answer has one. Gold answers of arc_agi and rearc are right in a row with
  an entry, too.
- A row whose generator is not known is refused. A `config` is trusted to need no more memory than
  there is; an entry that takes longer than a minute to make fails the attempt.

Not mended is what else the library's scorers give too much for, among others: numbers that are off
by 1 are right in number_sorting, a wrong "0:0" gets 0.98 in some time_intervals, "everybody is a
saint" 0.65 and more in knights_knaves, the gold answer with other text its share of the length
wherever texts are compared, and an integral written down 1 in intermediate_integration where the
gold answer does the same.

Generators that cannot be played: composite, which only mixes others, and codeio, which runs
programs of its data to make entries; it is scored in rows that have one. All others were tried with
version 0.1.25, and score their gold answers 1; boxnet and rush_hour give none, so that they have
no oracle, and what propositional_logic, rubiks_cube and graph_color give as an example is theirs.

One row:
{"id": "puzzle-0", "difficulty": "easy", "messages": [{"role": "system", "content": "..."}],
"generator": "chain_sum", "config": {"min_terms": 2, "max_terms": 3}, "seed": 7, "index": 0}
"""

from collections.abc import Iterator
from random import Random
from typing import Self

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
"""Characters of an answer that are kept."""

FORM = "Put your final answer, and nothing else, between <answer> and </answer>."


class Puzzle(Task):
    """An entry of the library, or its address."""

    question: str | None = None
    answer: str | None = None
    """The gold answer; null where the scorer judges by the metadata alone."""
    metadata: JSONObject | None = None
    """What the scorer needs; `source_dataset` names the generator."""

    generator: str | None = None
    """Given where the row is an address."""
    config: JSONObject = {}
    """Options of the generator that are not at their default, `size` among them."""
    seed: int = Field(0, ge=0)
    index: int = Field(0, ge=0)

    @property
    def address(self) -> Address | None:
        """The address, where the row is one."""
        if self.generator is None:
            return None
        return Address(self.generator, self.config, self.seed, self.index)

    @property
    def entry(self) -> JSONObject | None:
        """The entry, where the row has it."""
        if self.generator is not None:
            return None
        return {"question": self.question, "answer": self.answer, "metadata": self.metadata}

    @model_validator(mode="after")
    def _can_be_scored(self) -> Self:
        """See that the library knows the task; `prepare` says so where there is no library."""
        name = (self.metadata or {}).get("source_dataset")
        if self.address is None and (self.question is None or not isinstance(name, str)):
            raise ValueError(
                'there is neither a "generator" nor "question" and "metadata.source_dataset"'
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

    class Options(EnvironmentOptions):
        """How long the library may take."""

        generator_timeout: float = 60.0
        """Seconds to make the entry of an address."""
        library_timeout: float = 10.0
        """Seconds to score one answer."""

    options: Options
    entry: JSONObject | None

    @classmethod
    def prepare(cls, options: EnvironmentOptions) -> None:
        """See that the library is there, before the model is asked for what needs it."""
        require()

    async def setup(self) -> list[Message]:
        """Make the entry of an address, and ask its question."""
        self.entry = self.task.entry
        if self.task.address is None:
            return []
        self.entry = await made_entry(self.task.address, self.options.generator_timeout)
        return [Message(role="user", content=f"{self.entry['question']}\n\n{FORM}")]

    async def final_state(self) -> JSON:
        """Keep the entry of an address: another process or version may make another one."""
        if self.task.address is None:
            return None
        return {"library_version": version(), "entry": self.entry}

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Return the reward of the library's scorer for the answer.

        Raises:
            VerifierError: The gold answer cannot be scored either, or the record does not say what
                was asked.
            VerifierTimeoutError: The scorer took too long.

        """
        require()
        task = cls.parse_task(rollout.task)
        entry = task.entry or _recorded(rollout)
        if entry is None:
            if rollout.responses:
                raise VerifierError("the record has no final_state, which says what was asked")
            return Score(0.0, details={"reason": "no_answer"})
        answer = extracted(rollout.output_text)
        try:
            reward = (await _outcome(context, answer, entry, task.address)).reward
            reason = _reason(reward)
        except VerifierTimeoutError:
            raise
        except VerifierError:
            reward, reason = None, "too_large"
        if reward is None:
            gold = await _outcome(context, gold_in(entry), entry, task.address)
            if gold.reward is None:
                raise VerifierError(
                    f"reasoning-gym cannot score the gold answer of this task: {gold.fault}"
                )
        return Score(reward or 0.0, answer=answer[:MAX_ANSWER], details={"reason": reason})

    async def oracle(self, rollout: Rollout) -> Message | None:
        """Return the gold answer; None where an entry has neither one nor an example of one."""
        assert self.entry is not None
        gold = gold_in(self.entry)
        if gold is None:
            return None
        return Message(role="assistant", content=f"<answer>{gold}</answer>")

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Write addresses in turn of every series, each of them from easy to hard."""
        yield from load_generator("reasoning_gym").generate(rng, num)


def extracted(text: str) -> str:
    """Find the answer in a text; linear in its length, which the source's patterns are not."""
    *closed, _ = text.split("</answer>")
    for piece in reversed(closed):
        _, tag, inner = piece.partition("<answer>")
        if tag:
            return inner.strip()
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


def _recorded(rollout: Rollout) -> JSONObject | None:
    """Return the entry that a record keeps."""
    state = rollout.final_state
    entry = state.get("entry") if isinstance(state, dict) else None
    return entry if isinstance(entry, dict) else None


def _reason(reward: float | None) -> str:
    if reward is None:
        return "unreadable"
    return "right" if reward >= 1.0 else "partly_right" if reward > 0.0 else "wrong"
