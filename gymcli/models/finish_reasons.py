"""What the parts of an endpoint's answer mean together, in every wire format.

The rule, in this order; text is also reasoning, a refusal, audio and images:

1. A known cut, filter or refusal is the stop reason of the episode, also without a message.
2. An interruption is a failure and tried again, even if there is text.
3. Without text and calls, an answer is a failure if the endpoint counts no tokens for it, announces
   calls, or ends it for an unknown reason. With tokens and a normal end it is the model's. Without
   a count it is `no_answer`: the client asks again before that is the model's, too.
4. Anything else is a normal end. An unknown reason is kept on the record.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from gymcli.errors import InvalidAnswerError, ServerError
from gymcli.nemo_gym.payload import CallParts, argument_text, object_in, text_in
from gymcli.types import (
    JSON,
    Answer,
    FinishReason,
    FunctionCall,
    JSONObject,
    Message,
    ToolCall,
    Usage,
)

_FINISH_REASONS: dict[str, FinishReason] = {
    # A normal end; the empty word is a missing one.
    **dict.fromkeys(("", "stop", "eos", "eos_token", "end_turn", "stop_sequence"), "stop"),
    **dict.fromkeys(("complete", "completed"), "stop"),
    **dict.fromkeys(("tool_calls", "function_call", "tool_use"), "tool_calls"),
    # OpenAI, Anthropic and Gemini, Responses, Mistral, and Z.ai, Anthropic and Bedrock
    **dict.fromkeys(("length", "max_tokens", "max_output_tokens", "model_length"), "length"),
    "model_context_window_exceeded": "length",
    # OpenAI, Bedrock, Gemini, Cohere, Zhipu
    **dict.fromkeys(
        ("content_filter", "content_filtered", "guardrail_intervened"), "content_filter"
    ),
    **dict.fromkeys(("safety", "recitation", "blocklist", "prohibited_content"), "content_filter"),
    **dict.fromkeys(("spii", "image_safety", "error_toxic", "sensitive"), "content_filter"),
    "refusal": "refusal",  # Anthropic
    # Gemini, and Amazon Bedrock
    **dict.fromkeys(("malformed_function_call", "unexpected_tool_call"), "malformed_call"),
    "malformed_tool_use": "malformed_call",
}
"""What finish reasons mean, in lower case."""

_INTERRUPTIONS = re.compile(
    # vLLM and SGLang, OpenRouter, Z.ai, DeepSeek; `incomplete` is not a reason in Responses
    "(abort|aborted|cancell?ed|error|failed|incomplete|network_error|timeout|engine_.*"
    "|insufficient_system_resource)(: .*)?"
)
"""Finish reasons of answers that an endpoint could not finish, in lower case, with any details."""

_NOT_TEXT = ("audio", "images", "reasoning_details")
"""Fields of a message that say something without text."""

_MAX_WORD = 200
"""The most characters of a finish reason or id that are recorded."""

MAX_CALLS = 10_000
"""The most tool calls of an answer; more than that no model writes."""

_OPENING = "<think>"
_CLOSING = "</think>"
_END_OF_THOUGHT = re.compile(r"</think>(?<![ \t`'\"(\[]</think>)")
"""A closing tag that is not preceded by a blank, quotation mark or bracket: after one of these the
model usually writes about the tag."""


def finished_answer(
    body: JSONObject,
    word: JSON,
    *,
    content: str | list[JSONObject],
    usage: Usage,
    reasoning: Sequence[str] = (),
    refusal: str = "",
    calls: Sequence[CallParts] = (),
    logprobs: JSON = None,
    extra: JSONObject | None = None,
    response_items: list[JSONObject] | None = None,
) -> Answer:
    """Build an answer; without text, its content is None if it has tool calls, else "".

    `body` is the whole one, for its usage and names, `word` the endpoint's finish reason, and
    `reasoning` the pieces that it sent separately from the text.

    Raises:
        ServerError: The endpoint could not finish the answer.
        InvalidAnswerError: It is empty, and not because of the model, or has too many calls.
    """
    # Google prefixes some: "function_call_filter: MALFORMED_FUNCTION_CALL", "FinishReason.SAFETY".
    word = None if word is None else str(word)[:_MAX_WORD]
    plain = re.sub(r"^(\w+_filter: |finishreason\.)", "", (word or "").strip().lower())
    if _INTERRUPTIONS.fullmatch(plain):
        raise ServerError(f'the endpoint ended the message with finish_reason "{word}"')
    if isinstance(content, str) and "think>" in content:
        thought, content = split_thought(content, is_separate=any(reasoning))
        reasoning = [*reasoning, thought]
    tool_calls = tool_calls_of(calls) if calls else []
    message = Message(
        role="assistant",
        content=None if tool_calls and not content else content,
        reasoning="\n".join(filter(None, reasoning)) or None,
        refusal=refusal or None,
        tool_calls=tool_calls,
        response_items=response_items or [],
        logprobs=logprobs,
        extra=extra or {},
    )
    meaning = _FINISH_REASONS.get(plain)
    return Answer(
        message=message,
        finish_reason=_reason_of(message, word, meaning, body),
        unknown_finish=word if meaning is None else None,
        usage=usage,
        model=text_in(body.get("model")) or None,
        response_id=text_in(body.get("id"))[:_MAX_WORD],
    )


def _reason_of(
    message: Message, word: str | None, meaning: FinishReason | None, body: JSONObject
) -> FinishReason:
    reason = meaning or "stop"
    # OpenAI and vLLM report "stop" for a call whose tool the request had named. Beside a malformed
    # call, those that came can be carried out.
    if message.tool_calls and reason in ("stop", "malformed_call"):
        return "tool_calls"
    if message.tool_calls or reason not in ("stop", "tool_calls"):
        return reason
    if message.refusal:
        return "refusal"
    content = message.content
    if (
        (content.strip() if isinstance(content, str) else content)
        or message.reasoning
        or message.response_items
        or any(object_in(message.extra).get(name) for name in _NOT_TEXT)
    ):
        return reason
    counts = object_in(body.get("usage"))
    num_tokens = counts.get("completion_tokens", counts.get("output_tokens"))
    if meaning is None:
        raise InvalidAnswerError(f'the answer is empty and ended with finish_reason "{word}"')
    if meaning == "tool_calls":
        raise InvalidAnswerError(f'finish_reason "{word}" announces tool calls, but none came')
    if num_tokens is None:
        return "no_answer"
    if num_tokens == 0:
        raise InvalidAnswerError("the answer is empty, and its endpoint counts 0 tokens for it")
    return "stop"


def split_thought(text: str, *, is_separate: bool = False) -> tuple[str, str]:
    """Return the leading `<think>…</think>` of a text without its tags, and the rest of the text.

    An opened thought without a closing tag takes the whole text: the model was cut off.
    `is_separate`: the endpoint sent reasoning separately from the text.
    """
    closing = _END_OF_THOUGHT.search(text)
    if text.lstrip().startswith(_OPENING):
        opened = text.lstrip().removeprefix(_OPENING)
        # If every closing tag looks like a mention, the first one closes the thought after all.
        parts = _END_OF_THOUGHT.split(opened, 1) if closing else opened.split(_CLOSING, 1)
        return parts[0].strip(), "".join(parts[1:]).lstrip()
    # A chat template may write the opening tag into the prompt, so that only the closing one is
    # in the text. After separate reasoning, such a tag is part of the answer.
    if closing is None or is_separate or _OPENING in (before := text[: closing.start()]):
        return "", text
    return before.strip(), text[closing.end() :].lstrip()


def tool_calls_of(calls: Sequence[CallParts]) -> list[ToolCall]:
    """Return tool calls; those without an id get a unique `call_<n>`."""
    if len(calls) > MAX_CALLS:
        raise InvalidAnswerError(f"the answer has more than {MAX_CALLS:,} tool calls")
    ids = {call.id for call in calls if isinstance(call.id, str)}
    tool_calls = []
    number = 0
    for position, call in enumerate(calls):
        call_id = text_in(call.id)
        if not call_id:
            number = max(number, position)
            while (call_id := f"call_{number}") in ids:
                number += 1
            ids.add(call_id)
        function = FunctionCall(text_in(call.name), argument_text(call.arguments))
        tool_calls.append(ToolCall(call_id, function, extra=call.extra or msgspec.UNSET))
    return tool_calls
