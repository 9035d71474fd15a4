"""What changed since a baseline, in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gymcli.metrics.comparison import Comparison, Difference
from gymcli.reporting.spans import Spans, table
from gymcli.reporting.words import between, number, signed

__all__ = ["comparison_blocks"]

_HEAD = ("tasks", "baseline", "run", "difference", "interval", "p", "verdict")


def comparison_blocks(comparison: Comparison, spans: Spans) -> Iterator[str]:
    """Give what is not alike, the differences, what would decide, the tasks that changed."""
    for drift in comparison.drift:
        other = spans.code(str(drift), 300)
        yield f"Not made alike, so that not the model alone differs: {other}"
    parts: list[tuple[str, Difference]] = [("all", comparison)]
    if len(comparison.environments) > 1:
        parts += comparison.environments.items()
    for field, slices in comparison.slices.items():
        parts += [(f"{field}={value}", found) for value, found in slices.items()]
    rows = [(spans.code(name), *_difference(found)) for name, found in parts]
    yield table((spans.code(comparison.metric), *_HEAD), rows)
    if comparison.way_out:
        yield spans.sentence(comparison.way_out)
    for title, tasks, count in (
        ("Broken", comparison.broken, comparison.num_broken),
        ("Fixed", comparison.fixed, comparison.num_fixed),
    ):
        if count:
            yield f"{title}: {spans.listed(tasks, count)}"


def _difference(found: Difference) -> Sequence[str]:
    difference = found.difference
    return (
        f"{found.num_tasks:,}",
        number(found.mean_a),
        number(found.mean_b),
        signed(None if difference is None else difference.value),
        between(None if difference is None else difference.interval),
        number(found.p_value if found.p_adjusted is None else found.p_adjusted),
        found.verdict,
    )
