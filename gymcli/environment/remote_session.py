"""Talks to one resources server for one episode; aiohttp's exceptions end here.

A session is one cookie jar and one connection. Nothing is sent twice: where a call breaks, nobody
can say what it did.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from http.cookies import SimpleCookie
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from gymcli.errors import AttemptError
from gymcli.types import JSON_ERRORS, JSONObject

__all__ = ["CONNECT_TIMEOUT", "MAX_ANSWER_BYTES", "ServerReply", "ServerSession"]

CONNECT_TIMEOUT = 10.0
"""Seconds until there is a connection."""

MAX_ANSWER_BYTES = 64 * 2**20
"""What an answer may take in memory, unpacked."""

_LARGE_BODY = 2**20
"""From here on aiohttp wants a request's body as a file, which it sends in pieces."""

_MAX_IDLE = 1.0
"""Seconds that an unused connection is kept: less than any common server keeps it (2 to 75), since
a call that meets a closing connection costs its attempt."""

_MAX_WORDS = 200
"""Characters of a server's words that go into a message."""


class ServerReply(NamedTuple):
    """What a server answered, whatever its status."""

    place: str
    """The method and address that were asked, for messages."""
    status: int
    body: bytes

    @property
    def text(self) -> str:
        """The body as text; what is no UTF-8 is replaced."""
        return self.body.decode(errors="replace")

    @property
    def words(self) -> str:
        """The first words of the body, on one line."""
        start = self.body[: 4 * _MAX_WORDS].decode(errors="replace")
        return " ".join(start.split())[:_MAX_WORDS] or "it is empty"

    def json_object(self, error_class: type[AttemptError]) -> JSONObject:
        """Return the JSON object that a call that went well answers with.

        Raises:
            AttemptError: As `error_class`: the status is another than 2xx, or it is no object.

        """
        if self.status // 100 != 2:
            hint = "; redirects are not followed" if self.status // 100 == 3 else ""
            raise error_class(f"{self.place}: status {self.status}{hint}: {self.words}")
        try:
            return msgspec.json.decode(self.body, type=JSONObject)
        except JSON_ERRORS as error:
            raise error_class(f"{self.place}: no JSON object: {self.words}") from error


class ServerSession:
    """One conversation with a resources server: its connection and its cookies.

    Args:
        base_url: The server's address, checked.
        keeps_cookies: Send back what the server sets; False for calls that need no session.
        headers: Sent with every call.

    """

    def __init__(
        self,
        base_url: str,
        *,
        keeps_cookies: bool = True,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.base_url = base_url
        self.is_open = False
        """The server has built the episode's state; from now on its session must stay the same."""
        self._session_ids: dict[str, str] = {}
        # Servers are often named by their IP address, for which a jar that is not unsafe has none.
        jar = aiohttp.CookieJar(unsafe=True) if keeps_cookies else aiohttp.DummyCookieJar()
        self._client = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=1, keepalive_timeout=_MAX_IDLE),
            cookie_jar=jar,
            headers={
                "Content-Type": "application/json",
                "User-Agent": "gymcli",
                **(headers or {}),
            },
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection and forget the cookies."""
        await self._client.close()

    @property
    def has_cookies(self) -> bool:
        """Whether the server set any cookie so far."""
        return len(self._client.cookie_jar) > 0

    async def ask(
        self,
        path: str,
        payload: JSONObject | None,
        *,
        seconds: float,
        error_class: type[AttemptError],
    ) -> ServerReply:
        """POST a JSON object to `/{path}`, or GET that, and return the answer, of any status.

        Raises:
            AttemptError: As `error_class`: there was no whole answer within `seconds`, or it came
                from another session than the one that was opened.

        """
        # Encoded as one segment, so that no tool's name can lead to another address.
        url = URL(f"{self.base_url}/{quote(path, safe='')}", encoded=True)
        method = "GET" if payload is None else "POST"
        place = f"{method} {url}"
        data: bytes | io.BytesIO | None = None
        if payload is not None:
            encoded = msgspec.json.encode(payload)
            data = encoded if len(encoded) < _LARGE_BODY else io.BytesIO(encoded)
        try:
            async with self._client.request(
                method,
                url,
                data=data,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_TIMEOUT),
            ) as response:
                body = await _read(response)
        except TimeoutError as error:
            raise error_class(f"{place}: {_waited(error, seconds)}") from error
        except aiohttp.ClientError as error:
            raise error_class(f"{place}: {_broken(error)}") from error
        if body is None:
            limit = MAX_ANSWER_BYTES // 2**20
            raise error_class(f"{place}: the answer is longer than {limit} MiB")
        self._check_session(response.cookies, place, error_class)
        return ServerReply(place, response.status, body)

    def _check_session(
        self, cookies: SimpleCookie, place: str, error_class: type[AttemptError]
    ) -> None:
        # A server that does not find its cookie goes on with a new and empty session and says
        # nothing; its score would look like that of a bad model. The session's id shows in the
        # cookies that Starlette signs, as all servers of NeMo Gym do; of others nothing is known.
        for name, cookie in cookies.items():
            found = _session_id(cookie.value)
            if found is None:
                continue
            known = self._session_ids.get(name)
            if known is None and not self.is_open:
                self._session_ids[name] = found
            elif known != found:
                raise error_class(
                    f"{place}: answered from another session than the one that was opened; the "
                    f"cookie {name} was lost on the way (a proxy, or servers that share no secret)"
                )


async def _read(response: aiohttp.ClientResponse) -> bytes | None:
    chunks = []
    num_bytes = 0
    async for chunk in response.content.iter_any():
        num_bytes += len(chunk)
        if num_bytes > MAX_ANSWER_BYTES:
            return None
        chunks.append(chunk)
    return b"".join(chunks)


def _waited(error: TimeoutError, seconds: float) -> str:
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return f"no connection within {CONNECT_TIMEOUT:g} seconds"
    return f"no answer within {seconds:g} seconds"


def _broken(error: aiohttp.ClientError) -> str:
    words = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"{words}; is the server running, and the address right?"
    return f"the connection broke: {words}"


def _session_id(value: str) -> str | None:
    payload, _, signature = value.partition(".")
    if not signature:
        return None
    try:
        fields = msgspec.json.decode(base64.b64decode(payload, validate=True), type=JSONObject)
    except (ValueError, *JSON_ERRORS):
        return None
    found = fields.get("session_id")
    return found if isinstance(found, str) else None
