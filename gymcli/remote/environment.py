"""An environment whose state, tools and verifier are a resources server's of NeMo Gym.

The order of events of an episode, all of it in one session (one cookie jar):

1. `/seed_session` gets the row; where the server has none (404), `/reset` of the gymnasium
   dialect does, and from there on `Game` plays;
2. every call of a tool that the row declares is posted to `/{tool}`, one after another and never
   twice; the answer's text is the result, whatever its status;
3. `/verify` is asked in `final_state`, while the session lives, and its answer is recorded;
4. `verify` reads the recorded answer.

Source: the protocol of NVIDIA NeMo Gym 0.5 and its agents simple_agent and gymnasium_agent
(Apache-2.0), spoken anew. Where this differs from those agents:

- A model can call what its row declares, never an address of the protocol.
- Arguments that are no JSON object are answered with a sentence, not posted.
- A call that breaks or takes too long fails the attempt, since nobody knows what it did.
- A message that the endpoint cut off (length, content filter) or that is a refusal ends an episode
  of the gymnasium dialect before `/step`; its reward is the sum of the steps so far.
- A step that shows nothing and does not end the game ends the episode.
- A tool's result is cut at `max_tool_output` characters, with a marker.
- An answer from another session than the first one fails the attempt; see `ServerSession`. What
  cannot be seen from here: a server that sets no cookie (noted in the score's details), and one
  that forgot the state of a session whose cookie it still takes, as after a restart.
"""

from __future__ import annotations

import functools
import math
from typing import ClassVar, Literal

from gymcli.dialects.payload import object_in
from gymcli.environment import (
    Context,
    Environment,
    EnvironmentOptions,
    Properties,
    Step,
    Task,
    Tool,
)
from gymcli.errors import EpisodeError, RunError, SetupError, VerifierError
from gymcli.remote.address import checked_address
from gymcli.remote.gymnasium import MAX_TURNS, Game
from gymcli.remote.session import Reply, ServerSession
from gymcli.remote.verdict import asked_verdict, score_of
from gymcli.remote.wire import row_of
from gymcli.types import JSONObject, Message, Rollout, Score

__all__ = ["RemoteEnvironment", "ReverifyMode", "remote_environment", "reverify_mode"]

ReverifyMode = Literal["stateless", "unsupported", "unknown"]
"""Whether a server's `/verify` needs no session; `unknown` where it does not say."""

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

_MODE_TIMEOUT = 10.0
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
    _row: JSONObject

    async def setup(self) -> list[Message]:
        """Open a session with the row; only a server of the gymnasium dialect opens the talk.

        Raises:
            SetupError: The server cannot be reached or refuses the row, or the row declares a
                tool that cannot be called.

        """
        self._session = session = ServerSession(self.base_url)
        self._row = row_of(self.rollout)
        if self.options.protocol == "auto":
            seeded = await session.post(
                "seed_session", self._row, seconds=self.call_timeout, error_class=SetupError
            )
            if seeded.status != 404:
                _check_seeded(seeded)
                _check_tools(self._tool_names())
                session.is_open = True
                return []
        self._game = Game(session, self._row, self.rollout, seconds=self.call_timeout)
        self.max_turns = MAX_TURNS
        opening = await self._game.reset()
        session.is_open = True
        return opening

    def tools(self) -> list[Tool]:
        """Give the tools of the row, each a call of the server."""
        # Any object fits: what the server says to it is the result. Its own time limit is the
        # request's, which comes first and fails the attempt rather than being told to the model.
        return [
            Tool(
                functools.partial(self._call_tool, name),
                name=name,
                description=f"/{name} of the server.",
                parameters={},
                timeout=self.tool_timeout + 10,
            )
            for name in self._tool_names()
        ]

    async def step(self, message: Message) -> Step:
        """Answer a message of the model, as the server's dialect has it."""
        if self._game is None:
            return await super().step(message)
        return await self._game.step(message)

    async def final_state(self) -> JSONObject:
        """Give how the game ended, or the server's verdict, which it can give only now.

        Raises:
            VerifierError: There is no verdict.

        """
        assert self._session is not None, "an episode is set up before it ends"
        state: JSONObject = {"protocol": "seed"} if self._game is None else self._game.state
        if not self._session.has_cookies:
            state["session_cookie"] = "none"
        if self._game is not None:
            return state
        try:
            state["verify"] = await asked_verdict(
                self._session, self.rollout, self._row, seconds=self.call_timeout
            )
        except VerifierError as error:
            raise VerifierError(f"{error}; {_NOT_KEPT}") from error
        try:
            state["reverify_mode"] = await _mode(self._session)
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
            async with ServerSession(cls.base_url, keeps_cookies=False) as session:
                row = row_of(rollout)
                return score_of(
                    await asked_verdict(session, rollout, row, seconds=cls.call_timeout)
                )
        answer = object_in(state.get("verify"))
        if not answer:
            raise VerifierError("the record holds no answer of /verify; it must be played anew")
        return _noting_session(score_of(answer), state)

    def _tool_names(self) -> list[str]:
        functions = [object_in(spec.get("function")) for spec in self.rollout.tools]
        return [name for function in functions if isinstance(name := function.get("name"), str)]

    async def _call_tool(self, tool_name: str, /, **arguments: object) -> str:
        """Post the arguments of a call and give the text of the answer, whatever its status."""
        assert self._session is not None, "tools are called after setup"
        reply = await self._session.post(
            tool_name, arguments, seconds=self.tool_timeout, error_class=EpisodeError
        )
        return reply.text


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
    address = checked_address(base_url)
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
        UsageError: The address is none.
        RunError: The server cannot be reached.

    """
    async with ServerSession(checked_address(base_url), keeps_cookies=False) as session:
        try:
            return await _mode(session)
        except EpisodeError as error:
            raise RunError(str(error)) from error


def _check_seeded(reply: Reply) -> None:
    """See that `/seed_session` went well, whatever it says.

    Raises:
        SetupError: It did not, or the server goes on in a dialect that is not spoken here.

    """
    answer = reply.json_object(SetupError)
    if "env_id" in answer:
        raise SetupError(
            f"{reply.place}: the answer has an env_id, as aviary's and ToolSandbox's servers give; "
            "their dialect is not spoken here"
        )


def _check_tools(names: list[str]) -> None:
    for name in names:
        # A slash could lead to another address on servers that decode paths before they route.
        if name in _PROTOCOL_PATHS or "/" in name or name in ("", ".", ".."):
            raise SetupError(
                f"the row declares the tool {name!r}, which is an address of the protocol or none "
                "at all, and cannot be called; rename it on the server and in the row"
            )


async def _mode(session: ServerSession) -> ReverifyMode:
    """Ask for the mode; what is no answer to it is `unknown`.

    Raises:
        EpisodeError: The server cannot be reached.

    """
    reply = await session.get("reverify_mode", seconds=_MODE_TIMEOUT, error_class=EpisodeError)
    for mode in ("stateless", "unsupported"):
        if reply.status == 200 and reply.text.strip() == f'"{mode}"':
            return mode
    return "unknown"


def _noting_session(score: Score, state: JSONObject) -> Score:
    """Say in a score's details that the server kept no session, in case that explains it."""
    if state.get("session_cookie") == "none":
        score.details["session_cookie"] = "none"
    return score
