"""Writes records in the form that NeMo Gym's resources servers take: a task's row and a response.

Format: NVIDIA NeMo Gym 0.5 (Apache-2.0). Its servers check both: an unknown request parameter, a
null where a list belongs, or an output item without a type is answered with 422.
"""

from __future__ import annotations

from collections.abc import Sequence

from gymcli.nemo_gym.responses_items import (
    items_from_messages,
    params_to_responses,
    tools_to_responses,
)
from gymcli.types import JSONObject, Message, Rollout, Usage, digest

__all__ = ["response_of", "row_of"]

_CREATE_PARAMS = (
    "background",
    "include",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "parallel_tool_calls",
    "prompt",
    "reasoning",
    "service_tier",
    "temperature",
    "text",
    "tool_choice",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
)
"""The request parameters that NeMo Gym knows and gymcli does not decide itself."""

_INCOMPLETE = {
    "length": "max_output_tokens",
    "context_overflow": "max_output_tokens",
    "content_filter": "content_filter",
}
"""Stop reasons in the words of a response."""


def row_of(rollout: Rollout) -> JSONObject:
    """Return the row of a record's task, as near to its line in the tasks file as possible.

    Whatever shape the line had, its prompt, tools and parameters are `responses_create_params`.
    """
    params = params_to_responses(rollout.sampling)
    create_params: JSONObject = {
        "input": items_from_messages(rollout.messages[: rollout.num_prompt_messages]),
        **{name: value for name, value in params.items() if name in _CREATE_PARAMS},
    }
    if rollout.tools:
        # NeMo Gym refuses a function without these keys.
        needed = {"parameters": None, "strict": None}
        create_params["tools"] = [
            {**needed, **spec} if spec.get("type") == "function" else spec
            for spec in tools_to_responses(rollout.tools)
        ]
    return {**rollout.task, "responses_create_params": create_params}


def response_of(
    rollout: Rollout, row: JSONObject, messages: Sequence[Message], usage: Usage | None = None
) -> JSONObject:
    """Return messages of an episode as the response that is sent with a row."""
    create_params = row["responses_create_params"]
    assert isinstance(create_params, dict)
    items = items_from_messages(messages)
    response: JSONObject = {
        "id": f"resp_{digest([rollout.task_id, rollout.attempt, len(rollout.messages)])}",
        "created_at": int(rollout.timing.started_at),
        "model": rollout.response_model or rollout.model,
        "object": "response",
        "output": [_typed(item, position) for position, item in enumerate(items)],
        "parallel_tool_calls": create_params.get("parallel_tool_calls", True),
        "tool_choice": create_params.get("tool_choice", "auto"),
        "tools": create_params.get("tools", []),
    }
    if usage is not None:
        response["usage"] = {
            "input_tokens": usage.prompt_tokens,
            # Newer schemas need the second number, which no record counts; older ones ignore it.
            "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        }
    if reason := _INCOMPLETE.get(rollout.stop_reason or ""):
        response["incomplete_details"] = {"reason": reason}
    return response


def _typed(item: JSONObject, position: int) -> JSONObject:
    """Return an output item with its type; an assistant's text becomes a list of parts."""
    if item.get("type") not in (None, "message"):
        return item
    if item.get("role") != "assistant":
        return {**item, "type": "message"}
    content = item.get("content") or ""
    parts = [{"type": "output_text", "text": content}] if isinstance(content, str) else content
    assert isinstance(parts, list)
    said = [{"annotations": [], **p} if p.get("type") == "output_text" else p for p in parts]
    made = {"id": f"msg_{position}", "status": "completed"}
    return {**made, **item, "type": "message", "content": said}
