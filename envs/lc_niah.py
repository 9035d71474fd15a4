r"""Asks about a graph in a long prompt; reasoning that copies the prompt costs reward.

Source: the resources server lc_niah of NVIDIA NeMo Gym 0.7 (Apache-2.0), reimplemented
independently. The answer is in the last line that is not empty: the text between the first "Final
Answer: [" and the last closing bracket, split at commas, without quotes around the names. Its score
is the F1 of its set of names and the expected one; 1 if both are empty, 0 without such a line. All
reasoning of the model is compared with its whole prompt. Kept from the reference: the line may have
other text, a name may occur twice, and `minus` leads to rewards below 0. Differences from the
reference:

- The overlaps `lcs` and `ngram16` are always recorded, `seq_match` only if it is the penalty: it is
  slow on long texts, and compares only the first 10,000 characters of each.
- The reasoning of several messages is joined by line breaks, so that no two words become one.
- An expected answer that is not a JSON list of names is refused; the reference takes it for an
  empty one. So is a name that no answer can have: one with a comma, or with quotes or space around
  it.

One row:
{"id": "niah-0", "difficulty": "easy", "prompt": "...\nbesavo -> dizule\nmatiko -> dizule\n\nWhich
nodes are the parents of dizule?", "expected_answer": "[\"besavo\",\"matiko\"]", "problem_type":
"parents", "question": "Which nodes are the parents of dizule?", "num_edges": 2}
"""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Literal

import msgspec
from pydantic import field_validator

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

__all__ = [
    "MAX_COMPARED",
    "GraphQuestion",
    "GraphSearch",
    "Measure",
    "longest_common",
    "ngram16",
    "normalized",
    "overlaps",
    "seq_match",
]

RewardMode = Literal["base", "multiply", "minus"]

MAX_ANSWER = 1000
"""Characters of the answer that the record keeps."""
MAX_AT_ONCE = 20_000
"""Characters of reasoning and prompt that are compared on the event loop, which takes some 50 ms.
Longer texts, and all of `seq_match`, go to a worker, so that other episodes continue."""
OVERLAP_TIMEOUT = 120.0
"""Seconds: several times what a million characters take, so that no attempt is left unscored."""

FINAL_LINE = "Final Answer: {}"
HEADING = re.compile(r"Final Answer:\s*\[")


class GraphQuestion(Task):
    """The nodes to find; other fields, such as `problem_type` and `n_tokens`, are not used."""

    expected_answer: str
    """A JSON list of nodes, as text."""

    @field_validator("expected_answer")
    @classmethod
    def _can_be_given(cls, text: str) -> str:
        # A name with a comma, say, would leave even the right answer below 1.
        nodes = _expected(text)
        if _answered(FINAL_LINE.format(_written(nodes))) != nodes:
            raise ValueError("it has a name that cannot be read from an answer")
        return text

    @property
    def nodes(self) -> set[str]:
        """The nodes of the answer."""
        return _expected(self.expected_answer)


Measure = Literal["ngram16", "lcs", "seq_match"]


class GraphSearch(Environment[GraphQuestion]):
    """Find nodes in a graph of many edges, without copying the graph while thinking."""

    properties = Properties(
        "single-step", "information relevance", "graphs", "set of names", "F1, less what is copied"
    )
    version = "2"
    waits_to_verify = True

    class Options(EnvironmentOptions):
        """How copying lowers the reward."""

        penalty: Measure = "ngram16"
        """The measure of overlap: the share of the reasoning's passages of 16 words that are
        copied, the longest copied piece as a share of the reasoning (the default until NeMo Gym
        0.5), or difflib's ratio."""
        reward_mode: RewardMode = "multiply"
        """The reward: the answer's score, the score times (1 - overlap), or the score minus the
        overlap."""

    options: Options

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward the F1 of the answer, less a penalty for reasoning copied from the prompt."""
        options = cls.options_of(context)
        expected = cls.parse_task(rollout.task).nodes
        nodes = _answered(rollout.output_text)
        answer_score = _f1(nodes, expected)
        measured = await _overlaps(rollout, options.penalty, context)
        penalty = measured[f"overlap_{options.penalty}"]
        reward = REWARDS[options.reward_mode](answer_score, penalty)
        return Score(
            reward,
            components={"answer_score": answer_score},
            metrics=measured,
            answer=None if nodes is None else _written(nodes)[:MAX_ANSWER],
            details={"reason": _reason(nodes, expected), "expected": sorted(expected)},
        )

    async def oracle(self, rollout: Rollout) -> Message:
        """Return the nodes, without reasoning."""
        line = FINAL_LINE.format(_written(self.task.nodes))
        return Message(role="assistant", content=line)

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Write graphs of random names with both kinds of questions; one in seven has no nodes."""
        yield from load_generator("lc_niah").generate(rng, num)


REWARDS: Mapping[RewardMode, Callable[[float, float], float]] = {
    "base": lambda answer_score, overlap: answer_score,
    "multiply": lambda answer_score, overlap: answer_score * (1.0 - overlap),
    "minus": lambda answer_score, overlap: answer_score - overlap,
}


async def _overlaps(rollout: Rollout, penalty: Measure, context: Context) -> dict[str, float]:
    """Measure how much of the reasoning was copied from the prompt."""
    prompt = rollout.messages[: rollout.num_prompt_messages]
    source = "\n".join(message.text for message in prompt)
    reasoning = "\n".join(message.reasoning or "" for message in rollout.responses)
    measures = list(dict.fromkeys(("lcs", "ngram16", penalty)))
    if penalty != "seq_match" and len(reasoning) + len(source) <= MAX_AT_ONCE:
        return overlaps(reasoning, source, measures)
    return await context.isolated(overlaps, reasoning, source, measures, timeout=OVERLAP_TIMEOUT)


def _expected(text: str) -> set[str]:
    """Read a JSON list of names.

    Raises:
        ValueError: The text is not one.

    """
    try:
        return set(msgspec.json.decode(text, type=list[str]))
    except msgspec.DecodeError as error:
        raise ValueError("it must be a JSON list of names, as text") from error


def _answered(text: str) -> set[str] | None:
    """Read the names in the last line; None if it has no final answer."""
    line = text.rstrip().rpartition("\n")[2]
    heading = HEADING.search(line)
    end = line.rfind("]")
    if heading is None or end < heading.end():
        return None
    names = line[heading.end() : end].split(",")
    return {name for text in names if (name := text.strip().strip("\"'").strip())}


def _written(nodes: Iterable[str]) -> str:
    return f"[{', '.join(sorted(nodes))}]"


def _f1(nodes: set[str] | None, expected: set[str]) -> float:
    if nodes is None:
        return 0.0
    num_nodes = len(nodes) + len(expected)
    return 2 * len(nodes & expected) / num_nodes if num_nodes else 1.0


def _reason(nodes: set[str] | None, expected: set[str]) -> str:
    if nodes is None:
        return "no_answer"
    if nodes == expected:
        return "correct"
    return "partly_correct" if nodes & expected else "wrong"


# Three measures, from 0 to 1, of how much of a text was copied from another. They take normalized
# texts; a text without words has copied nothing.

MAX_COMPARED = 10_000
"""The number of leading characters of each text that `seq_match` compares. Its time can grow with
the third power of their length: 10,000 take up to ten seconds."""

NGRAM = 16


def overlaps(text: str, source: str, measures: Sequence[Measure]) -> dict[str, float]:
    """Return several measures of two texts, which need not be normalized."""
    text, source = normalized(text), normalized(source)
    return {f"overlap_{measure}": MEASURES[measure](text, source) for measure in measures}


def normalized(text: str) -> str:
    """Return a text in lower case, with one space between words."""
    return " ".join(text.lower().split())


def longest_common(text: str, source: str) -> float:
    """Return the length of the longest common substring as a share of the text's length."""
    return _longest_length(text, source) / len(text) if text else 0.0


def ngram16(text: str, source: str) -> float:
    """Return the share of the text's distinct passages of 16 words that the source has."""
    own, others = _passages(text), _passages(source)
    return len(own & others) / len(own) if own else 0.0


def seq_match(text: str, source: str) -> float:
    """Return difflib's ratio of the first `MAX_COMPARED` characters of both texts."""
    if not text:
        return 0.0
    # `autojunk` stays on, as in the reference: in a source of 200 characters or more, difflib
    # starts no match at a character that makes up more than one in a hundred.
    return difflib.SequenceMatcher(None, text[:MAX_COMPARED], source[:MAX_COMPARED]).ratio()


MEASURES: Mapping[Measure, Callable[[str, str], float]] = {
    "lcs": longest_common,
    "seq_match": seq_match,
    "ngram16": ngram16,
}


def _passages(text: str) -> set[tuple[str, ...]]:
    words = text.split()
    return {tuple(words[start : start + NGRAM]) for start in range(len(words) - NGRAM + 1)}


def _longest_length(first: str, second: str) -> int:
    """Return the length of the longest common substring."""
    # A suffix automaton is linear in both lengths; the usual table grows with their product.
    automaton = _SuffixAutomaton(min(first, second, key=len))
    state = length = longest = 0
    for character in max(second, first, key=len):
        while state and character not in automaton.moves[state]:
            state = automaton.links[state]
            length = automaton.lengths[state]
        if character in automaton.moves[state]:
            state = automaton.moves[state][character]
            length += 1
        longest = max(longest, length)
    return longest


class _SuffixAutomaton:
    """Accepts exactly the substrings of a text, from state 0 (Blumer et al. 1985)."""

    def __init__(self, text: str) -> None:
        self.moves: list[dict[str, int]] = [{}]
        self.links = [-1]
        """For each state, the state of its longest suffix that is in another state."""
        self.lengths = [0]
        """For each state, the length of the longest substring that leads to it."""
        whole = 0
        for character in text:
            whole = self._extended(whole, character)

    def _extended(self, whole: int, character: str) -> int:
        """Append a character; `whole` is the state of the whole text so far."""
        new = self._added({}, 0, self.lengths[whole] + 1)
        state = whole
        while state != -1 and character not in self.moves[state]:
            self.moves[state][character] = new
            state = self.links[state]
        if state != -1:
            self.links[new] = self._suffix(state, character)
        return new

    def _suffix(self, state: int, character: str) -> int:
        """Return the state that a move leads to, split off if longer substrings share it."""
        target = self.moves[state][character]
        length = self.lengths[state] + 1
        if self.lengths[target] == length:
            return target
        split = self._added(dict(self.moves[target]), self.links[target], length)
        self.links[target] = split
        while state != -1 and self.moves[state].get(character) == target:
            self.moves[state][character] = split
            state = self.links[state]
        return split

    def _added(self, moves: dict[str, int], link: int, length: int) -> int:
        self.moves.append(moves)
        self.links.append(link)
        self.lengths.append(length)
        return len(self.moves) - 1
