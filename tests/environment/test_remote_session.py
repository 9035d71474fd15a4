import asyncio

import aiohttp
import pytest

from gymcli.environment.remote_session import MAX_ANSWER_BYTES, ServerSession, _broken, _waited
from gymcli.errors import EpisodeError
from tests.environment.remote_playing import on_server
from tests.environment.remote_server import ResourcesServer


def asked(server, path="get_counter_value", payload=None, seconds=5.0):
    async def episode(server):
        async with ServerSession(server.base_url) as session:
            return await session.post(
                path, payload or {}, seconds=seconds, error_class=EpisodeError
            )

    return on_server(server, episode)


def test_post_gives_any_status():
    reply = asked(ResourcesServer(), "nowhere")
    assert (reply.status, reply.text) == (404, '{"detail":"Not Found"}')


def test_post_sends_large_bodies():
    """Rows with images take megabytes."""
    server = ResourcesServer()
    image = "x" * (3 * 2**20)
    assert asked(server, "seed_session", {"image": image}).status == 200
    assert server.bodies("/seed_session") == [{"image": image}]


def test_post_reads_an_answer_up_to_the_limit():
    server = ResourcesServer(faults={"/big": (200, b"x" * (MAX_ANSWER_BYTES + 1))})
    with pytest.raises(EpisodeError, match="longer than 64 MiB"):
        asked(server, "big", seconds=60.0)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"


@pytest.mark.parametrize(
    ("said", "stays", "words"),
    [
        (b"", True, "no answer within 0.1 seconds"),
        (HEAD, True, "no answer within 0.1 seconds"),
        (HEAD + b'{"reward":', True, "no answer within 0.1 seconds"),
        (HEAD + b'{"reward":', False, "the connection broke: "),
        (b"", False, "the connection broke: "),
    ],
)
def test_post_ends_where_the_answer_does_not(said, stays, words):
    """It stalls before its first byte, or in the middle, or the connection breaks there."""

    async def run():
        leaving = asyncio.Event()

        async def answer(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(said)
            await writer.drain()
            if stays:
                await leaving.wait()
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            try:
                async with ServerSession(f"http://{host}:{port}") as session:
                    seconds = 0.1 if stays else 60.0
                    await session.post("verify", {}, seconds=seconds, error_class=EpisodeError)
            finally:
                leaving.set()

    with pytest.raises(EpisodeError) as caught:
        asyncio.run(run())
    assert words in str(caught.value)


def test_waited_tells_connecting_from_answering():
    """Only an address that swallows packets meets the first limit, and takes all of it."""
    assert _waited(aiohttp.ConnectionTimeoutError(), 60.0) == "no connection within 10 seconds"
    assert _waited(TimeoutError(), 60.0) == "no answer within 60 seconds"


def test_broken_names_an_error_without_words():
    assert _broken(aiohttp.ClientError()) == "the connection broke: ClientError"


@pytest.mark.parametrize(
    "value",
    ["plain", "a.b", "bm90IGpzb24=.1.x", "W10=.1.x", "e30=.1.x", "eyJzZXNzaW9uX2lkIjoxfQ==.1.x"],
)
def test_cookies_of_other_servers_are_not_looked_into(value):
    """Whatever they hold, that they change from call to call says nothing."""

    async def episode(server):
        async with ServerSession(server.base_url) as session:
            for num_answers in range(3):
                server.other_cookie = f"{value}{num_answers}"
                reply = await session.post("a", {}, seconds=5.0, error_class=EpisodeError)
                session.is_open = True
                assert reply.status == 404
            return session.has_cookies

    assert on_server(ResourcesServer(cookies="none"), episode)


def test_a_cookie_that_we_lose_is_noticed():
    """As if our jar were emptied in the middle of an episode."""

    async def episode(server):
        async with ServerSession(server.base_url) as session:
            await session.post("seed_session", {}, seconds=5.0, error_class=EpisodeError)
            session.is_open = True
            session._client.cookie_jar.clear()
            await session.post("get_counter_value", {}, seconds=5.0, error_class=EpisodeError)

    with pytest.raises(EpisodeError, match="another session than the one that was opened"):
        on_server(ResourcesServer(), episode)
