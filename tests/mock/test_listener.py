"""Tests of the endpoint's outages: how it goes down and returns."""

import asyncio
import contextlib
import os
import signal
import socket

import aiohttp
import pytest

from gymcli.errors import UsageError
from gymcli.mock import MockServer, Outage, fixed, serve
from tests.mock.talking import CHAT, chat, on_both_loops, post, raw, run_on, talk


async def refused(server: MockServer) -> bool:
    """Return whether nobody listens; a connection still waiting when it falls is reset."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", server.site.port)
    except (ConnectionRefusedError, ConnectionResetError):
        return True
    writer.close()
    with contextlib.suppress(ConnectionResetError):
        await writer.wait_closed()
    return False


async def until_it_is_up(server: MockServer) -> None:
    while await refused(server):
        await asyncio.sleep(0)


@on_both_loops
def test_fall_resets_what_is_open_and_refuses_what_comes(loop):
    async def run(server, session):
        idle = await asyncio.open_connection("127.0.0.1", server.site.port)
        under_way = asyncio.ensure_future(raw(server, "/chat/completions", CHAT))
        while not server.in_flight:
            await asyncio.sleep(0)
        await server.site.fall()
        with pytest.raises(ConnectionResetError):
            await idle[0].read()
        idle[1].close()
        down = await refused(server), (await under_way).ending
        port = server.site.port
        await server.site.rise()
        assert port == server.site.port
        server.latency = 0.0
        status, _ = await post(session, server, "/chat/completions", CHAT)
        return (*down, status, server.stats)

    is_refused, ending, status, stats = talk(run, loop=loop, latency=3600.0)
    assert (is_refused, ending, status) == (True, "reset", 200)
    assert (stats.num_requests, stats.num_unanswered, stats.in_flight) == (2, 1, 0)


@on_both_loops
def test_fall_keeps_the_port_from_others(loop):
    async def run(server, session):
        kept = await asyncio.open_connection("127.0.0.1", server.site.port)
        for _ in range(2):
            await server.site.fall()
            with socket.socket() as other:
                other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
                with pytest.raises(OSError, match="in use"):
                    other.bind(("127.0.0.1", server.site.port))
            assert await refused(server)
            await server.site.rise()
        kept[1].close()
        return await post(session, server, "/chat/completions", CHAT)

    assert talk(run, loop=loop)[0] == 200


async def passed(seconds: float) -> None:
    """Wait until timers of this length, set earlier, have fired."""
    await asyncio.sleep(seconds)
    for _ in range(5):
        await asyncio.sleep(0)


@on_both_loops
def test_a_return_that_was_planned_before_is_off(loop):
    async def run(server, session):
        await server.site.fall(0.05)
        await server.site.rise()
        await server.site.fall()
        await passed(0.1)
        first = server.site.is_down
        await server.site.fall(0.05)
        await server.site.fall()
        await passed(0.1)
        return first, server.site.is_down, await refused(server)

    assert talk(run, loop=loop) == (True, True, True)


@on_both_loops
def test_a_later_fall_says_when_it_is_back(loop):
    async def run(server, session):
        await server.site.fall()
        await server.site.fall(0.01)
        await until_it_is_up(server)
        return server.site.is_down

    assert talk(run, loop=loop) is False


@on_both_loops
def test_a_planned_death_comes_in_spite_of_another_before(loop):
    async def run(server, session):
        server.site.fall_after(0.05, None)
        await server.site.fall(0.01)
        await passed(0.1)
        return server.site.is_down

    assert talk(run, loop=loop)


@on_both_loops
def test_fall_and_rise_at_once_take_turns(loop):
    async def run(server, session):
        await asyncio.gather(server.site.fall(), server.site.rise())
        assert not await refused(server)
        await asyncio.gather(server.site.fall(), server.site.rise(), server.site.fall())
        return server.site.is_down, await refused(server)

    assert talk(run, loop=loop) == (True, True)


@contextlib.asynccontextmanager
async def port_taken(server: MockServer):
    """Take the port of a server that fell, as if the system had assigned it."""
    await server.site._leave()  # without this call it would be a race
    with socket.create_server(("127.0.0.1", server.site.port)):
        yield


@on_both_loops
def test_rise_that_fails_may_be_tried_again(loop):
    async def run(server, session):
        await server.site.fall()
        async with port_taken(server):
            with pytest.raises(UsageError, match=r"cannot listen on 127.0.0.1:\d+ again: .*in use"):
                await server.site.rise()
            assert server.site.is_down
        await server.site.rise()
        return await post(session, server, "/chat/completions", CHAT)

    assert talk(run, loop=loop)[0] == 200


@on_both_loops
def test_serve_ends_with_a_return_that_fails(loop):
    async def run(server: MockServer, *, by_signal: bool) -> None:
        begun = asyncio.Event()
        served = asyncio.ensure_future(serve(server, lambda _: begun.set()))
        await begun.wait()
        await server.site.fall()
        async with port_taken(server):
            if by_signal:
                os.kill(os.getpid(), signal.SIGUSR1)
            else:
                await server.site.fall(0)
            await served

    for by_signal in (True, False):
        with pytest.raises(UsageError, match=r"again: .*in use"):
            run_on(loop, run(MockServer(), by_signal=by_signal))


@on_both_loops
def test_fall_and_rise_twice_are_as_once(loop):
    async def run(server, session):
        for _ in range(2):
            await server.site.fall()
            await server.site.fall()
            assert await refused(server)
            await server.site.rise()
            await server.site.rise()
            assert not await refused(server)
        await server.site.fall()

    talk(run, loop=loop)


@on_both_loops
def test_down_after_requests_and_back_after_a_while(loop):
    async def run(server, session):
        answered = [await post(session, server, "/chat/completions", CHAT) for _ in range(2)]
        with pytest.raises(aiohttp.ClientError):
            await post(session, server, "/chat/completions", CHAT)
        await until_it_is_up(server)
        last = await post(session, server, "/chat/completions", CHAT)
        return [status for status, _ in (*answered, last)], server.stats

    statuses, stats = talk(run, loop=loop, outage=Outage(after_requests=2, seconds=0.05))
    assert statuses == [200, 200, 200]
    assert (stats.num_requests, stats.num_unanswered, stats.faults) == (4, 1, {"down": 1})


@on_both_loops
def test_down_after_seconds_for_ever(loop):
    async def run(server, session):
        while not await refused(server):
            await asyncio.sleep(0)
        return server.site.is_down

    assert talk(run, loop=loop, outage=Outage(after_seconds=0.05))


@on_both_loops
def test_down_by_http(loop):
    async def run(server, session):
        address = server.base_url.replace("/v1", "/down")
        async with session.post(address, params={"seconds": "0.05"}) as response:
            answer = response.status, await response.json()
        await until_it_is_up(server)
        async with session.post(address) as response:
            forever = response.status, await response.json()
        return answer, forever, await refused(server)

    assert talk(run, loop=loop) == ((200, {"seconds": 0.05}), (200, {"seconds": None}), True)


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
@on_both_loops
def test_down_by_http_from_this_machine_over_all_addresses(loop):
    async def run(server, session):
        async with session.post(f"http://127.0.0.1:{server.site.port}/down") as response:
            return response.status

    assert talk(run, loop=loop, host="::") == 200


@pytest.mark.parametrize("seconds", ["soon", "-1", "inf", "nan"])
@on_both_loops
def test_down_by_http_names_what_is_wrong(seconds, loop):
    async def run(server, session):
        address = server.base_url.replace("/v1", "/down")
        async with session.post(address, params={"seconds": seconds}) as response:
            return response.status, (await response.json())["error"]["message"]

    assert talk(run, loop=loop) == (400, f"seconds={seconds}: expected a number of seconds")


@on_both_loops
def test_down_is_asked_for_by_post(loop):
    async def run(server, session):
        async with session.get(server.base_url.replace("/v1", "/down")) as response:
            return response.status, server.site.is_down

    assert talk(run, loop=loop) == (404, False)


@on_both_loops
def test_listener_ends_while_it_is_down(loop):
    async def run() -> None:
        async with MockServer(outage=Outage(after_requests=0, seconds=3600)) as server:
            assert (await raw(server, "/chat/completions", CHAT)).ending == "reset"

    run_on(loop, run())


@on_both_loops
def test_listener_names_an_address_that_is_taken(loop):
    async def run(server, session):
        async with MockServer(port=server.site.port):
            raise AssertionError("two servers on one port")

    with pytest.raises(OSError, match="in use"):
        talk(run, loop=loop)


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
def test_base_url_of_ipv6_has_brackets():
    assert MockServer(fixed("x"), host="::1", port=8080).base_url == "http://[::1]:8080/v1"


@on_both_loops
def test_requests_of_one_connection_go_on_until_the_fall(loop):
    """Connections that are kept alive break too; it is not only new ones that are refused."""

    async def run(server, session):
        for number in range(3):
            assert (await post(session, server, "/chat/completions", chat(str(number))))[0] == 200
        await server.site.fall()
        with pytest.raises(aiohttp.ClientError):
            await post(session, server, "/chat/completions", CHAT)

    talk(run, loop=loop)
