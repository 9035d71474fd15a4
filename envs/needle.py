r"""Asks for facts hidden in a long text, and for words that are frequent in it.

Source: RULER (arXiv 2404.06654) of NVIDIA/RULER (Apache-2.0), as the resources server ruler of
NVIDIA NeMo Gym 0.7 (Apache-2.0) scores it, reimplemented independently. The reward is the share of
the expected texts that the answer contains, ignoring case; in the subsets `qa_1` and `qa_2` it is 1
if the answer contains any of them. Leniency kept from the reference: an expected text is also found
inside a word or a longer number, and an answer that repeats the whole prompt has the top reward.
Differences from the reference:

- A row without expected texts is refused, and so is an empty one, which every answer contains.
- The generated tasks have RULER's eleven synthetic subsets, but other texts, words and prompts; the
  README of their data set says which. Its two subsets of questions about documents are left out:
  they need other data sets.

One row:
{"id": "needle-0", "difficulty": "easy", "prompt": "...\nA secret number of silver-harbor is
4715208.\n...\nWhat is the secret number of silver-harbor?", "outputs": ["4715208"],
"length": 1024, "subset": "niah_single_1"}
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Annotated

from pydantic import Field

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

__all__ = ["HiddenFacts", "NeedleRecall"]

ONE_IS_ENOUGH = ("qa_1", "qa_2")
"""Subsets whose expected texts are several forms of one answer."""


class HiddenFacts(Task):
    """The texts that an answer should contain; `length` and other fields are not used."""

    outputs: list[Annotated[str, Field(min_length=1)]] = Field(min_length=1)
    """The expected texts."""
    subset: str = ""
    """The kind of task, by RULER's name."""


class NeedleRecall(Environment[HiddenFacts]):
    """Find hidden facts in a long text, follow variables, and name its most frequent words."""

    properties = Properties("single-step", "long context", "synthetic texts", "recall", "recall")
    skipped_checks = {
        "echo": "an answer that repeats the whole text contains what is asked for",
        "leaks": "the answers are hidden in the text of the prompt",
    }

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward the share of the expected texts that the answer contains."""
        task = cls.parse_task(rollout.task)
        answer = rollout.output_text.lower()
        found = [text for text in task.outputs if text.lower() in answer]
        reward = len(found) / len(task.outputs)
        if task.subset in ONE_IS_ENOUGH:
            reward = float(bool(found))
        reason = "correct" if reward == 1 else "partly_correct" if found else "wrong"
        return Score(
            reward,
            answer=", ".join(found) or None,
            details={
                "reason": reason if answer.strip() else "no_answer",
                "expected": list(task.outputs),
                "missing": [text for text in task.outputs if text not in found],
            },
        )

    async def oracle(self, rollout: Rollout) -> Message:
        """Return the expected texts."""
        return Message(role="assistant", content=", ".join(self.task.outputs))

    @classmethod
    def generate(
        cls, rng: Random, num: int, *, lengths: Sequence[int] = (1024, 2048, 4096)
    ) -> Iterator[JSONObject]:
        """Write texts of about these lengths in tokens, cycling through subsets and lengths."""
        yield from load_generator("needle").generate(rng, num, lengths=lengths)
