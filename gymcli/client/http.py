"""Asks one endpoint for one message at a time over HTTP; aiohttp's exceptions end here."""

from __future__ import annotations

import asyncio
import io
import ssl
import time
from types import TracebackType
from typing import Self

import aiohttp
import msgspec
from multidict import CIMultiDict
from yarl import URL

from gymcli.client.endpoint import Endpoint
from gymcli.client.refusals import one_line, redact
from gymcli.client.retry import RetryPolicy, Sleep, is_retried
from gymcli.client.sse import EventReader
from gymcli.client.statuses import error_of_body, error_of_status
from gymcli.dialects import DIALECTS
from gymcli.dialects.emulated_tools import emulate, may_call, restore
from gymcli.errors import (
    ConfigError,
    EndpointConnectionError,
    EndpointTimeoutError,
    InvalidAnswerError,
    ModelError,
    RequestRefusedError,
)
from gymcli.types import Answer, Request

__all__ = ["MAX_ANSWER_BYTES", "Client"]

MAX_ANSWER_BYTES = 64 * 2**20
"""What an answer may take in memory, unpacked; more comes from an endpoint that is broken."""

_LARGE_BODY = 2**20
"""From here on aiohttp wants a request's body as a file, which it sends in pieces."""

_MAX_IDLE = 4.0
"""Seconds that an unused connection is kept. Servers on uvicorn close theirs after 5, and so does
the embedded model's; a request that meets a closing connection is a try that failed."""


class Client:
    """Asks one endpoint; an async context manager that holds its connections.

    Not more than `concurrency` requests are under way at once, however many callers there are;
    one that waits before its next try does not count.
    """

    def __init__(
        self, endpoint: Endpoint, *, concurrency: int, sleep: Sleep = asyncio.sleep
    ) -> None:
        self.endpoint = endpoint
        self._dialect = DIALECTS[endpoint.dialect]
        self._url = URL(endpoint.base_url + self._dialect.path).update_query(endpoint.query)
        self._place = f"POST {endpoint.base_url}{self._dialect.path}"
        self._concurrency = concurrency
        self._places = asyncio.Semaphore(concurrency)
        self._retries = RetryPolicy(endpoint, sleep)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        endpoint = self.endpoint
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._concurrency,
                ssl=_trusted(endpoint),
                ttl_dns_cache=300,
                keepalive_timeout=_MAX_IDLE,
            ),
            headers=_headers(endpoint),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(
                total=endpoint.total_timeout,
                sock_connect=endpoint.connect_timeout,
                sock_read=endpoint.idle_timeout if endpoint.stream else None,
            ),
            proxy=endpoint.proxy,
            trust_env=False,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._session is not None, "left before it was entered"
        await self._session.close()

    async def answer(self, request: Request) -> Answer:
        """Answer a conversation with one message.

        Raises:
            ModelError: The endpoint gave no usable answer; `retries` counts what was tried.

        """
        payload = self.payload(request)
        started = time.monotonic()
        try:
            answer = await self._try(payload)
        except ModelError as error:
            if not is_retried(error):
                raise
            answer = await self._retries.resume(lambda: self._try(payload), error, started)
        if not (self.endpoint.emulate_tools and may_call(request)):
            return answer
        turn = sum(message.role == "assistant" for message in request.messages)
        return restore(answer, id_prefix=f"call_{turn}")

    def payload(self, request: Request) -> bytes:
        """Give the body that a request is sent with.

        Raises:
            RequestRefusedError: It cannot be written as JSON.

        """
        body = self._dialect.body(
            emulate(request) if self.endpoint.emulate_tools else request,
            self.endpoint.model,
            stream=self.endpoint.stream,
            send_reasoning=self.endpoint.send_reasoning,
        )
        try:
            return msgspec.json.encode(body)
        except (TypeError, ValueError, RecursionError) as error:
            raise RequestRefusedError(f"the request cannot be written as JSON: {error}") from error

    async def _try(self, payload: bytes) -> Answer:
        """Make one try; every exception of it is a ModelError."""
        async with self._places:
            try:
                body = await self._post(payload)
            except TimeoutError as error:
                raise EndpointTimeoutError(f"{self._place}: {self._waited(error)}") from error
            except aiohttp.ClientError as error:
                raise EndpointConnectionError(f"{self._place}: {self._broken(error)}") from error
        try:
            if isinstance(body, list):
                body = self._dialect.assemble(body)
            return self._dialect.answer(body)
        except ModelError as error:
            # Not `from error`: a traceback would show the words before secrets were taken out.
            raise error_of_body(error, self._place, self.endpoint) from None

    async def _post(self, payload: bytes) -> bytes | list[bytes]:
        """Send a request; give the body, or the data of its events where it is streamed."""
        assert self._session is not None, "the client is used outside its `async with`"
        data = payload if len(payload) < _LARGE_BODY else io.BytesIO(payload)
        async with self._session.post(self._url, data=data, allow_redirects=False) as response:
            self._retries.was_reached = True
            if response.status // 100 != 2:
                refusal = await _read(response, self._place)
                raise error_of_status(
                    response.status,
                    response.headers,
                    refusal,
                    place=self._place,
                    endpoint=self.endpoint,
                )
            if response.content_type == "text/event-stream":
                return await _read_events(response, self._place)
            return await _read(response, self._place)

    def _waited(self, error: TimeoutError) -> str:
        endpoint = self.endpoint
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return f"no connection within {endpoint.connect_timeout:g} seconds"
        if isinstance(error, aiohttp.SocketTimeoutError):
            return f"the stream stood still for {endpoint.idle_timeout:g} seconds"
        return f"no answer within {endpoint.total_timeout:g} seconds"

    def _broken(self, error: aiohttp.ClientError) -> str:
        words = one_line(redact(str(error), self.endpoint.secrets)) or type(error).__name__
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            return f"{words}; name its authority in ca_file"
        if isinstance(error, aiohttp.ClientConnectorError):
            return f"{words}; is the server running, and the address right?"
        return f"the connection broke: {words}"


async def _read(response: aiohttp.ClientResponse, place: str) -> bytes:
    """Read a body whole, up to the limit.

    Raises:
        InvalidAnswerError: It is longer.

    """
    content = response.content
    chunks = []
    num_bytes = 0
    while not content.at_eof():  # most bodies are there whole, and cost one call
        chunk = await content.readany()
        num_bytes = _counted(num_bytes + len(chunk), place)
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def _read_events(response: aiohttp.ClientResponse, place: str) -> list[bytes]:
    """Read a stream to its end, up to the limit.

    Raises:
        InvalidAnswerError: It is longer.

    """
    reader = EventReader()
    events: list[bytes] = []
    num_bytes = 0
    async for chunk in response.content.iter_any():
        num_bytes = _counted(num_bytes + len(chunk), place)
        events += reader.feed(chunk)
    return events + reader.finish()


def _counted(num_bytes: int, place: str) -> int:
    if num_bytes > MAX_ANSWER_BYTES:
        limit = MAX_ANSWER_BYTES // 2**20
        raise InvalidAnswerError(f"{place}: the answer is longer than {limit} MiB")
    return num_bytes


def _headers(endpoint: Endpoint) -> CIMultiDict[str]:
    """Give the headers of every request; the endpoint's own replace ours."""
    headers = CIMultiDict({"Content-Type": "application/json", "User-Agent": "gymcli"})
    if endpoint.api_key is not None:
        headers["Authorization"] = f"Bearer {endpoint.api_key.get_secret_value()}"
    headers.update({name: text.get_secret_value() for name, text in endpoint.headers.items()})
    return headers


def _trusted(endpoint: Endpoint) -> ssl.SSLContext | bool:
    """Give what decides whether a server is trusted: the endpoint's own authorities, or all.

    Raises:
        ConfigError: The file cannot be read, or holds no certificate.

    """
    if endpoint.ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(endpoint.ca_file))
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(f"ca_file {endpoint.ca_file}: {error.strerror or error}") from error
