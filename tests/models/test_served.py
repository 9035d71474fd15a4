"""Which model an endpoint serves, where nobody said."""

import asyncio

import pytest
from aiohttp import web

from gymcli.errors import UsageError
from gymcli.mock import MockServer
from gymcli.models.http import MAX_ANSWER_BYTES
from gymcli.models.settings import served_model


def asked_of(body, status=200, path="/v1"):
    """Ask a server that gives this body as its list of models."""

    async def run():
        async def answer(request):
            return web.Response(text=body, status=status, content_type="application/json")

        application = web.Application()
        application.router.add_get("/v1/models", answer)
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            address = f"http://127.0.0.1:{runner.addresses[0][1]}{path}"
            return await served_model(address)
        finally:
            await runner.cleanup()

    return asyncio.run(run())


def test_served_model_gives_the_only_one():
    async def run():
        async with MockServer() as server:
            return await served_model(server.base_url)

    assert asyncio.run(run()) == "mock"


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ('{"data": [{"id": "a"}, {"id": "b"}]}', 200, "serves a, b"),
        ('{"data": []}', 200, "serves no model"),
        ("oops", 200, "status 200, no list of models"),
        ('{"error": {"message": "key?"}}', 401, "status 401, no list of models"),
    ],
)
def test_served_model_says_how_to_name_one(body, status, message):
    with pytest.raises(UsageError, match=message) as caught:
        asked_of(body, status)
    assert str(caught.value).endswith("; name the model behind the address: URL#MODEL")


def test_served_model_looks_below_v1_as_well():
    """A reward model's address ends before it: http://host/classify."""
    assert asked_of('{"data": [{"id": "rm"}]}', path="") == "rm"


def test_served_model_tells_an_endpoint_that_is_not_there():
    with pytest.raises(UsageError, match="name the model behind the address"):
        asyncio.run(served_model("http://127.0.0.1:9/v1"))


@pytest.mark.parametrize("address", ["http://user:hush@{host}/v1", "http://{host}/v1?key=hush"])
def test_served_model_asks_no_address_that_may_hold_a_secret(mock_server, address):
    host = mock_server.base_url.removeprefix("http://").removesuffix("/v1")
    with pytest.raises(UsageError, match="the base URL must") as caught:
        asyncio.run(served_model(address.format(host=host)))
    assert "hush" not in str(caught.value)
    assert mock_server.num_requests == 0


def test_served_model_reads_no_body_without_end():
    with pytest.raises(UsageError, match="longer than 64 MiB"):
        asked_of(" " * (MAX_ANSWER_BYTES + 1), 200)
