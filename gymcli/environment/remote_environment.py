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
- A server of gymcli itself is told the attempt's seed, and is then sent every message of the model
  to `/step`: so the environment's own prompt, tools and stop reasons hold; see `served`.
- An answer from another session than the first one fails the attempt; see `ServerSession`. What
  cannot be seen from here: a server that sets no cookie (noted in the score's details), and one
  that forgot the state of a session whose cookie it still takes, as after a restart.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable
from typing import ClassVar, Literal, cast

from gymcli.environment.address import checked_address
from gymcli.environment.context import Context
from gymcli.environment.contract import Environment
from gymcli.environment.gymnasium import MAX_TURNS, Game
from gymcli.environment.parts import EnvironmentOptions, Properties, Step, Task
from gymcli.environment.remote_served import SEED_HEADER, ServedEpisode, served_episode
from gymcli.environment.remote_tools import check_callable, declared_names, server_tool
from gymcli.environment.reverification import asked_mode
from gymcli.environment.session import Reply, ServerSession
from gymcli.environment.tool import Tool, ToolFault
from gymcli.environment.verdict import asked_verdict, score_of
from gymcli.errors import EpisodeError, SetupError, VerifierError
from gymcli.nemo_gym.payload import object_in
from gymcli.nemo_gym.wire import row_of
from gymcli.types import JSONObject, Message, Rollout, Score

__all__ = ["RemoteEnvironment", "remote_environment"]

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
    address = checked_address(base_url)
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
