"""The published scores of a run's benchmark, tested and printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gymcli.commands.console import one_line, result, warn
from gymcli.reporting.formatting import reference_source, reference_text, settings_text

if TYPE_CHECKING:
    from gymcli.metrics.aggregate import Aggregator
    from gymcli.metrics.reproduction import BenchmarkScore
    from gymcli.metrics.results import RunMetrics
    from gymcli.store.manifest import Manifest

__all__ = ["print_references", "recorded_score"]


def recorded_score(
    manifest: Manifest | None, aggregator: Aggregator, metrics: RunMetrics
) -> BenchmarkScore | None:
    """Return the score of a run of a benchmark; None for other runs."""
    if manifest is None or manifest.benchmark is None:
        return None
    from gymcli.data.benchmark_runs import benchmark_score  # late: other runs need none of it

    return benchmark_score(manifest, aggregator, metrics, warn=warn)


def print_references(score: BenchmarkScore) -> None:
    """Print how a run differs from its benchmark, and the verdict on each published score."""
    if text := settings_text(score.benchmark, score.other_settings):
        result(f"{'benchmark':14}{one_line(text, 1000)}")
    for one in score.references:
        said = f"{one.verdict_text}, {reference_text(one, score)}"
        text = f"{one.model} {one.score:g} ({reference_source(one)}): {said}"
        result(f"{'reference':14}{one_line(text, 1000)}", word=one.verdict_text)
    if score.num_published and not score.references and score.model != "oracle":
        text = f"{score.benchmark} has no published score of {score.model}"
        result(f"{'reference':14}{one_line(text, 1000)}")
