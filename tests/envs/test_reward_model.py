"""The environment reward_model: rewards of scalar and chat models, and the tasks."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.envs import load_generator
from gymcli.envs.reward_model import Note, RatedConversation, Writing, written
from gymcli.errors import RoleError
from gymcli.models.endpoint import SCALAR_DIALECTS
from gymcli.rollout.episode import EpisodeFailedError
from gymcli.types import FunctionCall, Message, Rollout, ToolCall
from tests.builders import gym, lines_of
from tests.environment.scripted import Scripted, failing
from tests.envs.episodes import answered, played, scored, task_row

generator = load_generator("reward_model")

NOTE = Note(
    topic="a lost umbrella",
    mention=["rope", "Key"],
    avoid=["very"],
    max_words=8,
    num_sentences=2,
    opening="Today",
    ending="Thank you.",
)


def rated(text, model, **options):
    return scored(answered("reward_model", {}, text), roles={"reward": model}, **options)


def rows(num=60):
    return list(RatedConversation.generate(Random(0), num))


def test_verify_rewards_what_a_scalar_model_says():
    model = Scripted(["-3.25"], is_scalar=True)
    rollout = rated("A note.", model)

    assert rollout.reward == -3.25
    assert (rollout.details, rollout.metrics) == ({"reason": "scored"}, {"unparseable": 0.0})
    assert model.asked[0].messages == [
        Message(role="user", content="Please do."),
        Message(role="assistant", content="A note."),
    ]


def test_verify_shows_the_conversation_without_reasoning():
    call = ToolCall("call_0", FunctionCall("look", "{}"))
    said = [
        Message(role="user", content="Look."),
        Message(role="assistant", reasoning="I shall look."),
        Message(role="assistant", content="Well.", reasoning="Hm.", tool_calls=[call]),
        Message(role="tool", tool_call_id="call_0", content="a tree"),
        Message(role="assistant", content="A tree.", reasoning="Good.", logprobs={"content": []}),
    ]
    model = Scripted(["1"], is_scalar=True)
    rollout = Rollout(env="reward_model", messages=said, num_prompt_messages=1)
    scored(rollout, roles={"reward": model})

    assert model.asked[0].messages == [
        Message(role="user", content="Look."),
        Message(role="assistant", content="Well.", tool_calls=[call]),
        Message(role="tool", tool_call_id="call_0", content="a tree"),
        Message(role="assistant", content="A tree."),
    ]


@pytest.mark.parametrize(
    ("message", "text"),
    [
        pytest.param(None, "", id="nothing"),
        pytest.param(Message(role="assistant", reasoning="Hm."), "", id="reasoning alone"),
        pytest.param(Message(role="assistant", refusal="No."), "No.", id="refusal"),
    ],
)
def test_verify_always_rates_an_answer(message, text):
    prompt = [Message(role="user", content="Write.")]
    said = [message] if message else []
    model = Scripted(["0"], is_scalar=True)
    rollout = Rollout(env="reward_model", messages=prompt + said, num_prompt_messages=1)
    scored(rollout, roles={"reward": model})

    assert model.asked[0].messages == [*prompt, Message(role="assistant", content=text)]


@pytest.mark.parametrize("words", ["2.5", "none"])
def test_verify_says_that_there_is_no_answer(words):
    """Whatever the reward model makes of it."""
    assert rated(" ", Scripted([f"[[{words}]]"] * 2)).details == {"reason": "no_answer"}


@pytest.mark.parametrize(
    ("words", "options", "reward", "reason"),
    [
        ("Fine.\n[[7.5]]", {}, 7.5, "scored"),
        ("[[7.5]]", {"high": 5}, 0.0, "unparseable"),
        ("[[-0.5]]", {"low": -1, "high": 1}, -0.5, "scored"),
        ("I would say seven.", {}, 0.0, "unparseable"),
        ("", {"unparseable_reward": -2}, -2.0, "unparseable"),
    ],
)
def test_verify_reads_the_number_of_a_chat_model(words, options, reward, reason):
    rollout = rated("A note.", Scripted(lambda prompt: words), **options)

    assert (rollout.reward, rollout.details["reason"]) == (reward, reason)
    assert rollout.metrics == {"unparseable": float(reason == "unparseable")}


def test_verify_tells_a_chat_model_the_range():
    model = Scripted(["[[1]]"])
    rated("A note.", model, low=-1, high=1)

    assert "-1 is the worst rating, 1 the best" in model.asked[0].prompt


@pytest.mark.parametrize(
    "model", [Scripted([failing("no answer")]), Scripted(["nan"], is_scalar=True)]
)
def test_verify_has_no_reward_for_a_failed_call(model):
    with pytest.raises(RoleError):
        rated("A note.", model)


def test_fulfilled_counts_requirements(subtests):
    cases = [
        ("Today a key, a rope. Thank you.", 0),
        ("today: KEY, rope! Thank you. ", 0),
        ("Today a key, a robe. Thank you.", 1),
        ("Today a keyring, a rope. Thank you.", 1),
        ("Today a very old key, rope. Thank you.", 1),
        ("Today there is a key and a rope. Thank you.", 1),
        ("Today a key. A rope. Thank you.", 1),
        ("A key, a rope. Thank you.", 1),
        ("Today a key, a rope. Thank you!", 1),
        ("Version 2.5 of it", 5),
        ("", 7),
        ("...", 7),
    ]
    for text, num_missed in cases:
        with subtests.test(text=text, num_missed=num_missed):
            found = NOTE.fulfilled(text)

            assert len(found) == 7
            assert found.count(False) == num_missed


@given(st.randoms(use_true_random=False), st.sampled_from(["easy", "medium", "hard"]))
def test_written_fulfils_every_requirement(rng, difficulty):
    note = generator.made_up(rng, difficulty)

    found = note.fulfilled(written(note))
    assert all(found)
    assert len(found) == {"easy": 3, "medium": 5, "hard": 7}[difficulty]


def test_oracle_beats_whoever_knows_nothing():
    for row in rows():
        fields = {"wanted": row["wanted"]}
        best = scored(played(task_row("reward_model", fields))).reward
        others = (answered("reward_model", fields, text) for text in ("", "Hello.", row["prompt"]))

        assert best == 1.0
        assert max(scored(other).reward for other in others) < 1.0


def test_rows_of_others_have_neither_oracle_nor_stand_in():
    row = task_row("reward_model", {"dataset": "hs3"})

    assert RatedConversation.stand_ins(Writing()) == {}
    with pytest.raises(EpisodeFailedError, match="no oracle"):
        played(row, roles={})


@pytest.mark.parametrize("dialect", SCALAR_DIALECTS)
def test_reward_model_is_asked_over_the_wire(tmp_path, mock_server, dialect):
    """From the command line through the wire format to the rollouts."""
    mock_server.behaviour = lambda request: str(-len(request.messages[-1].text))
    address = f"reward={mock_server.base_url}/{dialect}#rewarder"
    gym(
        *("collect", "reward_model", "--model", "oracle", "--role", address),
        *("--limit", "3", "--out", tmp_path / "run", "--quiet"),
        exit_code=0,
    )

    rollouts = lines_of(tmp_path / "run" / "rollouts.jsonl")
    assert len(rollouts) == 3
    for rollout in rollouts:
        assert rollout["reward"] == -len(rollout["messages"][-1]["content"])
        assert rollout["role_usage"]["reward"]["usage"]["prompt_tokens"] > 0
    assert {request.path for request in mock_server.requests} == {f"/v1/{dialect}"}
    assert {request.body["model"] for request in mock_server.requests} == {"rewarder"}


@pytest.mark.parametrize("given", [{"low": 11}, {"high": 0}, {"low": 3, "high": 2}])
def test_options_refuse_a_range_that_is_none(given):
    with pytest.raises(ValueError, match="has to be below high"):
        RatedConversation.Options(**given)
