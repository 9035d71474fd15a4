"""The tools that a row declares, each a call of its server."""

from __future__ import annotations

import math
import uuid
from collections.abc import Awaitable
from typing import ClassVar, Literal, cast

import msgspec

from gymcli.environment.addresses import checked_address as checked_http_address
from gymcli.environment.contract import Context, Environment
from gymcli.environment.remote_session import (
    SEED_HEADER,
    Reply,
    ServedEpisode,
    ServerSession,
    asked_verdict,
    score_of,
    served_episode,
)
from gymcli.environment.tool import EnvironmentOptions, Properties, Step, Task, Tool, ToolFault
from gymcli.errors import EpisodeError, RunError, SetupError, UsageError, VerifierError
from gymcli.nemo_gym.payload import object_in
from gymcli.nemo_gym.wire import response_of, row_of
from gymcli.types import JSON, JSONObject, Message, Rollout, Score

__all__ = [
    "MAX_TURNS",
    "Game",
    "RemoteEnvironment",
    "ReverifyMode",
    "asked_mode",
    "check_callable",
    "checked_server_address",
    "declared_names",
    "remote_environment",
    "reverify_mode",
    "server_tool",
]


def checked_server_address(value: str) -> str:
    """Give a server's address without its trailing slash.

    Raises:
        UsageError: It is not http(s), has no host, or carries a user, a query or a fragment.

    """
    what = "the address of a remote environment"
    try:
        return checked_http_address(value, what=what, example="http://host:port")
    except ValueError as error:
        raise UsageError(str(error)) from error


MAX_TURNS = 10
"""Model messages of an episode, unless the row or the command line says otherwise."""

_MAX_STEP_TRIES = 3
_CLOSE_TIMEOUT = 10.0


class Game:
    """One episode on a server of the gymnasium dialect.

    A step is sent once, unless the server says that it knows a step again by its id.
    """

    def __init__(
        self, session: ServerSession, row: JSONObject, rollout: Rollout, *, seconds: float
    ) -> None:
        self._session = session
        self._row = row
        self._rollout = rollout
        self._seconds = seconds
        self._info: JSONObject = {}
        self.state: JSONObject = {"protocol": "gymnasium"}
        """What the record keeps of how it ended."""

    async def reset(self) -> list[Message]:
        """Begin; the observation, if there is one, is an opening user message.

        Raises:
            SetupError: The server cannot be reached, or does not speak the dialect.

        """
        reply = await self._session.post(
            "reset", self._row, seconds=self._seconds, error_class=SetupError
        )
        if reply.status == 404:
            raise SetupError(
                f"{reply.place}: there is neither /seed_session nor /reset at this address; is it "
                "a resources server?"
            )
        answer = reply.json_object(SetupError)
        self._info = _info(answer)
        return _observed(answer)

    async def step(self, message: Message) -> Step:
        """Send a message of the model, and give what the server answers to it.

        A step that observes nothing and does not end the game ends the episode all the same: there
        is nothing that the model could be shown.

        Raises:
            EpisodeError: The call failed, or its answer is none of the dialect.

        """
        payload = {**self._row, "response": response_of(self._rollout, self._row, [message])}
        num_tries = 1
        if self._info.get("supports_step_idempotency") is True:
            payload["_ng_step_request_id"] = uuid.uuid4().hex
            num_tries = _MAX_STEP_TRIES
        answer = await self._post_step(payload, num_tries)
        reward = answer.get("reward") or 0.0
        if not isinstance(reward, int | float):
            raise EpisodeError(f"/step of {self._session.base_url} gave the reward {reward!r}")
        messages = _tool_messages(_info(answer)) + _observed(answer)
        ending = {name: answer.get(name) is True for name in ("terminated", "truncated")}
        self.state.update(ending)
        is_over = any(ending.values())
        return Step(messages, float(reward), "env_done" if is_over else None)

    async def close(self) -> None:
        """Tell the server that the episode is over, where it wants to know.

        A failure is kept with the record: all that was paid for is there.
        """
        if self._info.get("supports_explicit_close") is not True:
            return
        try:
            reply = await self._session.post(
                "close", {}, seconds=_CLOSE_TIMEOUT, error_class=EpisodeError
            )
            reply.json_object(EpisodeError)
        except EpisodeError as error:
            self.state["close_error"] = str(error)

    async def _post_step(self, payload: JSONObject, num_tries: int) -> JSONObject:
        while True:
            num_tries -= 1
            try:
                reply = await self._session.post(
                    "step", payload, seconds=self._seconds, error_class=EpisodeError
                )
            except EpisodeError:
                if num_tries == 0:
                    raise
                continue
            return reply.json_object(EpisodeError)


def _info(answer: JSONObject) -> JSONObject:
    info = answer.get("info")
    return info if isinstance(info, dict) else {}


def _observed(answer: JSONObject) -> list[Message]:
    observation = answer.get("observation")
    if not observation:
        return []
    return [Message(role="user", content=_text(observation))]


def _tool_messages(info: JSONObject) -> list[Message]:
    outputs = info.get("tool_outputs")
    return [
        Message(role="tool", tool_call_id=str(o.get("call_id")), content=_text(o.get("output")))
        for o in (outputs if isinstance(outputs, list) else [])
        if isinstance(o, dict)
    ]


def _text(value: JSON) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


ReverifyMode = Literal["stateless", "unsupported", "unknown"]
"""Whether a server's `/verify` needs no session; `unknown` where it does not say."""

_TIMEOUT = 10.0


async def reverify_mode(base_url: str) -> ReverifyMode:
    """Ask a server whether its `/verify` can be asked again later.

    Raises:
        UsageError: The address is none.
        RunError: The server cannot be reached.

    """
    async with ServerSession(checked_server_address(base_url), keeps_cookies=False) as session:
        try:
            return await asked_mode(session)
        except EpisodeError as error:
            raise RunError(str(error)) from error


async def asked_mode(session: ServerSession) -> ReverifyMode:
    """Ask for the mode; what is no answer to it is `unknown`.

    Raises:
        EpisodeError: The server cannot be reached.

    """
    reply = await session.get("reverify_mode", seconds=_TIMEOUT, error_class=EpisodeError)
    for mode in ("stateless", "unsupported"):
        if reply.status == 200 and reply.text.strip() == f'"{mode}"':
            return mode
    return "unknown"


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
"""What a tool may not be named: calling it would change the episode, or ask for its score."""


def declared_names(specs: list[JSONObject]) -> list[str]:
    """Give the names of tools in chat shape, in their order."""
    functions = [object_in(spec.get("function")) for spec in specs]
    return [name for function in functions if isinstance(name := function.get("name"), str)]


def check_callable(names: list[str]) -> None:
    """See that tools can be called by their names.

    Raises:
        SetupError: One of them is an address of the protocol, or none at all.

    """
    for name in names:
        # A slash could lead to another address on servers that decode paths before they route.
        if name in _PROTOCOL_PATHS or "/" in name or name in ("", ".", ".."):
            raise SetupError(
                f"the row declares the tool {name!r}, which is an address of the protocol or none "
                "at all, and cannot be called; rename it on the server and in the row"
            )


def server_tool(session: ServerSession, name: str, *, seconds: float) -> Tool:
    """Give a tool that posts its arguments to a server; the text of the answer is the result.

    Any object fits, and any status: what the server says to it is the result.
    """

    async def call(**arguments: object) -> str:
        reply = await session.post(name, arguments, seconds=seconds, error_class=EpisodeError)
        return reply.text

    # Its own time limit is the request's, which comes first and fails the attempt rather than
    # being told to the model.
    return Tool(
        call, name=name, description=f"/{name} of the server.", parameters={}, timeout=seconds + 10
    )


_NOT_KEPT = (
    "its session is over, so this conversation cannot be scored later; run the same command again "
    "to play the attempt anew"
)


class RemoteEnvironment(Environment[Task]):
    """Base of the classes that `remote_environment` makes, one for each server."""

    base_url: ClassVar[str] = ""
    call_timeout: ClassVar[float] = 600.0
    """Seconds that a call of the protocol may take; a tool has `tool_timeout`."""
    setup_timeout: ClassVar[float] = 1300.0
    """Longer than the two calls of it, whose own limits say which of them it was."""
    step_timeout: ClassVar[float] = 2000.0
    """Longer than the three tries of a step."""
    version = "remote"
    max_reward = None
    rescore: ClassVar[Literal["verify", "recorded"]] = "recorded"
    properties = Properties(structure="stateful", verification="by its server")

    class Options(EnvironmentOptions):
        """How the server is spoken to."""

        protocol: Literal["auto", "gymnasium"] = "auto"
        """`gymnasium`: a server of that dialect that answers `/seed_session` as well."""

    options: Options
    _session: ServerSession | None = None
    _game: Game | None = None
    _served: ServedEpisode | None = None
    _row: JSONObject

    async def setup(self) -> list[Message]:
        """Open a session with the row; only a server of the gymnasium dialect opens the talk.

        Raises:
            SetupError: The server cannot be reached or refuses the row, or the row declares a
                tool that cannot be called.

        """
        seed = {SEED_HEADER: str(self.rollout.seed)}
        self._session = session = ServerSession(self.base_url, headers=seed)
        self._row = row_of(self.rollout)
        if self.options.protocol == "auto":
            seeded = await session.post(
                "seed_session", self._row, seconds=self.call_timeout, error_class=SetupError
            )
            if seeded.status != 404:
                answer = _check_seeded(seeded)
                self._served = served = served_episode(
                    session,
                    self.rollout,
                    self._row,
                    answer,
                    place=seeded.place,
                    seconds=self.call_timeout,
                )
                if served is None:
                    check_callable(declared_names(self.rollout.tools))
                else:
                    self.max_turns = served.opened.max_turns
                session.is_open = True
                return [] if served is None else served.opened.messages
        self._game = Game(session, self._row, self.rollout, seconds=self.call_timeout)
        self.max_turns = MAX_TURNS
        opening = await self._game.reset()
        session.is_open = True
        return opening

    def tools(self) -> list[Tool]:
        """Give the tools of the row, each a call of the server; else those that it tells."""
        if self._served is not None:
            return self._served.tools()
        assert self._session is not None, "tools are shown after setup"
        session, seconds = self._session, self.tool_timeout
        names = declared_names(self.rollout.tools)
        return [server_tool(session, name, seconds=seconds) for name in names]

    async def step(self, message: Message) -> Step:
        """Answer a message of the model, as the server's dialect has it."""
        if self._served is not None:
            step, faults = await self._served.step()
            self.tool_errors.update(cast("dict[ToolFault, int]", faults))
            return step
        if self._game is None:
            return await super().step(message)
        return await self._game.step(message)

    async def final_state(self) -> JSONObject:
        """Give how the game ended, or the server's verdict, which it can give only now.

        Raises:
            VerifierError: There is no verdict.

        """
        assert self._session is not None, "an episode is set up before it ends"
        if self._served is not None:
            return {"protocol": "gymcli", "verify": await _asked(self._served.verdict())}
        state: JSONObject = {"protocol": "seed"} if self._game is None else self._game.state
        if not self._session.has_cookies:
            state["session_cookie"] = "none"
        if self._game is not None:
            return state
        verdict = asked_verdict(self._session, self.rollout, self._row, seconds=self.call_timeout)
        state["verify"] = await _asked(verdict)
        try:
            state["reverify_mode"] = await asked_mode(self._session)
        except EpisodeError:
            state["reverify_mode"] = "unknown"
        return state

    async def close(self) -> None:
        """End the session."""
        if self._session is None:
            return
        try:
            if self._game is not None:
                await self._game.close()
            if self._served is not None:
                await self._served.close()
        finally:
            await self._session.close()

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Give what the server said of the episode; a game's reward is the sum of its steps.

        A class made with `rescore="verify"` asks the server anew, without any session.

        Raises:
            VerifierError: The record holds no verdict, or there is no new one.

        """
        state = object_in(rollout.final_state)
        if state.get("protocol") == "gymnasium":
            rewards = [reward for reward in rollout.step_rewards if reward is not None]
            return _noting_session(Score(math.fsum(rewards)), state)
        if cls.rescore == "verify":
            seed = {SEED_HEADER: str(rollout.seed)}
            async with ServerSession(cls.base_url, keeps_cookies=False, headers=seed) as session:
                row = row_of(rollout)
                return score_of(
                    await asked_verdict(session, rollout, row, seconds=cls.call_timeout)
                )
        answer = object_in(state.get("verify"))
        if not answer:
            raise VerifierError("the record holds no answer of /verify; it must be played anew")
        return _noting_session(score_of(answer), state)


def remote_environment(
    name: str, base_url: str, *, rescore: Literal["recorded", "verify"] = "recorded"
) -> type[Environment[Task]]:
    """Make the environment class of a resources server.

    Args:
        name: What the environment is called in a run.
        base_url: `http(s)://host[:port][/path]`.
        rescore: `verify` asks the server again when a record is scored, which only a server whose
            `reverify_mode` is `stateless` can answer.

    Raises:
        UsageError: The address is none.

    """
    address = checked_server_address(base_url)
    members = {
        "__module__": __name__,
        "__doc__": f"{name}: the resources server at {address}.",
        "base_url": address,
        "rescore": rescore,
        "waits_to_verify": rescore == "verify",
    }
    return type("RemoteEnvironment", (RemoteEnvironment,), members)


def _check_seeded(reply: Reply) -> JSONObject:
    """See that `/seed_session` went well; give what it says.

    Raises:
        SetupError: It did not, or the server goes on in a dialect that is not spoken here.

    """
    answer = reply.json_object(SetupError)
    if "env_id" in answer:
        raise SetupError(
            f"{reply.place}: the answer has an env_id, as aviary's and ToolSandbox's servers give; "
            "their dialect is not spoken here"
        )
    return answer


async def _asked(verdict: Awaitable[JSONObject]) -> JSONObject:
    """Wait for a verdict; where there is none, say that no later one can be had.

    Raises:
        VerifierError: There is none.

    """
    try:
        return await verdict
    except VerifierError as error:
        raise VerifierError(f"{error}; {_NOT_KEPT}") from error


def _noting_session(score: Score, state: JSONObject) -> Score:
    """Say in a score's details that the server kept no session, in case that explains it."""
    if state.get("session_cookie") == "none":
        score.details["session_cookie"] = "none"
    return score
