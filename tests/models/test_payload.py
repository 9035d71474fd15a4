"""JSON that is not clean, and errors inside a body with status 200."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymcli.errors import (
    ContextOverflowError,
    InvalidAnswerError,
    ModelError,
    RateLimitError,
    ServerError,
)
from gymcli.nemo_gym.payload import decode, error_in
from gymcli.types import JSON, JSONObject


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b'{"a": "\\ud83d\\ude00"}', {"a": "\U0001f600"}),
        (b'{"a": "x\\ud800y"}', {"a": "x\ufffdy"}),
        (b'{"a": "\\udc00\\ud800"}', {"a": "\ufffd\ufffd"}),
        (b'{"\\ud800": 1}', {"\ufffd": 1}),
        (b'{"a": "\xff"}', {"a": "\ufffd"}),
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        (b'{"a": NaN, "b": -Infinity, "c": 1e999}', {"a": None, "b": None, "c": None}),
        (b'{"a": NaN, "b": 1.5}', {"a": None, "b": 1.5}),
    ],
)
def test_decode_mends_what_is_not_clean(payload: bytes, expected: JSONObject) -> None:
    assert decode(payload) == expected


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"", "not JSON: it is empty"),
        (b"<html>\n  busy", "not JSON: <html> busy"),
        (b'{"a": ', "not JSON"),
        (b"[1]", r"not a JSON object: \[1\]"),
        pytest.param(b'{"a":' + b"[" * 200_000, "nested too deeply", id="deep"),
        pytest.param(b'{"a":NaN,"b":' + b"[" * 200_000, "nested too deeply", id="deep and unclean"),
        pytest.param(b'{"a":NaN,"b":' + b"9" * 5000 + b"}", "not JSON", id="endless number"),
    ],
)
def test_decode_refuses(payload: bytes, words: str) -> None:
    with pytest.raises(InvalidAnswerError, match=words) as caught:
        decode(payload)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        ({"code": 429, "message": "slow down"}, RateLimitError, 429),
        ({"code": "429", "message": "slow down"}, RateLimitError, 429),
        ({"code": "rate_limit_exceeded", "message": "m"}, RateLimitError, None),
        ({"code": 502, "message": "bad gateway"}, ServerError, 502),
        ({"code": 408, "message": "m"}, ServerError, 408),
        ({"code": None, "type": "server_error", "message": "m"}, ServerError, None),
        ({"status": 503, "message": "m"}, ServerError, 503),
        ({"code": "context_length_exceeded", "message": "m"}, ContextOverflowError, None),
        ({"code": 400, "message": "no such thing"}, InvalidAnswerError, 400),
        ({"code": "invalid_prompt", "message": "m"}, InvalidAnswerError, None),
        ("out of order", InvalidAnswerError, None),
        ({}, InvalidAnswerError, None),
    ],
)
def test_error_in_kinds(error: JSON, kind: type[ModelError], status: int | None) -> None:
    made = error_in(error)
    assert type(made) is kind
    assert made.status == status


def test_error_in_keeps_the_providers_words() -> None:
    error = {"code": 502, "message": "Upstream failed", "metadata": {"raw": "worker 7 died"}}
    words = str(error_in(error))
    assert words == "the endpoint answered with an error: Upstream failed (worker 7 died) (502)"
    assert str(error_in({"detail": "odd"})).endswith('{"detail":"odd"}')


unclean = st.text(st.characters(), max_size=6)  # lone surrogates included


@given(st.dictionaries(unclean, unclean, max_size=3))
@settings(max_examples=60, deadline=None)
def test_decode_replaces_lone_surrogates_only(value: dict[str, str]) -> None:
    payload = json.dumps(value)

    def clean(text: str) -> str:
        return re.sub("[\ud800-\udfff]", "\ufffd", text)

    expected = {clean(key): clean(text) for key, text in json.loads(payload).items()}
    assert decode(payload.encode()) == expected
