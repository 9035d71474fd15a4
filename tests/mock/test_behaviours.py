"""The mock server's behaviours, without a server."""

from pathlib import Path

import msgspec
import pytest

from gymcli.errors import UsageError
from gymcli.mock import MockAnswer, echo, fixed, in_order, scripted
from gymcli.mock.behaviours import parse_behaviour, read_script, refusal_of
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


def test_read_script(tmp_path: Path):
    path = tmp_path / "script.jsonl"
    path.write_text(
        '{"match": "add", "answers": [{"tool_calls": [["add", {"a": 1}]]}, {"text": "2"}]}\n'
        "\n"
        '{"answers": [{"text": "anything", "delay": 0.5}]}\n'
    )
    behave = read_script(path)
    assert behave(conversation("please add")) == MockAnswer(tool_calls=[("add", {"a": 1})])
    assert behave(conversation("please add", "", "add on")) == MockAnswer(text="2")
    assert behave(conversation("else")) == MockAnswer(text="anything", delay=0.5)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"answers": [{"txt": "no"}]}', r"script.jsonl:1: not a line of a script"),
        ('{"answers": []}\n{"answers": []}', r"script.jsonl:2: a second script for ''"),
        ("{", r"script.jsonl:1: "),
    ],
)
def test_read_script_names_the_bad_line(tmp_path: Path, text, complaint):
    path = tmp_path / "script.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError, match=complaint):
        read_script(path)


def test_read_script_without_file(tmp_path: Path):
    with pytest.raises(UsageError, match="cannot read the script"):
        read_script(tmp_path / "none.jsonl")


def test_parse_behaviour(tmp_path: Path):
    path = tmp_path / "script.jsonl"
    path.write_text('{"answers": [{"text": "from the file"}]}')
    request = conversation("hello")
    assert parse_behaviour("echo")(request) == MockAnswer(text="hello")
    assert parse_behaviour("fixed:a: b")(request) == MockAnswer(text="a: b")
    assert parse_behaviour(f"script:{path}")(request) == MockAnswer(text="from the file")


def test_parse_behaviour_unknown():
    with pytest.raises(UsageError, match="no behaviour 'mirror'"):
        parse_behaviour("mirror")
