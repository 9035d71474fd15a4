"""Runs with passed, failed, flaky and unscored tasks, for the tests of reports."""

from gymcli.comparison.gates import GateProblem, judge, parse_gate
from gymcli.metrics.aggregate import Aggregator
from gymcli.reporting.run_report import RunReport
from gymcli.store.scored_lines import EnvironmentFacts, FailureLine, ScoredLine

HOSTILE = (
    "| `x` <img src=x onerror=alert(1)> @someone #12 ![i](http://e.vil) [l](javascript:1) "
    "https://e.vil ]]> -->\n\n# head\x00\x1b[31m\u202e\ufffe & \"q\" 'a' =1+1 $x$ ~~s~~ \\|"
)
"""Hostile text, as a model may write in an answer or a provider in an error."""

FACTS = {"sums": EnvironmentFacts(max_reward=1.0, num_expected=10)}


def report_of(
    scored: list[ScoredLine],
    failures: list[FailureLine] = (),
    *,
    gates: tuple[str, ...] = (),
    facts: dict[str, EnvironmentFacts] = FACTS,
    problems: tuple[GateProblem, ...] = (),
    **more: object,
) -> RunReport:
    """Return the report of these lines."""
    aggregator = Aggregator(facts)
    aggregator.add_scored_lines(scored)
    for failure in failures:
        aggregator.add_failure(failure)
    metrics = aggregator.metrics()
    verdicts = [judge(parse_gate(gate), metrics) for gate in gates]
    return RunReport(
        run=str(more.pop("run", "runs/a")),
        metrics=metrics,
        tasks=aggregator.task_rows(),
        gates=verdicts,
        problems=problems,
        **more,
    )


def sums(rewards: dict[str, list[float]], **more: object) -> list[ScoredLine]:
    """Return lines from the rewards of attempts by task id."""
    return [
        ScoredLine(env="sums", task_id=task_id, attempt=attempt, reward=reward, **more)
        for task_id, own in rewards.items()
        for attempt, reward in enumerate(own)
    ]
