"""A simulated user: a model that plays the person who talks to the policy.

Source: the user simulator of NVIDIA NeMo Gym's conversational_tool_use_simulation (Apache-2.0),
its rules rewritten here: swapped roles with a name before each turn, no tool traffic, markers that
end the conversation, and up to three tries for a usable message. Where this differs:

- A short instruction precedes the first turn, since many endpoints want a user message.
- Markers in the policy's text are broken, so that quoting it does not end the conversation.
- A marker counts in any case, with blanks or Markdown between its signs and its word, as in
  `### Stop ###`. Otherwise a customer who has finished would be waiting for an answer to it.
- Text after a marker is dropped, and so is Markdown around it.
- An answer that is cut, filtered, refused or empty counts as one of the tries.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from gymcli.environment.contract import Model
from gymcli.environment.model_text import label_pattern, without_labels
from gymcli.errors import RoleError
from gymcli.types import JSONObject, Message


class UserTurn(NamedTuple):
    """One turn of the simulated user."""

    text: str
    """The text without name and marker; it may be empty if the conversation has ended."""
    ended: Literal["", "stop", "transfer"] = ""
    """How the user ended the conversation: `stop` (done), `transfer` (wants somebody else)."""


class SimulatedUser:
    """A person with a scenario, played by a model; it has no state between turns.

    The instructions must explain the markers `stop` and `transfer` to the model.
    """

    def __init__(
        self,
        model: Model,
        *,
        instructions: str,
        scenario: str,
        stop: str = "###STOP###",
        transfer: str = "###TRANSFER###",
        user_name: str = "Customer",
        agent_name: str = "Representative",
        max_tries: int = 3,
        params: JSONObject | None = None,
    ) -> None:
        self.model = model
        self.instructions = instructions
        self.scenario = scenario
        self.stop = stop
        self.transfer = transfer
        self.user_name = user_name
        self.agent_name = agent_name
        self.max_tries = max_tries
        """The most times that the model is asked for one turn, if its answers are unusable."""
        self.params = params
        label_pattern([stop, transfer])  # refuses markers that no text can be free of
        markers = {"stop": stop, "transfer": transfer}
        # Longest first, since an alternation takes the first branch that fits.
        longest_first = sorted(markers, key=lambda name: len(markers[name]), reverse=True)
        self._markers = re.compile(
            "|".join(f"(?P<{name}>{_marker_pattern(markers[name])})" for name in longest_first)
        )
        self._name = re.compile(rf"\s*{re.escape(user_name)}:\s*")

    async def opening(self) -> UserTurn:
        """Return the first message of the conversation.

        Raises:
            RoleError: The call failed, or no try produced a usable first message.
        """
        return await self.reply([])

    async def reply(self, messages: list[Message]) -> UserTurn:
        """Return the user's next turn.

        Args:
            messages: The conversation so far: role `user` is the simulated user, role
                `assistant` the policy; other messages are hidden from the user.

        Raises:
            RoleError: The call failed, or no try produced a usable message.
        """
        system = f"{self.instructions}\n\n<scenario>\n{self.scenario}\n</scenario>"
        start = f"(The conversation starts. Write the first message of the {self.user_name}.)"
        conversation = [
            Message(role="system", content=system),
            Message(role="user", content=start),
            *self._swapped(messages),
        ]
        is_first = all(message.role != "user" for message in messages)
        fault = ""
        for _ in range(self.max_tries):
            # Not cached: the next try of the same request needs a different answer.
            try:
                answer = await self.model.complete(conversation, params=self.params, cache=None)
            except RoleError as error:
                # No answer came at all, and the client has already retried.
                if not error.is_answered:
                    raise
                fault = f"was unusable: {error}"
                continue
            turn = self._read(answer.text)
            if turn.ended and is_first:
                fault = "ended a conversation that had not started"
            elif turn.ended or turn.text:
                return turn
            else:
                fault = "was empty"
        raise RoleError(
            f"the simulated user wrote no usable message in {self.max_tries} tries; "
            f"the last one {fault}"
        )

    def _swapped(self, messages: list[Message]) -> list[Message]:
        swapped = []
        for message in messages:
            text = message.text
            if message.role == "user":
                line = f"{self.user_name}: {text}"
                swapped.append(Message(role="assistant", content=line))
            # A turn that only calls tools is not shown: the user does not see them.
            elif message.role == "assistant" and text.strip():
                line = f"{self.agent_name}: {without_labels(text, self._markers)}"
                swapped.append(Message(role="user", content=line))
        return swapped

    def _read(self, text: str) -> UserTurn:
        name = self._name.match(text)
        text = text[name.end() :] if name else text
        marker = self._markers.search(text)
        if marker is None:
            return UserTurn(text.strip())
        before, after = text[: marker.start()], text[marker.end() :]
        mark = next((mark for mark in ("**", "__", "*", "_", "`") if after.startswith(mark)), "")
        return UserTurn(before.removesuffix(mark).strip(), "stop" if marker["stop"] else "transfer")


def _marker_pattern(marker: str) -> str:
    """Return a pattern for a marker, which is tolerant if several signs stand around one word."""
    parts = re.fullmatch(r"(\W{2,})([^\W_]+)(\W{2,})", marker)
    if parts is None:
        return re.escape(marker)
    pattern = r"[\s*_`]*+".join(map(re.escape, parts.groups()))
    return f"(?i:{pattern})"
