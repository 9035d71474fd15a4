"""The mock server's behaviours, without a server."""

import msgspec
import pytest

from gymcli.mock import MockAnswer, echo, fixed, in_order, scripted
from gymcli.mock.behaviours import refusal_of
from gymcli.types import Message, Request


def conversation(*texts: str) -> Request:
    """Make a request whose messages are the user's and the model's by turns."""
    roles = ("user", "assistant")
    return Request(
        messages=[
            Message(role=roles[place % 2], content=text)  # type: ignore[arg-type]
            for place, text in enumerate(texts)
        ]
    )


def test_echo_gives_last_user_message():
    assert echo(conversation("one", "two", "three")).text == "three"


def test_echo_without_user_message():
    assert echo(Request(messages=[Message(role="system", content="rules")])).text == ""


def test_fixed_gives_its_text():
    assert fixed("yes")(conversation("is it?")) == MockAnswer(text="yes")


def test_scripted_list_goes_by_turn():
    behave = scripted(["first", "second"])
    assert behave(conversation("a", "first", "b")) == "second"
    assert behave(conversation("a")) == "first"


def test_scripted_mapping_goes_by_last_user_message():
    behave = scripted({"red": ["stop"], "green": ["go"]})
    assert behave(conversation("the light is green")) == "go"


@pytest.mark.parametrize("texts", [("blue",), ("red", "stop", "red")])
def test_scripted_refuses_what_it_has_no_answer_for(texts):
    answer = scripted({"red": ["stop"]})(conversation(*texts))
    assert isinstance(answer, MockAnswer)
    assert answer.status == 400


def test_in_order_goes_by_request_and_refuses_what_comes_after():
    behave = in_order("one", "two")
    request = conversation("same")
    assert [behave(request), behave(request)] == ["one", "two"]
    last = behave(request)
    assert isinstance(last, MockAnswer)
    assert last.status == 400


def test_refusal_of_names_headers():
    answer = refusal_of(429, "slow down", retry_after="3")
    assert answer.headers == {"retry-after": "3"}
    assert msgspec.json.decode(answer.body or "")["error"]["message"] == "slow down"
