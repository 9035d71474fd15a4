"""Asks a real endpoint in place of a behaviour, and writes its answers as a script."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
import msgspec

from gymcli.errors import ModelError
from gymcli.mock.behaviours import (
    MockAnswer,
    ScriptLine,
    conversation_digest,
    last_user_text,
    num_turns,
    refusal_of,
)
from gymcli.mock.request_log import LineFile
from gymcli.models.dialects import DIALECTS
from gymcli.secrets import NOTHING_SECRET, Scrubber
from gymcli.types import Answer, JSONObject, Request

__all__ = ["Recorder"]

_KEPT_REFUSALS = (400, 413, 422)
"""Statuses that are about the one request: no other try would get more."""

_KEPT = ("Content-Type", "Retry-After")
"""Headers that are passed on."""

_TIMEOUT = aiohttp.ClientTimeout(total=900, sock_connect=30)
_MAX_NOTE = 80


class Recorder:
    """Passes requests on and records the answers; an async context manager.

    Streamed or not, the endpoint is asked for one body. What it refuses for other reasons than
    what the request says is passed on and not recorded, since a next try may get an answer.

    Args:
        path: The script file, which must be new or empty.
        base_url: Of the endpoint.
        api_key: What it wants.
        proxy: The address of the proxy on the way to it.
        secrets: What must not be written, beside the key.

    Raises:
        UsageError: On entering, the file cannot be written; on leaving, a line could not.

    """

    def __init__(
        self,
        path: Path,
        base_url: str,
        *,
        api_key: str | None = None,
        proxy: str | None = None,
        secrets: Scrubber = NOTHING_SECRET,
    ) -> None:
        self._path = path
        self._base_url = base_url
        self._api_key = api_key
        self._proxy = proxy
        self.secrets = secrets.also([api_key] if api_key else ())
        self._file: LineFile | None = None
        self._open = AsyncExitStack()
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._file = LineFile(self._path, option="--record", secrets=self.secrets, is_new=True)
            stack.callback(self._file.close)
            key = {"Authorization": f"Bearer {self._api_key}"} if self._api_key else {}
            headers = {"Content-Type": "application/json", **key}
            self._session = await stack.enter_async_context(
                aiohttp.ClientSession(
                    headers=headers, timeout=_TIMEOUT, proxy=self._proxy, trust_env=False
                )
            )
            self._open = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._open.aclose()

    async def answer(self, dialect: str, body: JSONObject, request: Request) -> MockAnswer:
        """Ask the endpoint, and record what it says; what cannot be recorded is not asked."""
        assert self._file is not None, "asked before it was entered"
        if self._file.failure is not None:
            return refusal_of(400, str(self._file.failure))
        left_out = ("stream", "stream_options")
        plain = {name: value for name, value in body.items() if name not in left_out}
        try:
            given = await self._post(DIALECTS[dialect].path, plain)
            if given.status == 200:
                given = _recorded(DIALECTS[dialect].answer((given.body or "").encode()))
        except (aiohttp.ClientError, TimeoutError) as error:
            return _unreachable(self.secrets.text(f"{type(error).__name__}: {error}"))
        except ModelError as error:
            return _unreachable(str(error))
        if given.status in (200, *_KEPT_REFUSALS):
            self._file.append(self._line(request, given))
        return given

    async def _post(self, path: str, body: Mapping[str, object]) -> MockAnswer:
        """Give what came, as it stands."""
        assert self._session is not None, "asked before it was entered"
        data = msgspec.json.encode(body)
        async with self._session.post(
            self._base_url + path, data=data, allow_redirects=False
        ) as response:
            # Endpoints repeat the key in their refusals.
            text = self.secrets.text((await response.read()).decode("utf-8", "replace"))
            headers = {name: response.headers[name] for name in _KEPT if name in response.headers}
            return MockAnswer(status=response.status, body=text, headers=headers)

    def _line(self, request: Request, answer: MockAnswer) -> ScriptLine:
        text = self.secrets.text(last_user_text(request))[:_MAX_NOTE]
        return ScriptLine(
            request=conversation_digest(request),
            note=f"turn {num_turns(request)} after {text!r}",
            answers=[answer],
        )


def _recorded(answer: Answer) -> MockAnswer:
    message = answer.message
    return MockAnswer(
        text=message.text if message.content is not None else None,
        reasoning=message.reasoning,
        refusal=message.refusal,
        tool_calls=[(call.name, call.arguments) for call in message.tool_calls],
        call_ids=[call.id for call in message.tool_calls],
        finish_reason=answer.finish_reason,
        usage=answer.usage,
        logprobs=message.logprobs,
        response_items=message.response_items,
    )


def _unreachable(reason: str) -> MockAnswer:
    body = {"error": {"message": f"the recorded endpoint: {reason}", "type": "server_error"}}
    return MockAnswer(status=502, body=msgspec.json.encode(body).decode())
