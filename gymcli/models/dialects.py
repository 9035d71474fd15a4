"""The wire formats of OpenAI-compatible endpoints: what each of them does, and their names."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from gymcli.models.chat import Chat
from gymcli.models.responses import Responses
from gymcli.models.scalar import CLASSIFY, POOLING, SCORE
from gymcli.types import Answer, JSONObject, Request

__all__ = ["DIALECTS", "Dialect"]


class Dialect(Protocol):
    """One wire format of OpenAI-compatible endpoints; it holds no state and does no I/O."""

    @property
    def path(self) -> str:
        """What is appended to the endpoint's base URL, with its leading slash."""
        ...

    def body(
        self,
        request: Request,
        model: str,
        *,
        stream: bool = False,
        send_reasoning: str | None = None,
        send_fields: Collection[str] = (),
    ) -> JSONObject:
        """Return the body of a request, ready for `msgspec.json.encode`; it may hold structs.

        Args:
            request: What is asked.
            model: The model's name as the endpoint knows it.
            stream: Ask for server-sent events instead of one body.
            send_reasoning: The key under which the reasoning of earlier assistant messages is
                sent back; None keeps it here. Opaque reasoning items are always sent.
            send_fields: What is sent back of the `extra` of earlier messages and calls.

        """
        ...

    def unsent(self, params: JSONObject) -> list[str]:
        """Return the names among `params` that this format cannot carry; `body` leaves them out."""
        ...

    def answer(self, payload: bytes) -> Answer:
        """Read the body of an answer that came with status 200.

        Raises:
            InvalidAnswerError: It is not JSON, not an answer, or carries an error object.
            ServerError: The endpoint says that it could not finish the answer.

        """
        ...

    def assemble(self, events: Iterable[bytes]) -> bytes:
        """Join the data of server-sent events into the body that `answer` reads.

        Raises:
            InvalidAnswerError: An event is not JSON, or the stream ended before the answer did.

        """
        ...


DIALECTS: dict[str, Dialect] = {
    "chat": Chat(),
    "responses": Responses(),
    "score": SCORE,
    "pooling": POOLING,
    "classify": CLASSIFY,
}
"""Every wire format by the name that `--dialect` takes."""
