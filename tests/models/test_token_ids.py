"""Token ids: asked for, read from every server's shape, probed, and sent back."""

import asyncio
import json
import re

import pytest

from gymcli.errors import FatalEndpointError, UsageError
from gymcli.mock import MockAnswer, MockServer, TokenSampler
from gymcli.mock.behaviours import refusal_of
from gymcli.mock.tokenizer import END, encode
from gymcli.models.chat import decode
from gymcli.models.client import Client, Conversation
from gymcli.models.dialects import DIALECTS
from gymcli.models.endpoint import Endpoint
from gymcli.models.token_ids import take_tokens
from gymcli.types import Message, Request, Tokens
from tests.models.asking import KEY, TOOL, FakeTime, hello

BUNDLE = {
    "prompt_token_ids": [1, 2],
    "generation_token_ids": [3, 4],
    "generation_log_probs": [-0.5, -1],
}


def chat(message=None, logprobs=None, choice=None, **fields):
    """Return a chat completion of two tokens."""
    message = {"role": "assistant", "content": "hi", **(message or {})}
    whole = {"message": message, "finish_reason": "stop", **(choice or {})}
    usage = {"prompt_tokens": 2, "completion_tokens": 2}
    if logprobs is not None:
        whole["logprobs"] = {"content": logprobs}
    return {"choices": [whole], "usage": usage, **fields}


def entries(**first):
    """Return two entries of log-probabilities."""
    return [{"token": "h", "logprob": -0.5, **first}, {"token": "i", "logprob": -1}]


def llama(*ids):
    return [{"id": number, "token": "h", "logprob": -0.5} for number in ids]


def item(kind, **fields):
    return {
        "type": kind,
        "role": "assistant",
        "content": [{"type": "output_text", "text": "hi"}],
    } | (fields)


CALL = {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}", **BUNDLE}
OPAQUE = {"type": "reasoning", "id": "r", "encrypted_content": "e"}


def expected(source, prompt=(1, 2), **fields):
    values = {"sampled": [3, 4], "logprobs": [-0.5, -1.0], **fields}
    return Tokens(prompt=list(prompt), source=source, **values)


def unreadable(source, words):
    problem = f"the token ids cannot be read: {words}"
    mode = "raw" if source == "llamacpp" else "unknown"
    return expected(source, (), sampled=[], logprobs=[], problem=problem, logprob_mode=mode)


IDS = {"prompt_token_ids": [1, 2]}
BODIES = {
    "vLLM": (
        chat(logprobs=entries(), choice={"token_ids": [3, 4]}, weight_version=7, **IDS),
        expected("vllm", weight_version="7"),
    ),
    "SGLang": (
        chat(
            logprobs=entries(),
            choice={"token_ids": [3, 4], **IDS},
            metadata={"weight_version": "default"},
        ),
        expected("vllm", weight_version="default"),
    ),
    "old vLLM": (
        chat(
            logprobs=[
                {"token": "token_id:3", "logprob": -0.5},
                {"token": "token_id:4", "logprob": -1.0},
            ]
        ),
        expected("token_id", ()),
    ),
    "llama.cpp": (
        chat(logprobs=llama(3, 4)),
        expected("llamacpp", (), logprobs=[-0.5, -0.5], logprob_mode="raw"),
    ),
    "NeMo Gym's chat": (chat(BUNDLE, logprobs=entries()), expected("nemo_gym")),
    "NeMo Gym's message": ({"output": [item("message", **BUNDLE)]}, expected("nemo_gym")),
    "NeMo Gym's call": ({"output": [item("message"), CALL]}, expected("nemo_gym")),
    "NeMo Gym's other items": ({"output": [OPAQUE, CALL]}, expected("nemo_gym")),
    "no ids": (chat(logprobs=entries()), None),
    "no log-probabilities": (chat(), None),
    "a stop sequence": (
        chat(logprobs=llama(3)),
        expected(
            "llamacpp",
            (),
            sampled=[3],
            logprobs=[-0.5],
            logprob_mode="raw",
            problem="the endpoint counted 2 sampled tokens, but sent 1 ids",
        ),
    ),
    "a stream of vLLM that lost the ids of a tool call": (
        chat(logprobs=entries()[:1], choice={"token_ids": [3]}, **IDS),
        expected(
            "vllm",
            sampled=[3],
            logprobs=[-0.5],
            problem="the endpoint counted 2 sampled tokens, but sent 1 ids",
        ),
    ),
    "NeMo Gym's fields without an answer": (
        chat({**BUNDLE, "generation_token_ids": []}, logprobs=entries()),
        None,
    ),
    "ids of text": (
        chat(logprobs=entries(), choice={"token_ids": ["3", "4"]}, **IDS),
        unreadable("vllm", "Expected `int`, got `str` - at `$.sampled[0]`"),
    ),
    "an id too large to be written": (
        chat(logprobs=entries(), choice={"token_ids": [2**80]}, **IDS),
        unreadable("vllm", f"Expected `int` <= {2**63 - 1} - at `$.sampled[0]`"),
    ),
    "no prompt": (
        chat(logprobs=entries(), choice={"token_ids": [3, 4]}),
        unreadable("vllm", "Expected `array`, got `null` - at `$.prompt`"),
    ),
    "not a number": (
        chat(logprobs=entries(logprob=None), choice={"token_ids": [3, 4]}, **IDS),
        unreadable("vllm", "Expected `float`, got `null` - at `$.logprobs[0]`"),
    ),
    "an id without its mark": (
        chat(logprobs=entries(token="token_id:x")),
        unreadable("token_id", "Expected `int`, got `null` - at `$.sampled[0]`"),
    ),
    "an id too long to be a number": (
        chat(logprobs=entries(token="token_id:" + "9" * 5000)),
        unreadable("token_id", "Expected `int`, got `null` - at `$.sampled[0]`"),
    ),
    "one id of llama.cpp": (
        chat(logprobs=entries(id=3)),
        unreadable("llamacpp", "Expected `int`, got `null` - at `$.sampled[1]`"),
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_take_tokens_reads_every_shape(name):
    """No shape fails the answer, and NeMo Gym's fields are not recorded twice."""
    body, tokens = BODIES[name]
    payload = json.dumps(body).encode()
    answer = DIALECTS["responses" if "output" in body else "chat"].answer(decode(payload))
    take_tokens(answer, decode(payload), None)
    assert answer.tokens == tokens
    assert "token_ids" not in str(answer.message)


def converse(source, *, refuses=(), stream=False, dialect="chat", **options):
    """Probe a mock server and ask it twice in one conversation with a tool."""

    def behave(request):
        for name in refuses:
            if name in request.params:
                return refusal_of(400, f"unknown field {name}")
        last = request.messages[-1]
        if last.role == "user" and last.text == "1 + 1?":
            return MockAnswer(tool_calls=[("add", {"a": 1})])
        return "2"

    async def run():
        sampler = source and TokenSampler(source, drift=0.5, weight_version="v1")
        async with MockServer(behave, sampler=sampler) as server:
            endpoint = Endpoint(
                base_url=server.base_url, model="m", stream=stream, dialect=dialect, **options
            )
            async with Client(endpoint, concurrency=1) as client:
                assert await client.probe_tokens() == client.token_source == source
                conversation, found = Conversation(client), []
                messages = [Message(role="user", content="1 + 1?")]
                last = None
                for _ in range(2):
                    request = Request(messages=messages, tools=[TOOL], last_tokens=last)
                    answer = await conversation.answer(request)
                    found.append(answer)
                    last = answer.tokens
                    messages = [
                        *messages,
                        answer.message,
                        Message(role="tool", content="2", tool_call_id="call_0_0"),
                    ]
            return found, server

    return asyncio.run(run())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("vllm", {}),
        ("vllm", {"refuses": ["return_tokens_as_token_ids"]}),
        ("token_id", {}),
        ("token_id", {"refuses": ["return_token_ids"], "logprob_mode": "processed"}),
        ("llamacpp", {}),
        ("llamacpp", {"refuses": ["return_token_ids", "return_tokens_as_token_ids"]}),
        ("nemo_gym", {}),
        ("nemo_gym", {"dialect": "responses"}),
    ],
)
def test_a_conversation_has_the_ids_that_the_engine_sampled(source, options, stream):
    answers, server = converse(source, stream=stream, **options)
    known = "raw" if source == "llamacpp" else "unknown"
    mode = options.get("logprob_mode", known)
    for tokens in server.tokens[-2:]:
        tokens.logprob_mode = mode
    assert [answer.tokens for answer in answers] == server.tokens[-2:]
    for answer in answers:
        # What was added to the request leaves nothing in the rollout.
        assert answer.message.logprobs is None
        assert "token_ids" not in str(answer.message)


@pytest.mark.parametrize(
    ("behaviour", "options", "error", "words"),
    [
        (
            "echo",
            {},
            UsageError,
            r"^POST .*/chat/completions: this endpoint reports no usable token ids "
            r"\(the answer has no token ids; sent: logprobs, return_token_ids .*\); "
            r"vLLM reports them from 0\.10\.2 on",
        ),
        ("echo", {"dialect": "responses"}, UsageError, "use --dialect chat"),
        (refusal_of(400, "stream=false, please"), {}, UsageError, "stream=false, please"),
        (refusal_of(401, "bad key"), {}, FatalEndpointError, "answered 401: .*bad key"),
        (refusal_of(404, "no such model"), {}, FatalEndpointError, "no such model"),
        (refusal_of(500, "broken"), {"max_attempts": 2}, FatalEndpointError, "broken"),
    ],
)
async def test_a_probe_says_why_there_are_no_ids(behaviour, options, error, words):
    behave = (lambda _: behaviour) if behaviour != "echo" else (lambda _: "hi")
    async with MockServer(behave) as server:
        endpoint = Endpoint(base_url=server.base_url, model="m", api_key=KEY, **options)
        time = FakeTime()
        async with Client(endpoint, concurrency=1, clock=time.clock, sleep=time.sleep) as client:
            with pytest.raises(error) as raised:
                await client.probe_tokens()
            text = str(raised.value)
    assert re.search(words, text)
    assert KEY not in text
    if error is UsageError:
        assert client.token_source is None


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            chat(logprobs=llama(3, 4)),
            r"prompt's token ids cannot be had: POST .*/apply-template answered 404",
        ),
        (
            chat(choice={"token_ids": [3, 4]}, **IDS),
            "there are not as many log-probabilities as sampled ids",
        ),
    ],
)
async def test_a_gateway_that_passes_on_a_part_has_no_ids(body, reason):
    """It lacks the server's own paths, or drops log-probabilities."""
    async with MockServer(lambda _: MockAnswer(body=json.dumps(body))) as server:
        endpoint = Endpoint(base_url=server.base_url, model="m")
        async with Client(endpoint, concurrency=1) as client:
            with pytest.raises(UsageError, match=reason):
                await client.probe_tokens()


async def test_answers_of_llama_may_take_longer_than_a_stream_may_stand_still():
    """They are not streamed, so nothing arrives before their end."""
    async with MockServer(latency=0.15, sampler=TokenSampler("llamacpp")) as server:
        endpoint = Endpoint(
            base_url=server.base_url, model="m", stream=True, idle_timeout=0.1, max_attempts=1
        )
        async with Client(endpoint, concurrency=1) as client:
            client.token_source = "llamacpp"
            assert (await Conversation(client).answer(hello())).tokens.problem == ""


async def test_single_requests_do_not_ask_for_ids():
    """A judge may share the client of the policy."""
    sampler = TokenSampler("vllm")
    async with MockServer(sampler=sampler) as server:
        endpoint = Endpoint(base_url=server.base_url, model="m", record_tokens=True)
        async with Client(endpoint, concurrency=1) as client:
            await client.probe_tokens()
            answer = await client.answer(hello())
            asked = Request(messages=hello().messages, params={"logprobs": True})
            kept = await Conversation(client).answer(asked)
            body = server.requests[1].body
    assert answer.tokens is None
    assert body.keys() == {"model", "messages"}
    assert kept.tokens is not None
    assert kept.message.logprobs  # the user asked for them


@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_ids_are_sent_back_on_the_last_answer(dialect):
    """The next prompt then begins with what was sampled, however its text would be tokenised."""
    answers, server = converse("nemo_gym", dialect=dialect, send_token_ids=True)
    first, second = (answer.tokens for answer in answers)
    whole = first.prompt + first.sampled
    assert second.prompt[: len(whole)] == whole
    body = server.requests[-1].body
    holder = body["messages"][1] if dialect == "chat" else body["input"][1]
    assert holder["generation_token_ids"] == first.sampled
    assert holder["generation_log_probs"] == first.logprobs
    assert holder["tool_calls" if dialect == "chat" else "name"]


def test_ids_are_sent_back_on_the_last_stored_item():
    message = Message(role="assistant", content="hi", response_items=[OPAQUE, item("message")])
    endpoint = Endpoint(
        base_url="http://127.0.0.1/v1", model="m", dialect="responses", send_token_ids=True
    )
    request = Request(messages=[*hello().messages, message], last_tokens=expected("nemo_gym"))

    async def sent(**options):
        client = Client(endpoint, concurrency=1)
        return json.loads(client.payload(request, **options))["input"][1:]

    assert asyncio.run(sent(sends_back=True)) == [OPAQUE, item("message", **BUNDLE)]
    assert asyncio.run(sent()) == [OPAQUE, item("message")]
    request.last_tokens.problem = "an id is negative"
    assert asyncio.run(sent(sends_back=True)) == [OPAQUE, item("message")]


@pytest.mark.parametrize(
    ("mode", "reason"),
    [(None, "raw log-probabilities of an answer that emulate_tools constrains"), ("processed", "")],
)
async def test_ids_of_an_emulated_call_are_those_of_its_text(mode, reason):
    """They are what the model wrote, and its schema moved their log-probabilities."""
    reply = '{"tool": "add", "arguments": {"a": 1}}'
    async with MockServer(lambda _: reply, sampler=TokenSampler("llamacpp")) as server:
        endpoint = Endpoint(
            base_url=server.base_url, model="m", emulate_tools=True, logprob_mode=mode
        )
        async with Client(endpoint, concurrency=1) as client:
            await client.probe_tokens()
            request = Request(messages=hello().messages, tools=[TOOL])
            answer = await Conversation(client).answer(request)
            tokens = server.tokens[-1]
    assert answer.message.tool_calls
    assert answer.tokens.sampled == tokens.sampled == [*encode(reply), END]
    assert answer.tokens.prompt == tokens.prompt
    assert answer.tokens.off_policy == reason
