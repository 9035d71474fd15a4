"""One module per wire format, and what turns Responses data into chat data and back."""

from __future__ import annotations

from gymcli.dialects.chat import Chat
from gymcli.dialects.dialect import Dialect
from gymcli.dialects.responses import Responses
from gymcli.dialects.scalar import CLASSIFY, POOLING, SCORE, Scalar
from gymcli.nemo_gym.params import IGNORED_PARAMS, params_from_responses, params_to_responses
from gymcli.nemo_gym.responses_items import items_from_messages, messages_from_items
from gymcli.nemo_gym.tools import tools_from_responses, tools_to_responses

__all__ = ["DIALECTS"]

DIALECTS: dict[str, Dialect] = {
    "chat": Chat(),
    "responses": Responses(),
    "score": SCORE,
    "pooling": POOLING,
    "classify": CLASSIFY,
}
"""Every wire format by the name that `--dialect` takes."""
