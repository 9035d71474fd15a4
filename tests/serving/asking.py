"""Ask a served environment as a client of NeMo Gym does: plain aiohttp with one cookie jar."""

from contextlib import asynccontextmanager

import aiohttp
import msgspec
from aiohttp import web

from gymcli.serving import Service
from gymcli.serving.applications import aiohttp_application

HERE = "tests.serving.environments"


def row(nonce, **fields):
    params = {"input": [{"role": "user", "content": "Note it."}], "tools": None}
    return {"id": nonce, "nonce": nonce, "responses_create_params": params, **fields}


def response(*output):
    """Return the smallest response that the protocol allows."""
    fixed = {"id": "r", "created_at": 0, "model": "m", "object": "response"}
    tools = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return {**fixed, **tools, "output": list(output)}


def said(text):
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "m", "role": "assistant", "content": [part]}


class Served:
    """A server of one environment on a free port of 127.0.0.1."""

    def __init__(self, name, *, service=None, max_body=2**14, **options):
        self.service = service or Service(f"{HERE}:{name}", **options)
        self._max_body = max_body

    async def __aenter__(self):
        application = aiohttp_application(self.service, max_body=self._max_body)
        self._runner = web.AppRunner(application)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, backlog=1024).start()
        self.base_url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_):
        await self._runner.cleanup()


class Client:
    """A client with one cookie jar."""

    def __init__(self, session, base_url):
        self._session = session
        self._base_url = base_url
        self.cookies = session.cookie_jar

    async def ask(self, method, path, body=None, *, headers=None, data=None):
        """Return status, body as text, and headers."""
        url = f"{self._base_url}/{path}"
        async with self._session.request(
            method, url, json=body, data=data, headers=headers
        ) as answer:
            return answer.status, await answer.text(), answer.headers

    async def post(self, path, body=None, **options):
        """Return the JSON of a successful answer."""
        status, text, _ = await self.ask("POST", path, body, **options)
        assert status == 200, (status, text)
        return msgspec.json.decode(text)


@asynccontextmanager
async def client_of(server):
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as session:
        yield Client(session, server.base_url)


class Clock:
    """A clock that only moves when told to."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now
