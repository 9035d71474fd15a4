"""What an error means, by its status, its code and the beginning of its message."""

import asyncio
import contextlib
import json
import time
import traceback

import aiohttp
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gymcli
from gymcli.errors import (
    AuthenticationError,
    ContextOverflowError,
    EndpointConnectionError,
    EndpointGoneError,
    EndpointTimeoutError,
    InvalidAnswerError,
    MalformedCallError,
    ModelError,
    PromptFilteredError,
    RateLimitError,
    RequestRefusedError,
    ServerError,
)
from gymcli.mock import MockAnswer, MockServer, in_order, scripted
from gymcli.mock.behaviours import refusal_of
from gymcli.models.api_errors import (
    claims_of,
    error_in_answer,
    error_words,
    innermost_error,
    is_absence,
    is_connect_timeout,
    is_fatal,
    is_overload,
    is_retried,
    is_silence,
    is_unreachable,
    one_line,
)
from gymcli.models.chat import decode
from gymcli.models.client import Client
from gymcli.models.endpoint import Endpoint
from gymcli.types import Request
from tests.models.asking import HELLO, KEY, TOOL, FakeTime, ask, failure, failure_at, hello

TOO_LONG_ANSWER = (
    "'max_tokens' or 'max_completion_tokens' is too large: 9000. This model's maximum context "
    "length is 8192 tokens and your request has 200 input tokens (9000 > 8192 - 200)."
)


def hello_with_tools() -> Request:
    return Request(messages=HELLO.messages, tools=[TOOL])


@pytest.mark.parametrize(
    ("status", "words", "kind"),
    [
        (400, "bad temperature", RequestRefusedError),
        (400, "This model's maximum context length is 10 tokens", ContextOverflowError),
        (400, "Cannot answer: maximum context length is 10 tokens", RequestRefusedError),
        (422, "Wrong input: prompt is too long", RequestRefusedError),
        (500, "Failed at: Context size has been exceeded.", ServerError),
        (500, "Failed at: this server does not support it", ServerError),
        (429, "Slow down, whoever says insufficient_quota", RateLimitError),
        (400, TOO_LONG_ANSWER, RequestRefusedError),
        (500, TOO_LONG_ANSWER, RequestRefusedError),
        (401, f"incorrect key {KEY}", AuthenticationError),
        (402, "no money", RequestRefusedError),
        (403, "not yours", AuthenticationError),
        (403, "your input was flagged", PromptFilteredError),
        (400, "content_policy_violation", PromptFilteredError),
        (400, "Too many requests", RateLimitError),
        (403, "API rate limit exceeded for user ID 1.", RateLimitError),
        (403, "You hear: API rate limit exceeded", AuthenticationError),
        (404, "no such model", RequestRefusedError),
        (408, "too slow", ServerError),
        (409, "conflict", ServerError),
        (413, "too large", RequestRefusedError),
        (422, "unprocessable", RequestRefusedError),
        (429, "slow down", RateLimitError),
        (429, "insufficient_quota", RequestRefusedError),
        (500, "oops", ServerError),
        (500, "Your input exceeds the context window of this model.", ContextOverflowError),
        (500, "Context size has been exceeded.", ServerError),
        (413, "Context size has been exceeded.", ServerError),
        (500, "image input is not supported", RequestRefusedError),
        (503, "overloaded", ServerError),
        (529, "overloaded", ServerError),
    ],
)
def test_answer_maps_every_status(status, words, kind):
    error = failure(lambda _: refusal_of(status, words), request := hello(), max_attempts=2)
    assert type(error) is kind
    assert error.status == status
    assert f"answered {status}: " in str(error)
    if kind is RateLimitError or (status in (503, 529) and kind is ServerError):
        assert sum(request.tries.retries.values()) > 10  # overload does not count as an attempt
    else:
        assert request.tries.retries == ({kind.__name__: 1} if kind is ServerError else {})


def test_answer_shows_the_words_of_the_provider_without_the_key():
    error = failure(lambda _: refusal_of(400, f"\x1b[31mno\n{KEY} here"))
    assert str(error).endswith(
        "/v1/chat/completions answered 400: mock_error: [31mno [redacted] here"
    )


@pytest.mark.parametrize("fault", ["reset", "broken"])
@pytest.mark.parametrize("stream", [False, True])
def test_answer_retries_until_it_is_there(fault, stream):
    """A broken connection or answer and a busy server are retried and counted by class."""
    failed = MockAnswer(text="x", fault="reset") if fault == "reset" else MockAnswer(body='{"id"')
    kind = "EndpointConnectionError" if fault == "reset" else "InvalidAnswerError"
    behaviour = in_order(failed, refusal_of(503, "busy"), failed, "at last")
    assert ask(behaviour, request := hello(), stream=stream).message.text == "at last"
    assert request.tries.retries == {kind: 2, "ServerError": 1}


@pytest.mark.parametrize(
    ("status", "headers", "low", "high"),
    [
        (429, {"retry-after": "5"}, 5, 5.5),
        (503, {"retry-after-ms": "700"}, 0.7, 0.77),
        (429, {"retry-after": "3600"}, 60, 66),
        (429, {}, 0.0, 0.1),
        (500, {"retry-after": "5"}, 5, 5.5),
        (500, {"retry-after": "3600"}, 60, 66),
        (500, {}, 0.5, 1),
    ],
)
async def test_answer_waits_as_the_endpoint_asks(status, headers, low, high):
    time, request = FakeTime(), hello()
    busy = msgspec.structs.replace(refusal_of(status, "slow"), headers=headers)
    async with MockServer(in_order(busy, "yes")) as server:
        endpoint = Endpoint(base_url=server.base_url, model="m")
        options = {"clock": time.clock, "sleep": time.sleep}
        async with Client(endpoint, concurrency=1, **options) as client:
            await client.answer(request)
    kind = "RateLimitError" if status == 429 else "ServerError"
    assert request.tries.retries == {kind: 1}
    # Time passes only in sleeps; the wait for the limiter starts when the request's own ends.
    assert low <= sum(time.sleeps) <= high + 0.1


@pytest.mark.parametrize("body", ["", "{", "[]", '{"choices": []}', "\u0000", "<html></html>"])
def test_answer_refuses_what_is_no_answer(body):
    error = failure(scripted([MockAnswer(body=body)]), request := hello(), max_attempts=2)
    assert type(error) is InvalidAnswerError
    assert "/v1/chat/completions: " in str(error)
    assert request.tries.retries == {"InvalidAnswerError": 1}


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"message": "Prompt is too long", "code": 400}, ContextOverflowError),
        ({"message": TOO_LONG_ANSWER, "code": "context_length_exceeded"}, RequestRefusedError),
        ({"message": "no such thing", "code": 404}, RequestRefusedError),
        ({"message": f"bad key {KEY}", "code": 401}, AuthenticationError),
        ({"message": "slow", "code": 429}, RateLimitError),
        ({"message": "image input is not supported", "code": 500}, RequestRefusedError),
        ({"message": "image input is not supported"}, RequestRefusedError),
        ({"message": f"who knows {KEY}"}, InvalidAnswerError),
        ({"message": "Failed at: prompt is too long", "code": 500}, ServerError),
        ({"message": "Failed at: prompt is too long"}, InvalidAnswerError),
        ({"message": "no more", "code": "insufficient_quota"}, RequestRefusedError),
        ({"message": "m", "code": "rate_limit_exceeded"}, RateLimitError),
        ({"message": "m", "type": "server_error"}, ServerError),
        ({"message": "m", "code": 408}, ServerError),
        ({"message": "m", "code": "context_length_exceeded"}, ContextOverflowError),
        ({"message": "m", "code": 400, "type": "server_error"}, RequestRefusedError),
        ({"message": "m", "code": "invalid_prompt"}, InvalidAnswerError),
    ],
)
def test_answer_reads_errors_in_bodies_with_status_200(fields, kind):
    body = msgspec.json.encode({"error": fields}).decode()
    error = failure(scripted([MockAnswer(body=body)]), max_attempts=1)
    assert type(error) is kind
    code = fields.get("code")
    assert error.status == (code if isinstance(code, int) else None)
    assert KEY not in "".join(traceback.format_exception(error))


LOADED = "Prompt is too long. This server does not support it: insufficient_quota"


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [
        (MockAnswer(body=f'{{"choices": [{{"message": {{"content": "{LOADED}'), InvalidAnswerError),
        (MockAnswer(body=LOADED), InvalidAnswerError),
        (
            MockAnswer(status=422, body=f'{{"detail": [{{"msg": "no", "input": "{LOADED}"}}]}}'),
            RequestRefusedError,
        ),
        (MockAnswer(status=500, body=f'{{"detail": "while answering {LOADED}"}}'), ServerError),
        (MockAnswer(status=500, body=f'{{"request": "{LOADED}"}}'), ServerError),
    ],
)
def test_words_that_a_body_quotes_mean_nothing(refusal, kind):
    """They come from the model or the task."""
    error = failure(lambda _: refusal, request := hello(), max_attempts=2)
    assert type(error) is kind
    assert not is_fatal(error)
    is_retried = kind is not RequestRefusedError
    assert request.tries.retries == ({kind.__name__: 1} if is_retried else {})


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_answer_follows_no_redirect(status):
    """The key is meant for one address only; the error names the new one."""
    request = hello()
    async with MockServer() as elsewhere:
        location = f"{elsewhere.base_url}/chat/completions?token=abc"
        moved = MockAnswer(body="", status=status, headers={"Location": location})
        async with MockServer(scripted([moved])) as server:
            endpoint = Endpoint(base_url=server.base_url, model="m", api_key=KEY)
            async with Client(endpoint, concurrency=1, sleep=FakeTime().sleep) as client:
                with pytest.raises(RequestRefusedError) as raised:
                    await client.answer(request)
        assert str(raised.value).endswith(f"use the address {elsewhere.base_url}")
        error = raised.value
        num_requests = elsewhere.num_requests
    assert (error.status, request.tries.retries, num_requests) == (status, {}, 0)
    assert is_fatal(error)


@pytest.mark.parametrize(
    ("status", "words", "expected"),
    [
        (401, "no", True),
        (402, "no", True),
        (403, "no", True),
        (404, "no", True),
        (405, "no", True),
        (400, "x is not a valid model ID", True),
        (400, "Wrong: the model x does not exist", False),
        (400, TOO_LONG_ANSWER, True),
        (400, TOO_LONG_ANSWER.replace("9000", "8000"), False),
        (429, "insufficient_quota", True),
        (400, "no", False),
        (413, "no", False),
        (429, "Request too large for m", False),
        (403, "your input was flagged", False),
        (429, "no", False),
        (500, "no", False),
    ],
)
def test_is_fatal(status, words, expected):
    assert is_fatal(failure(lambda _: refusal_of(status, words), max_attempts=1)) is expected


def test_is_fatal_is_not_a_request_that_cannot_be_written():
    assert not is_fatal(RequestRefusedError("the request cannot be written as JSON"))


@pytest.mark.parametrize("status", [401, 404, 405])
def test_error_of_status_names_ways_out_for_roles_too(status):
    """Roles use the same client, but --base-url is not theirs."""
    error = failure(lambda _: refusal_of(status, "no"))
    way_out = str(error).rpartition("; ")[2]
    assert "--role" in way_out or "gym.toml" in way_out


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ({"error": {"message": "no", "type": "bad", "code": None}}, "bad: no"),
        ({"error": {"message": "no", "type": "bad", "code": "worse"}}, "worse: no"),
        ({"error": {"message": "it is bad", "type": "bad"}}, "it is bad"),
        ({"error": {"message": "no", "code": 400}}, "no"),
        ({"error": "no"}, "no"),
        ({"object": "error", "message": "no", "code": 400}, "no"),
        ({"detail": "Not Found"}, "Not Found"),
        ({"detail": [{"loc": ["body"], "msg": "missing"}]}, '[{"loc":["body"],"msg":"missing"}]'),
        ([{"error": {"message": "wrapped"}}], "wrapped"),
        ("just text", "just text"),
        ({"status": "sad"}, '{"status":"sad"}'),
        ({"error": {}}, '{"error":{}}'),
        ([1, 2], "[1,2]"),
    ],
)
def test_error_words_finds_the_message(payload, text):
    assert error_words(msgspec.json.encode(payload)) == text


@pytest.mark.parametrize(
    ("payload", "claims"),
    [
        ({"error": {"message": "no", "type": "bad", "code": "worse"}}, ["worse", "bad", "no"]),
        ({"error": {"message": "no", "code": 400, "param": "prompt is too long"}}, ["no"]),
        ({"error": "no"}, ["no"]),
        ({"detail": "Not Found"}, ["Not Found"]),
        ({"detail": [{"loc": ["body"], "msg": "missing", "input": "prompt is too long"}]}, []),
        ([{"error": {"message": "wrapped"}}], ["wrapped"]),
        (
            {"error": {"message": "no", "metadata": {"raw": '{"error": {"message": "why"}}'}}},
            ["no", "why"],
        ),
        ({"error": {"message": "no", "metadata": {"raw": "why"}}}, ["no", "why"]),
        (
            {
                "error": {
                    "message": {"error": "no", "other": "why"},
                    "innererror": {"code": "worse"},
                }
            },
            ["no", "worse"],
        ),
        ({"error": {"message": "no", "errors": [{"reason": "why", "input": "x"}]}}, ["no", "why"]),
        (
            {"error": {"message": 'aError: {"error": {"code": "b"}}'}},
            ['aError: {"error": {"code": "b"}}', "b"],
        ),
        ({"error": {"message": 'aError: {"error": '}}, ['aError: {"error": ']),
        ({"error": {"message": '{"message": "why"}'}}, ['{"message": "why"}']),
        ("just text", ["just text"]),
        ({"messages": ["prompt is too long"]}, []),
    ],
)
def test_claims_of_a_refusal_are_the_code_and_the_message(payload, claims):
    assert claims_of(innermost_error(msgspec.json.encode(payload))) == claims


@pytest.mark.parametrize(
    ("payload", "claims"),
    [
        (b'{"error": {"message": "no", "code": "worse"}}', ["worse", "no"]),
        (b'{"choices": [{"error": {"message": "no"}}]}', ["no"]),
        (b'{"object": "error", "message": "no"}', ["no"]),
        (
            b'{"choices": [], "promptFeedback": {"blockReason": "OTHER"}}',
            ["content_filter", "OTHER"],
        ),
        (b'{"base_resp": {"status_code": 1002, "status_msg": "no"}}', ["no"]),
        (b'{"choices": [], "base_resp": {"status_code": 0, "status_msg": "no"}}', []),
        (b'{"choices": [], "message": "prompt is too long"}', []),
    ],
)
def test_claims_of_an_answer_are_those_of_its_error_alone(payload, claims):
    assert claims_of(error_in_answer(json.loads(payload))) == claims


@pytest.mark.parametrize(
    "payload",
    [b'{"choices": [{"message": {"content": "prompt is too long', b"prompt is too long", b""],
)
def test_a_body_that_is_no_json_claims_nothing(payload):
    error = failure(scripted([MockAnswer(body=payload.decode())]), max_attempts=1)
    assert type(error) is InvalidAnswerError


@pytest.mark.parametrize("payload", [b"<html>Bad gateway</html>", b'{"error": ', b"\xff\xfe"])
def test_error_words_gives_other_bodies_as_they_stand(payload):
    assert error_words(payload) == payload.decode("utf-8", "replace")


def test_error_words_of_an_empty_body_are_none():
    assert error_words(b"") == ""


FIELDS = ("error", "message", "code", "status", "detail", "metadata", "raw", "errors", "innererror")
BODIES = st.recursive(
    st.none() | st.integers() | st.text() | st.sampled_from(['xError: {"error": "\\ud800"}', "{"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(FIELDS), inner),
)


@given(BODIES.map(json.dumps) | st.text())
def test_claims_are_texts_whatever_a_body_is(body):
    payload = body.encode("utf-8", "replace")
    errors = [innermost_error(payload)]
    with contextlib.suppress(InvalidAnswerError):
        errors.append(error_in_answer(decode(payload)))
    for error in errors:
        for claim in claims_of(error):
            claim.encode()


def test_claims_of_an_error_in_an_error():
    error = {"error": {"code": "innermost"}}
    for _ in range(12):
        error = {"error": {"message": f"aError: {json.dumps(error)}"}}
    assert claims_of(innermost_error(json.dumps(error).encode()))[-1] == "innermost"


@given(st.binary(), st.text(min_size=4))
def test_one_line_is_one_short_printable_line(payload, secret):
    text = one_line(error_words(payload), [secret])
    assert len(text) <= 300
    assert text.isprintable()


@given(st.text(), st.text(alphabet="abcdef0123456789", min_size=8), st.text())
def test_one_line_never_shows_a_secret(before, secret, after):
    payload = msgspec.json.encode({"error": {"message": f"{before}{secret}{after}"}})
    assert secret not in one_line(error_words(payload), [secret])


def test_one_line_redacts_before_it_cuts():
    secret = "sk-" + "a" * 40
    assert "sk-" not in one_line("x" * 290 + secret, [secret])


def test_one_line_shows_no_part_of_a_secret_where_it_stops_reading():
    secret = "sk-" + "a" * 40
    for num_blanks in range(1950, 2001):
        assert secret[:8] not in one_line(" " * num_blanks + secret, [secret])


def hostile_bodies(size: int) -> list[bytes]:
    """Return bodies of about this size that take as much time as possible."""
    return [
        b"x " * (size // 2),
        b'{"error": {"message": "%b"}}' % (b"error: " * (size // 7)),
        b'{"error": {"message": "%b"}}' % (b"error:" + b" " * size),
        b'{"error": {"message": "%b"}}' % (b"a" * size),
        b'{"error": {"message": "m", "errors": [%b{}]}}'
        % (b'{"reason": "error: "},' * (size // 22)),
        b'{"error": {"message": "m", "detail": [NaN,%b{}]}}' % (b"{}," * (size // 3)),
        b'{"error": {"message": "xError: {\\"error\\": [%b{}]}"}}' % (b"{}," * (size // 3)),
        b'{"error": {"metadata": {"raw": "[%b{}]"}}}' % (b"{}," * (size // 3)),
        b'{"error": ' * (size // 20) + b"1" + b"}" * (size // 20),
    ]


def test_a_hostile_refusal_takes_no_time():
    """A body of 10 MB took ten seconds, in which nothing else went on."""
    answers = [MockAnswer(status=400, body=body.decode()) for body in hostile_bodies(900_000)]
    for answer in answers:
        began = time.process_time()
        error = failure(scripted([answer]), max_attempts=1)
        assert time.process_time() - began < 1
        assert type(error) is RequestRefusedError
        assert len(str(error)) < 500


OVERFLOW = "This model's maximum context length is 10 tokens. "
LONG = "x " * 2**19
"""As much text as is read of a refusal."""


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"error": {"message": OVERFLOW + LONG, "type": "BadRequestError"}}, ContextOverflowError),
        ({"error": {"code": "context_length_exceeded", "message": LONG}}, ContextOverflowError),
        ([{"error": {"code": 400, "message": OVERFLOW + LONG}}], ContextOverflowError),
        ({"request": [{"content": "x"}], "message": OVERFLOW + LONG}, ContextOverflowError),
        (
            {
                "error": {
                    "message": f"aError: {json.dumps({'error': {'message': OVERFLOW + LONG}})}"
                }
            },
            ContextOverflowError,
        ),
        (
            {"error": {"metadata": {"raw": json.dumps({"error": {"message": OVERFLOW + LONG}})}}},
            ContextOverflowError,
        ),
        ({"error": {"message": "Rate limit exceeded. " + LONG}}, RateLimitError),
        ({"error": {"code": "content_filter", "message": LONG}}, PromptFilteredError),
        ({"error": {"message": LONG, "code": "context_length_exceeded"}}, RequestRefusedError),
    ],
)
def test_a_long_refusal_is_classified_by_its_start(body, kind):
    """A body that was cut off is no JSON, so it meant nothing."""
    refusal = MockAnswer(status=400, body=json.dumps(body))
    assert type(failure(scripted([refusal]), max_attempts=1)) is kind


GROQ = {
    "message": "Failed to call a function. See 'failed_generation' for more details.",
    "type": "invalid_request_error",
    "code": "tool_use_failed",
}


def encoded(error) -> str:
    return json.dumps({"error": error})


@pytest.mark.parametrize(
    ("status", "error", "text"),
    [
        (400, {**GROQ, "failed_generation": "<function=f>{"}, "<function=f>{"),
        (200, {**GROQ, "failed_generation": "<function=f>{"}, "<function=f>{"),
        (400, {**GROQ, "failed_generation": {"name": "f"}}, '{"name":"f"}'),
        (400, {**GROQ, "code": "json_validate_failed", "failed_generation": "x"}, "x"),
        (400, GROQ, ""),
        (400, {**GROQ, "failed_generation": "half of \ud83d"}, "half of \ufffd"),
        (
            400,
            {"message": f"xError: GroqException - {encoded({**GROQ, 'failed_generation': 'x'})}"},
            "x",
        ),
        (500, "error parsing tool call: raw='{\"a\": ', err=unexpected end", '{"a": '),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_malformed_call_carries_what_the_model_wrote(status, error, text, stream):
    body = f"event: error\ndata: {encoded(error)}\n\n" if stream else encoded(error)
    kind = {"Content-Type": "text/event-stream"} if stream else {}
    refusal = MockAnswer(status=status, body=body, headers=kind)
    answer = ask(lambda _: refusal, request := hello_with_tools(), stream=stream)
    assert (answer.message.content, answer.finish_reason) == (text, "malformed_call")
    assert request.tries.retries == {}


def test_a_malformed_call_without_tools_is_a_text():
    """Groq refuses an answer that is not the JSON that `response_format` asks for."""
    error = {**GROQ, "code": "json_validate_failed", "failed_generation": "x"}
    answer = ask(lambda _: MockAnswer(status=400, body=encoded(error)))
    assert (answer.message.content, answer.finish_reason) == ("x", "stop")


ROW = {"id": "t", "prompt": "Add 2.", "initial_count": 1, "expected_count": 3}
REFUSALS = {
    "context_overflow": refusal_of(400, "Prompt exceeds max length"),
    "content_filter": refusal_of(400, "Content Exists Risk"),
    "done": MockAnswer(status=400, body=encoded({**GROQ, "failed_generation": "<increment("})),
}


@pytest.mark.parametrize("stop_reason", REFUSALS)
async def test_a_refusal_on_the_models_account_is_scored(stop_reason, tmp_path):
    (tasks := tmp_path / "tasks.jsonl").write_bytes(msgspec.json.encode(ROW))
    call = MockAnswer(tool_calls=[("increment_counter", {"count": 2})])
    async with MockServer(in_order(REFUSALS[stop_reason], call, "3")) as server:
        records = gymcli.collect(
            tasks,
            endpoint=Endpoint(base_url=server.base_url, model="m"),
            env="example_session_state_mgmt",
            max_episode_tokens=10_000,
        )
        [record] = [record async for record in records]
    assert (record.stop_reason, record.reward) == (stop_reason, float(stop_reason == "done"))
    assert record.tool_errors == ({"malformed": 1} if stop_reason == "done" else {})


@pytest.mark.parametrize("status", [401, 404, 429])
def test_an_error_about_the_key_or_the_rate_is_no_malformed_call(status):
    refusal = MockAnswer(status=status, body=encoded(GROQ))
    assert not isinstance(failure(lambda _: refusal, max_attempts=1), MalformedCallError)


@pytest.mark.parametrize("status", [400, 403])
def test_a_rate_limit_with_another_status_is_an_overload(status):
    error = {"message": "m", "code": "rate_limit_exceeded"}
    refusal = MockAnswer(status=status, body=encoded(error))
    refused = failure(lambda _: refusal, max_attempts=1)
    assert type(refused) is RateLimitError
    assert signs(refused) == ["overload"]
    assert "check what the key allows" not in str(refused)
    assert ask(in_order(refusal, refusal, "at last"), max_attempts=2).message.text == "at last"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (EndpointConnectionError, True),
        (EndpointTimeoutError, True),
        (RateLimitError, True),
        (ServerError, True),
        (InvalidAnswerError, True),
        (EndpointGoneError, False),
        (RequestRefusedError, False),
        (PromptFilteredError, False),
        (AuthenticationError, False),
        (ContextOverflowError, False),
    ],
)
def test_is_retried(error, expected):
    assert is_retried(error("x")) is expected


def test_is_retried_is_not_a_malformed_call():
    assert not is_retried(MalformedCallError("x", text="y"))


def signs(error) -> list[str]:
    """Return the names of what an error is a sign of."""
    told = {
        "absence": is_absence,
        "overload": is_overload,
        "silence": is_silence,
        "unreachable": is_unreachable,
    }
    return [name for name, is_sign in told.items() if is_sign(error)]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, []),
        (401, []),
        (408, []),
        (429, ["overload"]),
        (500, []),
        (502, ["absence"]),
        (503, ["absence", "overload"]),
        (504, ["absence"]),
        (529, ["overload"]),
    ],
)
def test_signs_of_statuses(status, expected):
    assert signs(failure(lambda _: refusal_of(status, "no"), max_attempts=1)) == expected


def test_signs_of_a_body_that_is_no_answer():
    assert signs(failure(scripted([MockAnswer(body="{")]), max_attempts=1)) == []


def test_signs_of_a_stall():
    stall = scripted([MockAnswer(fault="stall")])
    assert signs(failure(stall, max_attempts=1, total_timeout=0.05)) == ["silence"]


def test_signs_of_a_stream_that_stands_still():
    stall = scripted([MockAnswer(text="x", fault="stall")])
    assert signs(failure(stall, max_attempts=1, stream=True, idle_timeout=0.05)) == ["silence"]


def test_signs_of_a_reset_before_an_answer():
    assert signs(failure(scripted([MockAnswer(fault="reset")]), max_attempts=1)) == ["absence"]


def test_signs_of_nobody_there():
    error = failure_at("http://127.0.0.1:9")
    assert signs(error) == ["absence", "unreachable"]
    assert not is_connect_timeout(error)


def test_signs_of_no_connection_in_time():
    error = EndpointTimeoutError("x")
    error.__cause__ = aiohttp.ConnectionTimeoutError()
    assert signs(error) == ["absence", "unreachable"]
    assert is_connect_timeout(error)


def half_an_answer(*, leaves: bool) -> ModelError:
    """Ask a server that sends a head and half a body, and then disconnects or stalls."""

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        await writer.drain()
        if not leaves:
            await reader.read()  # until the client disconnects
        writer.close()

    async def run():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            address = "http://{}:{}".format(*server.sockets[0].getsockname())
            return await asyncio.to_thread(failure_at, address, idle_timeout=0.2)

    return asyncio.run(run())


def test_signs_of_a_body_that_stands_still():
    error = half_an_answer(leaves=False)
    assert isinstance(error, EndpointTimeoutError)
    assert str(error).endswith("the answer stalled for 0.2 seconds")
    assert signs(error) == ["silence"]


def test_signs_of_a_body_that_breaks_off():
    """A server that begins an answer is reachable."""
    error = half_an_answer(leaves=True)
    assert isinstance(error, EndpointConnectionError)
    assert is_retried(error)
    assert signs(error) == []
