"""The simulation of reproduced scores: small cells of it call few differences reproduced."""

import pytest

from bench.equivalence import CELLS, REFERENCES, Cell, equivalence_table, shares


@pytest.mark.parametrize(
    ("cell", "references"),
    [
        (Cell("all 0.5", 10, 1), ("1", "exact")),
        (Cell("all 0.95", 30, 2), ("4, with stderr", "exact")),
        (Cell("half 0, half 1, few 0.5", 100, 4), ("16", "exact")),
        (Cell("graded, beta(2, 1)", 30, 4), ("exact",)),
    ],
)
def test_a_difference_of_the_margin_is_rarely_reproduced(cell, references):
    """The simulation is seeded, so the shares never change."""
    for reference in references:
        found = shares(cell, reference, num_replications=400)
        assert max(found.values()) <= 0.07  # 0.05 + 2 errors


def test_a_margin_that_is_met_is_found():
    """The border is not respected by never saying that a score is reproduced."""
    assert max(shares(Cell("all 0.5", 300, 16), "exact", num_replications=400).values()) > 0.02


def test_the_table_has_a_row_for_each_kind_and_size():
    table = equivalence_table(
        {(cell, name): {(1, 2.0): 0.04} for cell in CELLS for name in REFERENCES}
    )
    lines = table.splitlines()
    assert len(lines) == 2 + 30
    assert lines[2] == "| all 0.5 | 10 |" + " 4.0 |" * 6
