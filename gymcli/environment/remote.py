"""An environment whose state, tools and verifier are on a resources server of NeMo Gym.

The order of events of an episode, all in one session (one cookie jar):

1. The row is posted to `/seed_session`; if the server has none (404), to `/reset` of the gymnasium
   dialect, which is followed by `/step`.
2. Every call of a tool that the row declares is posted to `/{tool}`, one after another and never
   twice; the answer's text is the result, whatever its status.
3. `final_state` posts to `/verify` while the session lives, and the answer is recorded.
4. `verify` reads the recorded answer.

Source: the protocol of NVIDIA NeMo Gym 0.5 and its agents simple_agent and gymnasium_agent
(Apache-2.0), implemented from scratch. Where this differs from those agents:

- A model can call the tools that its row declares, never a path of the protocol.
- Arguments that are not a JSON object are answered with a sentence, not posted.
- A call that breaks or takes too long fails the attempt, since its effect is unknown.
- A message that the endpoint cut off (length, content filter) or that is a refusal ends an episode
  of the gymnasium dialect before `/step`; its reward is the sum of the steps so far.
- A step without messages ends the episode even if it does not end the game.
- A tool's result is cut at `max_tool_output` characters, with a marker.
- A server run by gymcli gets the attempt's seed, and every message of the model at `/step`, so that
  the environment's own prompt, tools and stop reasons apply; see `wire`.
- An answer from a different session fails the attempt; see `ServerSession`. This cannot detect a
  server that sets no cookie (noted in the score's details), or one that lost the state of a session
  but still accepts its cookie, for example after a restart.
"""

from __future__ import annotations

import base64
import io
import math
import uuid
from collections.abc import Mapping
from http.cookies import SimpleCookie
from typing import ClassVar, Literal, NamedTuple, Self, TypeVar, cast
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from gymcli.environment.addresses import checked_address
from gymcli.environment.contract import Context, Environment
from gymcli.environment.time_limit import LoopClock, time_limit
from gymcli.environment.tool import (
    EnvironmentOptions,
    Properties,
    Step,
    Task,
    Tool,
    function_names,
)
from gymcli.errors import (
    AttemptError,
    EpisodeError,
    RunError,
    SetupError,
    UsageError,
    VerifierError,
)
from gymcli.nemo_gym.payload import object_in
from gymcli.nemo_gym.wire import (
    EXTENSION_KEY,
    SEED_HEADER,
    EpisodeStart,
    ModelOutput,
    StepReply,
    VerifierScore,
    check_verdict,
    game_messages,
    response_of,
    row_of,
    score_of,
    verdict_fields,
)
from gymcli.types import JSON_ERRORS, JSONObject, Message, Rollout, Score, ToolFault

T = TypeVar("T")

ReverifyMode = Literal["stateless", "unsupported", "unknown"]
"""`stateless`: a server's `/verify` needs no session; `unknown`: the server does not report it."""

_MAX_GAME_TURNS = 10
"""The most model messages of a game; the row or the command line may override it."""
_MAX_STEP_TRIES = 3
_QUESTION_TIMEOUT = 10.0
"""Seconds for a call that the episode does not depend on."""

CONNECT_TIMEOUT = 10.0
"""Seconds to wait for a connection."""

MAX_ANSWER_BYTES = 64 * 2**20
"""The longest answer, unpacked."""

_LARGE_BODY = 2**20
"""Bytes from which on aiohttp wants a body as a file, which it sends in pieces."""

_MAX_IDLE = 1.0
"""Seconds that an idle connection is kept: less than on any common server (2 to 75), since a call
on a closing connection fails its attempt."""

_MAX_WORDS = 200
"""Characters of a server's answer that are shown in a message."""

_PROTOCOL_PATHS = (
    "aggregate_metrics",
    "close",
    "close_session",
    "mcp",
    "reset",
    "reverify_mode",
    "sandbox_access",
    "seed_session",
    "step",
    "verify",
)
"""Forbidden names of tools: calling one would change the episode, or ask for its score."""

_NOT_KEPT = (
    "its session is over, so this conversation cannot be scored later; run the same command again "
    "to play the attempt again"
)


class RemoteEnvironment(Environment[Task]):
    """Base of the classes that `remote_environment` makes, one for each server."""

    base_url: ClassVar[str] = ""
    call_timeout: ClassVar[float] = 600.0
    """Seconds that a call of the protocol may take; tools have `tool_timeout`."""
    setup_timeout: ClassVar[float] = 1300.0
    """Longer than its two calls, so that their own limits report which one was late."""
    step_timeout: ClassVar[float] = 2000.0
    """Longer than the three tries of a step."""
    version = "remote"
    max_reward = None
    rescore: ClassVar[Literal["verify", "recorded"]] = "recorded"
    properties = Properties(structure="stateful", verification="by its server")

    class Options(EnvironmentOptions):
        """Options of a remote environment."""

        protocol: Literal["auto", "gymnasium"] = "auto"
        """`gymnasium`: for a server of that dialect that also answers `/seed_session`."""

    options: Options
    _session: ServerSession | None = None
    _row: JSONObject
    _protocol: Literal["seed", "gymnasium", "gymcli"] = "seed"
    _state: JSONObject
    """The end of the episode, as recorded in `final_state`."""
    _info: JSONObject
    """The `info` in the first answer of a gymnasium server."""
    _opened: EpisodeStart
    """The first answer of a gymcli server."""
    _num_known = 0
    """The number of messages of the record that a gymcli server has."""
    _is_over = False
    """Whether a gymcli server returned its verdict, which ends its session."""

    async def setup(self) -> list[Message]:
        seed = {SEED_HEADER: str(self.rollout.seed)}
        self._session = ServerSession(self.base_url, headers=seed)
        self._row = row_of(self.rollout)
        opening = await self._open_session() if self.options.protocol == "auto" else None
        if opening is None:
            opening = await self._open_game()
        self._session.is_open = True
        self._state = {"protocol": self._protocol}
        return opening

    async def _open_session(self) -> list[Message] | None:
        """Begin with `/seed_session`; return None if the server has none."""
        reply = await self._post("seed_session", self._row, SetupError)
        if reply.status == 404:
            return None
        answer = reply.json_object(SetupError)
        if "env_id" in answer:
            raise SetupError(
                f"{reply.place}: the answer has an env_id, as those of aviary's and ToolSandbox's "
                "servers have; their dialect is not supported"
            )
        # A server that merely echoes our key from the row is not a gymcli server.
        if EXTENSION_KEY not in answer or answer[EXTENSION_KEY] == self._row.get(EXTENSION_KEY):
            for name in function_names(self.rollout.tools):
                # A slash could lead to another address on servers that decode before they route.
                if name in _PROTOCOL_PATHS or "/" in name or name in ("", ".", ".."):
                    raise SetupError(
                        f"the row declares the tool {name!r}, which is a path of the protocol or "
                        "not a valid path, and cannot be called; rename it on the server and in "
                        "the row"
                    )
            return []
        try:
            self._opened = opened = msgspec.convert(answer[EXTENSION_KEY], type=EpisodeStart)
        except msgspec.ValidationError as error:
            raise SetupError(f"{reply.place}: not an answer of gym serve: {error}") from error
        self._protocol = "gymcli"
        self.max_turns = opened.max_turns
        return opened.messages

    async def _open_game(self) -> list[Message]:
        """Begin with `/reset`; an observation is an opening user message."""
        reply = await self._post("reset", self._row, SetupError)
        if reply.status == 404:
            raise SetupError(
                f"{reply.place}: this address has neither /seed_session nor /reset; is it a "
                "resources server?"
            )
        answer = reply.json_object(SetupError)
        self._protocol = "gymnasium"
        self._info = object_in(answer.get("info"))
        self.max_turns = _MAX_GAME_TURNS
        # There is no call yet that a tool message could answer.
        return [message for message in game_messages(answer) if message.role == "user"]

    def tools(self) -> list[Tool]:
        """Return the tools of the row, or those of a gymcli server; each one calls the server."""
        assert self._session is not None, "tools are shown after setup"
        if self._protocol == "gymcli":
            functions = [object_in(spec.get("function")) for spec in self._opened.tools]
            return [
                Tool(
                    _run_there,
                    name=str(function.get("name")),
                    description=str(function.get("description") or ""),
                    parameters=object_in(function.get("parameters")),
                )
                for function in functions
            ]
        names = function_names(self.rollout.tools)
        return [_server_tool(self._session, name, seconds=self.tool_timeout) for name in names]

    async def step(self, message: Message) -> Step:
        if self._protocol == "gymcli":
            return await self._gymcli_step()
        if self._protocol == "gymnasium":
            return await self._game_step(message)
        return await super().step(message)

    async def _gymcli_step(self) -> Step:
        """Send the last message, after those that no step answered (of only reasoning)."""
        messages = self.rollout.messages
        num_known = max(self._num_known, self.rollout.num_prompt_messages)
        payload: JSONObject = {
            EXTENSION_KEY: msgspec.to_builtins(ModelOutput(messages[num_known:]))
        }
        reply = await self._post("step", payload, EpisodeError)
        stepped = _extension(reply, StepReply, EpisodeError)
        # Including the answer, which the driver adds to the record afterwards.
        self._num_known = len(messages) + len(stepped.messages)
        self.tool_errors.update(cast("dict[ToolFault, int]", stepped.tool_errors))
        return Step(stepped.messages, stepped.reward, stepped.stop_reason)

    async def _game_step(self, message: Message) -> Step:
        # Only the new message, since the server keeps the conversation.
        payload = {**self._row, "response": response_of(self.rollout, self._row, [message])}
        num_tries = 1
        if self._info.get("supports_step_idempotency") is True:  # it recognises a repeated step id
            payload["_ng_step_request_id"] = uuid.uuid4().hex
            num_tries = _MAX_STEP_TRIES
        while True:
            num_tries -= 1
            try:
                reply = await self._post("step", payload, EpisodeError)
                break
            except EpisodeError:
                if num_tries == 0:
                    raise
        answer = reply.json_object(EpisodeError)
        reward = answer.get("reward") or 0.0
        if not isinstance(reward, int | float):
            raise EpisodeError(f"/step of {self.base_url} returned the reward {reward!r}")
        ending = {name: answer.get(name) is True for name in ("terminated", "truncated")}
        self._state.update(ending)
        is_over = any(ending.values())
        return Step(game_messages(answer), float(reward), "env_done" if is_over else None)

    async def final_state(self) -> JSONObject:
        """Return how the game ended, or the server's verdict, which needs the open session."""
        session, rollout, state = self._session, self.rollout, self._state
        assert session is not None, "an episode is set up before it ends"
        # Without a cookie, `_check_session` cannot notice that the server lost the session.
        if self._protocol != "gymcli" and not session.has_cookies:
            state["session_cookie"] = "none"
        if self._protocol == "gymnasium":
            return state
        try:
            if self._protocol == "seed":
                state["verify"] = await self._asked_verdict(session, rollout, self._row)
            else:
                output = ModelOutput(
                    rollout.responses, rollout.stop_reason, rollout.model, rollout.usage
                )
                payload: JSONObject = {EXTENSION_KEY: msgspec.to_builtins(output)}
                reply = await self._post("verify", payload, VerifierError)
                _extension(reply, VerifierScore, VerifierError)
                self._is_over = True
                state["verify"] = reply.json_object(VerifierError)
                return state
        except VerifierError as error:
            raise VerifierError(f"{error}; {_NOT_KEPT}") from error
        try:
            # The verdict is complete without it; it only tells whether the record can be rescored.
            state["reverify_mode"] = await _asked_mode(session)
        except EpisodeError:
            state["reverify_mode"] = "unknown"
        return state

    async def close(self) -> None:
        if self._session is None:
            return
        try:
            if self._protocol == "gymcli" and not self._is_over:
                await self._post("close", {}, EpisodeError, seconds=_QUESTION_TIMEOUT)
            if self._protocol == "gymnasium" and self._info.get("supports_explicit_close") is True:
                try:
                    reply = await self._post("close", {}, EpisodeError, seconds=_QUESTION_TIMEOUT)
                    reply.json_object(EpisodeError)
                except EpisodeError as error:
                    # Recorded, not raised: the episode itself is complete.
                    self._state["close_error"] = str(error)
        finally:
            await self._session.close()

    async def _post(
        self,
        path: str,
        payload: JSONObject,
        error_class: type[AttemptError],
        *,
        seconds: float | None = None,
    ) -> ServerReply:
        assert self._session is not None, "a session is open from setup to close"
        seconds = self.call_timeout if seconds is None else seconds
        return await self._session.ask(path, payload, seconds=seconds, error_class=error_class)

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Return the server's verdict on the episode; a game's reward is the sum of its steps.

        A class made with `rescore="verify"` asks the server again, without a session.

        Raises:
            VerifierError: The record has no verdict, or the server returns no new one.
        """
        state = object_in(rollout.final_state)
        answer = object_in(state.get("verify"))
        if state.get("protocol") == "gymnasium":
            score = Score(math.fsum(reward or 0.0 for reward in rollout.step_rewards))
        elif cls.rescore == "verify":
            seed = {SEED_HEADER: str(rollout.seed)}
            async with ServerSession(cls.base_url, keeps_cookies=False, headers=seed) as session:
                return score_of(await cls._asked_verdict(session, rollout, row_of(rollout)))
        elif answer:
            score = score_of(answer)
        else:
            raise VerifierError("the record has no answer of /verify; play the attempt again")
        if state.get("session_cookie") == "none":  # which may explain the score
            score.details["session_cookie"] = "none"
        return score

    @classmethod
    async def _asked_verdict(
        cls, session: ServerSession, rollout: Rollout, row: JSONObject
    ) -> JSONObject:
        """Ask `/verify` and return the fields of its answer that are not the row's."""
        response = response_of(rollout, row, rollout.responses, rollout.usage)
        reply = await session.ask(
            "verify",
            {**row, "response": response},
            seconds=cls.call_timeout,
            error_class=VerifierError,
        )
        answer = reply.json_object(VerifierError)
        check_verdict(answer, reply.place)
        return verdict_fields(answer, row)


def remote_environment(
    name: str, base_url: str, *, rescore: Literal["recorded", "verify"] = "recorded"
) -> type[Environment[Task]]:
    """Make the environment class of a resources server.

    Args:
        name: The name of the environment in a run.
        base_url: `http(s)://host[:port][/path]`.
        rescore: `verify` asks the server again when a record is scored, which only a server whose
            `reverify_mode` is `stateless` can answer.

    Raises:
        UsageError: The address is invalid.
    """
    try:
        address = checked_address(
            base_url, name="the address of a remote environment", example="http://host:port"
        )
    except ValueError as error:
        raise UsageError(str(error)) from error
    members = {
        "__module__": __name__,
        "__doc__": f"{name}: the resources server at {address}.",
        "base_url": address,
        "rescore": rescore,
        "waits_to_verify": rescore == "verify",
    }
    return type("RemoteEnvironment", (RemoteEnvironment,), members)


async def reverify_mode(base_url: str) -> ReverifyMode:
    """Ask a server whether its `/verify` can be asked again later.

    Raises:
        RunError: The server cannot be reached.
    """
    async with ServerSession(base_url, keeps_cookies=False) as session:
        try:
            return await _asked_mode(session)
        except EpisodeError as error:
            raise RunError(str(error)) from error


async def _asked_mode(session: ServerSession) -> ReverifyMode:
    reply = await session.ask(
        "reverify_mode", None, seconds=_QUESTION_TIMEOUT, error_class=EpisodeError
    )
    for mode in ("stateless", "unsupported"):
        if reply.status == 200 and reply.text.strip() == f'"{mode}"':
            return mode
    return "unknown"


def _server_tool(session: ServerSession, name: str, *, seconds: float) -> Tool:
    """Return a tool that posts its arguments to a server; the text of the answer is the result."""

    async def call(**arguments: object) -> str:
        reply = await session.ask(name, arguments, seconds=seconds, error_class=EpisodeError)
        return reply.text

    # The request's own limit comes first: it fails the attempt, while the tool's would be shown to
    # the model.
    return Tool(
        call, name=name, description=f"/{name} of the server.", parameters={}, timeout=seconds + 10
    )


def _run_there() -> None:
    # Never called. A docstring would become the description of tools that have none.
    raise NotImplementedError


def _extension(reply: ServerReply, kind: type[T], error_class: type[AttemptError]) -> T:
    answer = reply.json_object(error_class)
    try:
        return msgspec.convert(answer.get(EXTENSION_KEY), type=kind)
    except msgspec.ValidationError as error:
        raise error_class(
            f"{reply.place}: the answer lacks what gym serve returns: {error}"
        ) from error


class ServerReply(NamedTuple):
    """The answer of a server, whatever its status."""

    place: str
    """The method and URL of the request, for messages."""
    status: int
    body: bytes

    @property
    def text(self) -> str:
        """The body as text; invalid UTF-8 is replaced."""
        return self.body.decode(errors="replace")

    @property
    def words(self) -> str:
        start = self.body[: 4 * _MAX_WORDS].decode(errors="replace")
        return " ".join(start.split())[:_MAX_WORDS] or "it is empty"

    def json_object(self, error_class: type[AttemptError]) -> JSONObject:
        """Return the JSON object of a successful call; otherwise raise `error_class`."""
        if self.status // 100 != 2:
            hint = "; redirects are not followed" if self.status // 100 == 3 else ""
            raise error_class(f"{self.place}: status {self.status}{hint}: {self.words}")
        try:
            return msgspec.json.decode(self.body, type=JSONObject)
        except JSON_ERRORS as error:
            raise error_class(f"{self.place}: not a JSON object: {self.words}") from error


class ServerSession:
    """One conversation with a resources server: its connection and its cookies.

    Without `keeps_cookies` every call opens a new session. `headers` are sent with every call.
    """

    def __init__(
        self, base_url: str, *, keeps_cookies: bool = True, headers: Mapping[str, str] | None = None
    ) -> None:
        self.base_url = base_url
        self.is_open = False
        """Whether the server has built the episode's state, so that its session must not change."""
        self._session_ids: dict[str, str] = {}
        # `unsafe` also keeps cookies of IP addresses, by which servers are often named.
        jar = aiohttp.CookieJar(unsafe=True) if keeps_cookies else aiohttp.DummyCookieJar()
        self._client = aiohttp.ClientSession(
            # One connection is enough, since the requests of a session follow one another.
            connector=aiohttp.TCPConnector(limit=1, keepalive_timeout=_MAX_IDLE),
            cookie_jar=jar,
            headers={"Content-Type": "application/json", "User-Agent": "gymcli", **(headers or {})},
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._client.close()

    @property
    def has_cookies(self) -> bool:
        return len(self._client.cookie_jar) > 0

    async def ask(
        self,
        path: str,
        payload: JSONObject | None,
        *,
        seconds: float,
        error_class: type[AttemptError],
    ) -> ServerReply:
        """POST a JSON object to `/{path}`, or GET it without one; return the answer of any status.

        Raises:
            AttemptError: As `error_class`: there was no complete answer within `seconds`, or it
                came from a session other than the one that was opened.
        """
        # Encoded as one segment, so that no tool's name can lead to another path.
        url = URL(f"{self.base_url}/{quote(path, safe='')}", encoded=True)
        method = "GET" if payload is None else "POST"
        place = f"{method} {url}"
        encoded = None if payload is None else msgspec.json.encode(payload)
        try:
            # Time in which the event loop or the process stood still does not count.
            async with LoopClock() as clock, time_limit(seconds, clock.now):
                response = await self._response(method, url, encoded, clock)
                async with response:
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

    async def _response(
        self, method: str, url: URL, encoded: bytes | None, clock: LoopClock
    ) -> aiohttp.ClientResponse:
        while True:
            began = clock.now()
            is_large = encoded is not None and len(encoded) >= _LARGE_BODY
            try:
                return await self._client.request(
                    method,
                    url,
                    data=io.BytesIO(encoded or b"") if is_large else encoded,
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
                )
            except aiohttp.ConnectionTimeoutError:  # by aiohttp's clock; nothing was sent
                if clock.now() - began >= CONNECT_TIMEOUT:
                    raise

    def _check_session(
        self, cookies: SimpleCookie, place: str, error_class: type[AttemptError]
    ) -> None:
        # A server that does not recognise its cookie silently starts a new, empty session, and its
        # score would look like that of a bad model. Starlette's signed cookies, which all servers
        # of NeMo Gym use, contain the session's id; other cookies cannot be checked.
        for name, cookie in cookies.items():
            session_id = _session_id(cookie.value)
            if session_id is None:
                continue
            opened_id = self._session_ids.get(name)
            if opened_id is None and not self.is_open:
                self._session_ids[name] = session_id
            elif opened_id != session_id:
                raise error_class(
                    f"{place}: answered from a session other than the one that was opened; the "
                    f"cookie {name} was lost on the way (a proxy, or servers that share no secret)"
                )


async def _read(response: aiohttp.ClientResponse) -> bytes | None:
    chunks = []
    num_bytes = 0
    # Counted as it arrives and is unpacked: a short compressed body may become a huge one.
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
    # Starlette's cookie: the session as JSON in base64, then a time stamp and a signature.
    payload, _, signature = value.partition(".")
    if not signature:
        return None
    try:
        fields = msgspec.json.decode(base64.b64decode(payload, validate=True), type=JSONObject)
    except (ValueError, *JSON_ERRORS):
        return None
    session_id = fields.get("session_id")
    return session_id if isinstance(session_id, str) else None
