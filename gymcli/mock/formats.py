"""Where each dialect is served, and how it is read and written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from gymcli.mock.behaviours import MockAnswer
from gymcli.mock.reading import Reader, read_chat, read_pair, read_pooled, read_responses
from gymcli.mock.wire import (
    Circumstances,
    chat_body,
    chat_events,
    classify_body,
    pooling_body,
    responses_body,
    responses_events,
    score_body,
)

__all__ = ["FORMATS", "Format"]


class Format(NamedTuple):
    """One wire format."""

    dialect: str
    read: Reader
    body: Callable[[MockAnswer, Circumstances], bytes]
    events: Callable[[MockAnswer, Circumstances], Iterator[bytes]] | None = None
    """None: it does not stream, since an answer is one number."""


_SCORE = Format("score", read_pair, score_body)
_POOLING = Format("pooling", read_pooled, pooling_body)
_CLASSIFY = Format("classify", read_pooled, classify_body)

FORMATS = {
    "/v1/chat/completions": Format("chat", read_chat, chat_body, chat_events),
    "/v1/responses": Format("responses", read_responses, responses_body, responses_events),
    # vLLM has some of these under /v1 and some not.
    **dict.fromkeys(("/score", "/v1/score"), _SCORE),
    **dict.fromkeys(("/pooling", "/v1/pooling"), _POOLING),
    **dict.fromkeys(("/classify", "/v1/classify"), _CLASSIFY),
}
"""By the path of the request."""
