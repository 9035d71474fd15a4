"""The answer of `/aggregate_metrics`: the numbers of verified rollouts, under NeMo Gym's keys."""

from __future__ import annotations

import logging

from gymcli.errors import UsageError
from gymcli.metrics import EnvironmentFacts, OwnMetrics
from gymcli.metrics.nemo_aggregate import NemoAggregate
from gymcli.nemo_gym.rows import read_rollout
from gymcli.serving.messages import RefusedError
from gymcli.types import JSON, JSONObject, Rollout

__all__ = ["aggregated"]

_LOGGER = logging.getLogger(__name__)

_INDEX = "_ng_task_index"


def aggregated(
    verified: JSON, *, env: str, facts: EnvironmentFacts, own: OwnMetrics | None = None
) -> JSONObject:
    """Give the numbers of the answers of `/verify`, those that the environment computes among them.

    Rows whose verifier failed count nowhere. Numbers that the environment fails to compute are left
    out, which is logged.

    Raises:
        RefusedError: They are no list of such answers, or two of them are one attempt, or their
            numbers are too large to be added up.

    """
    try:
        return _aggregated(verified, env, NemoAggregate(env, facts, own))
    except OverflowError as error:
        raise RefusedError(422, f"verify_responses: a number is too large: {error}") from error
    except UsageError as error:
        raise RefusedError(422, str(error)) from error


def _aggregated(verified: JSON, env: str, aggregate: NemoAggregate) -> JSONObject:
    if not isinstance(verified, list):
        raise RefusedError(422, '"verify_responses" must be a list of answers of /verify')
    for position, row in enumerate(verified):
        rollout = _read(row, env, position)
        if rollout.reward is not None:
            aggregate.add(row, rollout)
    found: JSONObject = {
        "group_level_metrics": list(aggregate.group_level_metrics()),
        **aggregate.totals(),
    }
    for warning in aggregate.warnings:
        _LOGGER.warning(warning)
    return found


def _read(row: object, env: str, position: int) -> Rollout:
    """Read an answer of `/verify`, which may come without its conversation."""
    if not isinstance(row, dict):
        raise RefusedError(422, f"verify_responses[{position}] is not an object")
    response = row.get("response")
    usage = response.get("usage") if isinstance(response, dict) else None
    line = {**row, "responses_create_params": {}, "response": {"output": [], "usage": usage}}
    try:
        rollout = read_rollout(line, env=env)
    except (TypeError, ValueError) as error:
        raise RefusedError(422, f"verify_responses[{position}]: {error}") from error
    index = row.get(_INDEX)
    if isinstance(index, int):
        rollout.task_id = str(index)
    return rollout
