"""What an endpoint says instead of an answer becomes the error that means it."""

import asyncio
import traceback

import msgspec
import pytest

from gymcli.errors import (
    AuthenticationError,
    ContextOverflowError,
    InvalidAnswerError,
    ModelError,
    RateLimitError,
    RequestRefusedError,
    ServerError,
)
from gymcli.mock import MockAnswer, MockServer, in_order, scripted
from gymcli.mock.behaviours import refusal_of
from gymcli.models.api_errors import is_fatal
from gymcli.models.client import Client
from gymcli.models.endpoint import Endpoint
from tests.models.asking import KEY, FakeTime, ask, failure, hello

TOO_LONG_ANSWER = (
    "'max_tokens' or 'max_completion_tokens' is too large: 9000. This model's maximum context "
    "length is 8192 tokens and your request has 200 input tokens (9000 > 8192 - 200)."
)


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
        (403, "your input was flagged", RequestRefusedError),
        (403, "content_policy_violation", RequestRefusedError),
        (404, "no such model", RequestRefusedError),
        (408, "too slow", ServerError),
        (409, "conflict", ServerError),
        (413, "too large", RequestRefusedError),
        (422, "unprocessable", RequestRefusedError),
        (429, "slow down", RateLimitError),
        (429, "insufficient_quota", RequestRefusedError),
        (500, "oops", ServerError),
        (500, "Context size has been exceeded.", ContextOverflowError),
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
    if status in (429, 503, 529) and kind is not RequestRefusedError:
        assert sum(request.tries.retries.values()) > 10  # they count no attempts
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
    """A reset connection, half a body, a busy server: then the answer, and what it took."""
    failed = MockAnswer(text="x", fault="reset") if fault == "reset" else MockAnswer(body='{"id"')
    kind = "EndpointConnectionError" if fault == "reset" else "InvalidAnswerError"
    behaviour = in_order(failed, refusal_of(503, "busy"), failed, "at last")
    answer = ask(behaviour, request := hello(), stream=stream)
    assert answer.message.text == "at last"
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
def test_answer_waits_as_the_endpoint_asks(status, headers, low, high):
    time, request = FakeTime(), hello()

    async def run() -> None:
        busy = msgspec.structs.replace(refusal_of(status, "slow"), headers=headers)
        async with MockServer(in_order(busy, "yes")) as server:
            endpoint = Endpoint(base_url=server.base_url, model="m")
            options = {"clock": time.clock, "sleep": time.sleep}
            async with Client(endpoint, concurrency=1, **options) as client:
                await client.answer(request)

    asyncio.run(run())
    kind = "RateLimitError" if status == 429 else "ServerError"
    assert request.tries.retries == {kind: 1}
    # Time passes only in sleeps, and the wait in line begins where the request's own one ends.
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
    """They are the model's, or the task's, whatever they sound like."""
    error = failure(lambda _: refusal, request := hello(), max_attempts=2)
    assert type(error) is kind
    assert not is_fatal(error)
    is_retried = kind is not RequestRefusedError
    assert request.tries.retries == ({kind.__name__: 1} if is_retried else {})


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_answer_follows_no_redirect(status):
    """The key was given for one address; the new one is named, not asked."""
    request = hello()

    async def run() -> tuple[ModelError, int]:
        async with MockServer() as elsewhere:
            location = f"{elsewhere.base_url}/chat/completions?token=abc"
            moved = MockAnswer(body="", status=status, headers={"Location": location})
            async with MockServer(scripted([moved])) as server:
                endpoint = Endpoint(base_url=server.base_url, model="m", api_key=KEY)
                async with Client(endpoint, concurrency=1, sleep=FakeTime().sleep) as client:
                    with pytest.raises(RequestRefusedError) as raised:
                        await client.answer(request)
            assert str(raised.value).endswith(f"use the address {elsewhere.base_url}")
            return raised.value, elsewhere.num_requests

    error, num_requests = asyncio.run(run())
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
    """Roles are asked through the same client, and have no --base-url of their own."""
    error = failure(lambda _: refusal_of(status, "no"))
    way_out = str(error).rpartition("; ")[2]
    assert "--role" in way_out or "gym.toml" in way_out
