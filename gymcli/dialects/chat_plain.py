"""Reads a Chat Completions body that is as OpenAI documents it, in one typed decoding.

Nearly every answer is such a body, and this costs a quarter of reading one that may be anything.
What is odd in any way is left to `gymcli.dialects.chat`, which reads plain bodies to the same
answer.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from gymcli.dialects.answers import finish_of, has_thought
from gymcli.types import Answer, FinishReason, Message, ToolCall, Usage

__all__ = ["plain_answer"]

_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Message(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None
    function_call: None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: FinishReason | Literal["function_call"] | None = None
    logprobs: None = None
    error: None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: _Count | None = None


class _CompletionDetails(msgspec.Struct):
    reasoning_tokens: _Count | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None


class _Completion(msgspec.Struct):
    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1)]
    usage: _Usage | None = None
    model: str | None = None


_DECODER = msgspec.json.Decoder(_Completion)


def plain_answer(payload: bytes) -> Answer | None:
    """Give the answer of a plain body; None where it is anything else."""
    try:
        body = _DECODER.decode(payload)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    choice = body.choices[0]
    said = choice.message
    text, calls = said.content or "", said.tool_calls or []
    if has_thought(text) or (calls and not _are_plain(calls)):
        return None
    message = Message(
        role="assistant",
        content=text or (None if calls else ""),
        reasoning=said.reasoning_content or said.reasoning or None,
        refusal=said.refusal or None,
        tool_calls=calls,
    )
    reason = choice.finish_reason
    if reason is None or reason == "function_call":
        reason = "stop" if reason is None else "tool_calls"
    return Answer(
        message=message,
        finish_reason=finish_of(reason, message),
        usage=_usage(body.usage),
        model=body.model or None,
    )


def _are_plain(calls: list[ToolCall]) -> bool:
    return all(call.id and call.type == "function" for call in calls)


def _usage(usage: _Usage | None) -> Usage:
    if usage is None:
        return Usage()
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    return Usage(
        prompt_tokens=usage.prompt_tokens or 0,
        completion_tokens=usage.completion_tokens or 0,
        cached_tokens=(prompt.cached_tokens or 0) if prompt is not None else 0,
        reasoning_tokens=(completion.reasoning_tokens or 0) if completion is not None else 0,
    )
