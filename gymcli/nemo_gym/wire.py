"""Writes and reads the requests to NeMo Gym's resources servers and their answers.

Format: NVIDIA NeMo Gym 0.5 (Apache-2.0). A server receives the task's row and a response, and
validates both: it answers 422 to an unknown request parameter, a null in place of a list, or an
output item without a type. A verdict is a `reward`, optional `reward_components` and any further
fields; NeMo Gym's own tools average the numbers among them.

Between a gymcli server and a gymcli client there is an extension: a client that sends `SEED_HEADER`
with `/seed_session` receives `EpisodeStart` in the answer under `EXTENSION_KEY`. It then sends
`ModelOutput` under that key: each model message to `/step`, answered by `StepReply`, and finally
the whole conversation to `/verify`, answered by `VerifierScore`. These carry the data that the
protocol has no place for: the environment's own prompt, tools and stop reasons, and the parts of a
score. A server that does not know the header ignores it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from gymcli.errors import VerifierError
from gymcli.nemo_gym.payload import object_in, objects_in
from gymcli.nemo_gym.responses_items import (
    items_from_messages,
    params_to_responses,
    tools_to_responses,
)
from gymcli.types import JSON, JSONObject, Message, Rollout, Score, StopReason, Usage, digest

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
"""The request parameters that NeMo Gym knows and gymcli does not set itself."""

_INCOMPLETE = {
    "length": "max_output_tokens",
    "context_overflow": "max_output_tokens",
    "content_filter": "content_filter",
}
"""Stop reasons as the reasons of a response's `incomplete_details`."""

SEED_HEADER = "Gymcli-Seed"
"""The header with the attempt's seed, which seeds the environment's random numbers."""

EXTENSION_KEY = "gymcli"

MAX_DETAILS = 10_000
"""The most bytes of JSON in a score's details; the record's `final_state` has everything."""

_MAX_WORDS = 200

_ROW_KEYS = ("responses_create_params", "response")
"""Keys of the row that no part of a score may replace."""

_SCORE_KEYS = ("reward", "reward_components", "extracted_answer")
_VERDICT_KEYS = (*_SCORE_KEYS, "mask_sample", "_ng_failure_class", "_ng_failure_judge_error")

_CUT: tuple[StopReason, ...] = ("length", "content_filter", "max_turns")
"""Stop reasons that mean an episode was truncated."""


def row_of(rollout: Rollout) -> JSONObject:
    """Return the row of a record's task, as close to its line in the tasks file as possible.

    Whatever the line's shape, prompt, tools and parameters are under `responses_create_params`.
    """
    params = params_to_responses(rollout.sampling)
    create_params: JSONObject = {
        "input": items_from_messages(rollout.messages[: rollout.num_prompt_messages]),
        **{name: value for name, value in params.items() if name in _CREATE_PARAMS},
    }
    if rollout.tools:
        # NeMo Gym rejects a function without these keys.
        required_keys = {"parameters": None, "strict": None}
        create_params["tools"] = [
            {**required_keys, **spec} if spec.get("type") == "function" else spec
            for spec in tools_to_responses(rollout.tools)
        ]
    return {**rollout.task, "responses_create_params": create_params}


def response_of(
    rollout: Rollout, row: JSONObject, messages: Sequence[Message], usage: Usage | None = None
) -> JSONObject:
    create_params = row["responses_create_params"]
    assert isinstance(create_params, dict)
    items = items_from_messages(messages)
    response: JSONObject = {
        "id": f"resp_{digest([rollout.task_id, rollout.attempt, len(rollout.messages)])}",
        "created_at": int(rollout.timing.started_at),
        "model": rollout.response_model or rollout.model,
        "object": "response",
        "output": [_complete_item(item, position) for position, item in enumerate(items)],
        # OpenAI's schema requires these three, and the server validates by it.
        "parallel_tool_calls": create_params.get("parallel_tool_calls", True),
        "tool_choice": create_params.get("tool_choice", "auto"),
        "tools": create_params.get("tools", []),
    }
    if usage is not None:
        response["usage"] = {
            "input_tokens": usage.prompt_tokens,
            # Newer schemas require `cache_write_tokens`, which no record has; older ones ignore it.
            "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        }
    if reason := _INCOMPLETE.get(rollout.stop_reason or ""):
        response["incomplete_details"] = {"reason": reason}
    return response


def add_token_fields(
    response: JSONObject, messages: Sequence[Message], fields: Iterable[JSONObject]
) -> None:
    output = response["output"]
    assert isinstance(output, list)
    end = 0
    remaining = iter(fields)
    for message in messages:
        end += len(items_from_messages([message]))
        if message.role == "assistant":
            output[end - 1] = {**output[end - 1], **next(remaining)}


def _complete_item(item: JSONObject, position: int) -> JSONObject:
    if item.get("type") not in (None, "message"):
        return item
    if item.get("role") != "assistant":
        return {**item, "type": "message"}
    content = item.get("content") or ""
    parts = [{"type": "output_text", "text": content}] if isinstance(content, str) else content
    assert isinstance(parts, list)
    # OpenAI's schema of an output message requires annotations, an id and a status.
    annotated_parts = [
        {"annotations": [], **p} if p.get("type") == "output_text" else p for p in parts
    ]
    message_keys = {"id": f"msg_{position}", "status": "completed"}
    return {**message_keys, **item, "type": "message", "content": annotated_parts}


class EpisodeStart(msgspec.Struct, omit_defaults=True):
    """The start of an episode."""

    messages: list[Message] = []
    """The environment's opening, which follows the row's prompt."""
    tools: list[JSONObject] = []
    """The environment's tools in chat shape, for rows that declare none."""
    max_turns: int | None = None


class ModelOutput(msgspec.Struct, omit_defaults=True):
    """The model's messages and, at the end, other record fields that a verifier may read."""

    messages: list[Message]
    """For `/step` the new messages, the last to be answered; for `/verify` all after the prompt."""
    stop_reason: StopReason | None = None
    model: str = ""
    usage: Usage | None = None


class StepReply(msgspec.Struct, omit_defaults=True):
    """The environment's answer to a message."""

    messages: list[Message] = []
    reward: float | None = None
    stop_reason: StopReason | None = None
    tool_errors: dict[str, int] = {}
    """Calls of this message that could not be executed, by kind of error."""


class VerifierScore(msgspec.Struct):
    """The result of the verifier."""

    score: Score


def verdict(score: Score, row: JSONObject) -> JSONObject:
    """Return a score as the answer of `/verify`: the row with the verdict added.

    Keys of an earlier verdict are removed from the row.
    """
    # At the top level, where NeMo Gym's own tools look for numbers to average.
    extra_fields: JSONObject = {**score.details, **score.metrics}
    answer: JSONObject = {name: value for name, value in row.items() if name not in _VERDICT_KEYS}
    answer.update({name: value for name, value in extra_fields.items() if name not in _ROW_KEYS})
    answer["reward"] = score.reward
    if score.components:
        answer["reward_components"] = dict(score.components)
    if score.answer is not None:
        answer["extracted_answer"] = score.answer
    return answer


def check_verdict(answer: JSONObject, place: str) -> None:
    """Check that an answer of `/verify` with status 200 is a verdict.

    Raises:
        VerifierError: The server reports that its own verifier failed, whatever the reward, or the
            reward is missing.
    """
    failure = answer.get("_ng_failure_class")
    if failure is not None:
        words = _words(answer.get("_ng_failure_judge_error"))
        raise VerifierError(f"{place}: the server's verifier failed: {failure}{words}")
    if answer.get("mask_sample") is True:
        kind = answer.get("failure_kind") or "no kind named"
        words = _words(answer.get("failure_reason"))
        raise VerifierError(
            f"{place}: the server reports that its reward does not count: {kind}{words}"
        )
    reward = answer.get("reward")
    if not isinstance(reward, int | float):
        raise VerifierError(f'{place}: the answer has no number "reward" ({reward!r})')


def verdict_fields(answer: JSONObject, row: JSONObject) -> JSONObject:
    return {
        name: value
        for name, value in answer.items()
        if name in _SCORE_KEYS
        or not (name in _ROW_KEYS or value is None or (name in row and row[name] == value))
    }


def score_of(answer: JSONObject) -> Score:
    """Return the score of a checked verdict.

    A gymcli server sends the score itself. In other verdicts top-level numbers are metrics, and
    text and objects are details.
    """
    if EXTENSION_KEY in answer:
        return msgspec.convert(answer[EXTENSION_KEY], type=VerifierScore).score
    reward, extracted_answer = answer["reward"], answer.get("extracted_answer")
    assert isinstance(reward, int | float)
    components = _numbers(object_in(answer.get("reward_components")))
    other_fields = {n: v for n, v in answer.items() if n not in (*_SCORE_KEYS, "mask_sample")}
    # A server may repeat its components at the top level.
    metrics = {n: v for n, v in _numbers(other_fields).items() if n not in components}
    details = {n: v for n, v in other_fields.items() if not isinstance(v, int | float)}
    if extracted_answer is not None and not isinstance(extracted_answer, str):
        details["extracted_answer"] = extracted_answer
    answer_text = extracted_answer if isinstance(extracted_answer, str) else None
    return Score(float(reward), components, metrics, answer_text, _limit_details(details))


def _numbers(fields: JSONObject) -> dict[str, float]:
    return {name: float(v) for name, v in fields.items() if isinstance(v, int | float)}


def _limit_details(details: JSONObject) -> JSONObject:
    """Return the details that fit, in order, and the names of the others under `left_out`."""
    fitting_details: JSONObject = {}
    left_out = []
    num_bytes = 0
    for name, value in details.items():
        size = len(msgspec.json.encode(value))
        if num_bytes + size > MAX_DETAILS:
            left_out.append(name)
            continue
        num_bytes += size
        fitting_details[name] = value
    return {**fitting_details, "left_out": left_out} if left_out else fitting_details


def _words(value: JSON) -> str:
    text = " ".join(str(value or "").split())[:_MAX_WORDS]
    return f" ({text})" if text else ""


def opening_answer(messages: Sequence[Message]) -> JSONObject:
    return {"observation": _observation(messages), "info": {"supports_explicit_close": True}}


def game_answer(
    messages: Sequence[Message], *, reward: float, stop_reason: StopReason | None
) -> JSONObject:
    outputs: list[JSON] = [
        {"call_id": message.tool_call_id, "output": message.text}
        for message in messages
        if message.role == "tool"
    ]
    # As in Gymnasium: an episode that was cut off from outside is truncated, not terminated.
    is_cut = stop_reason in _CUT
    return {
        "observation": _observation(messages),
        "info": {"tool_outputs": outputs} if outputs else {},
        "reward": reward,
        "terminated": stop_reason is not None and not is_cut,
        "truncated": is_cut,
    }


def _observation(messages: Sequence[Message]) -> str | None:
    # Tool results are under `info` instead, see `game_answer`.
    return "\n\n".join(message.text for message in messages if message.role != "tool") or None


def game_messages(answer: JSONObject) -> list[Message]:
    messages = [
        Message(
            role="tool",
            tool_call_id=str(output.get("call_id")),
            content=_text(output.get("output")),
        )
        for output in objects_in(object_in(answer.get("info")).get("tool_outputs"))
    ]
    if observation := answer.get("observation"):
        messages.append(Message(role="user", content=_text(observation)))
    return messages


def _text(value: JSON) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
