"""An environment whose state, tools and verifier are a resources server's of NeMo Gym.

The order of events of an episode, all of it in one session (one cookie jar):

1. `/seed_session` gets the row; where the server has none (404), `/reset` of the gymnasium
   dialect does, and `/step` is asked from there on;
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
  to `/step`: so the environment's own prompt, tools and stop reasons hold; see `server_answers`.
- An answer from another session than the first one fails the attempt; see `ServerSession`. What
  cannot be seen from here: a server that sets no cookie (noted in the score's details), and one
  that forgot the state of a session whose cookie it still takes, as after a restart.
"""

from __future__ import annotations

import math
import uuid
from typing import ClassVar, Literal, TypeVar, cast

import msgspec

from gymcli.environment.addresses import checked_address
from gymcli.environment.contract import Context, Environment
from gymcli.environment.remote_session import ServerReply, ServerSession
from gymcli.environment.tool import EnvironmentOptions, Properties, Step, Task, Tool, ToolFault
from gymcli.errors import (
    AttemptError,
    EpisodeError,
    RunError,
    SetupError,
    UsageError,
    VerifierError,
)
from gymcli.nemo_gym.payload import object_in
from gymcli.nemo_gym.server_answers import (
    OWN_KEY,
    SEED_HEADER,
    Opened,
    Said,
    Stepped,
    Verified,
    check_verdict,
    game_messages,
    own_fields,
    score_of,
)
from gymcli.nemo_gym.wire import response_of, row_of
from gymcli.types import JSONObject, Message, Rollout, Score

__all__ = [
    "RemoteEnvironment",
    "ReverifyMode",
    "checked_server_address",
    "remote_environment",
    "reverify_mode",
]

T = TypeVar("T")

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
    _row: JSONObject
    _protocol: Literal["seed", "gymnasium", "gymcli"] = "seed"
    _state: JSONObject
    """What the record keeps of how the episode ended."""
    _info: JSONObject
    """What a server of the gymnasium dialect said at first."""
    _opened: Opened
    """What a server of gymcli said at first."""
    _num_known = 0
    """Messages of the record that a server of gymcli has."""
    _is_over = False
    """A server of gymcli gave its verdict, which ends its session."""

    async def setup(self) -> list[Message]:
        """Open a session with the row, and return what the server opens the conversation with.

        Raises:
            SetupError: The server cannot be reached or refuses the row, or the row declares a
                tool that cannot be called.

        """
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
        """Begin by `/seed_session`; return None where the server has none."""
        reply = await self._post("seed_session", self._row, SetupError)
        if reply.status == 404:
            return None
        answer = reply.json_object(SetupError)
        if "env_id" in answer:
            raise SetupError(
                f"{reply.place}: the answer has an env_id, as aviary's and ToolSandbox's servers "
                "give; their dialect is not spoken here"
            )
        # A server that echoes the row, in which a field may have our key, is none of ours.
        if OWN_KEY not in answer or answer[OWN_KEY] == self._row.get(OWN_KEY):
            _check_callable(_declared_names(self.rollout.tools))
            return []
        try:
            self._opened = opened = msgspec.convert(answer[OWN_KEY], type=Opened)
        except msgspec.ValidationError as error:
            raise SetupError(f"{reply.place}: no answer of gym serve: {error}") from error
        self._protocol = "gymcli"
        self.max_turns = opened.max_turns
        return opened.messages

    async def _open_game(self) -> list[Message]:
        """Begin by `/reset`; an observation is an opening user message."""
        reply = await self._post("reset", self._row, SetupError)
        if reply.status == 404:
            raise SetupError(
                f"{reply.place}: there is neither /seed_session nor /reset at this address; is it "
                "a resources server?"
            )
        answer = reply.json_object(SetupError)
        self._protocol = "gymnasium"
        self._info = object_in(answer.get("info"))
        self.max_turns = _MAX_GAME_TURNS
        return [message for message in game_messages(answer) if message.role == "user"]

    def tools(self) -> list[Tool]:
        """Return the tools of the row, each a call of the server; else those that it names."""
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
        session, seconds = self._session, self.tool_timeout
        names = _declared_names(self.rollout.tools)
        return [_server_tool(session, name, seconds=seconds) for name in names]

    async def step(self, message: Message) -> Step:
        """Answer a message of the model, as the server's dialect has it."""
        if self._protocol == "gymcli":
            return await self._own_step()
        if self._protocol == "gymnasium":
            return await self._game_step(message)
        return await super().step(message)

    async def _own_step(self) -> Step:
        """Send the last message, and before it those that no step answered, of reasoning alone."""
        messages = self.rollout.messages
        known = max(self._num_known, self.rollout.num_prompt_messages)
        said: JSONObject = {OWN_KEY: msgspec.to_builtins(Said(messages[known:]))}
        reply = await self._post("step", said, EpisodeError)
        stepped = _own(reply, Stepped, EpisodeError)
        self._num_known = len(messages) + len(stepped.messages)
        self.tool_errors.update(cast("dict[ToolFault, int]", stepped.tool_errors))
        return Step(stepped.messages, stepped.reward, stepped.stop_reason)

    async def _game_step(self, message: Message) -> Step:
        payload = {**self._row, "response": response_of(self.rollout, self._row, [message])}
        num_tries = 1
        if self._info.get("supports_step_idempotency") is True:  # it knows a step again by its id
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
            raise EpisodeError(f"/step of {self.base_url} gave the reward {reward!r}")
        ending = {name: answer.get(name) is True for name in ("terminated", "truncated")}
        self._state.update(ending)
        is_over = any(ending.values())
        return Step(game_messages(answer), float(reward), "env_done" if is_over else None)

    async def final_state(self) -> JSONObject:
        """Return how the game ended, or the server's verdict, which it can give only now.

        Raises:
            VerifierError: There is no verdict.

        """
        session, rollout, state = self._session, self.rollout, self._state
        assert session is not None, "an episode is set up before it ends"
        if self._protocol != "gymcli" and not session.has_cookies:
            state["session_cookie"] = "none"
        if self._protocol == "gymnasium":
            return state
        try:
            if self._protocol == "seed":
                state["verify"] = await self._asked_verdict(session, rollout, self._row)
            else:
                said = Said(rollout.responses, rollout.stop_reason, rollout.model, rollout.usage)
                payload: JSONObject = {OWN_KEY: msgspec.to_builtins(said)}
                reply = await self._post("verify", payload, VerifierError)
                _own(reply, Verified, VerifierError)
                self._is_over = True
                state["verify"] = reply.json_object(VerifierError)
                return state
        except VerifierError as error:
            raise VerifierError(f"{error}; {_NOT_KEPT}") from error
        try:
            state["reverify_mode"] = await _asked_mode(session)
        except EpisodeError:
            state["reverify_mode"] = "unknown"
        return state

    async def close(self) -> None:
        """End the session."""
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
                    # All that was paid for is on record.
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
        """Return what the server said of the episode; a game's reward is the sum of its steps.

        A class made with `rescore="verify"` asks the server again, without any session.

        Raises:
            VerifierError: The record holds no verdict, or there is no new one.

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
            raise VerifierError("the record holds no answer of /verify; it must be played again")
        if state.get("session_cookie") == "none":  # which may explain the score
            score.details["session_cookie"] = "none"
        return score

    @classmethod
    async def _asked_verdict(
        cls, session: ServerSession, rollout: Rollout, row: JSONObject
    ) -> JSONObject:
        """Ask `/verify` and return what its answer says beyond the row."""
        response = response_of(rollout, row, rollout.responses, rollout.usage)
        reply = await session.ask(
            "verify",
            {**row, "response": response},
            seconds=cls.call_timeout,
            error_class=VerifierError,
        )
        answer = reply.json_object(VerifierError)
        check_verdict(answer, reply.place)
        return own_fields(answer, row)


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
        return checked_address(value, what=what, example="http://host:port")
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
    reply = await session.ask(
        "reverify_mode", None, seconds=_QUESTION_TIMEOUT, error_class=EpisodeError
    )
    for mode in ("stateless", "unsupported"):
        if reply.status == 200 and reply.text.strip() == f'"{mode}"':
            return mode
    return "unknown"


def _declared_names(specs: list[JSONObject]) -> list[str]:
    """Return the names of tools in chat shape, in their order."""
    functions = [object_in(spec.get("function")) for spec in specs]
    return [name for function in functions if isinstance(name := function.get("name"), str)]


def _check_callable(names: list[str]) -> None:
    for name in names:
        # A slash could lead to another address on servers that decode paths before they route.
        if name in _PROTOCOL_PATHS or "/" in name or name in ("", ".", ".."):
            raise SetupError(
                f"the row declares the tool {name!r}, which is an address of the protocol or none "
                "at all, and cannot be called; rename it on the server and in the row"
            )


def _server_tool(session: ServerSession, name: str, *, seconds: float) -> Tool:
    """Return a tool that posts its arguments to a server; the text of the answer is the result."""

    async def call(**arguments: object) -> str:
        reply = await session.ask(name, arguments, seconds=seconds, error_class=EpisodeError)
        return reply.text

    # Its own time limit is the request's, which comes first and fails the attempt rather than
    # being told to the model.
    return Tool(
        call, name=name, description=f"/{name} of the server.", parameters={}, timeout=seconds + 10
    )


def _run_there() -> None:
    # Never called, and without a docstring, which would describe a tool that has no description.
    raise NotImplementedError


def _own(reply: ServerReply, kind: type[T], error_class: type[AttemptError]) -> T:
    """Read what an answer says under our key."""
    answer = reply.json_object(error_class)
    try:
        return msgspec.convert(answer.get(OWN_KEY), type=kind)
    except msgspec.ValidationError as error:
        raise error_class(
            f"{reply.place}: the answer lacks what gym serve gives: {error}"
        ) from error
