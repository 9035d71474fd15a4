"""Tests of where a server listens, when it reports that, and when it ends."""

import asyncio
import signal
import socket
import urllib.request

import pytest
from aiohttp import web

from gymcli.errors import UsageError
from gymcli.listening import listen


def runner():
    async def answer(request):
        return web.Response(text="here")

    application = web.Application()
    application.router.add_get("/", answer)
    return web.AppRunner(application, access_log=None, shutdown_timeout=0.1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_listens_until_it_is_told_to_end(number):
    addresses = []

    def announce(address):
        addresses.append(address)
        asking = asyncio.get_running_loop().run_in_executor(None, asked, address)
        asking.add_done_callback(lambda found: end(found.result()))

    def end(found):
        addresses.append(found)
        signal.raise_signal(number)

    before = signal.getsignal(number)
    if before is signal.SIG_IGN:
        pytest.skip("the signal is ignored, as under nohup")
    asyncio.run(listen(runner(), host="127.0.0.1", port=0, announce=announce))
    assert addresses[0].startswith("http://127.0.0.1:")
    assert addresses[1] == "here"
    # The loop's handler is removed at the end; Python then restores its own default.
    assert signal.getsignal(number) in (before, signal.SIG_DFL, signal.default_int_handler)
    with pytest.raises(OSError, match="refused"):
        asked(addresses[0])


def asked(address):
    with urllib.request.urlopen(address) as answer:
        return answer.read().decode()


def test_a_place_that_cannot_be_had_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"cannot listen on 127\.0\.0\.1:{port}: "):
            asyncio.run(listen(runner(), host="127.0.0.1", port=port, announce=print))
    with pytest.raises(UsageError, match=r"cannot listen on a\.\.b:0: "):
        asyncio.run(listen(runner(), host="a..b", port=0, announce=print))
