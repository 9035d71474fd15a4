"""Log probabilities, where a request asks for them."""

import msgspec
import pytest

from gymcli.mock import MockAnswer
from gymcli.mock.bodies import with_logprobs
from gymcli.models.dialects import DIALECTS
from tests.mock.talking import PATHS, body_for, post, talk

ASKED = {
    "chat": {"logprobs": True, "top_logprobs": 2},
    "responses": {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
}


@pytest.mark.parametrize("params", ASKED.values())
def test_tokens_make_up_the_text(params):
    answer = with_logprobs(MockAnswer(text="a text: äöü"), params)
    content = answer.logprobs["content"]
    assert "".join(entry["token"] for entry in content) == "a text: äöü"
    assert b"".join(bytes(entry["bytes"]) for entry in content).decode() == "a text: äöü"
    for entry in content:
        assert entry["logprob"] <= 0
        assert [len(entry["top_logprobs"]), entry["top_logprobs"][0]["token"]] == [
            2,
            entry["token"],
        ]
    assert answer == with_logprobs(MockAnswer(text="a text: äöü"), params)


@pytest.mark.parametrize("params", [{}, {"logprobs": False}, {"include": []}, {"include": None}])
def test_none_unless_asked(params):
    assert with_logprobs(MockAnswer(text="x"), params).logprobs is None


def test_none_without_text_and_those_of_the_script_stay():
    assert with_logprobs(MockAnswer(), {"logprobs": True}).logprobs is None
    own = MockAnswer(text="x", logprobs={"content": []})
    assert with_logprobs(own, {"logprobs": True}) is own


def test_top_may_be_left_out():
    answer = with_logprobs(MockAnswer(text="x"), {"logprobs": True})
    assert answer.logprobs["content"][0]["top_logprobs"] == []


def test_top_is_what_openai_gives_at_most():
    answer = with_logprobs(MockAnswer(text="x"), {"logprobs": True, "top_logprobs": 10**400})
    assert len(answer.logprobs["content"][0]["top_logprobs"]) == 20


@pytest.mark.parametrize("dialect", PATHS)
def test_server_sends_them_where_the_dialect_has_them(dialect):
    body = body_for(dialect, **ASKED[dialect])
    status, payload = talk(lambda server, session: post(session, server, PATHS[dialect], body))
    answer = DIALECTS[dialect].answer(msgspec.json.encode(payload))
    assert status == 200
    tokens = [entry["token"] for entry in answer.message.logprobs["content"]]
    assert tokens == ["hell", "o"]
