"""Log probabilities for an answer, where the request asks for them."""

from __future__ import annotations

import zlib

import msgspec

from gymcli.mock.behaviours import MockAnswer
from gymcli.types import JSONObject

__all__ = ["with_logprobs"]

_TOKEN = 4
"""Characters of a token, as in the usage."""

_MAX_TOP = 20
"""Of the likeliest tokens, as OpenAI has it."""

_INCLUDE = "message.output_text.logprobs"
"""How the Responses format asks for them."""


def with_logprobs(answer: MockAnswer, params: JSONObject) -> MockAnswer:
    """Give the answer with log probabilities of its text, if they are asked for and not there.

    They are made up, and the same for the same text.
    """
    include = params.get("include")
    is_asked = params.get("logprobs") is True or (isinstance(include, list) and _INCLUDE in include)
    if not is_asked or answer.logprobs is not None or not answer.text:
        return answer
    wanted = params.get("top_logprobs")
    num_top = min(wanted, _MAX_TOP) if isinstance(wanted, int) else 0
    text = answer.text
    tokens = [text[start : start + _TOKEN] for start in range(0, len(text), _TOKEN)]
    content = [_token(token, num_top) for token in tokens]
    return msgspec.structs.replace(answer, logprobs={"content": content})


def _token(token: str, num_top: int) -> JSONObject:
    first = _entry(token, -(zlib.crc32(token.encode("utf-8", "replace")) % 1000 + 1) / 1000)
    others = [_entry(f"{token}{rank}", -1.0 - rank) for rank in range(1, num_top)]
    return {**first, "top_logprobs": [first, *others][:num_top]}


def _entry(token: str, logprob: float) -> JSONObject:
    return {
        "token": token,
        "logprob": logprob,
        "bytes": list(token.encode("utf-8", "replace")),
    }
