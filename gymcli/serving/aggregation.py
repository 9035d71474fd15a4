"""The numbers of verified rollouts, under the keys of NeMo Gym's `/aggregate_metrics`.

`agent_metrics` holds mean, max, min, median and std (ddof 1) of every number of the rows, and our
estimators: pass@k, pass^k, majority@k and pass@1[avg-of-k] in percent, as NeMo Gym has them, over
the tasks that have k rollouts. `key_metrics` are the means and the pass rates, and
`group_level_metrics` the same statistics for each task.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

from gymcli.errors import UsageError
from gymcli.metrics import EnvironmentFacts, Metrics, ScoredLine, aggregate
from gymcli.nemo_gym import read_rollout
from gymcli.serving.messages import RefusedError
from gymcli.types import JSON, JSONObject, Rollout

__all__ = ["aggregated"]

_INDEX = "_ng_task_index"

_CURVES = {
    "pass_at_k": "pass@{k}/accuracy",
    "pass_hat_k": "pass^{k}/accuracy",
    "avg_at_k": "pass@1[avg-of-{k}]/accuracy",
    "majority_at_k": "majority@{k}/accuracy",
}
"""By our name of a metric, its key."""


def aggregated(verified: JSON, *, env: str, facts: EnvironmentFacts) -> JSONObject:
    """Give the numbers of the answers of `/verify`.

    Rows whose verifier failed count nowhere.

    Raises:
        RefusedError: They are no list of such answers, or two of them are one attempt, or their
            numbers are too large to be added up.

    """
    try:
        return _aggregated(verified, env, facts)
    except OverflowError as error:
        raise RefusedError(422, f"verify_responses: a number is too large: {error}") from error


def _aggregated(verified: JSON, env: str, facts: EnvironmentFacts) -> JSONObject:
    if not isinstance(verified, list):
        raise RefusedError(422, '"verify_responses" must be a list of answers of /verify')
    rollouts = [_read(row, env, position) for position, row in enumerate(verified)]
    groups: dict[str, list[dict[str, float]]] = {}
    stamps: dict[str, JSONObject] = {}
    for rollout, row in zip(rollouts, verified, strict=True):
        if rollout.reward is not None and isinstance(row, dict):
            groups.setdefault(rollout.task_id, []).append(_numbers(row))
            stamps[rollout.task_id] = {name: row[name] for name in (_INDEX,) if name in row}
    agent: JSONObject = {**_statistics([row for rows in groups.values() for row in rows])}
    rates = _rates(rollouts, env, facts)
    agent.update(rates)
    key = {name: value for name, value in agent.items() if name.startswith("mean/")}
    return {
        "group_level_metrics": [
            {"task_id": task_id, **stamps[task_id], **_statistics(rows)}
            for task_id, rows in groups.items()
        ],
        "agent_metrics": agent,
        "key_metrics": {**key, **rates},
    }


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


def _numbers(row: JSONObject) -> dict[str, float]:
    """Give the numbers of a row, its usage among them, as NeMo Gym averages them."""
    response = row.get("response")
    usage = response.get("usage") if isinstance(response, dict) else None
    found = {**row, **(usage if isinstance(usage, dict) else {})}
    return {
        name: float(value)
        for name, value in found.items()
        if isinstance(value, int | float) and not name.startswith("_ng_")
    }


def _statistics(rows: Sequence[Mapping[str, float]]) -> dict[str, JSON]:
    columns: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    found: dict[str, JSON] = {}
    for name, values in columns.items():
        found[f"mean/{name}"] = statistics.fmean(values)
        found[f"max/{name}"] = max(values)
        found[f"min/{name}"] = min(values)
        found[f"median/{name}"] = statistics.median(values)
        found[f"std/{name}"] = statistics.stdev(values) if len(values) > 1 else 0.0
    return found


def _rates(rollouts: Iterable[Rollout], env: str, facts: EnvironmentFacts) -> dict[str, JSON]:
    """Give what k attempts are worth, in percent."""
    lines = _numbered(rollout for rollout in rollouts if rollout.reward is not None)
    try:
        metrics: Metrics = aggregate(lines, facts={env: facts})
    except UsageError as error:
        raise RefusedError(422, str(error)) from error
    rates: dict[str, JSON] = {}
    for name, key in _CURVES.items():
        for k, value in (getattr(metrics, name) or {}).items():
            rates[key.format(k=k)] = 100.0 * value
    return rates


def _numbered(rollouts: Iterable[Rollout]) -> list[ScoredLine]:
    """Give the lines that metrics are made of."""
    return [
        ScoredLine(
            env=rollout.env,
            task_id=rollout.task_id,
            attempt=rollout.attempt,
            reward=rollout.reward or 0.0,
            components=rollout.components,
            answer=rollout.answer,
            usage=rollout.usage,
        )
        for rollout in rollouts
    ]
