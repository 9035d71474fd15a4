"""The wire formats of OpenAI-compatible endpoints, by name."""

from __future__ import annotations

from typing import TypeAlias

from gymcli.models.chat import Chat
from gymcli.models.responses import Responses
from gymcli.models.scalar import CLASSIFY, POOLING, SCORE, Scalar

Dialect: TypeAlias = Chat | Responses | Scalar
"""One wire format; it holds no state and does no I/O."""

DIALECTS: dict[str, Dialect] = {
    "chat": Chat(),
    "responses": Responses(),
    "score": SCORE,
    "pooling": POOLING,
    "classify": CLASSIFY,
}
"""Every wire format by the name that `--dialect` takes."""
