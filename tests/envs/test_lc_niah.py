"""The environment lc_niah: how nodes are read, the penalty for copies, and the graphs."""

import asyncio
import difflib
import math
import re
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gymcli.envs.lc_niah import (
    MAX_AT_ONCE,
    MAX_COMPARED,
    OVERLAP_TIMEOUT,
    GraphSearch,
    longest_common,
    ngram16,
    normalized,
    overlaps,
    seq_match,
)
from gymcli.types import Message, Rollout
from tests.envs.episodes import answered, played, scored, task_row

PROMPT = "The edges:\nabcd -> efgh\nefgh -> ijkl\nWhich nodes are the parents of efgh?"
WORDS = " ".join(f"word{n}" for n in range(40))


def task(*nodes):
    return {"expected_answer": msgspec.json.encode(nodes).decode()}


def thought(reasoning, text="Final Answer: [abcd]", *, prompt=(PROMPT,), nodes=("abcd",)):
    """Return a record in which the model thought these pieces, one message each, and answered."""
    pieces = [reasoning] if isinstance(reasoning, str) else reasoning
    said = [Message(role="assistant", reasoning=piece) for piece in pieces]
    said.append(Message(role="assistant", content=text))
    asked = [Message(role="user", content=part) for part in prompt]
    return Rollout(
        env="lc_niah",
        task=task(*nodes),
        messages=[*asked, *said],
        num_prompt_messages=len(asked),
    )


def rows(num=60, seed=0):
    return list(GraphSearch.generate(Random(seed), num))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        pytest.param("Final Answer: [a, b]", "[a, b]", id="names"),
        pytest.param("Final Answer: [b,a]", "[a, b]", id="any order"),
        pytest.param("I think.\nFinal Answer: [a]\n \n\t\n", "[a]", id="last line with text"),
        pytest.param("Final Answer: [a]\nFinal Answer: [b]", "[b]", id="two lines"),
        pytest.param("Final Answer: [a]\nThat is it.", None, id="not the last line"),
        pytest.param("Final Answer: ['a', \"b\"]", "[a, b]", id="quotes"),
        pytest.param("Final Answer: [ a ,, 'b ' , ]", "[a, b]", id="space and gaps"),
        pytest.param("Final Answer: [a, a]", "[a]", id="twice"),
        pytest.param("So, **Final Answer: [a]** I hope", "[a]", id="text around it"),
        pytest.param("Final Answer:[a]", "[a]", id="no space"),
        pytest.param("Final Answer:\t  [a]", "[a]", id="more space"),
        pytest.param("Final Answer: [a], [b]", "[[b, a]]", id="to the last bracket"),
        pytest.param("Final Answer: none. Final Answer: [a]", "[a]", id="the heading that opens"),
        pytest.param("Final Answer: []", "[]", id="empty"),
        pytest.param("Final Answer: [ , ]", "[]", id="only commas"),
        pytest.param("final answer: [a]", None, id="small letters"),
        pytest.param("Final Answer: a", None, id="no brackets"),
        pytest.param("Final Answer: [a", None, id="not closed"),
        pytest.param("] Final Answer: [a", None, id="closed before"),
        pytest.param("Final Answer:\n[a]", None, id="two lines for one"),
        pytest.param("[a]", None, id="no heading"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_verify_reads_the_last_line(text, answer):
    assert scored(answered("lc_niah", task("a"), text)).answer == answer


@pytest.mark.parametrize(
    ("expected", "text", "answer_score", "reason"),
    [
        pytest.param(["a", "b"], "Final Answer: [b, a]", 1.0, "correct", id="all"),
        pytest.param(["a", "b"], "Final Answer: [a, c]", 0.5, "partly_correct", id="half"),
        pytest.param(["a", "b", "c"], "Final Answer: [a]", 0.5, "partly_correct", id="too few"),
        pytest.param(["a"], "Final Answer: [a, b, c]", 0.5, "partly_correct", id="too many"),
        pytest.param(["a"], "Final Answer: [A]", 0.0, "wrong", id="case counts"),
        pytest.param(["a"], "Final Answer: []", 0.0, "wrong", id="empty, and should not be"),
        pytest.param([], "Final Answer: [a]", 0.0, "wrong", id="not empty, and should be"),
        pytest.param([], "Final Answer: []", 1.0, "correct", id="both empty"),
        pytest.param([], "", 0.0, "no_answer", id="silence is not empty"),
        pytest.param([], "There are none.", 0.0, "no_answer", id="no format, both empty"),
        pytest.param(["a"], "a", 0.0, "no_answer", id="no format"),
    ],
)
def test_verify_gives_the_f1_of_both_sets(expected, text, answer_score, reason):
    rollout = scored(answered("lc_niah", task(*expected), text))

    assert rollout.reward == answer_score
    assert rollout.components == {"answer_score": answer_score}
    assert rollout.metrics == {"overlap_lcs": 0.0, "overlap_ngram16": 0.0}
    assert rollout.details == {"reason": reason, "expected": expected}


def test_verify_reads_the_text_of_all_messages_as_one():
    assert scored(answered("lc_niah", task("ab"), "Final Answer: [a", "b]")).reward == 1.0


@pytest.mark.parametrize(
    ("penalty", "mode", "reward"),
    [
        (None, None, 1 - 10 / 20),
        ("lcs", "base", 1.0),
        ("lcs", "multiply", 0.5),
        ("lcs", "minus", 0.5),
        ("ngram16", "base", 1.0),
        ("ngram16", "multiply", 1 - 10 / 20),
        ("ngram16", "minus", 1 - 10 / 20),
    ],
)
def test_verify_takes_what_was_copied_from_the_reward(penalty, mode, reward):
    """25 of 35 words are copied: 10 of 20 16-grams, and half of the characters."""
    copied = " ".join(WORDS.split()[:25])
    own = " ".join(["z"] * 9 + ["y" * (len(copied) - 20)])
    options = {"penalty": penalty, "reward_mode": mode} if penalty else {}
    rollout = scored(thought(f"{copied} {own}", prompt=[WORDS]), **options)

    assert rollout.metrics["overlap_ngram16"] == 10 / 20
    assert rollout.metrics["overlap_lcs"] == pytest.approx(0.5, abs=0.01)
    assert rollout.reward == pytest.approx(reward, abs=0.01)
    assert rollout.components == {"answer_score": 1.0}
    assert "overlap_seq_match" not in rollout.metrics


@pytest.mark.parametrize(
    ("mode", "right", "wrong"), [("base", 1.0, 0.0), ("multiply", 0.0, 0.0), ("minus", 0.0, -1.0)]
)
@pytest.mark.parametrize("penalty", ["lcs", "ngram16", "seq_match"])
def test_verify_scores_reasoning_that_is_the_prompt(penalty, mode, right, wrong):
    """The reward of mode `minus` may be negative, as in the reference."""
    for text, reward in (("Final Answer: [abcd]", right), ("Final Answer: [x]", wrong)):
        rollout = thought(WORDS, text, prompt=[WORDS])
        assert scored(rollout, penalty=penalty, reward_mode=mode).reward == reward


@pytest.mark.parametrize("penalty", ["lcs", "ngram16", "seq_match"])
@pytest.mark.parametrize("reasoning", [[], "", " \n "])
def test_verify_takes_nothing_where_there_is_no_reasoning(penalty, reasoning):
    rollout = scored(thought(reasoning), penalty=penalty, reward_mode="minus")

    assert rollout.reward == 1.0
    assert rollout.metrics[f"overlap_{penalty}"] == 0.0


def test_verify_joins_all_reasoning_and_the_whole_prompt():
    rollout = scored(thought(["ab", "cd -> e"], prompt=["xx ab", "CD  ->\te yy"]))

    assert rollout.metrics["overlap_lcs"] == 1.0
    assert scored(thought(["ab", "cd"], prompt=["abcd"])).metrics["overlap_lcs"] == 2 / 5


def test_verify_does_not_look_for_copies_in_the_answer():
    rollout = scored(thought([], f"{PROMPT}\nFinal Answer: [abcd]"))

    assert rollout.reward == 1.0


def test_verify_gives_difflibs_ratio_where_it_is_the_penalty():
    reasoning = "A partially overlapping thought, in words of its own."
    source = "A partially overlapping prompt, with other words."
    rollout = scored(thought(reasoning, prompt=[source]), penalty="seq_match")

    ratio = difflib.SequenceMatcher(None, reasoning.lower(), source.lower()).ratio()
    assert rollout.metrics["overlap_seq_match"] == ratio
    assert rollout.reward == 1.0 - ratio


class Counting:
    """A context that calls functions in this process and records their time limits."""

    roles = {}

    def __init__(self, penalty):
        self.options = GraphSearch.Options(penalty=penalty)
        self.timeouts = []

    async def isolated(self, function, *args, timeout=10.0, memory_mb=1024):
        self.timeouts.append(timeout)
        return function(*args)


@pytest.mark.parametrize(
    ("penalty", "length", "num_calls"),
    [
        ("lcs", MAX_AT_ONCE - len(PROMPT) - 1, 0),
        ("lcs", MAX_AT_ONCE - len(PROMPT), 1),
        ("ngram16", MAX_AT_ONCE - len(PROMPT) - 1, 0),
        ("ngram16", MAX_AT_ONCE - len(PROMPT), 1),
        ("seq_match", 1, 1),
    ],
)
def test_verify_compares_long_texts_in_a_worker(penalty, length, num_calls):
    """In this process they would hold up other episodes; line breaks between messages count."""
    context, rollout = Counting(penalty), thought("z" * length)

    found = asyncio.run(GraphSearch.verify(rollout, context))
    assert context.timeouts == [OVERLAP_TIMEOUT] * num_calls
    assert found.reward == 1.0
    assert set(found.metrics) == {"overlap_lcs", "overlap_ngram16", f"overlap_{penalty}"}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("Final Answer: [" * 50_000, id="headings"),
        pytest.param("Final Answer:" + " " * 300_000, id="spaces"),
        pytest.param("\n" * 300_000 + "[" * 100_000, id="lines"),
        pytest.param("Final Answer: [" + "b," * 200_000 + "'" * 200_000 + "]", id="names"),
    ],
)
def test_verify_scores_hostile_answers(text):
    rollout = scored(answered("lc_niah", task("a"), text))

    assert rollout.reward == 0.0
    assert len(rollout.answer or "") <= 1000


@pytest.mark.parametrize("reasoning", ["a" * 40_000, "ab" * 20_000, "\x00\U0001f600 " * 10_000])
def test_verify_scores_hostile_reasoning(reasoning):
    rollout = scored(thought(reasoning), reward_mode="minus")

    assert math.isfinite(rollout.reward)
    assert all(0.0 <= overlap <= 1.0 for overlap in rollout.metrics.values())


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        pytest.param("a, b", "JSON list of names", id="no JSON"),
        pytest.param("", "JSON list of names", id="nothing"),
        pytest.param('{"a": 1}', "JSON list of names", id="an object"),
        pytest.param("[1, 2]", "JSON list of names", id="numbers"),
        pytest.param('["a,b"]', "cannot be read", id="a comma"),
        pytest.param("[\"'a'\"]", "cannot be read", id="quotes"),
        pytest.param('["a "]', "cannot be read", id="space"),
        pytest.param('["a\\nb"]', "cannot be read", id="a line break"),
        pytest.param('["a", ""]', "cannot be read", id="no name"),
        pytest.param(["a"], "valid string", id="no text"),
    ],
)
def test_parse_task_refuses_an_answer_that_nobody_can_give(expected, words):
    with pytest.raises(ValidationError, match=words):
        GraphSearch.parse_task({"expected_answer": expected})


def test_parse_task_reads_rows_of_the_reference():
    fields = task("x1", "y2") | {
        "problem_type": "bfs",
        "n_tokens": 1200,
        "question": "Which?",
        "source": "graphwalks",
    }

    assert GraphSearch.parse_task(fields).nodes == {"x1", "y2"}
    assert GraphSearch.parse_task({"expected_answer": "[]"}).nodes == set()


def test_oracle_gives_the_nodes_without_a_thought():
    rollout = played(task_row("lc_niah", task("b", "a")))

    assert rollout.last_text == "Final Answer: [a, b]"
    assert rollout.messages[-1].reasoning is None


def test_normalized_drops_case_and_space():
    assert normalized("  Hello \n\t WORLD\u00a0x ") == "hello world x"


@pytest.mark.parametrize(
    ("text", "source", "overlap"),
    [
        ("", "anything", 0.0),
        ("anything", "", 0.0),
        ("abcdefgh", "xx abcdefgh yy", 1.0),
        ("abcdwxyz", "qq abcd pp", 0.5),
        ("abc", "def", 0.0),
        ("abcbc", "bcbca", 0.8),
    ],
)
def test_longest_common_is_a_share_of_the_text(text, source, overlap):
    assert longest_common(text, source) == overlap


@given(st.text("ab c", max_size=30), st.text("ab d", max_size=30))
def test_longest_common_is_what_difflib_finds(text, source):
    matcher = difflib.SequenceMatcher(None, text, source, autojunk=False)
    longest = matcher.find_longest_match(0, len(text), 0, len(source)).size

    assert longest_common(text, source) == (longest / len(text) if text else 0.0)


@pytest.mark.parametrize(
    ("text", "source", "overlap"),
    [
        pytest.param("", WORDS, 0.0, id="nothing"),
        pytest.param(" ".join(WORDS.split()[:15]), WORDS, 0.0, id="15 words"),
        pytest.param(" ".join(WORDS.split()[:16]), WORDS, 1.0, id="16 words"),
        pytest.param(" ".join(WORDS.split()[:17]) + " end", WORDS, 2 / 3, id="two of three"),
        pytest.param(WORDS, " ".join(WORDS.split()[1:]), 24 / 25, id="all but one"),
        pytest.param("a " * 40, WORDS, 0.0, id="own words"),
        pytest.param("a " * 40, "a " * 16, 1.0, id="each counts once"),
    ],
)
def test_ngram16_is_a_share_of_passages(text, source, overlap):
    assert ngram16(text, source) == overlap


def test_seq_match_compares_the_beginnings():
    """Comparing everything would take hours for the texts of a long context."""
    text = "".join(Random(0).choices("abcdefghij", k=MAX_COMPARED))

    assert seq_match(text + "x" * 50_000, text + "y" * 50_000) == 1.0
    assert seq_match("", "anything") == 0.0


def test_overlaps_takes_the_measures_of_texts_as_they_are_written():
    assert overlaps("AB\tc", "xx ab  c", ["lcs", "ngram16"]) == {
        "overlap_lcs": 1.0,
        "overlap_ngram16": 0.0,
    }


def edges_of(row):
    graph = row["prompt"].partition("The graph:\n")[2].rpartition("\n\n")[0]
    return [tuple(line.split(" -> ")) for line in graph.split("\n")]


def distances(edges, start):
    """Return the distance of every node that can be reached."""
    found, waiting = {start: 0}, [start]
    for node in waiting:
        for end in (end for begin, end in edges if begin == node and end not in found):
            found[end] = found[node] + 1
            waiting.append(end)
    return found


def test_generate_gives_answers_that_hold():
    for row in rows(90, seed=3):
        edges = edges_of(row)
        *_, node = re.findall(r"\w+", row["question"])
        if row["problem_type"] == "parents":
            wanted = {start for start, end in edges if end == node}
        else:
            depth = int(re.search(r"exactly (\d)", row["question"])[1])
            wanted = {n for n, distance in distances(edges, node).items() if distance == depth}
        assert msgspec.json.decode(row["expected_answer"]) == sorted(wanted)


def test_generate_draws_graphs_of_different_edges():
    for row in rows():
        edges = edges_of(row)
        assert len(set(edges)) == len(edges) == row["num_edges"]
        assert all(start != end for start, end in edges)
        assert row["question"] in row["prompt"]


def test_generate_mixes_questions_and_grows_with_difficulty():
    shipped = rows()
    empty = [row for row in shipped if row["expected_answer"] == "[]"]

    for difficulty, num_edges, shortest, longest in (
        ("easy", 20, 1_000, 1_300),
        ("medium", 150, 3_000, 4_000),
        ("hard", 700, 12_000, 16_000),
    ):
        found = [row for row in shipped if row["difficulty"] == difficulty]
        assert {row["num_edges"] for row in found} == {num_edges}
        assert all(shortest <= len(row["prompt"]) <= longest for row in found)
    assert [row["problem_type"] for row in shipped].count("bfs") == 30
    assert len(empty) == 6
    assert {row["problem_type"] for row in empty} == {"parents", "bfs"}
    assert len({row["prompt"] for row in rows(200, seed=1)}) == 200


def test_generate_asks_so_that_an_echo_is_no_answer():
    for row in rows():
        assert scored(answered("lc_niah", row, row["prompt"])).answer is None


def test_oracle_is_right_in_every_shipped_task():
    for row in rows(21, seed=8):
        environment = GraphSearch(GraphSearch.parse_task(row))
        message = asyncio.run(environment.oracle(Rollout()))
        assert scored(answered("lc_niah", row, message.text)).reward == 1.0
