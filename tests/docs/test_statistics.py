"""The lists of docs/statistics.md are complete, and its tables are those of the simulation."""

import re

from bench.coverage import GRADED, PASSES, PLANNED, RATES, Passes, observe, rates_table
from gymcli.metrics.intervals import NO_SCALE, Scale
from gymcli.metrics.results import Estimate
from gymcli.store.scored_lines import EnvironmentFacts, ScoredLine
from tests.docs.pages import page, table_rows
from tests.metrics.aggregating import aggregate

TEXT = page("statistics.md")


def test_keys_are_those_of_an_estimate():
    rows = [row[0].strip("`") for row in table_rows("key | ", TEXT)]
    assert rows == list(Estimate.__struct_fields__)


def test_names_are_those_of_the_estimates():
    lines = [
        ScoredLine(
            env="quiz",
            task_id=str(task),
            reward=1.0,
            answer="x",
            components={"NAME": 1.0},
            metrics={"NAME": 1.0},
        )
        for task in range(3)
    ]
    found = aggregate(lines, facts={"quiz": EnvironmentFacts(max_reward=1.0)}).estimates
    rows = [row[0].strip("`") for row in table_rows("name | ", TEXT)]
    assert {name.replace("@K", "@1").replace("^K", "^1") for name in rows} == set(found)


def test_coverage_table_is_what_the_simulation_gives():
    """Its shape is checked, and one cell is computed again."""
    size, *_ = re.findall(r"95%, ([\d,]+) replications a cell, seed 0", TEXT)
    scenario = Passes(0.97, 10, 1, 0.1)
    scales = (Scale(1.0, is_graded=False), NO_SCALE)
    found = observe(scenario, scales, num_replications=int(size.replace(",", "")))
    shown = table_rows("p | tasks | K", TEXT)
    assert len(shown) == len({one[:2] for one in RATES})
    [row] = [row for row in shown if row[:2] == ["0.97", "10"]]
    text = rates_table({scenario: found})
    assert row[2] == text.splitlines()[2].split(" | ")[2].removesuffix(" |")


def test_other_tables_have_all_scenarios():
    assert len(table_rows("p | tasks | pass@", TEXT)) == len({one[:2] for one in PASSES})
    assert len(table_rows("rewards | tasks |", TEXT)) == len({one[:2] for one in GRADED})
    planned = {(one.kind, one.margin) for one in PLANNED}
    assert len(table_rows("rewards | margin |", TEXT)) == len(planned)
