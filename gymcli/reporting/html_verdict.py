"""What the page says of a run first: how it went, how sure that is, and what leaves it open."""

from __future__ import annotations

from datetime import UTC, datetime

from gymcli.metrics import Metrics, RunMetrics
from gymcli.metrics.gates import GateVerdict
from gymcli.reporting.html_parts import Card, between, count, method_of, number, share, total
from gymcli.reporting.html_reading import RunReading

__all__ = ["advice", "cards", "doubts", "facts", "judged"]

_LOW_COVERAGE = 0.95
_YEAR_10_000 = 253_402_300_800.0
"""In seconds since 1970: what no date can be given of."""


def facts(reading: RunReading) -> list[tuple[str, str]]:
    """Say what was run, from the run's own record."""
    found = [("Model", ", ".join(reading.models))]
    manifest = reading.manifest
    found.append(("Environments", ", ".join(reading.metrics.environments)))
    if manifest is None:
        return [fact for fact in found if fact[1]]
    params = manifest.identity.get("params")
    if isinstance(params, dict):
        found.append(("Sampling", ", ".join(f"{name} {value}" for name, value in params.items())))
    if 0.0 < manifest.started_at < _YEAR_10_000:
        start = datetime.fromtimestamp(manifest.started_at, UTC)
        found.append(("Started", f"{start:%Y-%m-%d %H:%M} UTC"))
    if manifest.seconds:
        found.append(("Took", f"{manifest.seconds:,.0f} s"))
    if manifest.shard:
        found.append(("Shard", manifest.shard))
    found.append(("gymcli", manifest.gymcli_version))
    found.append(("Commit", (manifest.git_commit or "")[:12]))
    return [fact for fact in found if fact[1]]


def cards(metrics: Metrics) -> list[Card]:
    """Give the numbers that matter first."""
    interval = metrics.interval
    sure = f"{between(interval)} ({method_of(interval)})" if interval else "no interval"
    if metrics.mean_reward is None and metrics.num_scored:
        sure = "environments with different best rewards, or unknown ones: see each"
    expected = "unknown" if metrics.num_expected is None else f"{metrics.num_expected:,}"
    bounds = metrics.bounds
    found = [
        Card("Mean reward", number(metrics.mean_reward), sure),
        Card(
            "Coverage",
            share(metrics.coverage),
            f"{metrics.num_scored:,} scored of {expected} expected",
        ),
        Card(
            "Strict mean",
            number(metrics.strict_mean_reward),
            f"absent attempts as 0; bounds {bounds.low:,.3f} .. {bounds.high:,.3f}"
            if bounds
            else "absent attempts as 0",
        ),
        Card("Unscored", count(metrics.num_unscored), "attempts that failed and have no score"),
        Card(
            "Flaky tasks",
            count(metrics.num_flaky_tasks),
            f"of {metrics.num_clusters:,} tasks with a score",
        ),
    ]
    tokens = metrics.usage.get("prompt_tokens", 0) + metrics.usage.get("completion_tokens", 0)
    if tokens:
        cost = "unknown" if metrics.cost is None else f"{metrics.cost:,.4f}"
        found.append(Card("Tokens", total(tokens), f"cost {cost}"))
    return found


def doubts(reading: RunReading) -> list[str]:
    """Say what leaves the numbers open."""
    metrics = reading.metrics
    found = [f"{warning}." for warning in reading.warnings]
    if not metrics.num_scored:
        found.append("Nothing is scored, so there is no number about rewards.")
    if metrics.num_expected is None:
        found.append("A rollout file alone does not say how many attempts were expected.")
    elif metrics.coverage is not None and metrics.coverage < _LOW_COVERAGE:
        missing = metrics.num_expected - metrics.num_scored
        found.append(
            f"{missing:,} of {metrics.num_expected:,} expected attempts have no score; "
            "the same gym collect goes on with them."
        )
    return found


def advice(metrics: RunMetrics) -> list[str]:
    """Give what follows from the numbers of each environment."""
    several = len(metrics.environments) > 1
    return [
        f"{env}: {sentence}" if several else sentence
        for env, found in metrics.environments.items()
        for sentence in found.advice
    ]


def judged(found: GateVerdict) -> str:
    """Say of a gate what it was judged by."""
    interval = f", {between(found.interval)} ({method_of(found.interval)})"
    way_out = f"; {found.way_out}" if found.way_out else ""
    return f"{found.gate}: it is {found.value:,.4g}{interval if found.interval else ''}{way_out}"
