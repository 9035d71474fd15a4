"""Rows and responses of NeMo Gym become records of ours, and what we found becomes its answers.

Format: NVIDIA NeMo Gym 0.5 (Apache-2.0).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence

import msgspec

from gymcli.environment.registry import Found
from gymcli.environment.tool import EnvironmentOptions
from gymcli.nemo_gym.rows import read_rollout
from gymcli.rollout.episode import attempt_seed
from gymcli.serving.messages import RefusedError
from gymcli.types import JSON, JSONObject, Message, Rollout, Score, StopReason, Timing

__all__ = [
    "game_answer",
    "opened_record",
    "opening_answer",
    "played_messages",
    "verdict",
    "verified_record",
]

_PARAMS = "responses_create_params"

_CUT: tuple[StopReason, ...] = ("length", "content_filter", "max_turns")
"""Stop reasons of an episode that did not come to its own end."""


def opened_record(
    row: JSONObject,
    found: Found,
    options: EnvironmentOptions,
    seed: int | None,
    *,
    is_own: bool,
) -> Rollout:
    """Give the record with which the episode of a row begins.

    Without a seed the row's task and its `_ng_rollout_index` decide it, else chance does.
    `is_own` says that no other program will write the conversation.

    Raises:
        RefusedError: It is no row.

    """
    if _PARAMS not in row:
        raise RefusedError(422, f'"{_PARAMS}" is missing: the body must be a row of a tasks file')
    rollout = _read({**row, "response": {"output": []}}, found.name)
    if seed is None and "_ng_rollout_index" in row:
        seed = attempt_seed(0, rollout.task_id, rollout.attempt)
    return _of_environment(rollout, found, options, is_own=is_own, seed=seed)


def verified_record(
    body: JSONObject, found: Found, options: EnvironmentOptions, seed: int | None
) -> Rollout:
    """Give the record of a row with its response, without a session.

    Raises:
        RefusedError: It is none.

    """
    if _PARAMS not in body or "response" not in body:
        raise RefusedError(422, f'the body must be a row with "{_PARAMS}" and "response"')
    return _of_environment(_read(body, found.name), found, options, is_own=False, seed=seed)


def played_messages(body: JSONObject) -> Rollout:
    """Give a record that holds what a response says, after no prompt.

    Raises:
        RefusedError: There is none.

    """
    return _read({"response": body.get("response"), _PARAMS: {}}, "")


def opening_answer(messages: Sequence[Message]) -> JSONObject:
    """Give what an environment begins with in the gymnasium dialect."""
    answer = _observed(messages)
    return {**answer, "info": {"supports_explicit_close": True}}


def game_answer(
    messages: Sequence[Message], *, reward: float, stop_reason: StopReason | None
) -> JSONObject:
    """Give what an environment answered in the gymnasium dialect, and whether that is the end."""
    is_cut = stop_reason in _CUT
    is_over = stop_reason is not None and not is_cut
    return {**_observed(messages), "reward": reward, "terminated": is_over, "truncated": is_cut}


def _observed(messages: Sequence[Message]) -> JSONObject:
    outputs: list[JSON] = [
        {"call_id": message.tool_call_id, "output": message.text}
        for message in messages
        if message.role == "tool"
    ]
    texts = [message.text for message in messages if message.role != "tool"]
    info: JSONObject = {"tool_outputs": outputs} if outputs else {}
    return {"observation": "\n\n".join(texts) or None, "info": info}


def verdict(score: Score, body: JSONObject) -> JSONObject:
    """Give a score as the answer of `/verify`: the row and what the verifier adds to it.

    What a row has of an earlier verdict is left out.
    """
    added: JSONObject = {**score.details, **score.metrics}
    answer: JSONObject = {name: value for name, value in body.items() if name not in _STALE}
    answer.update({name: value for name, value in added.items() if name not in _KEPT})
    answer["reward"] = score.reward
    if score.components:
        answer["reward_components"] = dict(score.components)
    if score.answer is not None:
        answer["extracted_answer"] = score.answer
    return answer


_KEPT = (_PARAMS, "response")
"""What no part of a score may stand for."""

_STALE = (
    "reward",
    "reward_components",
    "extracted_answer",
    "mask_sample",
    "_ng_failure_class",
    "_ng_failure_judge_error",
)


def _read(line: JSONObject, env: str) -> Rollout:
    try:
        return read_rollout(line, env=env)
    except (TypeError, ValueError, OverflowError) as error:
        raise RefusedError(422, str(error)) from error


def _of_environment(
    rollout: Rollout,
    found: Found,
    options: EnvironmentOptions,
    *,
    is_own: bool,
    seed: int | None,
) -> Rollout:
    """Give the record with what names the environment, and without any score that came with it.

    Only a conversation that is written here, or by a client of gymcli, bears our version: replaying
    it must give the same words.
    """
    return msgspec.structs.replace(
        rollout.unscored(),
        env_version=found.environment.version if is_own else "",
        env_options=options.model_dump(mode="json", exclude_defaults=True),
        seed=secrets.randbits(31) if seed is None else seed,
        timing=Timing(started_at=round(time.time(), 3)),
    )
