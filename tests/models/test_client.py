"""The whole client: overload, outages, several addresses, and refusals that end a run."""

import asyncio
import itertools
import logging
from collections import Counter
from contextlib import AsyncExitStack

import msgspec
import pytest

from gymcli.errors import (
    AuthenticationError,
    EndpointConnectionError,
    EndpointGoneError,
    ModelError,
    RequestRefusedError,
)
from gymcli.mock import MockAnswer, MockServer
from gymcli.mock.behaviours import echo, in_order, num_turns, refusal_of
from gymcli.models.api_errors import is_fatal
from gymcli.models.client import Client, Conversation
from gymcli.models.endpoint import Endpoint, EndpointLimits
from gymcli.types import Message, Request, Usage
from tests.models.asking import HELLO, TOOL, FakeTime, ShortTime, ask_and_see, hello


def client_at(*addresses: str, concurrency: int = 8, time: FakeTime | None = None, **options):
    endpoint = Endpoint(base_url=addresses[0], replicas=addresses[1:], model="m", **options)
    fake = {"clock": time.clock, "sleep": time.sleep} if time else {}
    return Client(endpoint, concurrency=concurrency, **fake)


def num_outages(client: Client) -> int:
    return sum(replica.limiter.breaker.num_outages for replica in client.replicas)


async def dead_address() -> str:
    """Return an address at which nobody listens any more."""
    async with MockServer() as server:
        return server.base_url


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", ["chat", "responses"])
@pytest.mark.parametrize(
    ("status", "words", "kind"),
    [(401, "no such key", AuthenticationError), (404, "no such model", RequestRefusedError)],
)
async def test_answer_raises_a_fatal_first_refusal_immediately(
    status, words, kind, dialect, stream
):
    """The provider's refusal is raised without a wait of even a second."""
    time = FakeTime()
    async with MockServer(lambda _: refusal_of(status, words)) as server:
        options = {"dialect": dialect, "stream": stream, "time": time}
        async with client_at(server.base_url, **options) as client:
            asked = (client.answer(HELLO) for _ in range(8))
            errors = await asyncio.gather(*asked, return_exceptions=True)
            num_requests = server.num_requests
    assert {type(error) for error in errors} == {kind}
    assert all(words in str(error) and is_fatal(error) for error in errors)
    assert num_requests == 8
    assert time.sleeps == []


async def test_answer_loses_nothing_in_a_storm():
    """Overload costs time, but no attempts and no answers."""
    numbers = itertools.count()

    def behave(request: Request):
        return refusal_of(429, "slow") if next(numbers) < 100 else echo(request)

    request = hello()
    async with (
        MockServer(behave) as server,
        # Every sleep advances the shared clock, which is much too fast for a deadline.
        client_at(server.base_url, max_attempts=2, retry_deadline=1e6, time=FakeTime()) as client,
    ):
        answers = await asyncio.gather(*(client.answer(request) for _ in range(40)))
    assert [answer.message.text for answer in answers] == ["hello"] * 40
    assert request.tries.retries == {"RateLimitError": 100}


def test_answer_keeps_to_the_concurrency_of_its_limits():
    _, server = ask_and_see(limits=EndpointLimits(max_concurrency=1))
    assert server.max_in_flight == 1


async def test_answer_waits_for_an_endpoint_that_comes_back(caplog):
    """It dies with requests under way and returns; all are answered within few attempts."""
    time = ShortTime()
    with caplog.at_level(logging.INFO, logger="gymcli.models.limits"):
        async with MockServer() as first:
            port = int(first.base_url.split(":")[2].split("/")[0])
            client = client_at(first.base_url, max_attempts=2, outage_deadline=1e9, time=time)
            await client.__aenter__()
            await client.answer(HELLO)
        asked = asyncio.gather(*(client.answer(HELLO) for _ in range(30)))
        while not num_outages(client):
            await asyncio.sleep(0)
        async with MockServer(port=port):
            answers = await asked
            await client.__aexit__(None, None, None)
    assert len(answers) == 30
    assert num_outages(client) == 1
    assert client.replicas[0].limiter.breaker.outage_seconds > 0
    assert "is back after" in caplog.text


async def test_answer_gives_up_an_endpoint_that_does_not_come_back():
    time = FakeTime()
    async with MockServer() as server:
        client = client_at(server.base_url, outage_deadline=60, time=time)
        await client.__aenter__()
        await client.answer(HELLO)
    asked = (client.answer(HELLO) for _ in range(30))
    errors = await asyncio.gather(*asked, return_exceptions=True)
    waited, before = time.now, len(time.sleeps)
    with pytest.raises(EndpointGoneError):
        await client.answer(HELLO)
    await client.__aexit__(None, None, None)
    now = waited
    num_sleeps = len(time.sleeps) - before
    assert {type(error) for error in errors} == {EndpointGoneError}
    assert all(is_fatal(error) for error in errors)
    assert "is the server running" in str(errors[0])
    assert "(no success for 6" in str(errors[0])
    assert now >= 1060
    assert num_sleeps <= 1  # of a single probe, unless no time has passed since the others failed


@pytest.mark.parametrize("num_addresses", [1, 2])
async def test_answer_asks_again_where_an_endpoint_was_given_up(num_addresses):
    """Each later request is a single probe while the endpoint is still down."""
    time = FakeTime()
    async with MockServer() as server, MockServer() as other:
        addresses = [server.base_url, other.base_url][:num_addresses]
        client = client_at(*addresses, outage_deadline=60, time=time)
        await client.__aenter__()
        await asyncio.gather(*(client.answer(HELLO) for _ in range(4)))
    asked = (client.answer(HELLO) for _ in range(30))
    await asyncio.gather(*asked, return_exceptions=True)
    waits = []
    for _ in range(3):
        time.now += 1.0
        began_at = time.now
        errors = await asyncio.gather(
            *(client.answer(HELLO) for _ in range(5)), return_exceptions=True
        )
        assert {type(error) for error in errors} == {EndpointGoneError}
        waits.append(time.now - began_at)
    time.now += 1.0
    async with MockServer(port=int(server.base_url.split(":")[2].split("/")[0])):
        answers = await asyncio.gather(*(client.answer(HELLO) for _ in range(5)))
        await client.__aexit__(None, None, None)
    assert max(waits) < 60
    assert [answer.message.text for answer in answers] == ["hello"] * 5


async def test_answer_asks_again_where_an_overloaded_endpoint_was_given_up():
    """The pause after the last refusal is still under way when the next request comes."""
    time = FakeTime()
    refusal = MockAnswer(status=503, headers={"retry-after": "30"})
    is_overloaded = False

    def behave(request):
        return refusal if is_overloaded else echo(request)

    async with (
        MockServer(behave) as server,
        client_at(server.base_url, outage_deadline=60, time=time) as client,
    ):
        await client.answer(HELLO)
        is_overloaded = True
        asked = (client.answer(HELLO) for _ in range(3))
        errors = await asyncio.gather(*asked, return_exceptions=True)
        is_overloaded = False
        time.now += 1.0
        answer = await client.answer(HELLO)
    assert {type(error) for error in errors} == {EndpointGoneError}
    assert answer.message.text == "hello"


async def test_answer_soon_gives_up_an_address_that_never_answered():
    time = FakeTime()
    async with client_at(await dead_address(), time=time) as client:
        asked = (client.answer(HELLO) for _ in range(30))
        errors = await asyncio.gather(*asked, return_exceptions=True)
    assert {type(error) for error in errors} <= {EndpointGoneError, EndpointConnectionError}
    assert all(is_fatal(error) and "is the server running" in str(error) for error in errors)


async def test_answer_does_not_take_single_faults_for_an_outage():
    """One of five requests ends in a way that an outage also causes."""
    numbers = itertools.count()

    def behave(request: Request):
        number = next(numbers)
        if number % 5:
            return echo(request)
        return [MockAnswer(fault="reset"), refusal_of(502, "x"), refusal_of(500, "x")][number % 3]

    async with (
        MockServer(behave) as server,
        client_at(server.base_url, time=FakeTime()) as client,
    ):
        await asyncio.gather(*(client.answer(HELLO) for _ in range(200)))
        assert num_outages(client) == 0


async def test_answer_survives_fast_failures_before_slow_answers():
    """Every fifth connection breaks immediately, so that the first twelve outcomes are failures."""
    numbers = itertools.count()

    def behave(request: Request):
        is_bad = next(numbers) % 5 == 0
        return MockAnswer(fault="reset") if is_bad else MockAnswer(text="x", delay=0.2)

    async with (
        MockServer(behave) as server,
        client_at(server.base_url, concurrency=64, time=FakeTime()) as client,
    ):
        await asyncio.gather(*(client.answer(HELLO) for _ in range(64)))
        assert num_outages(client) == 0


async def play(client: Client, num_answers: int = 5) -> None:
    """Hold a conversation of several turns."""
    conversation = Conversation(client)
    request = Request(messages=[*HELLO.messages])
    for _ in range(num_answers):
        answer = await conversation.answer(request)
        request = Request(messages=[*request.messages, answer.message])


def first_turns(server: MockServer) -> int:
    return sum(received.body["messages"][-1]["role"] == "user" for received in server.requests)


def test_conversation_stays_at_one_of_several_addresses():
    async def run():
        async with MockServer() as one, MockServer() as two:
            async with client_at(one.base_url, two.base_url, concurrency=20) as client:
                await asyncio.gather(*(play(client) for _ in range(20)))
            return one, two

    for server in asyncio.run(run()):
        assert first_turns(server) >= 5  # the load is shared
        assert server.num_requests == 5 * first_turns(server)


async def test_conversation_shares_the_load_by_what_addresses_take():
    """Of two addresses, the one with a capacity of two gets fewer requests."""
    held = Counter()
    async with AsyncExitStack() as stack:
        small, large = [await stack.enter_async_context(MockServer()) for _ in range(2)]

        def behave(request: Request):
            return refusal_of(429, "busy") if small.in_flight > 2 else echo(request)

        small.behaviour = behave
        small.latency = large.latency = 0.01
        client = client_at(small.base_url, large.base_url, concurrency=16)
        await stack.enter_async_context(client)

        async def work() -> None:
            for _ in range(20):
                await client.answer(HELLO)

        await asyncio.gather(*(work() for _ in range(16)))
        held.update(small=small.num_requests, large=large.num_requests)
    assert held["large"] > held["small"]


async def test_conversation_moves_when_its_address_goes_down():
    async with MockServer() as stays:
        async with MockServer() as goes:
            client = client_at(goes.base_url, stays.base_url, time=FakeTime())
            await client.__aenter__()
            conversations = [Conversation(client) for _ in range(10)]
            await asyncio.gather(*(one.answer(HELLO) for one in conversations))
            assert goes.num_requests > 0
        turn = Message(role="assistant", content="hi")
        request = Request(messages=[*HELLO.messages, turn, *HELLO.messages])
        answers = await asyncio.gather(*(one.answer(request) for one in conversations))
        assert [answer.message.text for answer in answers] == ["hello"] * 10
        await client.__aexit__(None, None, None)
        assert sum(num_turns_of(received) for received in stays.requests) == 10


def num_turns_of(received) -> int:
    messages = received.body["messages"]
    return num_turns(Request(messages=[Message(role=m["role"]) for m in messages]))


async def test_answer_uses_an_address_again_that_is_back():
    time = FakeTime()
    async with MockServer() as stays:
        address = await dead_address()
        port = int(address.split(":")[2].split("/")[0])
        async with client_at(address, stays.base_url, time=time) as client:
            while not num_outages(client):
                await asyncio.gather(*(client.answer(HELLO) for _ in range(30)))
            async with MockServer(port=port) as back:
                for _ in range(50):
                    time.now += 1
                    await client.answer(HELLO)
                num_requests = back.num_requests
    assert num_requests > 5
    assert num_outages(client) == 1


async def test_answer_gives_up_when_all_addresses_are_gone():
    time = FakeTime()
    async with MockServer() as one, MockServer() as two:
        client = client_at(one.base_url, two.base_url, outage_deadline=30, time=time)
        await client.__aenter__()
        await asyncio.gather(*(client.answer(HELLO) for _ in range(8)))
    asked = (client.answer(HELLO) for _ in range(30))
    errors = await asyncio.gather(*asked, return_exceptions=True)
    await client.__aexit__(None, None, None)
    assert {type(error) for error in errors} == {EndpointGoneError}
    assert time.now >= 1030


@pytest.mark.parametrize("broken", [refusal_of(500, "oops"), refusal_of(429, "slow")])
async def test_answer_loses_nothing_where_one_of_two_addresses_only_fails(broken):
    """A conversation moves away after a failure, and few ever go there."""
    async with MockServer(lambda _: broken) as bad, MockServer() as good:
        options = {"max_attempts": 3, "retry_deadline": 1e6, "time": FakeTime()}
        async with client_at(bad.base_url, good.base_url, **options) as client:
            await asyncio.gather(*(play(client) for _ in range(100)))
        num_bad = bad.num_requests
        num_good = good.num_requests
    assert num_good == 500
    assert num_bad < 250


async def test_answer_loses_nothing_where_one_of_two_addresses_hangs():
    hung = MockServer(lambda _: MockAnswer(fault="stall"))
    async with hung, MockServer() as good:
        options = {"max_attempts": 2, "total_timeout": 0.5}
        async with client_at(hung.base_url, good.base_url, **options) as client:
            await asyncio.gather(*(client.answer(HELLO) for _ in range(8)))
        assert good.num_requests == 8


@pytest.mark.parametrize("bad", [refusal_of(502, "x"), MockAnswer(fault="reset")])
async def test_answer_loses_nothing_where_a_gateway_has_no_server_behind_it(bad):
    """A failed probe is no attempt of its request: the outage outlasts any number of attempts."""
    numbers = itertools.count()

    def behave(request: Request):
        return bad if next(numbers) < 60 else echo(request)

    options = {"concurrency": 4, "max_attempts": 6, "outage_deadline": 1e6}
    async with MockServer(behave) as server:
        time = FakeTime()
        async with client_at(server.base_url, retry_deadline=1e6, time=time, **options) as client:
            assert len(await asyncio.gather(*(client.answer(HELLO) for _ in range(8)))) == 8


async def test_conversation_tells_how_long_it_waited():
    """The wait for the limiter and between tries counts, the time of the answer does not."""
    numbers = itertools.count()
    time = FakeTime()

    def behave(request: Request):
        time.now += 100
        return echo(request) if next(numbers) else refusal_of(500, "oops")

    async with (
        MockServer(behave) as server,
        client_at(server.base_url, time=time) as client,
    ):
        conversation = Conversation(client)
        await conversation.answer(HELLO)
        waited = conversation.waited
        slept = sum(time.sleeps)
    assert waited == pytest.approx(slept)
    assert 0.5 <= waited <= 1


async def test_conversation_waited_while_its_address_was_gone():
    time = FakeTime()
    async with client_at(await dead_address(), time=time) as client:
        conversation = Conversation(client)
        with pytest.raises(ModelError):
            await conversation.answer(HELLO)
        waited = conversation.waited
        passed = time.now - 1000
    assert waited == pytest.approx(passed)
    assert passed > 0


async def test_answer_probes_an_address_again_that_was_given_up():
    """After the others have failed too, its return ends the outage."""
    time = ShortTime()
    address = await dead_address()
    port = int(address.split(":")[2].split("/")[0])
    async with MockServer() as stays:
        client = client_at(address, stays.base_url, outage_deadline=1e9, time=time)
        await client.__aenter__()
        while not num_outages(client):
            await asyncio.gather(*(client.answer(HELLO) for _ in range(30)))
    assert client.replicas[0].limiter.breaker.give_up()
    asked = asyncio.gather(*(client.answer(HELLO) for _ in range(30)))
    while num_outages(client) < 2:
        await asyncio.sleep(0)
    async with MockServer(port=port) as back:
        answers = await asked
        await client.__aexit__(None, None, None)
        assert (len(answers), back.num_requests) == (30, 30)


async def test_a_malformed_call_counts_as_an_answer():
    """The endpoint is up and the model has answered: nothing slows down, and a refusal is none."""
    error = {"code": "tool_use_failed", "message": "no", "failed_generation": "f("}
    malformed = MockAnswer(status=400, body=msgspec.json.encode({"error": error}).decode())
    async with (
        MockServer(in_order(malformed, refusal_of(401, "no"))) as server,
        client_at(server.base_url, concurrency=2) as client,
    ):
        limiter = client.replicas[0].limiter
        answer = await client.answer(Request(messages=HELLO.messages, tools=[TOOL]))
        assert (answer.message.content, answer.finish_reason) == ("f(", "malformed_call")
        assert (answer.usage, limiter.num_under_way) == (Usage(), 0)
        assert (limiter.limit.current, limiter.breaker.was_reached) == (2, True)
        with pytest.raises(AuthenticationError) as raised:
            await client.answer(hello())
        assert raised.value.follows_answers
