"""Judges runs by gates, and by a comparison with a baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gymcli.comparison.gates import (
    DIFFERENCE,
    REFERENCE,
    GateOn,
    GateProblem,
    GateVerdict,
    judge,
    judge_references,
    parse_gate,
    too_few_attempts,
    why_impossible,
    why_no_slice,
    with_differences,
)
from gymcli.comparison.paired_runs import compare_runs
from gymcli.errors import RunError, UsageError
from gymcli.metrics.measure import facts_of
from gymcli.reporting.run_report import RunReport
from gymcli.store.manifest import Manifest, read_manifest

if TYPE_CHECKING:
    from gymcli.comparison.comparison_results import Comparison
    from gymcli.comparison.reproduction import BenchmarkScore
    from gymcli.metrics.aggregate import Aggregator
    from gymcli.metrics.results import RunMetrics
    from gymcli.runner.plan import RunPlan
    from gymcli.store.scored_lines import EnvironmentFacts
    from gymcli.types import AttemptKey


class RunGates:
    """Gates, the k of metrics of k attempts, and a baseline; parsed before any work is done.

    `requested_ks` are reported in addition to those of gates. With `has_baseline`, `judge` gets a
    comparison although there is no `baseline`. `way_out` says how a caller names one.

    Raises:
        UsageError: A gate cannot be parsed, or needs a baseline.
    """

    def __init__(
        self,
        gates: Iterable[str],
        *,
        requested_ks: Sequence[int] = (),
        gate_on: GateOn = "bound",
        baseline: Path | None = None,
        has_baseline: bool = False,
        way_out: str = "--baseline RUN",
    ) -> None:
        self.gates = [parse_gate(text) for text in gates]
        self.requested_ks = requested_ks
        self.baseline = baseline
        self._gate_on = gate_on
        has_baseline = has_baseline or baseline is not None
        if not has_baseline and any(gate.name == DIFFERENCE for gate in self.gates):
            raise UsageError(f"--gate {DIFFERENCE}: needs {way_out}")

    @property
    def ks(self) -> list[int]:
        """The k of --k and of the gates."""
        return sorted({*self.requested_ks, *(gate.k for gate in self.gates if gate.k)})

    def check(
        self,
        environments: Mapping[str, EnvironmentFacts],
        *,
        most_attempts: int,
        slices: Callable[[str, str | None], frozenset[str]] | None,
    ) -> None:
        """Refuse a k or a gate that no run of these environments can have or meet.

        `most_attempts` is the largest number of attempts of a task. `slices` returns the names of
        the slices by a field, of one environment or of all; None if the run may hold other tasks.
        """
        self.check_ks(most_attempts)
        for gate in self.gates:
            reason = why_impossible(gate, environments, most_attempts=most_attempts)
            if not reason and slices is not None and gate.field is not None:
                reason = why_no_slice(gate, slices(gate.field, gate.env))
            if reason:
                raise UsageError(f"--gate {gate.text}: {reason}")

    def check_plan(self, plan: RunPlan) -> None:
        """Refuse before the first request what no result of this run can meet."""

        def check(
            manifest: Manifest,
            most_attempts: int,
            slices: Callable[[str, str | None], frozenset[str]] | None,
        ) -> None:
            facts = {name: facts_of(record) for name, record in manifest.environments.items()}
            self.check(facts, most_attempts=most_attempts, slices=slices)

        if any(gate.name == REFERENCE for gate in self.gates):
            from gymcli.benchmarks.benchmark_runs import check_references  # late: heavy

            check_references(plan.manifest)
        try:
            check(plan.manifest, plan.most_attempts, plan.slices)
        except UsageError:
            if plan.path is None or not plan.path.is_dir():
                raise
            from gymcli.runner.resume_state import existing_state  # late: heavy

            state = existing_state(plan)  # the run may hold other tasks, and more attempts
            check(state.manifest, max(plan.most_attempts, state.most_attempts), None)

    def check_ks(self, most_attempts: int) -> None:
        """Refuse a k of --k that is larger than the number of attempts of any task."""
        largest = max(self.requested_ks, default=0)
        if largest > most_attempts:
            raise UsageError(f"--k {largest}: {too_few_attempts(largest, most_attempts)}")

    def fields(self, by: Iterable[str] = ()) -> list[str]:
        """Return the fields to slice by: those of `--by`, then those that gates name."""
        fields = list(by)
        for gate in self.gates:
            names = {field.removeprefix("task.") for field in fields}
            if gate.field is not None and gate.field.removeprefix("task.") not in names:
                fields.append(gate.field)
        return fields

    def report(
        self,
        run: Path,
        aggregator: Aggregator,
        metrics: RunMetrics,
        *,
        env: str | None = None,
        by: Sequence[str] = (),
        incomplete: str = "",
        attempts: frozenset[AttemptKey] | None = None,
        score: BenchmarkScore | None = None,
        has_tasks: bool = False,
    ) -> RunReport:
        """Judge a run; a gate or baseline that cannot be judged becomes a problem of the report.

        `attempts` are those that the metrics cover, None: all of the run; `score` is that of a run
        of a benchmark. With `has_tasks`, the report lists every task.
        """
        comparison = None
        problems: list[GateProblem] = []
        if self.baseline is not None and metrics.num_scored:
            try:
                comparison = compare_runs(
                    self.baseline, run, by=by, env=env, allow_drift=True, attempts=attempts
                )
            except (UsageError, RunError) as error:
                baseline = f"--baseline {self.baseline}"
                problems.append(GateProblem(what=baseline, reason=str(error)))
        verdicts, unjudged = self.judge(metrics, comparison, score=score)
        manifest = read_manifest(run) if run.is_dir() else None
        return RunReport(
            run=str(run),
            metrics=metrics,
            tasks=aggregator.task_rows() if has_tasks else (),
            gates=verdicts,
            problems=[*problems, *unjudged],
            comparison=comparison,
            model=manifest.model if manifest is not None else "",
            started_at=run.stat().st_mtime if manifest is None else manifest.started_at,
            incomplete=incomplete,
            attempts=attempts,
            score=score,
        )

    def judge(
        self,
        metrics: RunMetrics,
        comparison: Comparison | None = None,
        *,
        is_baseline: bool = False,
        score: BenchmarkScore | None = None,
    ) -> tuple[list[GateVerdict], list[GateProblem]]:
        """Return the verdicts, and the problems of gates that cannot be judged.

        Gates on the difference are not judged for the baseline itself.
        """
        verdicts, problems = [], []
        numbers = metrics if comparison is None else with_differences(metrics, comparison)
        for gate in self.gates:
            if is_baseline and gate.name == DIFFERENCE:
                continue
            try:
                if gate.name == DIFFERENCE and comparison is not None and comparison.is_same_run:
                    raise UsageError("the baseline is the same run")
                if gate.name == DIFFERENCE and comparison is not None and comparison.drift:
                    raise UsageError(
                        f"the baseline differs: {comparison.drift[0]}; "
                        "gym compare --allow-drift compares them anyway"
                    )
                if gate.name != REFERENCE:
                    verdicts.append(judge(gate, numbers, on=self._gate_on, comparison=comparison))
                elif score is not None:
                    verdicts.append(judge_references(gate, score))
                else:
                    raise UsageError("these are not the scores of a run of a benchmark")
            except UsageError as error:
                problems.append(GateProblem(what=gate.text, reason=str(error)))
        return verdicts, problems
