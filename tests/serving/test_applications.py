"""Tests of a served environment as an aiohttp application and as an ASGI application."""

import asyncio
import subprocess
import sys
import urllib.request

import aiohttp
import msgspec
import pytest
from aiohttp import web

from gymcli.serving import application, applications, asgi
from tests.serving.asking import HERE, row

MODULE = f'''from gymcli.serving import asgi

app = asgi("{HERE}:Notebook")
'''


class Driver:
    """Drives an ASGI application as a server does: a lifespan around requests."""

    def __init__(self, app):
        self._app = app
        self._to_app = asyncio.Queue()
        self._from_app = asyncio.Queue()

    async def __aenter__(self):
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}}
        self._living = asyncio.create_task(self._app(scope, self._to_app.get, self._from_app.put))
        await self._to_app.put({"type": "lifespan.startup"})
        self.started = await self._from_app.get()
        return self

    async def __aexit__(self, *_):
        await self._to_app.put({"type": "lifespan.shutdown"})
        if self.started["type"] == "lifespan.startup.complete":
            assert (await self._from_app.get())["type"] == "lifespan.shutdown.complete"
        await self._living

    async def ask(self, method, path, *chunks, headers=(), root="", raw=None):
        """Return status, headers and body."""
        scope = {"type": "http", "method": method, "path": path, "root_path": root}
        scope["headers"] = [(name.encode(), value.encode()) for name, value in headers]
        if raw is not None:
            scope["raw_path"] = raw
        events = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
        events.append({"type": "http.request"})
        sent = []

        async def receive():
            return events.pop(0)

        async def send(event):
            sent.append(event)

        await self._app(scope, receive, send)
        start, end = sent
        return start["status"], dict(start["headers"]), end["body"]


async def test_asgi_carries_requests_and_cookies():
    async with Driver(asgi(f"{HERE}:Notebook")) as server:
        body = msgspec.json.encode(row("a"))
        status, headers, text = await server.ask(
            "POST", "/gym/seed_session", body[:10], body[10:], root="/gym"
        )
        assert (status, text) == (200, b"{}")
        cookie = headers[b"set-cookie"].decode().partition(";")[0]
        asked = [("Cookie", f"other=1; {cookie}")]
        written = await server.ask("POST", "/write", b'{"text": "x"}', headers=asked)
        raw = b"/..%2Fverify"
        odd = await server.ask("POST", "/../verify", b"{}", headers=asked, raw=raw)
        (status, headers, body) = written
    assert (status, body) == (200, b'{"num_notes":1}')
    assert headers[b"content-length"] == b"15"
    assert odd[0] == 404
    assert odd[2].startswith(b"There is no tool '../verify'")


async def test_asgi_refuses_a_body_that_is_too_long_and_what_is_no_http(monkeypatch):
    monkeypatch.setattr(applications, "MAX_BODY", 100)
    app = asgi("mcqa")
    async with Driver(app) as server:
        status, _, _ = await server.ask("POST", "/verify", b" " * 60, b" " * 60)
    closed = []

    async def receive():
        return {"type": "websocket.connect"}

    async def send(event):
        closed.append(event)

    await app({"type": "websocket"}, receive, send)
    assert (status, closed) == (413, [{"type": "websocket.close"}])


async def test_asgi_lets_go_of_a_client_that_went_before_its_body_came():
    sent = []

    async def receive():
        return {"type": "http.disconnect"}

    async def send(event):
        sent.append(event)

    app = asgi(f"{HERE}:Plain")
    async with Driver(app):
        scope = {"type": "http", "method": "POST", "path": "/verify", "headers": []}
        await app(scope, receive, send)
    assert sent == []


async def test_asgi_takes_cookies_of_several_headers():
    async with Driver(asgi(f"{HERE}:Notebook")) as server:
        body = msgspec.json.encode(row("a"))
        _, headers, _ = await server.ask("POST", "/seed_session", body)
        cookie = headers[b"set-cookie"].decode().partition(";")[0]
        cookies = [("cookie", cookie), ("cookie", "other=1")]
        assert (await server.ask("POST", "/read", b"{}", headers=cookies))[0] == 200


async def test_asgi_without_a_lifespan_says_that_it_has_not_begun():
    status, headers, body = await Driver(asgi("mcqa")).ask("GET", "/")
    assert status == 503
    assert headers[b"retry-after"] == b"1"
    assert b"the server starts or stops" in body


def test_application_can_be_a_part_of_another():
    async def run():
        whole = web.Application()
        whole.add_subapp("/counter/", application("example_session_state_mgmt"))
        runner = web.AppRunner(whole)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            port = runner.addresses[0][1]
            url = f"http://127.0.0.1:{port}/counter/"
            async with aiohttp.ClientSession() as client, client.get(url) as answer:
                return await answer.json()
        finally:
            await runner.cleanup()

    assert asyncio.run(run())["environment"] == "example_session_state_mgmt"


@pytest.mark.slow
def test_uvicorn_serves_it(tmp_path):
    pytest.importorskip("uvicorn")
    (tmp_path / "served.py").write_text(MODULE)
    command = [sys.executable, "-m", "uvicorn", "served:app", "--port", "0"]
    folders = ["--app-dir", str(tmp_path)]
    with subprocess.Popen([*command, *folders], stderr=subprocess.PIPE, text=True) as process:
        try:
            lines = iter(process.stderr.readline, "")
            line = next(line for line in lines if "running on" in line)
            address = line.partition("running on ")[2].split()[0]
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(f"{address}/", timeout=60) as answer:
                assert msgspec.json.decode(answer.read())["environment"] == "environments"
        finally:
            process.terminate()
            process.stderr.read()
    assert process.returncode in (0, -15)
