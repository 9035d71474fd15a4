"""The simulated user: swapped roles, markers, and messages that a user cannot send."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli import FunctionCall, Message, RoleError, SimulatedUser, ToolCall, UserTurn
from tests.environment.scripted import Scripted, failing

CALL = ToolCall("call_0", FunctionCall("find_order", '{"id": 7}'))
CONVERSATION = [
    Message(role="system", content="You sell books."),
    Message(role="developer", content="Be brief."),
    Message(role="user", content="Where is my book?"),
    Message(role="assistant", content="Let me look.", reasoning="hm", tool_calls=[CALL]),
    Message(role="tool", tool_call_id="call_0", content="on its way"),
    Message(role="assistant", tool_calls=[CALL]),
    Message(role="tool", tool_call_id="call_0", content="still on its way"),
    Message(role="assistant", content="It is on its way."),
]


def _user(*texts, **keywords):
    model = Scripted(list(texts))
    user = SimulatedUser(model, instructions="Play a customer.", scenario="A book.", **keywords)
    return user, model


def _shown(model):
    return [(message.role, message.text) for message in model.asked[-1].messages]


def test_opening_shows_instructions_and_scenario():
    user, model = _user("Customer: Hello", params={"temperature": 1.0})
    assert asyncio.run(user.opening()) == UserTurn("Hello", "")
    assert _shown(model) == [
        ("system", "Play a customer.\n\n<scenario>\nA book.\n</scenario>"),
        ("user", "(The conversation starts. Write the first message of the Customer.)"),
    ]
    asked = model.asked[0]
    assert (asked.schema, asked.params, asked.cache) == (None, {"temperature": 1.0}, None)


def test_reply_swaps_roles_and_hides_tools_and_prompt():
    user, model = _user("Thanks!")
    assert asyncio.run(user.reply(CONVERSATION)) == UserTurn("Thanks!")
    assert _shown(model)[2:] == [
        ("assistant", "Customer: Where is my book?"),
        ("user", "Representative: Let me look."),
        ("user", "Representative: It is on its way."),
    ]


def test_reply_uses_other_names():
    user, model = _user("  Pupil:\n Why? ", user_name="Pupil", agent_name="Teacher")
    assert asyncio.run(user.reply(CONVERSATION)).text == "Why?"
    assert _shown(model)[1][1] == "(The conversation starts. Write the first message of the Pupil.)"
    assert [text.partition(":")[0] for _, text in _shown(model)[2:]] == [
        "Pupil",
        "Teacher",
        "Teacher",
    ]


def test_reply_breaks_markers_that_the_policy_writes():
    user, model = _user("Go on.")
    asyncio.run(user.reply([*CONVERSATION, Message(role="assistant", content="###STOP###")]))
    assert _shown(model)[-1] == ("user", "Representative: # ##STOP## #")


@pytest.mark.parametrize(
    ("text", "turn"),
    [
        ("###STOP###", UserTurn("", "stop")),
        ("Customer: Bye! ###STOP### and more", UserTurn("Bye!", "stop")),
        ("I want your boss.\n###TRANSFER###", UserTurn("I want your boss.", "transfer")),
        ("###TRANSFER### ###STOP###", UserTurn("", "transfer")),
        ("Bye! ### STOP ###", UserTurn("Bye!", "stop")),
        ("Bye!\n**###Stop###**", UserTurn("Bye!", "stop")),
        ("*Waves.* `###stop###`", UserTurn("*Waves.*", "stop")),
        ("###**TRANSFER**###", UserTurn("", "transfer")),
        ("I cannot stop. ##STOP##", UserTurn("I cannot stop. ##STOP##")),
        ("The Customer: said so", UserTurn("The Customer: said so")),
        ("Customer: Customer: hm", UserTurn("Customer: hm")),
    ],
)
def test_reply_reads_name_and_markers(text, turn):
    user, _ = _user(text)
    assert asyncio.run(user.reply(CONVERSATION)) == turn


def test_reply_uses_other_markers():
    user, _ = _user("Bye <end>", stop="<end>", transfer="<boss>")
    assert asyncio.run(user.reply(CONVERSATION)) == UserTurn("Bye", "stop")


@given(st.lists(st.sampled_from(["###", "#", "STOP", "stop", " ", "**", "\n"]), max_size=12))
def test_reply_breaks_markers_in_any_form(pieces):
    """A user who only quotes the policy does not end the conversation."""
    user, model = _user("Go on.")
    asyncio.run(user.reply([*CONVERSATION, Message(role="assistant", content="".join(pieces))]))
    quote = _shown(model)[-1][1]
    user, _ = _user(f"You say: {quote}")
    assert asyncio.run(user.reply(CONVERSATION)).ended == ""


@pytest.mark.parametrize("marker", ["", "#", " end"])
def test_user_refuses_a_marker_that_any_text_may_hold(marker):
    with pytest.raises(ValueError, match="cannot be told from other text of a prompt"):
        _user(stop=marker)


@pytest.mark.parametrize("first", ["", "  ", "Customer: ", "###STOP###", "Hi ###TRANSFER###"])
def test_opening_tries_again(first):
    user, model = _user(first, "Hello")
    assert asyncio.run(user.opening()).text == "Hello"
    assert len(model.asked) == 2


def test_opening_gives_up():
    user, model = _user("", "", "Bye ###STOP###")
    with pytest.raises(RoleError, match="the simulated user wrote no usable message in 3 tries"):
        asyncio.run(user.opening())
    assert len(model.asked) == 3


def test_reply_cannot_be_empty():
    user, _ = _user("Customer:", max_tries=1)
    with pytest.raises(RoleError, match="in 1 tries; the last one was empty"):
        asyncio.run(user.reply(CONVERSATION))


def test_reply_cannot_end_a_conversation_that_the_policy_began():
    user, _ = _user("###STOP###", "Hello")
    greeting = Message(role="assistant", content="How can I help?")
    assert asyncio.run(user.reply([greeting])) == UserTurn("Hello")


def test_reply_tries_again_where_an_answer_is_of_no_use():
    cut = RoleError("user: the answer was cut", is_answered=True)
    user, model = _user(cut, "Thanks!")
    assert asyncio.run(user.reply(CONVERSATION)).text == "Thanks!"
    user, model = _user(cut, cut, cut)
    with pytest.raises(RoleError, match="in 3 tries; the last one was unusable: user: the answer"):
        asyncio.run(user.reply(CONVERSATION))
    assert len(model.asked) == 3


def test_reply_passes_a_failed_call_on():
    user, model = _user(failing("the user's endpoint is down"))
    with pytest.raises(RoleError, match="endpoint is down"):
        asyncio.run(user.reply(CONVERSATION))
    assert len(model.asked) == 1
