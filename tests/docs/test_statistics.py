"""The lists of docs/statistics.md are complete, and its table is that of the simulation."""

import re

from bench.coverage import SCENARIOS, Scenario, observe, table
from gymcli.metrics.results import Estimate
from gymcli.metrics.scored_lines import EnvironmentFacts, ScoredLine
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
    [size] = re.findall(r"95%, ([\d,]+) replications a cell, seed 0", TEXT)
    scenario = Scenario(0.97, 10, 1, 0.1)
    found = observe(scenario, num_replications=int(size.replace(",", "")))
    shown = table_rows("p | tasks | ", TEXT)
    assert len(shown) == len({one[:2] for one in SCENARIOS})
    [row] = [row for row in shown if row[:2] == ["0.97", "10"]]
    assert row[2] == table({scenario: found}).splitlines()[2].split(" | ")[2].removesuffix(" |")
