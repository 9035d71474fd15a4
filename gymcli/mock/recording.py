"""Records of the mock server: counts, a log line for each request, and recorded answers."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

import aiohttp
import msgspec

from gymcli.errors import ModelError, UsageError
from gymcli.mock.behaviours import (
    MockAnswer,
    ScriptLine,
    conversation_digest,
    last_user_text,
    num_turns,
    refusal_of,
)
from gymcli.models.chat import decode
from gymcli.models.dialects import DIALECTS
from gymcli.secrets import NOTHING_SECRET, Scrubber
from gymcli.types import JSONObject, Request


class Exchange(msgspec.Struct, kw_only=True):
    """One request and its result, without headers, which may contain keys."""

    started: float
    """Seconds since the server started, on a clock that never jumps."""
    ended: float | None = None
    path: str
    model: str | None = None
    turn: int | None = None
    """Number of assistant messages so far; None if the request could not be read."""
    status: int | None = None
    """None if the connection ended before a status was sent."""
    fault: str | None = None
    text: str = ""
    """The beginning of the last user text."""
    body: str = ""
    """The hash of the body."""


class Stats(msgspec.Struct, kw_only=True):
    """Counts of requests and answers so far, which `/stats` returns as JSON."""

    num_requests: int = 0
    in_flight: int = 0
    max_in_flight: int = 0
    """The most concurrent requests; those refused at the limit do not count."""
    first_at: float | None = None
    """Seconds from the server's start to the first request; None without one."""
    last_at: float | None = None
    """Seconds from the server's start to the latest request."""
    num_unanswered: int = 0
    """Requests that ended without a status: reset, or cancelled by the client."""
    by_status: dict[int, int] = {}
    faults: dict[str, int] = {}
    """Requests by kind of fault."""
    num_prompt_tokens: int = 0
    """Tokens of the rendered answers, whether or not they arrived complete."""
    num_completion_tokens: int = 0

    def end(self, exchange: Exchange) -> None:
        if exchange.status is None:
            self.num_unanswered += 1
        else:
            self.by_status[exchange.status] = self.by_status.get(exchange.status, 0) + 1
        if exchange.fault is not None:
            self.faults[exchange.fault] = self.faults.get(exchange.fault, 0) + 1


class LineFile:
    """An open file to which lines are appended, with secrets removed.

    A failed write fails no request: nothing more is written, and `close` raises. `option` is the
    option with the path, for messages; with `is_new` the file must be new or empty.
    """

    def __init__(
        self, path: Path, *, option: str, secrets: Scrubber = NOTHING_SECRET, is_new: bool = False
    ) -> None:
        self._name = f"{option} {path}"
        self._secrets = secrets
        self.failure: UsageError | None = None
        """Why writing has stopped."""
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise UsageError(f"{self._name}: {error.strerror}") from error
        if is_new and os.fstat(self._file).st_size:
            os.close(self._file)
            raise UsageError(f"{self._name}: already exists; name a new file")

    def append(self, value: object) -> None:
        if self.failure is not None:
            return
        line = self._secrets.line(msgspec.json.encode(value)) + b"\n"
        try:
            while line:
                # The system may write only a part, for example when the disk is almost full.
                line = line[os.write(self._file, line) :]
        except OSError as error:
            self.failure = UsageError(f"{self._name}: cannot be written: {error.strerror}")

    def close(self) -> None:
        os.close(self._file)
        if self.failure is not None:
            raise self.failure


_TIMEOUT = aiohttp.ClientTimeout(total=900, sock_connect=30)


class Recorder:
    """Forwards requests and records the answers; an async context manager.

    The endpoint is asked for one body with one choice, never a stream. Errors that a retry may
    avoid are passed on but not recorded. The script file must be new or empty; neither `secrets`
    nor the key are written to it.
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

    async def __aexit__(self, *error: object) -> None:
        await self._open.aclose()

    async def answer(self, dialect: str, body: JSONObject, request: Request) -> MockAnswer:
        assert self._file is not None, "asked before it was entered"
        if self._file.failure is not None:  # do not pay for an answer that cannot be recorded
            return refusal_of(400, str(self._file.failure))
        # One body is easier to record; the mock server turns it into a stream for the client, and
        # asks again for each further choice.
        left_out = ("stream", "stream_options", "n")
        plain = {name: value for name, value in body.items() if name not in left_out}
        try:
            answer = await self._post(DIALECTS[dialect].path, plain)
            if answer.status == 200:
                model_answer = DIALECTS[dialect].answer(decode((answer.body or "").encode()))
                message = model_answer.message
                answer = MockAnswer(
                    text=message.text if message.content is not None else None,
                    reasoning=message.reasoning,
                    refusal=message.refusal,
                    tool_calls=[(call.name, call.arguments) for call in message.tool_calls],
                    call_ids=[call.id for call in message.tool_calls],
                    finish_reason=model_answer.finish_reason,
                    usage=model_answer.usage,
                    logprobs=message.logprobs,
                    response_items=message.response_items,
                )
        except (aiohttp.ClientError, TimeoutError) as error:
            return _unreachable(self.secrets.text(f"{type(error).__name__}: {error}"))
        except ModelError as error:
            return _unreachable(str(error))
        if answer.status in (200, 400, 413, 422):  # a retry would get the same answer
            # In this order, since half of a secret that was cut would not be found.
            text = self.secrets.text(last_user_text(request))[:80]
            line = ScriptLine(
                request=conversation_digest(request),
                note=f"turn {num_turns(request)} after {text!r}",
                answers=[answer],
            )
            self._file.append(line)
        return answer

    async def _post(self, path: str, body: JSONObject) -> MockAnswer:
        assert self._session is not None, "asked before it was entered"
        data = msgspec.json.encode(body)
        async with self._session.post(
            self._base_url + path, data=data, allow_redirects=False
        ) as response:
            # Endpoints repeat the key in their error messages.
            text = self.secrets.text((await response.read()).decode("utf-8", "replace"))
            header_names = ("Content-Type", "Retry-After")
            headers = {
                name: response.headers[name] for name in header_names if name in response.headers
            }
            return MockAnswer(status=response.status, body=text, headers=headers)


def _unreachable(reason: str) -> MockAnswer:
    body = {"error": {"message": f"the recorded endpoint: {reason}", "type": "server_error"}}
    return MockAnswer(status=502, body=msgspec.json.encode(body).decode())
