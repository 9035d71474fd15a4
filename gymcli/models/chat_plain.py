"""Reads a Chat Completions body that is as OpenAI documents it, in one typed decoding.

Nearly every answer is such a body, and this costs a quarter of reading one that may be anything.
What is odd in any way is left to `gymcli.models.chat`, which reads plain bodies to the same
answer.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from gymcli.nemo_gym.payload import MAX_WORD, finish_of, has_thought
from gymcli.types import Answer, FinishReason, FunctionCall, Message, ToolCall, Usage

__all__ = ["plain_answer"]

_Count = Annotated[int, msgspec.Meta(ge=0)]
_Empty = Annotated[list[None], msgspec.Meta(max_length=0)]


class _Call(msgspec.Struct, forbid_unknown_fields=True):
    id: Annotated[str, msgspec.Meta(min_length=1)]
    function: FunctionCall
    type: Literal["function"] = "function"
    index: int | None = None


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None
    function_call: None = None
    annotations: _Empty | None = None
    audio: None = None


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
    id: Annotated[str, msgspec.Meta(max_length=MAX_WORD)] | None = None


_DECODER = msgspec.json.Decoder(_Completion)


def plain_answer(payload: bytes) -> Answer | None:
    """Give the answer of a plain body; None where it is anything else."""
    try:
        body = _DECODER.decode(payload)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    choice = body.choices[0]
    said = choice.message
    text = said.content or ""
    calls = [ToolCall(call.id, call.function) for call in said.tool_calls or ()]
    if has_thought(text) or (said.content is None and not calls):
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
        response_id=body.id or "",
    )


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
