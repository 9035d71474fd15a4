"""Sends requests to one endpoint over HTTP and reads its answers, whole or streamed.

aiohttp's errors end here: this module raises only `ModelError`.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from functools import partial
from typing import NamedTuple, Self, cast

import aiohttp
from aiohttp.client_proto import ResponseHandler
from multidict import CIMultiDict
from yarl import URL

from gymcli.environment.time_limit import LoopClock, time_limit
from gymcli.errors import (
    ConfigError,
    EndpointConnectionError,
    EndpointTimeoutError,
    InvalidAnswerError,
    ModelError,
)
from gymcli.models.api_errors import error_of_body, error_of_status, one_line
from gymcli.models.chat import decode, usage_of
from gymcli.models.dialects import DIALECTS
from gymcli.models.endpoint import Endpoint
from gymcli.models.token_ids import take_tokens
from gymcli.types import Answer, JSONObject, TokenSource, Tries

MAX_ANSWER_BYTES = 64 * 2**20
"""The longest unpacked answer; a longer one means that the endpoint is broken."""
_MAX_VALUES = 8_000_000
"""The most JSON values of an answer, an object counting as eight. They take far more time and
memory than text. 20,000 tokens with 20 log-probabilities each are within it."""
_MAX_STREAM_VALUES = 2 * _MAX_VALUES
"""Those of a stream: most belong to its events, which are not kept. 128,000 events of a token each,
with log-probabilities and token counts, are within it."""
_MAX_LINES = 2**19
"""The most lines of a stream: two to four for each event, which is often a single token."""
_PIECE_BYTES = 2**15
"""How much of a body is read at a time, so that other tasks proceed."""
_MAX_ERROR_BYTES = 2**20
"""What is read of the body of a refusal."""

_INTERIM = (b"HTTP/1.1 1", b"HTTP/1.0 1")
_INTERIM_RESPONSES = re.compile(rb"(HTTP/1\.[01] 1(?!01)\d\d[^\n]*\n([^\r\n][^\n]*\n)*\r?\n)+")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_MAX_HEAD = 2**16

_LARGE_BODY = 2**20
"""A body of this many bytes is sent from a file, which aiohttp reads in pieces, and decoded in a
thread: a long write, or the events of a long stream, would block the event loop."""

_END_SECONDS = 0.25
"""How long to wait for the end of a stream after its last event, so that the connection can be
reused; some servers keep the stream open."""

_MAX_IDLE = 4.0
"""Seconds that an idle connection is kept. Uvicorn and the embedded model's server close theirs
after 5, and a request on a closing connection is a failed try."""


_DONE = b"[DONE]"
_END_OF_RESPONSE = re.compile(rb'"type": ?"response\.(completed|incomplete|failed)"')


class Target(NamedTuple):
    """The address that requests are sent to."""

    url: URL
    place: str
    """Method and address, for messages."""
    root: str
    """The server's address without `/v1`, where servers have paths of their own."""


class Transport:
    """Sends requests to one endpoint; an async context manager that holds its connections.

    It neither limits nor retries.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._dialect = DIALECTS[endpoint.dialect]
        self._session: aiohttp.ClientSession | None = None
        self._clock = LoopClock()

    async def __aenter__(self) -> Self:
        endpoint = self._endpoint
        headers = CIMultiDict({"Content-Type": "application/json", "User-Agent": "gymcli"})
        if endpoint.api_key is not None:
            headers["Authorization"] = f"Bearer {endpoint.api_key.get_secret_value()}"
        # Headers that the user configured replace ours.
        headers.update({name: text.get_secret_value() for name, text in endpoint.headers.items()})
        connector = aiohttp.TCPConnector(
            limit=0,  # ConcurrencyLimiter bounds the requests; here none may wait
            ssl=_ssl_context(endpoint),
            ttl_dns_cache=300,
            keepalive_timeout=_MAX_IDLE,
        )
        make = partial(_Connection, loop=asyncio.get_running_loop(), now=self._clock.now)
        # aiohttp has no public option for the connection class.
        connector._factory = cast("partial[ResponseHandler]", make)  # noqa: SLF001
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            proxy=endpoint.proxy,
            trust_env=False,
        )
        await self._clock.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        assert self._session is not None, "left before it was entered"
        await self._clock.__aexit__(*exception)
        await self._session.close()

    def target(self, base_url: str) -> Target:
        return self._target(base_url, self._dialect.path)

    def _target(self, address: str, path: str) -> Target:
        url = URL(address + path).update_query(self._endpoint.query)
        return Target(url, f"POST {address}{path}", address.removesuffix("/v1"))

    async def ask(
        self, target: Target, payload: bytes, tries: Tries, *, source: TokenSource | None = None
    ) -> Answer:
        """Make one try; tokens of an unusable answer are counted in `tries`.

        `source`: what the payload asks for to get token ids, which are read then.

        Raises:
            ModelError: There is no usable answer.
        """
        # `ask_for_tokens` turns streams of llama.cpp off.
        streams = self._endpoint.stream and source != "llamacpp"
        body = await self._send(target, payload, streams=streams)
        read = partial(self._read, body, target.place, payload, tries, source)
        num_bytes = len(body) if isinstance(body, bytes) else sum(map(len, body))
        return read() if num_bytes < _LARGE_BODY else await asyncio.to_thread(read)

    def _read(
        self,
        body: bytes | list[bytes],
        place: str,
        payload: bytes,
        tries: Tries,
        source: TokenSource | None,
    ) -> Answer:
        endpoint = self._endpoint
        answer_object: JSONObject = {}
        try:
            answer_object = (
                decode(body) if isinstance(body, bytes) else self._dialect.assemble(body, payload)
            )
            answer = self._dialect.answer(answer_object)
        except ModelError as error:
            if isinstance(body, list) and not answer_object:
                answer_object = _last_object(body)
            tries.usage.add(usage_of(answer_object))
            # Not `from error`: a traceback would show the message with its secrets.
            raise error_of_body(
                error, answer_object, request=payload, place=place, endpoint=endpoint
            ) from None
        if source is not None:
            take_tokens(answer, answer_object, endpoint.logprob_mode)
        return answer

    async def call(self, target: Target, path: str, payload: bytes) -> JSONObject:
        """Send an object to another path of the same server, from its root, and return the answer.

        Raises:
            ModelError: There is no answer, a refusal, or one that is not an object.
        """
        target = self._target(target.root, path)
        body = await self._send(target, payload)
        try:
            return decode(body if isinstance(body, bytes) else b"")
        except ModelError as error:
            raise error_of_body(
                error, {}, request=payload, place=target.place, endpoint=self._endpoint
            ) from None

    async def _send(
        self, target: Target, payload: bytes, *, streams: bool = False
    ) -> bytes | list[bytes]:
        assert self._session is not None, "the client is used outside its `async with`"
        endpoint, place = self._endpoint, target.place
        body: bytes | list[bytes]
        try:
            async with time_limit(endpoint.total_timeout, self._clock.now):
                response = await self._post(target, payload, streams=streams)
                is_refusal = response.status // 100 != 2
                try:
                    idle = None if streams else endpoint.idle_timeout  # aiohttp limits streams
                    reading = _pieces(response, place, idle, self._clock.now, is_refusal=is_refusal)
                    async with contextlib.aclosing(reading) as pieces:
                        if response.content_type == "text/event-stream":
                            body = await _read_events(response, pieces, place)
                        else:
                            body = b"".join([piece async for piece in pieces])
                except aiohttp.ClientConnectionError as error:
                    if isinstance(error, TimeoutError):
                        raise
                    # The endpoint had begun to answer, so `is_absence` must not take it for down.
                    raise aiohttp.ClientPayloadError(str(error)) from error
                finally:
                    response.release()
        except TimeoutError as error:
            raise EndpointTimeoutError(f"{place}: {self._timeout_text(error)}") from error
        except aiohttp.ClientError as error:
            raise EndpointConnectionError(f"{place}: {self._break_text(error)}") from error
        if is_refusal:
            # Groq sends the refusal of a streamed answer as the only event of a stream.
            refusal = body if isinstance(body, bytes) else b"".join(body[:1])
            raise error_of_status(
                response.status,
                response.headers,
                refusal,
                request=payload,
                place=place,
                endpoint=endpoint,
            )
        return body

    async def _post(
        self, target: Target, payload: bytes, *, streams: bool
    ) -> aiohttp.ClientResponse:
        assert self._session is not None, "the client is used outside its `async with`"
        endpoint = self._endpoint
        limits = aiohttp.ClientTimeout(
            total=None,  # that of `_send` includes reading
            sock_connect=endpoint.connect_timeout,
            sock_read=endpoint.idle_timeout if streams else None,
        )
        while True:
            began = self._clock.now()
            data = payload if len(payload) < _LARGE_BODY else io.BytesIO(payload)
            try:
                return await self._session.post(
                    target.url, data=data, allow_redirects=False, timeout=limits
                )
            except aiohttp.ConnectionTimeoutError:
                # aiohttp's timer runs on while the event loop stands still.
                if self._clock.now() - began >= endpoint.connect_timeout:
                    raise

    def _timeout_text(self, error: TimeoutError) -> str:
        endpoint = self._endpoint
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return f"no connection within {endpoint.connect_timeout:g} seconds"
        if isinstance(error, aiohttp.SocketTimeoutError):
            return f"the answer stalled for {endpoint.idle_timeout:g} seconds"
        return f"no answer within {endpoint.total_timeout:g} seconds"

    def _break_text(self, error: aiohttp.ClientError) -> str:
        words = one_line(str(error), self._endpoint.secrets) or type(error).__name__
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            return f"{words}; name its authority in ca_file"
        if isinstance(error, aiohttp.ClientConnectorError):
            return f"{words}; is the server running, and the address right?"
        return f"the connection broke: {words}"


class _Connection(ResponseHandler):
    """A connection that normalises interim responses and measures pauses by our clock.

    Interim responses are 100 Continue or 103 Early Hints. aiohttp skips them. But after one in
    HTTP/1.0, or with `Connection: close`, it takes the real answer for an error. So a plain 100
    Continue replaces each. `sock_read` is a timer in aiohttp, which runs on while the event loop
    stands still.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], float]) -> None:
        super().__init__(loop)
        self._now = now
        self._data_at = 0.0
        """When the last data came, or the request was sent."""
        self._held = b""
        """The start of an interim response that is not complete yet."""

    def _reschedule_timeout(self) -> None:
        self._data_at = self._now()
        if self._read_timeout and self._read_timeout_handle is None:
            self._read_timeout_handle = self._loop.call_later(
                self._read_timeout, self._on_read_timeout
            )

    def _on_read_timeout(self) -> None:
        seconds_left = self._data_at + (self._read_timeout or 0.0) - self._now()
        if seconds_left > 0:
            self._read_timeout_handle = self._loop.call_later(seconds_left, self._on_read_timeout)
        else:
            super()._on_read_timeout()

    def data_received(self, data: bytes) -> None:
        is_in_body = self._payload is not None and not self._payload.is_eof()
        if self._held or (data.startswith(_INTERIM) and not is_in_body):
            data = self._held + data
            interim = _INTERIM_RESPONSES.match(data)
            if interim is None and b"\n\r\n" not in data and len(data) < _MAX_HEAD:
                self._held = data
                return
            self._held = b""
            if interim is not None:
                data = _CONTINUE + data[interim.end() :]
        super().data_received(data)


async def read_body(response: aiohttp.ClientResponse, place: str, idle: float) -> bytes:
    """Read a whole body of at most `MAX_ANSWER_BYTES`, waiting at most `idle` seconds per piece.

    Raises:
        InvalidAnswerError: It is too large.
        TimeoutError: It stalled.
    """
    return b"".join([piece async for piece in _pieces(response, place, idle, time.monotonic)])


async def _pieces(
    response: aiohttp.ClientResponse,
    place: str,
    idle: float | None,
    now: Callable[[], float],
    *,
    is_refusal: bool = False,
) -> AsyncGenerator[bytes]:
    """Yield the pieces of a body as they come; of a refusal, only the first megabyte."""
    content = response.content
    is_stream = response.content_type == "text/event-stream"
    max_values = _MAX_STREAM_VALUES if is_stream else _MAX_VALUES
    num_bytes = num_values = 0
    while not content.at_eof():
        if idle is None or content.is_eof():  # most bodies have arrived whole
            piece = await content.read(_PIECE_BYTES)
        else:
            try:
                async with time_limit(idle, now) as limit:
                    piece = await content.read(_PIECE_BYTES)
            except TimeoutError as error:
                if limit.expired():  # otherwise the total limit of `_send` expired
                    raise aiohttp.SocketTimeoutError("the body stalled") from error
                raise
        num_bytes += len(piece)
        # About: in texts, they are counted too. No real text is so long that this matters.
        num_values += piece.count(b",") + piece.count(b"[") + 8 * piece.count(b"{")
        if is_refusal and num_bytes > _MAX_ERROR_BYTES:
            yield piece[: len(piece) - num_bytes + _MAX_ERROR_BYTES]
            return
        if num_bytes > MAX_ANSWER_BYTES:
            raise _too_large(place, f"longer than {MAX_ANSWER_BYTES // 2**20} MiB")
        if num_values > max_values:
            raise _too_large(place, f"made of more than {max_values:,} JSON values")
        yield piece
        if len(piece) == _PIECE_BYTES:  # there is more, and reading it may not wait
            await asyncio.sleep(0)


class EventReader:
    """Reads server-sent events from the chunks of a stream, wherever these are cut."""

    def __init__(self) -> None:
        self._line: list[bytes] = []
        """The pieces of an unfinished line; joined only once, however long the line is."""
        self._held = b""
        """A final `\\r`, which may be the first half of `\\r\\n`."""
        self._data: list[bytes] = []
        self._at_start = True
        self.num_lines = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        text = self._held + chunk
        self._held = b"\r" if text.endswith(b"\r") else b""
        # The last line is unfinished; the dot keeps it where it is empty.
        lines = ((text[:-1] if self._held else text) + b".").splitlines()
        if len(lines) == 1:
            self._line.append(lines[0][:-1])
            return []
        lines[0] = b"".join((*self._line, lines[0]))
        self._line = [lines.pop()[:-1]]
        self.num_lines += len(lines)
        if self._at_start:
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
            self._at_start = False
        return [event for line in lines if (event := self._take(line)) is not None]

    def finish(self) -> list[bytes]:
        """Return the last event if the stream ended without an empty line after it."""
        return self.feed(b"\n\n")

    def _take(self, line: bytes) -> bytes | None:
        """Add one line; an empty one ends an event, whose data is returned."""
        if line:
            name, _, value = line.partition(b":")
            if name == b"data":
                self._data.append(value.removeprefix(b" "))
            return None
        data, self._data = self._data, []
        return b"\n".join(data) if data else None


async def _read_events(
    response: aiohttp.ClientResponse, pieces: AsyncIterator[bytes], place: str
) -> list[bytes]:
    reader = EventReader()
    events: list[bytes] = []
    async for piece in pieces:
        new = reader.feed(piece)
        events += new
        if reader.num_lines > _MAX_LINES:
            raise _too_large(place, f"a stream of more than {_MAX_LINES:,} lines")
        # The Responses format has no [DONE]; the end of the response is its last event.
        if any(event.strip() == _DONE or _END_OF_RESPONSE.search(event) for event in new):
            with contextlib.suppress(TimeoutError, aiohttp.ClientError):
                async with asyncio.timeout(_END_SECONDS):
                    await response.content.readany()
            return events
    return events + reader.finish()


def _last_object(events: list[bytes]) -> JSONObject:
    """Return the last event, which may say why a stream is no answer, and count its tokens."""
    event = next((event for event in reversed(events) if event.strip() != _DONE), b"")
    with contextlib.suppress(InvalidAnswerError):
        return decode(event)
    return {}


def _too_large(place: str, size: str) -> InvalidAnswerError:
    return InvalidAnswerError(f"{place}: the answer is {size}; the endpoint is probably broken")


def _ssl_context(endpoint: Endpoint) -> ssl.SSLContext | bool:
    if endpoint.ca_file is None:
        return True  # the system's authorities
    try:
        return ssl.create_default_context(cafile=str(endpoint.ca_file))
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(f"ca_file {endpoint.ca_file}: {error.strerror or error}") from error
