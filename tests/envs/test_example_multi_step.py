"""The environment example_multi_step: the comparison of values, the tools, and the tasks."""

from collections import Counter
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.environment.registry import shipped_tasks
from gymcli.envs import load_generator
from gymcli.envs.example_multi_step import ExampleMultiStep, value_of
from tests.envs.episodes import calls, played, says, scored, task_row

generator = load_generator("example_multi_step")

TASK = {
    "expected_synonyms": ["Blazing", "Warm"],
    "expected_synonym_values": [711, 407],
    "minefield_label": "Hot",
    "minefield_label_value": 299,
}


def hands_over(values):
    text = msgspec.json.encode({"synonym_values": values}).decode()
    return calls(("extract_synonym_values", text))


def score_of(*messages, **fields):
    row = task_row("example_multi_step", {**TASK, **fields})
    return scored(played(row, *messages, says("Done.")))


@pytest.mark.parametrize(
    ("values", "reward", "overlap", "hit", "disorder"),
    [
        pytest.param([711, 407], 1.0, 1.0, 0.0, 0.0, id="right"),
        pytest.param([711.0, 407], 1.0, 1.0, 0.0, 0.0, id="whole float equals the number"),
        pytest.param([407, 711], 0.0, 1.0, 0.0, 1.0, id="wrong order"),
        pytest.param([711, 407, 407], 0.0, 1.0, 0.0, 1.0, id="one twice"),
        pytest.param([711], 0.0, 0.5, 0.0, 0.0, id="one missing"),
        pytest.param([711, 407, 299], 0.0, 1.0, 1.0, 1.0, id="term beside them"),
        pytest.param([299], 0.0, 0.0, 1.0, 0.0, id="term alone"),
        pytest.param([], 0.0, 0.0, 0.0, 0.0, id="empty list"),
        pytest.param([711, 407, "x"], 0.0, 1.0, 0.0, 1.0, id="a text beside them"),
        pytest.param([711, "407"], 0.0, 0.5, 0.0, 0.0, id="one as text"),
        pytest.param([711, 407, [1], {"a": 1}], 0.0, 1.0, 0.0, 1.0, id="list and object"),
        pytest.param([None, 299, True], 0.0, 0.0, 1.0, 0.0, id="term among no numbers"),
        pytest.param([[711, 407]], 0.0, 0.0, 0.0, 0.0, id="list in the list"),
    ],
)
def test_verify_compares_values_in_order(values, reward, overlap, hit, disorder):
    rollout = score_of(hands_over(values))

    assert rollout.reward == reward
    assert rollout.metrics == {
        "accuracy": reward,
        "set_overlap": overlap,
        "original_term_minefield_hit": hit,
        "order_instruction_following_failure": disorder,
    }
    assert rollout.details["parsed_synonym_values"] == values


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        pytest.param("{", "arguments_not_json", id="not JSON"),
        pytest.param("", "arguments_not_json", id="no text"),
        pytest.param("[711, 407]", "no_list_of_values", id="not an object"),
        pytest.param('{"values": [711, 407]}', "no_list_of_values", id="key missing"),
        pytest.param('{"synonym_values": 711}', "no_list_of_values", id="not a list"),
        pytest.param('{"synonym_values": "711"}', "no_list_of_values", id="text for the list"),
        pytest.param('{"synonym_values": {}}', "no_list_of_values", id="object for the list"),
        pytest.param(
            f'{{"synonym_values": {"[" * 100_000}{"]" * 100_000}}}',
            "arguments_not_json",
            id="nested too deeply",
        ),
    ],
)
def test_verify_scores_bad_arguments_of_the_last_call(arguments, reason):
    """The reference fails with a server error here; the reward is 0, with a reason."""
    rollout = score_of(hands_over([711, 407]), calls(("extract_synonym_values", arguments)))

    assert (rollout.reward, rollout.details["reason"]) == (0.0, reason)
    assert rollout.metrics["set_overlap"] == 0.0


def test_verify_takes_the_last_call():
    assert score_of(hands_over([1]), hands_over([711, 407])).reward == 1.0
    assert score_of(hands_over([711, 407]), hands_over([1])).reward == 0.0


def test_verify_says_that_nothing_was_handed_over():
    rollout = score_of(calls(("get_synonym_value", '{"synonym": "Warm"}')))

    assert (rollout.reward, rollout.details["reason"]) == (0.0, "no_values")


@pytest.mark.parametrize(
    ("messages", "reward", "overlap"),
    [
        pytest.param([], 1.0, 1.0, id="no call"),
        pytest.param([hands_over([])], 1.0, 1.0, id="empty list"),
        pytest.param([hands_over([711])], 0.0, 0.0, id="a value"),
        pytest.param([calls(("extract_synonym_values", "{"))], 0.0, 0.0, id="bad arguments"),
    ],
)
def test_verify_knows_what_to_do_where_nothing_is_expected(messages, reward, overlap):
    """The reference divides by zero here."""
    rollout = score_of(*messages, expected_synonyms=[], expected_synonym_values=[])

    assert (rollout.reward, rollout.metrics["set_overlap"]) == (reward, overlap)


@given(st.lists(st.integers(0, 2000)), st.lists(st.integers(0, 2000)))
def test_verify_rewards_equality_and_nothing_else(expected, values):
    rollout = score_of(hands_over(values), expected_synonym_values=expected)

    assert rollout.reward == float(expected == values)
    assert 0 <= rollout.metrics["set_overlap"] <= 1


def test_tools_answer_in_the_shape_of_the_reference():
    row = task_row("example_multi_step", TASK)
    rollout = played(
        row, calls(("get_synonym_value", '{"synonym": "Blazing"}')), hands_over([1]), says("")
    )

    texts = [message.text for message in rollout.messages if message.role == "tool"]
    assert texts == ['{"synonym_value":711}', '{"success":true}']


def test_tools_have_the_parameters_of_the_reference():
    tools = ExampleMultiStep.method_tools()
    synonym = tools["get_synonym_value"].parameters["properties"]["synonym"]
    values = tools["extract_synonym_values"].parameters["properties"]["synonym_values"]

    assert synonym["type"] == "string"
    assert (values["type"], values["items"]) == ("array", {"type": "integer"})
    assert synonym["description"]
    assert values["description"]


def test_oracle_looks_up_one_synonym_a_turn():
    rollout = played(task_row("example_multi_step", TASK))

    assert [call.name for call in rollout.tool_calls] == [
        "get_synonym_value",
        "get_synonym_value",
        "extract_synonym_values",
    ]
    assert [call.id for call in rollout.tool_calls] == ["call_0", "call_1", "call_2"]


def shipped_rows(kind=None):
    """Return the shipped rows; a kind is a list and one term, a list and two terms, or a trail."""
    lines = shipped_tasks("example_multi_step").read_bytes().splitlines()
    return [row for row in map(msgspec.json.decode, lines) if kind in (None, kind_of(row))]


def kind_of(row):
    if row["capability"] == "multiple intents":
        return "two terms"
    return "trail" if row.get("begins_with_term") else "one term"


def listed(row):
    """Return the groups of a list: in each, the synonyms of every term in order."""
    groups = [{}]
    for line in row["messages"][0]["content"].splitlines():
        if line.startswith("Group "):
            assert int(line.split()[1]) == len(groups) - 1
            groups.append({})
        elif line.startswith("- "):
            term, synonym = line.removeprefix("- ").split(": ")
            groups[-1].setdefault(term, []).append(synonym)
    return groups[1:] or groups


def asked(row):
    """Return the terms that a message names, in order."""
    words = row["messages"][1]["content"].replace("?", " ").replace(",", " ").split()
    return [word for word in words if word in generator.THESAURUS]


def test_tasks_are_of_two_capabilities():
    counts = Counter(row["capability"] for row in shipped_rows())

    assert {*counts} == {"multiple intents", "information dependency"}
    assert min(counts.values()) >= 10
    assert Counter(kind_of(row) for row in shipped_rows()) == {
        "one term": 60,
        "trail": 12,
        "two terms": 12,
    }
    for kind in ("one term", "trail", "two terms"):
        levels = [row["difficulty"] for row in shipped_rows(kind)]
        assert levels == ["easy", "medium", "hard"] * (len(levels) // 3)


def test_tasks_set_a_minefield_that_no_synonym_hits():
    for row in shipped_rows():
        term, synonyms = row["minefield_label"], row["expected_synonyms"]

        assert row["expected_synonym_values"] == [value_of(synonym) for synonym in synonyms]
        assert value_of(term) == row["minefield_label_value"]
        assert row["minefield_label_value"] not in row["expected_synonym_values"]
        assert asked(row)[:1] == ([] if row["difficulty"] == "hard" else [term])
        hint, _ = generator.THESAURUS[term]
        assert row["messages"][1]["content"].startswith(hint) == (row["difficulty"] == "hard")


def test_tasks_of_one_term_expect_its_synonyms_in_the_order_of_the_list():
    for row in shipped_rows("one term"):
        [synonyms] = listed(row)

        assert row["expected_synonyms"] == synonyms[row["minefield_label"]]


def test_tasks_of_two_terms_expect_the_synonyms_of_both():
    for row in shipped_rows("two terms"):
        [synonyms] = listed(row)
        message = row["messages"][1]["content"]
        hinted = [term for term in synonyms if generator.THESAURUS[term][0] in message]
        terms = asked(row) or sorted(
            hinted, key=lambda term: message.index(generator.THESAURUS[term][0])
        )

        assert len({*terms}) == 2
        assert row["minefield_label"] == terms[0]
        assert row["expected_synonyms"] == synonyms[terms[0]] + synonyms[terms[1]]


def test_tasks_of_a_trail_find_each_synonym_by_the_value_of_the_word_before():
    for row in shipped_rows("trail"):
        groups, term = listed(row), row["minefield_label"]
        found, group = [], groups[value_of(term) % 10]
        while term in group:
            [synonym] = group[term]
            found.append(synonym)
            group = groups[value_of(synonym) % 10]

        assert len(groups) == 10
        assert row["expected_synonyms"] == found
        assert len(found) == {"easy": 2, "medium": 3, "hard": 4}[row["difficulty"]]
        in_list = [synonym for group in groups for synonym in group.get(term, [])]
        assert sorted(in_list) == sorted(generator.THESAURUS[term][1]), (
            "synonyms off the trail are listed too"
        )
        assert len(in_list) > len(found), "every trail leaves one out"


def test_tasks_hand_over_what_only_a_call_has_told():
    for line in shipped_rows():
        row = task_row("example_multi_step", line)
        prompt = " ".join(message["content"] for message in line["messages"])
        *looked_up, handed_over = played(row).tool_calls
        told = [value_of(msgspec.json.decode(call.arguments)["synonym"]) for call in looked_up]
        values = msgspec.json.decode(handed_over.arguments)["synonym_values"]

        assert {*values} <= {*told}
        assert not any(str(value) in prompt for value in values)


def test_oracle_enters_a_trail_with_the_term():
    rollout = played(task_row("example_multi_step", {**TASK, "begins_with_term": True}))

    words = [msgspec.json.decode(call.arguments).get("synonym") for call in rollout.tool_calls]
    assert words == ["Hot", "Blazing", "Warm", None]
    assert scored(rollout).reward == 1.0


def test_generate_goes_on_with_rows_of_every_kind():
    rows = list(ExampleMultiStep.generate(Random(4), 252))

    assert [row["id"] for row in rows] == [f"synonyms-{number}" for number in range(252)]
    assert len({msgspec.json.encode(row["messages"]) for row in rows}) == 252
    assert Counter(map(kind_of, rows)) == {"one term": 180, "trail": 36, "two terms": 36}


def test_generate_expects_values_that_no_other_word_of_a_row_has():
    """With an equal value, a correct answer would have a smaller overlap or hit the minefield."""
    rows = list(ExampleMultiStep.generate(Random(3), 3000))

    for row in rows:
        terms = {row["minefield_label"]}
        terms |= {
            term
            for term in generator.THESAURUS
            if {*generator.THESAURUS[term][1]} & {*row["expected_synonyms"]}
        }
        words = [*terms, *row["expected_synonyms"]]
        assert len({value_of(word) for word in words}) == len(words), row["id"]
    hard = [row for row in rows if kind_of(row) == "trail" and row["difficulty"] == "hard"]
    assert len({row["minefield_label"] for row in hard}) >= 10
