"""Reads NeMo Gym's task rows and rollouts into gymcli's types.

Format: NVIDIA NeMo Gym 0.5 to 0.7 (Apache-2.0). A task row holds `responses_create_params`, or in
0.7 a `resolved_row` for an environment that holds the whole conversation itself; a rollout is the
row with the agent's `response`, the verifier's `reward` and a few stamps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gymcli.nemo_gym.payload import object_in, text_in, usage_in
from gymcli.nemo_gym.responses_items import (
    IGNORED_PARAMS,
    messages_from_items,
    params_from_responses,
    tools_from_responses,
)
from gymcli.types import JSON, SCHEMA_VERSION, JSONObject, Message, Rollout, StopReason, digest

_STAMPS = ("responses_create_params", "response", "reward", "agent_ref", "skills_ref")
_SCORE_FIELDS = ("extracted_answer", "reward_components")
_STAMP_PREFIXES = ("_ng_", "ng_")


class Prompt(NamedTuple):
    """The content of a row's `responses_create_params`."""

    messages: list[Message]
    tools: list[JSONObject] | None
    params: JSONObject
    ignored: list[str]
    """Parameters that were left out since a row may not set them."""


def read_prompt(create_params: object) -> Prompt:
    """Read `responses_create_params`; a ValueError names the part with the wrong shape."""
    if not isinstance(create_params, dict):
        raise ValueError('"responses_create_params" must be an object')
    items = create_params.get("input") or []
    if not isinstance(items, str | list):
        raise ValueError('"responses_create_params.input" must be a string or a list of items')
    tools = create_params.get("tools")
    if tools is not None and not isinstance(tools, list):
        raise ValueError('"responses_create_params.tools" must be a list')
    try:
        messages = messages_from_items(items)
    except ValueError as error:
        raise ValueError(f'"responses_create_params.input": {error}') from error
    used_params = {key: value for key, value in create_params.items() if key not in IGNORED_PARAMS}
    return Prompt(
        messages,
        None if tools is None else tools_from_responses(tools),
        params_from_responses(used_params),
        [n for n in IGNORED_PARAMS if create_params.get(n) is not None],
    )


def is_nemo_row(row: JSONObject) -> bool:
    """Return whether a task row has NeMo Gym's shape, where ids need not be unique."""
    inner = row.get("task_data")
    return row.get("responses_create_params") is not None or any(
        isinstance(fields, dict) and isinstance(fields.get("resolved_row"), dict)
        for fields in (row, inner)
    )


def with_task_data(fields: JSONObject) -> JSONObject:
    """Move the fields under `task_data`, where NeMo Gym 0.7 may put them, to the top level.

    Raises:
        ValueError: A field has different values in the two places.
    """
    inner = fields.get("task_data")
    if not isinstance(inner, dict):
        return fields
    outer = {name: value for name, value in fields.items() if name != "task_data"}
    for name in outer.keys() & inner.keys():
        if outer[name] != inner[name]:
            raise ValueError(f'"{name}" has different values in the row and in "task_data"')
    return {**inner, **outer}


def agent_name(reference: JSON) -> str:
    """Return the name of NeMo Gym's agent in an `agent_ref`; ValueError for another shape."""
    name = reference.get("name") if isinstance(reference, dict) else None
    if not isinstance(name, str):
        raise ValueError('"agent_ref" must be an object with the text "name"')
    return name


def is_nemo_rollout(line: JSONObject) -> bool:
    return "response" in line and "messages" not in line


def read_rollout(line: JSONObject, *, env: str, row_fields: JSONObject | None = None) -> Rollout:
    """Read one line of a NeMo Gym rollout file; the record has no `env_version`.

    If NeMo Gym's verifier failed there is no reward, and `details` has the failure's class as the
    reason. The agent of aviary may return transitions: an output of lists, each the conversation
    after one more step, prompt included. Then the last one is the conversation. `row_fields` are
    those of its task row, if the file lacks them. A ValueError names the part with the wrong shape.
    """
    response = line.get("response")
    if not isinstance(response, dict) or not isinstance(response.get("output"), list):
        raise ValueError('"response" must be an object with the list "output"')
    prompt = read_prompt(line.get("responses_create_params") or {})
    output, num_prompt_messages = response["output"], len(prompt.messages)
    has_transitions = bool(output) and all(isinstance(item, list) for item in output)
    try:
        messages = messages_from_items(output[-1] if has_transitions else output)
    except ValueError as error:
        raise ValueError(f'"response.output": {error}') from error
    if has_transitions:
        # The world's opening messages follow the row's own, and are recorded here alone.
        roles = [message.role for message in messages[num_prompt_messages:]]
        num_prompt_messages += roles.index("assistant") if "assistant" in roles else len(roles)
    else:
        messages = [*prompt.messages, *messages]
    task = {**_task_fields(line), **(row_fields or {})}
    content_hash = digest({"responses_create_params": line.get("responses_create_params"), **task})
    # NeMo Gym itself names a task only by the position of its row.
    index, reward = _index(line, "_ng_task_index"), line.get("reward")
    failure = line.get("_ng_failure_class")
    has_failed = isinstance(failure, str)  # then the reward is meaningless
    answer = line.get("extracted_answer")
    return Rollout(
        schema_version=SCHEMA_VERSION,
        task_id=own_task_id(task) or (str(index) if index is not None else content_hash),
        task_hash=content_hash,
        attempt=_index(line, "_ng_rollout_index") or 0,
        env=env,
        task=task,
        messages=messages,
        tools=prompt.tools or [],
        num_prompt_messages=num_prompt_messages,
        model=text_in(response.get("model")),
        sampling=prompt.params,
        stop_reason=_stop_reason(response, messages[num_prompt_messages:]),
        usage=usage_in(response.get("usage"), "input", "output"),
        reward=float(reward) if isinstance(reward, int | float) and not has_failed else None,
        components=_components(line),
        answer=answer if isinstance(answer, str) else None,
        details={"reason": failure} if has_failed and failure else {},
    )


def _task_fields(line: JSONObject) -> JSONObject:
    fields = {
        name: value
        for name, value in line.items()
        if name not in (*_STAMPS, *_SCORE_FIELDS) and not name.startswith(_STAMP_PREFIXES)
    }
    return with_task_data(fields)


def _stop_reason(response: JSONObject, answers: Sequence[Message]) -> StopReason:
    reason = object_in(response.get("incomplete_details")).get("reason")
    # OpenAI has two reasons: `max_output_tokens` and `content_filter`.
    if reason is not None:
        return "content_filter" if reason == "content_filter" else "length"
    # NeMo Gym's agent runs the last step's calls before it stops, so the last item is a result.
    return "max_turns" if answers and answers[-1].role == "tool" else "done"


def _components(line: JSONObject) -> dict[str, float]:
    components = line.get("reward_components")
    if not isinstance(components, dict):
        return {}
    return {k: float(v) for k, v in components.items() if isinstance(v, int | float)}


def own_task_id(row: JSONObject) -> str | None:
    """Return the id that a row or rollout carries: `task_id`, else `id`, else `uuid`."""
    for name in ("task_id", "id", "uuid"):
        value = row.get(name)
        if isinstance(value, str):
            if value:
                return value
        elif isinstance(value, int) and not isinstance(value, bool):
            return str(value)
    return None


def _index(line: JSONObject, name: str) -> int | None:
    value = line.get(name)
    # In Python, `true` is an int.
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return None
    return value
