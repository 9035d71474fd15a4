"""One module per wire format, and what turns Responses data into chat data and back."""

from __future__ import annotations

from gymcli.models.chat import Chat
from gymcli.models.dialect import Dialect
from gymcli.models.responses import Responses
from gymcli.models.scalar import CLASSIFY, POOLING, SCORE

__all__ = ["DIALECTS"]

DIALECTS: dict[str, Dialect] = {
    "chat": Chat(),
    "responses": Responses(),
    "score": SCORE,
    "pooling": POOLING,
    "classify": CLASSIFY,
}
"""Every wire format by the name that `--dialect` takes."""
