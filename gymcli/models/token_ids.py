"""Token ids of answers: how a request asks for them, where each server puts them, how they return.

vLLM (from 0.10.2 on) and SGLang (from 0.5.18 on, without streams) document `return_token_ids`;
older versions of vLLM document `return_tokens_as_token_ids` and `/tokenize`; llama.cpp's server
sends the id of every token whose log-probability it sends. NeMo Gym's three fields stand on the
message, or on an item of Responses, and NeMo RL's server wants them back there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from gymcli.nemo_gym.payload import object_in, objects_in, text_in
from gymcli.types import (
    JSON,
    Answer,
    JSONObject,
    LogprobMode,
    Message,
    Request,
    Tokens,
    TokenSource,
)

PROBE = "Which token ids does this server report?"
"""What a probe asks; scripts of `gym mock` need no line for it."""

PROBED: Mapping[str, tuple[TokenSource, ...]] = {
    # One request is enough for most servers: what they do not know, they ignore.
    "chat": ("vllm", "token_id", "llamacpp"),
    "responses": ("nemo_gym",),
}
"""What a probe asks for, in this order, by dialect."""

_ASKED: Mapping[TokenSource, JSONObject] = {
    "vllm": {"logprobs": True, "return_token_ids": True},
    "token_id": {"logprobs": True, "return_tokens_as_token_ids": True},
    "llamacpp": {"logprobs": True},
    "nemo_gym": {"logprobs": True, "return_tokens_as_token_ids": True},
}
"""The fields of a chat body that make a server send ids."""

TOKEN_FIELDS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
"""NeMo Gym's fields of a message or an item."""

TEMPLATE_FIELDS = (
    "model",
    "messages",
    "tools",
    "add_generation_prompt",
    "add_special_tokens",
    "chat_template",
    "chat_template_kwargs",
    "continue_final_message",
    "mm_processor_kwargs",
)
"""The fields of a chat body that change the prompt, and that vLLM's `/tokenize` takes too."""

WITHOUT_PROMPT: tuple[TokenSource, ...] = ("token_id", "llamacpp")
"""Sources whose answers lack the ids of the prompt."""

_MARK = "token_id:"

_Id = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]  # msgspec cannot write larger numbers


class _Ids(msgspec.Struct):
    """The values of an answer, to check their types."""

    prompt: list[_Id]
    sampled: list[_Id]
    logprobs: list[float]


def ask_for_tokens(body: JSONObject, source: TokenSource) -> None:
    body.update(_ASKED[source])
    if source == "llamacpp":
        # Without a number it sends 20 alternatives for each token, and with 0 nothing at all.
        body["top_logprobs"] = body.get("top_logprobs") or 1
        # Its streams leave out the ids of tokens without text, such as the last one.
        body.pop("stream", None)
        body.pop("stream_options", None)


def with_ids(request: Request, tokens: Tokens, *, in_items: bool) -> Request:
    """Return the request with the ids of the last answer on its last assistant message.

    They are in the `extra` under NeMo Gym's names; `in_items`: of what becomes its last item.
    """
    positions = [n for n, sent in enumerate(request.messages) if sent.role == "assistant"]
    if tokens.problem or not positions:
        return request
    messages = list(request.messages)
    message = messages[positions[-1]]
    values = tokens.prompt, tokens.sampled, tokens.logprobs
    fields: JSONObject = dict(zip(TOKEN_FIELDS, values, strict=True))
    if in_items and message.response_items:
        *items, last = message.response_items
        message = msgspec.structs.replace(message, response_items=[*items, {**last, **fields}])
    elif in_items and message.tool_calls:
        *calls, call = message.tool_calls
        call = msgspec.structs.replace(call, extra={**object_in(call.extra), **fields})
        message = msgspec.structs.replace(message, tool_calls=[*calls, call])
    else:
        extra = {**object_in(message.extra), **fields}
        message = msgspec.structs.replace(message, extra=extra)
    messages[positions[-1]] = message
    return msgspec.structs.replace(request, messages=messages)


def take_tokens(answer: Answer, body: JSONObject, mode: LogprobMode | None) -> None:
    """Set the token ids of an answer from its body; NeMo Gym's fields leave the message.

    The prompt of a source in `WITHOUT_PROMPT` is empty until `set_prompt`. `mode`: what the
    log-probabilities are, if the user says it.
    """
    choice = next(iter(objects_in(body.get("choices"))), {})
    entries = objects_in(object_in(choice.get("logprobs")).get("content"))
    holders = [object_in(choice.get("message")), *objects_in(body.get("output"))]
    holder = next((item for item in reversed(holders) if item.get(TOKEN_FIELDS[1])), None)
    prompt: JSON = []
    logprobs: JSON = [entry.get("logprob") for entry in entries]
    source: TokenSource
    _drop_fields(answer.message)
    if holder is not None:
        source = "nemo_gym"
        prompt, sampled, logprobs = (holder.get(name) for name in TOKEN_FIELDS)
    elif choice.get("token_ids"):
        # vLLM sends the prompt's ids with the answer, SGLang with the choice.
        source, sampled = "vllm", choice["token_ids"]
        prompt = body.get("prompt_token_ids") or choice.get("prompt_token_ids")
    elif any(text_in(entry.get("token")).startswith(_MARK) for entry in entries):
        source, sampled = "token_id", [_marked_id(entry.get("token")) for entry in entries]
    elif any("id" in entry for entry in entries):
        source, sampled = "llamacpp", [entry.get("id") for entry in entries]
    else:
        return
    problem = ""
    try:
        fields = {"prompt": prompt, "sampled": sampled, "logprobs": logprobs}
        ids = msgspec.convert(fields, _Ids)
    except msgspec.ValidationError as error:
        ids, problem = _Ids([], [], []), f"the token ids cannot be read: {error}"
    if not problem:
        # llama.cpp leaves out the tokens of a stop sequence, and vLLM's streams those that its
        # tool parser holds back: https://github.com/vllm-project/vllm/pull/29074
        problem = _count_problem(ids.sampled, answer.usage.completion_tokens, "sampled")
    answer.tokens = Tokens(
        prompt=ids.prompt,
        sampled=ids.sampled,
        logprobs=ids.logprobs,
        source=source,
        logprob_mode=mode or ("raw" if source == "llamacpp" else "unknown"),
        weight_version=_weight_version(body),
        problem=problem,
    )


def set_prompt(answer: Answer, ids: JSON) -> None:
    """Set the ids of the prompt, which were asked for after the answer, and check their number."""
    tokens, usage = answer.tokens, answer.usage
    assert tokens is not None, "only answers with ids get those of their prompt"
    try:
        tokens.prompt = msgspec.convert(ids, list[_Id])
    except msgspec.ValidationError as error:
        tokens.problem = f"the prompt's token ids cannot be read: {error}"
        return
    # Some servers count the cached ones apart.
    if len(tokens.prompt) != usage.prompt_tokens + usage.cached_tokens:
        problem = _count_problem(tokens.prompt, usage.prompt_tokens, "prompt")
        tokens.problem = tokens.problem or problem


def _count_problem(ids: list[int], num_counted: int, part: str) -> str:
    if num_counted in (0, len(ids)):  # 0: the endpoint does not report its usage
        return ""
    return f"the endpoint counted {num_counted} {part} tokens, but sent {len(ids)} ids"


def _marked_id(token: JSON) -> int | None:
    digits = text_in(token).removeprefix(_MARK)
    return int(digits) if digits.isdecimal() and len(digits) < 20 else None


def _weight_version(body: JSONObject) -> str:
    # SGLang puts it into the metadata.
    version = body.get("weight_version")
    if version is None:
        version = object_in(body.get("metadata")).get("weight_version")
    return str(version) if isinstance(version, str | int) else ""


def _drop_fields(message: Message) -> None:
    """Remove NeMo Gym's fields, which are recorded as tokens or not at all."""
    message.extra = _without_fields(object_in(message.extra))
    message.response_items = [_without_fields(item) for item in message.response_items]
    for call in message.tool_calls:
        if call.extra:
            call.extra = _without_fields(object_in(call.extra)) or msgspec.UNSET


def _without_fields(fields: JSONObject) -> JSONObject:
    return {name: value for name, value in fields.items() if name not in TOKEN_FIELDS}
