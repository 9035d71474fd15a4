"""The gymnasium dialect of the protocol: `/reset`, then a `/step` for every model message."""

from __future__ import annotations

import uuid

import msgspec

from gymcli.environment.parts import Step
from gymcli.environment.session import ServerSession
from gymcli.errors import EpisodeError, SetupError
from gymcli.nemo_gym.wire import response_of
from gymcli.types import JSON, JSONObject, Message, Rollout

__all__ = ["MAX_TURNS", "Game"]

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
