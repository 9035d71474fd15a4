"""Renames request parameters between Chat Completions names and the Responses format."""

from __future__ import annotations

from gymcli.nemo_gym.payload import list_in, object_in
from gymcli.nemo_gym.tools import tool_choice_from_responses, tool_choice_to_responses
from gymcli.types import JSON, JSONObject

__all__ = [
    "CONVERSATION",
    "IGNORED_PARAMS",
    "NOT_IN_RESPONSES",
    "added_body",
    "params_from_responses",
    "params_to_responses",
    "unsent_among",
]

IGNORED_PARAMS = ("model", "stream", "background", "store", "previous_response_id", "n")
"""Names that a row may carry and that gymcli decides itself; readers of rows drop them."""

CONVERSATION = ("input", "messages", "tools")
"""What a body says of the conversation, in either format: a request's own, never a parameter."""

NOT_IN_RESPONSES = (
    "audio",
    "best_of",
    "frequency_penalty",
    "logit_bias",
    "modalities",
    "n",
    "prediction",
    "presence_penalty",
    "seed",
    "stop",
    "stream_options",
    "web_search_options",
)
"""Chat Completions parameters that the Responses format cannot say."""

_LOGPROBS = "message.output_text.logprobs"

_NESTED = {
    "reasoning": {"effort": "reasoning_effort", "summary": "reasoning_summary"},
    "text": {"format": "response_format", "verbosity": "verbosity"},
}
"""Responses objects and, for their keys, the names outside. What else they hold stays in them."""


def params_from_responses(create_params: JSONObject) -> JSONObject:
    """Give the parameters of `responses_create_params` under Chat Completions names.

    Everything but `input`, `tools` and nulls; `params_to_responses` gives exactly them back.
    """
    params = {
        name: value
        for name, value in create_params.items()
        if value is not None and name not in ("input", "tools")
    }
    if "max_output_tokens" in params:
        params["max_tokens"] = params.pop("max_output_tokens")
    if "tool_choice" in params:
        params["tool_choice"] = tool_choice_from_responses(params["tool_choice"])
    for outer, names in _NESTED.items():
        _take_out(params, outer, names)
    if "response_format" in params:
        params["response_format"] = _format_from_responses(params["response_format"])
    included = list_in(params.get("include"))
    if _LOGPROBS in included:
        params["logprobs"] = True
        # Elsewhere in the list it stays, since `params_to_responses` adds it at the end.
        if included.index(_LOGPROBS) == len(included) - 1:
            params["include"] = included[:-1]
            if not params["include"]:
                del params["include"]
    return params


def params_to_responses(params: JSONObject) -> JSONObject:
    """Give the part of a Responses body that the parameters make up.

    Of `max_tokens` and `max_completion_tokens` the second counts where both are given.
    """
    left_out = (*NOT_IN_RESPONSES, *CONVERSATION, "extra_body")
    body = {
        name: value for name, value in params.items() if value is not None and name not in left_out
    }
    for name in ("max_tokens", "max_completion_tokens"):
        if name in body:
            body["max_output_tokens"] = body.pop(name)
    if "tool_choice" in body:
        body["tool_choice"] = tool_choice_to_responses(body["tool_choice"])
    if "response_format" in body:
        body["response_format"] = _format_to_responses(body["response_format"])
    for outer, names in _NESTED.items():
        inner = {key: body.pop(name) for key, name in names.items() if name in body}
        if inner:
            body[outer] = {**object_in(body.get(outer)), **inner}
    if body.pop("logprobs", False):
        included = list_in(body.get("include"))
        if _LOGPROBS not in included:
            body["include"] = [*included, _LOGPROBS]
    body.update(added_body(params.get("extra_body")))
    return body


def added_body(extra_body: JSON) -> JSONObject:
    """Give what an `extra_body` may add to a body; what gymcli decides itself is left out."""
    decided = (*IGNORED_PARAMS, *CONVERSATION)
    return {name: value for name, value in object_in(extra_body).items() if name not in decided}


def unsent_among(params: JSONObject, unknown: tuple[str, ...]) -> list[str]:
    """Give the names among `params` that a format cannot carry, in their order.

    What `extra_body` may not add is named as `extra_body.NAME`.
    """
    names = []
    for name, value in params.items():
        is_odd = name == "extra_body" and not isinstance(value, dict | None)
        if is_odd or name in unknown or name in CONVERSATION:
            names.append(name)
        elif name == "extra_body":
            allowed = added_body(value)
            names += [f"extra_body.{key}" for key in object_in(value) if key not in allowed]
    return names


def _take_out(params: JSONObject, outer: str, names: dict[str, str]) -> None:
    """Move what an object says under the given keys to names outside it."""
    value = params.get(outer)
    if not isinstance(value, dict):
        return
    rest = dict(value)
    taken = {names[key]: rest.pop(key) for key in names if rest.get(key) is not None}
    params.update(taken)
    if rest or not taken:
        params[outer] = rest
    else:
        del params[outer]


def _format_from_responses(value: JSON) -> JSON:
    if not isinstance(value, dict) or value.get("type") != "json_schema" or "json_schema" in value:
        return value
    inner = {key: item for key, item in value.items() if key != "type"}
    return {"type": "json_schema", "json_schema": inner}


def _format_to_responses(value: JSON) -> JSON:
    if not isinstance(value, dict) or not isinstance(value.get("json_schema"), dict):
        return value
    outer = {key: item for key, item in value.items() if key != "json_schema"}
    return {**outer, **value["json_schema"]}
