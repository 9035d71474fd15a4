"""Which model an endpoint serves, where nobody said."""

import asyncio
import re

import pytest
from aiohttp import web

from gymcli.client import served_model
from gymcli.errors import UsageError
from gymcli.mock import MockServer


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
            return await served_model(address, spec=f"{address}/score")
        finally:
            await runner.cleanup()

    return asyncio.run(run())


def test_served_model_gives_the_only_one():
    async def run():
        async with MockServer() as server:
            return await served_model(server.base_url, spec=server.base_url)

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
    assert re.search(r"behind a #: http://127\.0\.0\.1:\d+/v1/score#MODEL$", str(caught.value))


def test_served_model_looks_below_v1_as_well():
    """A reward model's address ends before it: http://host/classify."""
    assert asked_of('{"data": [{"id": "rm"}]}', path="") == "rm"


def test_served_model_tells_an_endpoint_that_is_not_there():
    with pytest.raises(UsageError, match="name the model behind a #"):
        asyncio.run(served_model("http://127.0.0.1:9/v1", spec="http://127.0.0.1:9/v1"))
