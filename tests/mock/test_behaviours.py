"""Tests of the mock server's behaviours and scripts, without a server."""

from pathlib import Path

import msgspec
import pytest

from gymcli.errors import UsageError
from gymcli.mock import MockAnswer, echo, fixed, in_order, scripted
from gymcli.mock.behaviours import conversation_digest, parse_behaviour, read_script, refusal_of
from gymcli.models.token_ids import PROBE
from gymcli.types import Message, Request


def conversation(*texts: str) -> Request:
    """Return a request whose messages alternate between user and model."""
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
    assert scripted({"red": ["stop"], "green": ["go"]})(conversation("the light is green")) == "go"


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
        '\ufeff{"match": "add", "answers": [{"tool_calls": [["add", {"a": 1}]]}, {"text": "2"}]}\n'
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
        ('{"request": "a", "answers": []}', "script.jsonl:1: not a line of a script: it has no"),
        ('{"request": "a", "match": "", "answers": [{}]}', 'it has both "match" and "request"'),
    ],
)
def test_read_script_names_the_bad_line(tmp_path: Path, text, complaint):
    path = tmp_path / "script.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError, match=complaint):
        read_script(path)


def test_read_script_without_file(tmp_path: Path):
    with pytest.raises(UsageError, match="cannot be read"):
        read_script(tmp_path / "none.jsonl")


def test_parse_behaviour(tmp_path: Path):
    path = tmp_path / "script.jsonl"
    path.write_text('{"answers": [{"text": "from the file"}]}')
    request = conversation("hello")
    assert parse_behaviour("echo")(request) == MockAnswer(text="hello")
    assert parse_behaviour("fixed:a: b")(request) == MockAnswer(text="a: b")
    assert parse_behaviour(f"script:{path}")(request) == MockAnswer(text="from the file")


def test_parse_behaviour_unknown():
    with pytest.raises(UsageError, match="--behaviour mirror: is not one of echo, "):
        parse_behaviour("mirror")
    with pytest.raises(UsageError, match='did you mean "script"'):
        parse_behaviour("scirpt:x.jsonl")
    for name in ("fixed", "script", "script:"):
        with pytest.raises(UsageError, match=f"{name}: is not one of .*FILE.jsonl$"):
            parse_behaviour(name)


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_read_script_wants_an_answer(tmp_path: Path, text):
    path = tmp_path / "script.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"script\.jsonl: the script has no answers"):
        read_script(path)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        *[({"status": status}, r"Expected `int` .=.*status") for status in (0, 101, 99999)],
        ({"delay": -1}, r"Expected `float` >= 0.*delay"),
        ({"usage": {"prompt_tokens": -1}}, "a count in the usage is negative"),
        ({"headers": {"A": "b\r\nC: d"}}, "the value of header 'A' cannot be sent"),
        ({"headers": {"Content-Length": "1"}}, "'Content-Length' cannot be set as a header"),
        (
            {"headers": {"transfer-encoding": "x"}},
            "'transfer-encoding' cannot be set as a header",
        ),
        ({"headers": {"A b": ""}}, "'A b' cannot be set as a header"),
        ({"headers": {"": ""}}, "'' cannot be set as a header"),
    ],
)
def test_read_script_takes_no_answer_that_cannot_be_sent(tmp_path: Path, fields, complaint):
    path = tmp_path / "script.jsonl"
    path.write_bytes(b"\n" + msgspec.json.encode({"answers": [fields]}))
    with pytest.raises(UsageError, match=rf"script\.jsonl:2: not a line of a script: {complaint}"):
        read_script(path)


def test_read_script_plays_both_kinds_of_lines(tmp_path: Path):
    known, other = conversation("hello"), conversation("hello", "x", "else")
    path = tmp_path / "script.jsonl"
    key = conversation_digest(known)
    path.write_text(
        f'{{"request": "{key}", "note": "n", "answers": [{{"text": "1"}}]}}\n'
        f'{{"request": "{key}", "answers": [{{"text": "2"}}]}}\n'
        '{"match": "else", "answers": [{}, {"text": "by its text"}]}\n'
    )
    behave = read_script(path)
    assert [behave(known).text for _ in range(3)] == ["1", "2", "1"]
    assert behave(other).text == "by its text"


def test_a_script_needs_no_line_for_the_probe_of_token_ids(tmp_path: Path):
    path = tmp_path / "script.jsonl"
    path.write_text('{"match": "2 + 2", "answers": [{"text": "4"}]}')
    behave = read_script(path)
    asked = Request(messages=[Message(role="user", content=PROBE)])
    assert behave(asked).text == PROBE
    asked.messages.append(Message(role="user", content="1 + 1"))
    assert behave(asked).status == 400


def test_conversation_digest_is_about_what_was_said():
    def asked(**fields) -> str:
        message = {"role": "assistant", "content": "a", **fields}
        return conversation_digest(Request(messages=[msgspec.convert(message, Message)]))

    call = {"id": "x", "function": {"name": "f", "arguments": "{}"}}
    parts = [{"type": "text", "text": "a"}]
    assert asked() == asked(reasoning="r") == asked(content=parts)
    assert asked(tool_calls=[call]) == asked(tool_calls=[{**call, "id": "y"}]) != asked()
    assert asked() != asked(content="b") != asked(content=None)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    assert asked(content=[*parts, image]) != asked()
