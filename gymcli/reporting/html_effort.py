"""What attempts took: percentiles of seconds and tokens, as tables and as curves."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

from gymcli.metrics import Metrics
from gymcli.metrics.percentiles import percentile
from gymcli.metrics.results import Percentiles
from gymcli.reporting.html_figures import Line, lines
from gymcli.reporting.html_parts import Cell, Chart, Table, amount, count
from gymcli.reporting.html_reading import Attempts

__all__ = ["effort_charts"]

_FRACTIONS = (0.50, 0.90, 0.95, 0.99)
_CURVE = tuple(step / 50 for step in range(51))
_MAX_LINES = 5
"""Environments that have a line of their own."""


def effort_charts(name: str, metrics: Metrics, attempts: Mapping[str, Attempts]) -> list[Chart]:
    """Show percentiles of seconds and of tokens, over all environments and for each."""
    rows: list[tuple[Cell, ...]] = []
    if metrics.latency is not None:
        rows.append(("whole attempt", *_four(metrics.latency.total_seconds)))
        rows.append(("in the model", *_four(metrics.latency.model_seconds)))
    seconds = {env: _recorded(own.seconds) for env, own in attempts.items()}
    charts = []
    if rows:
        rows += _rows_of(seconds) if len(seconds) > 1 else ()
        words = f"Half of the attempts took up to {_half(rows[0])} seconds."
        table = Table("Seconds an attempt took", ("seconds", *_HEAD), rows)
        charts.append(
            Chart(f"{name}-seconds", "Seconds", words, _curves(seconds, "seconds"), table)
        )
    prompt = {env: _recorded(own.prompt_tokens) for env, own in attempts.items()}
    completion = {env: _recorded(own.completion_tokens) for env, own in attempts.items()}
    rows = [*_rows_of({"completion": _joined(completion), "prompt": _joined(prompt)})]
    if rows:
        if len(attempts) > 1:
            rows += _rows_of({f"completion, {env}": own for env, own in completion.items()})
        words = f"Half of the attempts took up to {_half(rows[0])} {_first(rows)} tokens."
        table = Table("Tokens an attempt took", ("tokens", *_HEAD), rows)
        figure = _curves(completion, "completion tokens")
        charts.append(Chart(f"{name}-tokens", "Tokens", words, figure, table))
    return charts


_HEAD = ("p50", "p90", "p95", "p99", "attempts")


def _four(found: Percentiles) -> tuple[Cell, ...]:
    return (amount(found.p50), amount(found.p90), amount(found.p95), amount(found.p99), None)


def _recorded(values: array[float]) -> list[float]:
    return sorted(value for value in values if value > 0.0)


def _joined(values: Mapping[str, Sequence[float]]) -> list[float]:
    return sorted(value for own in values.values() for value in own)


def _rows_of(values: Mapping[str, Sequence[float]]) -> list[tuple[Cell, ...]]:
    return [
        (title, *(amount(percentile(own, fraction)) for fraction in _FRACTIONS), count(len(own)))
        for title, own in values.items()
        if own
    ]


def _half(row: Sequence[Cell]) -> str:
    half = row[1]
    return half.text if isinstance(half, tuple) else "-"


def _first(rows: Sequence[Sequence[Cell]]) -> str:
    return str(rows[0][0])


def _curves(values: Mapping[str, Sequence[float]], what: str) -> dict[str, object] | None:
    """Draw how much the slowest so many per cent took; None where nothing was recorded."""
    known = {env: own for env, own in values.items() if own}
    if len(known) > _MAX_LINES:
        known = {"all environments": _joined(known)}
    if not known:
        return None
    percents = [100 * fraction for fraction in _CURVE]
    drawn = [
        Line(env, percents, [percentile(own, fraction) for fraction in _CURVE])
        for env, own in known.items()
    ]
    return lines(drawn, x_title="percentile of attempts", y_title=what)
