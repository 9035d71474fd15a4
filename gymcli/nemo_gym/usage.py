"""Reads what an answer took: its tokens, also where it is of no use."""

from __future__ import annotations

from gymcli.errors import InvalidAnswerError
from gymcli.nemo_gym.answers import count_in
from gymcli.nemo_gym.payload import decode, object_in
from gymcli.types import JSONObject, Usage

__all__ = ["usage_from_chat", "usage_from_responses", "usage_of"]


def usage_from_chat(usage: JSONObject) -> Usage:
    """Give the token counts of a chat completion; what is null or missing counts as 0."""
    return Usage(
        prompt_tokens=count_in(usage, "prompt_tokens"),
        completion_tokens=count_in(usage, "completion_tokens"),
        cached_tokens=count_in(usage, "prompt_tokens_details", "cached_tokens"),
        reasoning_tokens=count_in(usage, "completion_tokens_details", "reasoning_tokens"),
    )


def usage_from_responses(usage: JSONObject) -> Usage:
    """Give the token counts of a response; what is null or missing counts as 0."""
    return Usage(
        prompt_tokens=count_in(usage, "input_tokens"),
        completion_tokens=count_in(usage, "output_tokens"),
        cached_tokens=count_in(usage, "input_tokens_details", "cached_tokens"),
        reasoning_tokens=count_in(usage, "output_tokens_details", "reasoning_tokens"),
    )


def usage_of(payload: bytes) -> Usage:
    """Give the token counts of a body of any wire format, whatever else is wrong with it."""
    try:
        usage = object_in(decode(payload).get("usage"))
    except InvalidAnswerError:
        return Usage()
    return usage_from_responses(usage) if "input_tokens" in usage else usage_from_chat(usage)
