"""The environment example_multi_turn: follow-up messages, and the score of the last answer."""

import pytest

from gymcli.types import Message
from tests.envs.episodes import answered, calls, cut, played, row_of_file, says, scored, task_row

TASK = {"follow_ups": ["And its river?", "And its tower?"], "expected_answer": "Eiffel"}


def user_turns(rollout):
    return [message.text for message in rollout.responses if message.role == "user"]


def test_reply_sends_the_follow_ups_in_turn():
    row = task_row("example_multi_turn", TASK)
    rollout = played(row, says("Paris"), says("Seine"), says("the Eiffel Tower"))

    assert [message.role for message in rollout.responses] == [
        "assistant", "user", "assistant", "user", "assistant",
    ]  # fmt: skip
    assert user_turns(rollout) == TASK["follow_ups"]
    assert rollout.stop_reason == "done"


def test_reply_ends_at_once_without_follow_ups():
    row = task_row("example_multi_turn", {"follow_ups": [], "expected_answer": "Paris"})
    rollout = scored(played(row, says("It is Paris.")))

    assert (user_turns(rollout), rollout.reward) == ([], 1.0)


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        pytest.param("The Eiffel Tower.", "correct", id="contained"),
        pytest.param("THE EIFFEL TOWER", "correct", id="upper case"),
        pytest.param("eiffel", "correct", id="lower case"),
        pytest.param("Eiffelturm", "correct", id="within a word"),
        pytest.param("The Louvre.", "wrong_answer", id="another answer"),
        pytest.param("", "no_answer", id="empty"),
        pytest.param(" \n", "no_answer", id="white space"),
    ],
)
def test_verify_looks_into_the_last_answer(last, reason):
    row = task_row("example_multi_turn", TASK)
    rollout = scored(played(row, says("Paris"), says("Seine"), says(last)))

    assert rollout.reward == float(reason == "correct")
    assert rollout.details == {"reason": reason, "expected": TASK["expected_answer"]}


def test_verify_ignores_earlier_answers():
    row = task_row("example_multi_turn", TASK)
    rollout = scored(played(row, says("Eiffel"), says("Eiffel"), says("Louvre")))

    assert rollout.reward == 0.0


def test_verify_gives_nothing_before_the_last_follow_up():
    row = task_row("example_multi_turn", TASK)
    rollout = scored(played(row, says("Eiffel"), max_turns=2))

    assert (rollout.reward, rollout.details["reason"]) == (0.0, "unfinished")


@pytest.mark.parametrize(("last", "reward"), [("The Eiffel", 1.0), ("The Eif", 0.0)])
def test_verify_scores_a_last_answer_that_was_cut_at_its_length(last, reward):
    row = task_row("example_multi_turn", TASK)
    rollout = scored(played(row, says("Paris"), says("Seine"), cut(says(last))))

    assert (rollout.stop_reason, rollout.reward) == ("length", reward)


def test_verify_gives_nothing_where_an_earlier_answer_was_cut():
    rollout = scored(played(task_row("example_multi_turn", TASK), cut(says("Eiffel"))))

    assert (rollout.reward, rollout.details["reason"]) == (0.0, "unfinished")


def test_verify_scores_a_row_in_the_shape_of_the_reference(tmp_path):
    opening = "Which river runs through Vienna?"
    row = row_of_file(
        tmp_path,
        "example_multi_turn",
        {
            "responses_create_params": {"input": [{"role": "user", "content": opening}]},
            "follow_ups": ["Where does it end?", "Name a capital further down."],
            "expected_answer": "Belgrade",
        },
    )
    rollout = scored(played(row, says("The Danube."), says("In a sea."), says("BELGRADE, say.")))

    assert rollout.messages[0].text == opening
    assert user_turns(rollout) == ["Where does it end?", "Name a capital further down."]
    assert (rollout.stop_reason, rollout.reward) == ("done", 1.0)


def test_verify_does_not_count_tool_calls_and_thoughts_as_answers():
    row = task_row("example_multi_turn", {**TASK, "follow_ups": ["And?"]})
    thought = Message(role="assistant", reasoning="Eiffel?")
    rollout = played(row, calls(("look_up", "{}")), thought, says("Paris"), says("Eiffel"))

    assert user_turns(rollout) == ["And?"]
    assert scored(rollout).reward == 1.0


def test_verify_reads_a_record_that_has_no_user_turns():
    """Other programs may record only the answers."""
    assert scored(answered("example_multi_turn", TASK, "Paris", "Seine", "Eiffel")).reward == 1.0


def test_oracle_gives_the_earlier_answers_where_the_row_has_them():
    row = task_row("example_multi_turn", {**TASK, "earlier_answers": ["Paris", "Seine"]})
    rollout = played(row)

    assert rollout.output_text == "ParisSeineEiffel"


def test_oracle_gets_along_without_earlier_answers():
    rollout = scored(played(task_row("example_multi_turn", TASK)))

    assert (rollout.last_text, rollout.reward) == ("Eiffel", 1.0)
