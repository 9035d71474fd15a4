"""Talks to one resources server for one episode; aiohttp's exceptions end here.

A session is one cookie jar and one connection. Nothing is sent twice: where a call breaks, nobody
can say what it did.

What a server of gymcli and its client say to each other beyond NeMo Gym's protocol: who sends
`SEED_HEADER` with `/seed_session` finds `Opened` in the answer under `OWN_KEY`, and goes on with
`Said` under that key: each model message to `/step`, answered by `Stepped`, and at the end the
whole conversation to `/verify`, answered by `Verified`. So nothing is lost that the protocol has no
place for: the environment's own prompt, tools and stop reasons, and the parts of a score. A server
that does not know the header answers as it always does; one that echoes the row, in which a field
may have our key, is not taken for one of ours.

Format: NVIDIA NeMo Gym 0.5 (Apache-2.0). A verdict is `reward`, where there are several
`reward_components`, and any further fields; the numbers among those are what its own tools average.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from http.cookies import SimpleCookie
from types import TracebackType
from typing import NamedTuple, Self, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from gymcli.environment.tool import Step, Tool
from gymcli.errors import AttemptError, EpisodeError, SetupError, VerifierError
from gymcli.nemo_gym.payload import object_in
from gymcli.nemo_gym.wire import response_of
from gymcli.types import JSON, JSON_ERRORS, JSONObject, Message, Rollout, Score, StopReason, Usage

__all__ = [
    "CONNECT_TIMEOUT",
    "MAX_ANSWER_BYTES",
    "MAX_DETAILS",
    "OWN_KEY",
    "SEED_HEADER",
    "Opened",
    "Said",
    "ServedEpisode",
    "ServerReply",
    "ServerSession",
    "Stepped",
    "Verified",
    "asked_verdict",
    "check_verdict",
    "own_fields",
    "score_of",
    "served_episode",
]

T = TypeVar("T")

SEED_HEADER = "Gymcli-Seed"
"""Carries the seed of the attempt, from which the environment draws what is random."""

OWN_KEY = "gymcli"

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

_CLOSE_TIMEOUT = 10.0

MAX_DETAILS = 10_000
"""Bytes of JSON that a score takes over as details; the record's `final_state` has all of it."""

_ECHOED = ("responses_create_params", "response")
_SCORE_FIELDS = ("reward", "reward_components", "extracted_answer")


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

    async def post(
        self,
        path: str,
        payload: JSONObject,
        *,
        seconds: float,
        error_class: type[AttemptError],
    ) -> ServerReply:
        """POST a JSON object to `/{path}` and return the answer, of any status.

        Raises:
            AttemptError: As `error_class`: there was no whole answer within `seconds`, or it came
                from another session than the one that was opened.

        """
        return await self._ask(
            "POST", path, msgspec.json.encode(payload), seconds=seconds, error_class=error_class
        )

    async def get(
        self, path: str, *, seconds: float, error_class: type[AttemptError]
    ) -> ServerReply:
        """GET `/{path}` and return the answer, of any status.

        Raises:
            AttemptError: As for `post`.

        """
        return await self._ask("GET", path, None, seconds=seconds, error_class=error_class)

    async def _ask(
        self,
        method: str,
        path: str,
        payload: bytes | None,
        *,
        seconds: float,
        error_class: type[AttemptError],
    ) -> ServerReply:
        # Encoded as one segment, so that no tool's name can lead to another address.
        url = URL(f"{self.base_url}/{quote(path, safe='')}", encoded=True)
        place = f"{method} {url}"
        data = payload if payload is None or len(payload) < _LARGE_BODY else io.BytesIO(payload)
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
        """Check that the server answered from the session that it opened.

        A server that does not find its cookie goes on with a new and empty session and says
        nothing; its score would look like that of a bad model. The session's id shows in the
        cookies that Starlette signs, as all servers of NeMo Gym do; of others nothing is known.

        Raises:
            AttemptError: As `error_class`: the id is another one now.

        """
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
    """Read a body whole; None where it is longer than the limit."""
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
    """Return the session id in a cookie that Starlette signed; None where it is no such cookie."""
    payload, _, signature = value.partition(".")
    if not signature:
        return None
    try:
        fields = msgspec.json.decode(base64.b64decode(payload, validate=True), type=JSONObject)
    except (ValueError, *JSON_ERRORS):
        return None
    found = fields.get("session_id")
    return found if isinstance(found, str) else None


async def asked_verdict(
    session: ServerSession, rollout: Rollout, row: JSONObject, *, seconds: float
) -> JSONObject:
    """Ask `/verify` and return what its answer says beyond the row.

    Raises:
        VerifierError: There is no answer within `seconds`, or it is no verdict.

    """
    response = response_of(rollout, row, rollout.responses, rollout.usage)
    reply = await session.post(
        "verify",
        {**row, "response": response},
        seconds=seconds,
        error_class=VerifierError,
    )
    answer = reply.json_object(VerifierError)
    check_verdict(answer, reply.place)
    return own_fields(answer, row)


def check_verdict(answer: JSONObject, place: str) -> None:
    """Check that an answer with status 200 is a verdict.

    Raises:
        VerifierError: The server's own verifier failed, which it says beside a reward that says
            nothing; or there is no reward.

    """
    failure = answer.get("_ng_failure_class")
    if failure is not None:
        words = _words(answer.get("_ng_failure_judge_error"))
        raise VerifierError(f"{place}: the server's verifier failed: {failure}{words}")
    if answer.get("mask_sample") is True:
        kind = answer.get("failure_kind") or "no kind given"
        words = _words(answer.get("failure_reason"))
        raise VerifierError(
            f"{place}: the server says that its reward does not count: {kind}{words}"
        )
    reward = answer.get("reward")
    if not isinstance(reward, int | float):
        raise VerifierError(f'{place}: the answer has no number "reward" ({reward!r})')


def own_fields(answer: JSONObject, row: JSONObject) -> JSONObject:
    """Return what an answer adds to the row that it echoes; nulls are left out."""
    return {
        name: value
        for name, value in answer.items()
        if name in _SCORE_FIELDS
        or not (name in _ECHOED or value is None or (name in row and row[name] == value))
    }


def score_of(answer: JSONObject) -> Score:
    """Return the score that a checked verdict means.

    That of a server of gymcli has the score as it is. Of others the numbers of the top level are
    metrics, texts and objects are details.
    """
    if OWN_KEY in answer:
        return msgspec.convert(answer[OWN_KEY], type=Verified).score
    reward, extracted = answer["reward"], answer.get("extracted_answer")
    assert isinstance(reward, int | float)
    components = _numbers(answer.get("reward_components"))
    rest = {n: v for n, v in answer.items() if n not in (*_SCORE_FIELDS, "mask_sample")}
    metrics = {n: v for n, v in _numbers(rest).items() if n not in components}
    details = {n: v for n, v in rest.items() if not isinstance(v, int | float)}
    if extracted is not None and not isinstance(extracted, str):
        details["extracted_answer"] = extracted
    return Score(
        float(reward),
        components=components,
        metrics=metrics,
        answer=extracted if isinstance(extracted, str) else None,
        details=_bounded(details),
    )


def _numbers(fields: JSON) -> dict[str, float]:
    """Return the numbers and truth values among fields."""
    if not isinstance(fields, dict):
        return {}
    return {name: float(v) for name, v in fields.items() if isinstance(v, int | float)}


def _bounded(details: JSONObject) -> JSONObject:
    """Return the details that fit, in their order, and the names of those that do not."""
    kept: JSONObject = {}
    left_out = []
    num_bytes = 0
    for name, value in details.items():
        size = len(msgspec.json.encode(value))
        if num_bytes + size > MAX_DETAILS:
            left_out.append(name)
            continue
        num_bytes += size
        kept[name] = value
    return {**kept, "left_out": left_out} if left_out else kept


def _words(value: JSON) -> str:
    """Return the first words of a text, in parentheses."""
    text = " ".join(str(value or "").split())[:_MAX_WORDS]
    return f" ({text})" if text else ""


class Opened(msgspec.Struct, omit_defaults=True):
    """What the environment begins with."""

    messages: list[Message] = []
    """Its opening, which follows the row's prompt."""
    tools: list[JSONObject] = []
    """Its tools in chat shape, for rows that declare none."""
    max_turns: int | None = None


class Said(msgspec.Struct, omit_defaults=True):
    """What the model said, and at the end what else a verifier may read of the record."""

    messages: list[Message]
    """For `/step` what is new, the last one to be answered; for `/verify` all after the prompt."""
    stop_reason: StopReason | None = None
    model: str = ""
    usage: Usage | None = None


class Stepped(msgspec.Struct, omit_defaults=True):
    """What the environment answered to a message."""

    messages: list[Message] = []
    reward: float | None = None
    stop_reason: StopReason | None = None
    tool_errors: dict[str, int] = {}
    """Calls of this message that could not be carried out, by what was wrong."""


class Verified(msgspec.Struct):
    """What the verifier said."""

    score: Score


class ServedEpisode:
    """One episode on a server of gymcli, from the answer to `/seed_session` on."""

    def __init__(
        self, session: ServerSession, rollout: Rollout, opened: Opened, *, seconds: float
    ) -> None:
        self.opened = opened
        self._session = session
        self._rollout = rollout
        self._seconds = seconds
        self._num_known = 0
        """Messages of the record that the server has."""
        self._is_over = False

    def tools(self) -> list[Tool]:
        """Return the tools to be shown; the server runs them, in `/step`."""
        functions = [object_in(spec.get("function")) for spec in self.opened.tools]
        return [
            Tool(
                _run_there,
                name=str(function.get("name")),
                description=str(function.get("description") or ""),
                parameters=object_in(function.get("parameters")),
            )
            for function in functions
        ]

    async def step(self) -> tuple[Step, dict[str, int]]:
        """Send what the model said; return what the environment answers, and its tool errors.

        That is the last message, and before it those that no step answered, of reasoning alone.

        Raises:
            EpisodeError: The call failed.

        """
        messages = self._rollout.messages
        known = max(self._num_known, self._rollout.num_prompt_messages)
        reply = await self._post("step", Said(messages[known:]), EpisodeError)
        stepped = _own(reply, Stepped, EpisodeError)
        self._num_known = len(messages) + len(stepped.messages)
        step = Step(stepped.messages, stepped.reward, stepped.stop_reason)
        return step, stepped.tool_errors

    async def verdict(self) -> JSONObject:
        """Ask `/verify` and return the answer; the server's session is over then.

        Raises:
            VerifierError: There is no verdict.

        """
        rollout = self._rollout
        said = Said(rollout.responses, rollout.stop_reason, rollout.model, rollout.usage)
        reply = await self._post("verify", said, VerifierError)
        _own(reply, Verified, VerifierError)
        self._is_over = True
        return reply.json_object(VerifierError)

    async def close(self) -> None:
        """End the server's session where no verdict did.

        Raises:
            EpisodeError: The server cannot be reached.

        """
        if not self._is_over:
            await self._session.post("close", {}, seconds=_CLOSE_TIMEOUT, error_class=EpisodeError)

    async def _post(self, path: str, said: Said, error_class: type[AttemptError]) -> ServerReply:
        payload: JSONObject = {OWN_KEY: msgspec.to_builtins(said)}
        return await self._session.post(
            path, payload, seconds=self._seconds, error_class=error_class
        )


def served_episode(
    session: ServerSession,
    rollout: Rollout,
    row: JSONObject,
    answer: JSONObject,
    *,
    place: str,
    seconds: float,
) -> ServedEpisode | None:
    """Go on from what `/seed_session` answered to a row; None where that is no server of gymcli.

    Raises:
        SetupError: It is one, and does not say what it must.

    """
    if OWN_KEY not in answer or answer[OWN_KEY] == row.get(OWN_KEY):
        return None
    try:
        opened = msgspec.convert(answer[OWN_KEY], type=Opened)
    except msgspec.ValidationError as error:
        raise SetupError(f"{place}: no answer of gym serve: {error}") from error
    return ServedEpisode(session, rollout, opened, seconds=seconds)


def _run_there() -> None:
    # Never called, and without a docstring, which would describe a tool that has no description.
    raise NotImplementedError


def _own(reply: ServerReply, kind: type[T], error_class: type[AttemptError]) -> T:
    """Read what an answer says under our key.

    Raises:
        AttemptError: As `error_class`: it says nothing there.

    """
    answer = reply.json_object(error_class)
    try:
        return msgspec.convert(answer.get(OWN_KEY), type=kind)
    except msgspec.ValidationError as error:
        raise error_class(
            f"{reply.place}: the answer lacks what gym serve gives: {error}"
        ) from error
