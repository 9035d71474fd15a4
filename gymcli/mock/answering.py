"""Makes of a request and a behaviour's answer what is to be sent."""

from __future__ import annotations

import time
from typing import NamedTuple, Self

import msgspec

from gymcli.mock.behaviours import MockAnswer, last_user_text, num_turns
from gymcli.mock.delivery import Reply
from gymcli.mock.faults import FaultKind, is_spoil
from gymcli.mock.formats import Format
from gymcli.mock.logprobs import with_logprobs
from gymcli.mock.spoiled import spoiled
from gymcli.mock.stats import Exchange
from gymcli.mock.wire import Circumstances, usage_of
from gymcli.secrets import Scrubber
from gymcli.types import JSONObject, Request, Usage

__all__ = ["ANY_MODEL", "Answered", "Asked", "answered"]

ANY_MODEL = "mock"
"""The name of the model where nobody gave it one."""

_MAX_TEXT = 200
"""Characters of the last user text that are logged."""

_FOR_NUMBERS = ("empty-choices", "null-content")
"""What can be wrong about an answer that is one number."""


class Asked(NamedTuple):
    """A request that was read."""

    form: Format
    body: JSONObject
    request: Request
    text: str
    """The last user text."""
    turn: int
    """Assistant messages so far."""

    @classmethod
    def read(cls, raw: bytes, form: Format) -> Self:
        """Read a body.

        Raises:
            ValueError: It is no request of the format; or one of `JSON_ERRORS`.

        """
        body = msgspec.json.decode(raw, type=JSONObject)
        request = form.read(body)
        return cls(form, body, request, last_user_text(request), num_turns(request))

    @property
    def model(self) -> str:
        """The model that is asked for; a request need not name one."""
        return str(self.body.get("model") or ANY_MODEL)

    @property
    def is_streamed(self) -> bool:
        """Whether the answer is wanted as events, and can be."""
        return self.body.get("stream") is True and self.form.events is not None

    def note(self, exchange: Exchange, secrets: Scrubber) -> None:
        """Write down what the log says of it."""
        exchange.model = self.model
        exchange.turn = self.turn
        # In this order: of a secret that is cut, a part would stay.
        exchange.text = secrets.text(self.text)[:_MAX_TEXT]


class Answered(NamedTuple):
    """What is to be sent, and how it fails."""

    reply: Reply
    answer: MockAnswer
    fault: FaultKind | None
    """What was drawn and can happen to this answer, else what the behaviour says."""
    usage: Usage | None
    """None: the answer is no rendered one."""


def answered(asked: Asked, answer: MockAnswer | str, fault: FaultKind | None) -> Answered:
    """Render an answer, with a fault in what it says if there is to be one."""
    if isinstance(answer, str):
        answer = MockAnswer(text=answer)
    if answer.body is not None:
        fault = answer.fault if fault is None or is_spoil(fault) else fault
        headers = {"Content-Type": "application/json", **answer.headers}
        return Answered(Reply(answer.status, headers, [answer.body.encode()]), answer, fault, None)
    answer = with_logprobs(answer, asked.request.params)
    if fault is not None and is_spoil(fault):
        changed = None
        if asked.form.events is not None or fault in _FOR_NUMBERS:
            changed = spoiled(answer, fault, asked.request)
        fault = None if changed is None else fault
        answer = changed or answer
    about = Circumstances.of(
        asked.request, model=asked.model, turn=asked.turn, created=int(time.time())
    )
    reply = _rendered(asked, answer, about)
    return Answered(reply, answer, fault or answer.fault, usage_of(answer, about))


def _rendered(asked: Asked, answer: MockAnswer, about: Circumstances) -> Reply:
    form = asked.form
    if asked.is_streamed and form.events is not None:
        headers = {"Content-Type": "text/event-stream", **answer.headers}
        return Reply(answer.status, headers, list(form.events(answer, about)), is_stream=True)
    headers = {"Content-Type": "application/json", **answer.headers}
    return Reply(answer.status, headers, [form.body(answer, about)])
