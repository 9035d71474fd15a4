"""What a server of gymcli and its client say to each other beyond NeMo Gym's protocol.

Who sends `SEED_HEADER` with `/seed_session` finds `Opened` in the answer under `OWN_KEY`, and goes
on with `Said` under that key: each model message to `/step`, answered by `Stepped`, and at the end
the whole conversation to `/verify`, answered by `Verified`. So nothing is lost that the protocol
has no place for: the environment's own prompt, tools and stop reasons, and the parts of a score.
A server that does not know the header answers as it always does; one that echoes the row, in which
a field may have our key, is not taken for one of ours.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from gymcli.environment.parts import Step
from gymcli.environment.session import Reply, ServerSession
from gymcli.environment.tool import Tool
from gymcli.errors import AttemptError, EpisodeError, SetupError, VerifierError
from gymcli.nemo_gym.payload import object_in
from gymcli.types import JSONObject, Message, Rollout, Score, StopReason, Usage

__all__ = [
    "OWN_KEY",
    "SEED_HEADER",
    "Opened",
    "Said",
    "ServedEpisode",
    "Stepped",
    "Verified",
    "served_episode",
]

T = TypeVar("T")

SEED_HEADER = "Gymcli-Seed"
"""Carries the seed of the attempt, from which the environment draws what is random."""

OWN_KEY = "gymcli"

_CLOSE_TIMEOUT = 10.0


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
        """Give the tools to be shown; the server runs them, in `/step`."""
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
        """Send what the model said; give what the environment answers, and its tool errors.

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
        """Ask `/verify` and give the answer; the server's session is over then.

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

    async def _post(self, path: str, said: Said, error_class: type[AttemptError]) -> Reply:
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


def _own(reply: Reply, kind: type[T], error_class: type[AttemptError]) -> T:
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
