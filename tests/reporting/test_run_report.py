"""Gates together are as good as the worst of them."""

import pytest

from gymcli.metrics.gates import GateVerdict
from gymcli.reporting.run_report import verdict_of


@pytest.mark.parametrize(
    ("verdicts", "together"),
    [
        ([], "PASS"),
        (["PASS", "PASS"], "PASS"),
        (["PASS", "INCONCLUSIVE"], "INCONCLUSIVE"),
        (["INCONCLUSIVE", "FAIL", "PASS"], "FAIL"),
    ],
)
def test_gates_together_are_as_good_as_the_worst(verdicts, together):
    gates = [GateVerdict(gate="", verdict=v, value=0.0, judged_on="number") for v in verdicts]
    assert verdict_of(gates) == together
