"""Generates random directed graphs and questions about them."""

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Literal, NamedTuple

import msgspec

from gymcli import JSONObject


def generate(rng: Random, num: int) -> Iterator[JSONObject]:
    """Yield graphs with both kinds of questions; one block in seven has empty answers."""
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


ProblemType = Literal["parents", "bfs"]
PROBLEM_TYPES: tuple[ProblemType, ...] = ("parents", "bfs")
Edge = tuple[str, str]


class Size(NamedTuple):
    """The size of a graph, and the depth of a search."""

    num_nodes: int
    num_edges: int
    depth: int


class Problem(NamedTuple):
    """A graph, a question, and its answer."""

    edges: list[Edge]
    question: str
    nodes: list[str]
    """The answer, sorted."""


SIZES: Mapping[str, Size] = {
    "easy": Size(14, 20, 1),
    "medium": Size(80, 150, 2),
    "hard": Size(350, 700, 3),
}
MAX_NODES = 8
"""Maximum nodes of an answer."""
CONSONANTS, VOWELS, HEX_DIGITS = "bdfgklmnprstvz", "aeiou", "0123456789abcdef"


def problem(rng: Random, difficulty: str, kind: ProblemType, *, is_empty: bool) -> Problem:
    """Draw a problem, with an empty answer if `is_empty`."""
    size = SIZES[difficulty]
    while True:
        edges = _edges(rng, size)
        found = ANSWERS[kind](edges, size.depth)
        fits = [
            node
            for node, answer in found.items()
            if (not answer if is_empty else 0 < len(answer) <= MAX_NODES)
        ]
        if fits:
            node = rng.choice(fits)
            question = QUESTIONS[kind].format(node=node, depth=size.depth)
            return Problem(edges, question, sorted(found[node]))


def _edges(rng: Random, size: Size) -> list[Edge]:
    """Draw different edges, none from a node to itself."""
    name = rng.choice((_syllables, _hex))
    # Dictionaries, not sets: their order, and so the tasks, depends only on `rng`.
    names: dict[str, None] = {}
    while len(names) < size.num_nodes:
        names[name(rng)] = None
    nodes = list(names)
    edges: dict[Edge, None] = {}
    while len(edges) < size.num_edges:
        start, end = rng.sample(nodes, 2)
        edges[start, end] = None
    return list(edges)


def _syllables(rng: Random) -> str:
    return "".join(rng.choice(CONSONANTS) + rng.choice(VOWELS) for _ in range(3))


def _hex(rng: Random) -> str:
    return "".join(rng.choice(HEX_DIGITS) for _ in range(8))


def _parents(edges: list[Edge], depth: int) -> dict[str, set[str]]:
    return _at_distance([(end, start) for start, end in edges], 1)


def _at_distance(edges: list[Edge], depth: int) -> dict[str, set[str]]:
    """Search breadth first from every node; return the nodes found in the last round."""
    ends: dict[str, set[str]] = {node: set() for edge in edges for node in edge}
    for start, end in edges:
        ends[start].add(end)
    found = {}
    for node in ends:
        seen = last = {node}
        for _ in range(depth):
            last = {end for start in last for end in ends[start]} - seen
            seen = seen | last
        found[node] = last
    return found


ANSWERS: Mapping[ProblemType, Callable[[list[Edge], int], dict[str, set[str]]]] = {
    "parents": _parents,
    "bfs": _at_distance,
}
"""Functions that return the right nodes for each node, from the edges and the search depth."""
QUESTIONS: Mapping[ProblemType, str] = {
    "parents": "Which nodes are the parents of {node}?",
    "bfs": "Which nodes are at a distance of exactly {depth} from {node}?",
}

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
