"""An environment whose state, tools and verifier are a resources server's of NeMo Gym.

The order of events of an episode, all of it in one session (one cookie jar):

1. `/seed_session` gets the row; where the server has none (404), `/reset` of the gymnasium
   dialect does, and from there on `_Game` plays;
2. every call of a tool that the row declares is posted to `/{tool}`, one after another and never
   twice; the answer's text is the result, whatever its status;
3. `/verify` is asked in `final_state`, while the session lives, and its answer is recorded;
4. `verify` reads the recorded answer.

Source: the protocol of NVIDIA NeMo Gym 0.5 and its agents simple_agent and gymnasium_agent
(Apache-2.0), spoken here in our own words. Where this differs from those agents:

- A model can call what its row declares, never an address of the protocol.
- Arguments that are no JSON object are answered with a sentence, not posted.
- A call that breaks or takes too long fails the attempt, since nobody knows what it did.
- A message that the endpoint cut off (length, content filter) or that is a refusal ends an episode
  of the gymnasium dialect before `/step`; its reward is the sum of the steps so far.
- A step that shows nothing and does not end the game ends the episode.
- A tool's result is cut at `max_tool_output` characters, with a marker.
- A server of gymcli itself is told the attempt's seed, and is then sent every message of the model
  to `/step`: so the environment's own prompt, tools and stop reasons hold; see `remote_session`.
- An answer from another session than the first one fails the attempt; see `ServerSession`. What
  cannot be seen from here: a server that sets no cookie (noted in the score's details), and one
  that forgot the state of a session whose cookie it still takes, as after a restart.
"""

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
    ServedEpisode,
    ServerReply,
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
    "RemoteEnvironment",
    "ReverifyMode",
    "checked_server_address",
    "remote_environment",
    "reverify_mode",
]

ReverifyMode = Literal["stateless", "unsupported", "unknown"]
"""Whether a server's `/verify` needs no session; `unknown` where it does not say."""

_MAX_GAME_TURNS = 10
"""Model messages of a game, unless the row or the command line says otherwise."""
_MAX_STEP_TRIES = 3
_QUESTION_TIMEOUT = 10.0
"""Seconds for a call that the episode does not depend on."""

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

_NOT_KEPT = (
    "its session is over, so this conversation cannot be scored later; run the same command again "
    "to play the attempt again"
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
    _game: _Game | None = None
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
                    _check_callable(_declared_names(self.rollout.tools))
                else:
                    self.max_turns = served.opened.max_turns
                session.is_open = True
                return [] if served is None else served.opened.messages
        self._game = _Game(session, self._row, self.rollout, seconds=self.call_timeout)
        self.max_turns = _MAX_GAME_TURNS
        opening = await self._game.reset()
        session.is_open = True
        return opening

    def tools(self) -> list[Tool]:
        """Return the tools of the row, each a call of the server; else those that it names."""
        if self._served is not None:
            return self._served.tools()
        assert self._session is not None, "tools are shown after setup"
        session, seconds = self._session, self.tool_timeout
        names = _declared_names(self.rollout.tools)
        return [_server_tool(session, name, seconds=seconds) for name in names]

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
        """Return how the game ended, or the server's verdict, which it can give only now.

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
            state["reverify_mode"] = await _asked_mode(self._session)
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
        """Return what the server said of the episode; a game's reward is the sum of its steps.

        A class made with `rescore="verify"` asks the server again, without any session.

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
            raise VerifierError("the record holds no answer of /verify; it must be played again")
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


def checked_server_address(value: str) -> str:
    """Return a server's address without its trailing slash.

    Raises:
        UsageError: It is not http(s), has no host, or carries a user, a query or a fragment.

    """
    what = "the address of a remote environment"
    try:
        return checked_http_address(value, what=what, example="http://host:port")
    except ValueError as error:
        raise UsageError(str(error)) from error


async def reverify_mode(base_url: str) -> ReverifyMode:
    """Ask a server whether its `/verify` can be asked again later.

    Raises:
        UsageError: The address is none.
        RunError: The server cannot be reached.

    """
    async with ServerSession(checked_server_address(base_url), keeps_cookies=False) as session:
        try:
            return await _asked_mode(session)
        except EpisodeError as error:
            raise RunError(str(error)) from error


async def _asked_mode(session: ServerSession) -> ReverifyMode:
    """Ask for the mode; what is no answer to it is `unknown`.

    Raises:
        EpisodeError: The server cannot be reached.

    """
    reply = await session.get("reverify_mode", seconds=_QUESTION_TIMEOUT, error_class=EpisodeError)
    for mode in ("stateless", "unsupported"):
        if reply.status == 200 and reply.text.strip() == f'"{mode}"':
            return mode
    return "unknown"


def _check_seeded(reply: ServerReply) -> JSONObject:
    """Check that `/seed_session` went well; return what it says.

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


def _declared_names(specs: list[JSONObject]) -> list[str]:
    """Return the names of tools in chat shape, in their order."""
    functions = [object_in(spec.get("function")) for spec in specs]
    return [name for function in functions if isinstance(name := function.get("name"), str)]


def _check_callable(names: list[str]) -> None:
    """Check that tools can be called by their names.

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


def _server_tool(session: ServerSession, name: str, *, seconds: float) -> Tool:
    """Return a tool that posts its arguments to a server; the text of the answer is the result.

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


class _Game:
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
        """Send a message of the model, and return what the server answers to it.

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
        while True:
            num_tries -= 1
            try:
                reply = await self._session.post(
                    "step", payload, seconds=self._seconds, error_class=EpisodeError
                )
                break
            except EpisodeError:
                if num_tries == 0:
                    raise
        answer = reply.json_object(EpisodeError)
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
                "close", {}, seconds=_QUESTION_TIMEOUT, error_class=EpisodeError
            )
            reply.json_object(EpisodeError)
        except EpisodeError as error:
            self.state["close_error"] = str(error)


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
