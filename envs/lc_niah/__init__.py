r"""Asks about a graph in a long prompt; reasoning that copies the prompt costs reward.

Source: the resources server lc_niah of NVIDIA NeMo Gym (Apache-2.0), its rules written anew. The
last line that is not empty has "Final Answer: [...]" in it; what stands between the first such
bracket and the last closing one is split at commas, and quotes around a name are taken off. The
answer's score is the F1 of both sets, 1 where both are empty, and 0 without such a line. The
reasoning is all that the model thought, the input its whole prompt. Kept: other text may stand in
the line, a name may stand twice, and `minus` gives rewards below 0. Where this differs:

- The overlaps `lcs` and `ngram16` are always given, `seq_match` where it is the penalty, since it
  is slow on long texts; it compares the first 10,000 characters of each.
- The reasoning of several messages is joined by line breaks, so that no two words become one.
- An expected answer that is no JSON list of names is refused; there it was an empty one. So is a
  name that no answer can have: with a comma, or with quotes or space around it.

One row:
{"id": "niah-0", "difficulty": "easy", "prompt": "...\nbesavo -> dizule\nmatiko -> dizule\n\nWhich
nodes are the parents of dizule?", "expected_answer": "[\"besavo\",\"matiko\"]", "problem_type":
"parents", "question": "Which nodes are the parents of dizule?", "num_edges": 2}
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
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

from .graphs import PROBLEM_TYPES, SIZES, problem
from .overlaps import Measure, overlaps

__all__ = ["GraphQuestion", "GraphSearch"]

RewardMode = Literal["base", "multiply", "minus"]

MAX_ANSWER = 1000
"""Characters of an answer that are kept."""
MAX_AT_ONCE = 20_000
"""Characters of reasoning and prompt that are compared at once, some 50 ms; more of them, and all
for `seq_match`, are compared in a worker, so that other episodes go on."""
OVERLAP_TIMEOUT = 120.0
"""Seconds: several times what a million characters take, so that none are left unscored."""

FINAL_LINE = "Final Answer: {}"
HEADING = re.compile(r"Final Answer:\s*\[")

PROMPT = """You are given a directed graph, one edge in each line: `a -> b` leads from a to b. The \
parents of a node are the nodes from which an edge leads to it. The distance from one node to \
another is the least number of edges that lead there, one after the other.

For example, in the graph
oak -> elm
elm -> fir
oak -> fir
fir -> yew
the parents of fir are elm and oak. At a distance of exactly 2 from oak there is yew and nothing \
else: fir can be reached by two edges, but also by one.

Look for the edges that matter, and do not copy out the others. End your reply with a line like
Final Answer: [first, second]
which has the names of all nodes that are asked for, in any order. Where there are none, leave the \
brackets empty.

The graph:
{edges}

{question}"""


class GraphQuestion(Task):
    """What is to be found; other fields, such as `problem_type` and `n_tokens`, are not needed."""

    expected_answer: str
    """A JSON list of nodes, as text."""

    @field_validator("expected_answer")
    @classmethod
    def _can_be_given(cls, text: str) -> str:
        nodes = _expected(text)
        if _answered(FINAL_LINE.format(_written(nodes))) != nodes:
            raise ValueError("it has a name that cannot be read from an answer")
        return text

    @property
    def nodes(self) -> set[str]:
        """The nodes of the answer."""
        return _expected(self.expected_answer)


class GraphSearch(Environment[GraphQuestion]):
    """Find nodes in a graph of many edges, without copying the graph while thinking."""

    properties = Properties(
        "single-step", "information relevance", "graphs", "set of names", "F1, less what is copied"
    )
    waits_to_verify = True

    class Options(EnvironmentOptions):
        """What copying costs."""

        penalty: Measure = "lcs"
        """The overlap of reasoning and prompt that counts: the share of the reasoning that is its
        longest copied piece, difflib's ratio, or the share of copied passages of 16 words."""
        reward_mode: RewardMode = "multiply"
        """The reward: the answer's score, that score times what the overlap leaves of 1, or the
        score minus the overlap."""

    options: Options

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward the F1 of the answer, less what the reasoning copied from the prompt."""
        assert isinstance(context.options, cls.Options)
        penalty = context.options.penalty
        expected = cls.parse_task(rollout.task).nodes
        nodes = _answered(rollout.output_text)
        answer_score = _f1(nodes, expected)
        measured = await _overlaps(rollout, penalty, context)
        reward = REWARDS[context.options.reward_mode](answer_score, measured[f"overlap_{penalty}"])
        return Score(
            reward,
            components={"answer_score": answer_score},
            metrics=measured,
            answer=None if nodes is None else _written(nodes)[:MAX_ANSWER],
            details={"reason": _reason(nodes, expected), "expected_answer": sorted(expected)},
        )

    async def oracle(self, rollout: Rollout) -> Message:
        """Give the nodes, without a thought."""
        line = FINAL_LINE.format(_written(self.task.nodes))
        return Message(role="assistant", content=line)

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Write graphs of random names with both kinds of questions, one in seven without nodes."""
        for number in range(num):
            block, place = divmod(number, len(SIZES))
            difficulty = list(SIZES)[place]
            kind = PROBLEM_TYPES[block % len(PROBLEM_TYPES)]
            made = problem(rng, difficulty, kind, is_empty=block % 7 == 6)
            edges = "\n".join(f"{start} -> {end}" for start, end in made.edges)
            yield {
                "id": f"niah-{number}",
                "difficulty": difficulty,
                "prompt": PROMPT.format(edges=edges, question=made.question),
                "expected_answer": msgspec.json.encode(made.nodes).decode(),
                "problem_type": kind,
                "question": made.question,
                "num_edges": len(made.edges),
            }


REWARDS: Mapping[RewardMode, Callable[[float, float], float]] = {
    "base": lambda answer_score, overlap: answer_score,
    "multiply": lambda answer_score, overlap: answer_score * (1.0 - overlap),
    "minus": lambda answer_score, overlap: answer_score - overlap,
}


async def _overlaps(rollout: Rollout, penalty: Measure, context: Context) -> dict[str, float]:
    """Measure what the reasoning copied from the prompt."""
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
        ValueError: It is none.

    """
    try:
        return set(msgspec.json.decode(text, type=list[str]))
    except msgspec.DecodeError as error:
        raise ValueError("it has to be a JSON list of names, as text") from error


def _answered(text: str) -> set[str] | None:
    """Read the names in the last line; None where it has no final answer."""
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
        return "no_final_answer"
    if nodes == expected:
        return "correct"
    return "partly_correct" if nodes & expected else "wrong"
