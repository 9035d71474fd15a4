"""The table of faults: it reports every outcome, and a violated rule is detected."""

import msgspec
import pytest

from bench.faults import KINDS, MIXED, ONE_TASK, Case, Row, Table, cases_of, problems_of, rate_of
from bench.nonces import nonce_of
from bench.runs import Ended, Stats, Tally
from gymcli.mock.faults import BURST_LENGTH, Faults
from tests.bench.scripts import run_script

TABLE = Table(
    num_tasks=10,
    concurrency=4,
    latency="0",
    seed=3,
    dialect="chat",
    stream=False,
    deadline=60.0,
)
PLAIN = Case("500", ("500=0.2",))
WHOLE = {"num_scored": 10, "num_right": 10, "num_own": 10}


def problems(case: Case = PLAIN, *, exit_code: int | None = 0, **counts: object) -> list[str]:
    found = Tally(**{**WHOLE, **counts})
    row = Row(
        case=case.name,
        tally=found,
        stats=Stats(num_requests=12),
        exit_code=exit_code,
        seconds=1.0,
    )
    return problems_of(row, case, Ended(exit_code, 1.0, "last words"), 10)


def test_problems_of_a_row_that_keeps_every_rule():
    assert problems() == []
    lost = {"num_scored": 9, "num_right": 9, "num_own": 9, "unscored": {"ServerError": 1}}
    assert problems(exit_code=4, **lost) == []


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"exit_code": None}, "did not end"),
        ({"exit_code": 4}, "exit code 4, not 0: last words"),
        ({"num_scored": 9, "num_right": 9, "num_own": 9, "exit_code": 4}, "1 attempts have no"),
        ({"num_twice": 1}, "more than one score"),
        ({"num_foreign": 1}, "another task's nonce"),
        ({"num_right": 9, "num_own": 9}, "1 scored rollouts lack"),
        ({"num_right": 9}, "9 rewards of 1 for 10"),
    ],
)
def test_problems_of_a_row_that_breaks_a_rule(counts, words):
    [problem] = problems(**counts)
    assert words in problem


def test_problems_of_an_answer_of_other_words_are_none():
    assert problems(Case("null-content", ("null-content=0.2",)), num_right=8, num_own=8) == []


def test_cases_of_every_kind():
    cases = cases_of([*KINDS, ONE_TASK], 0.2, TABLE)
    assert [case.name for case in cases] == [*KINDS, ONE_TASK]
    assert cases[-1].faults == (f"500-always@{nonce_of(3, 5)}",)
    environments = {case.name: case.environment for case in cases}
    assert environments["bad-arguments"] == "NoncesWithTool"
    assert environments["429"] == "Nonces"
    assert [case.name for case in cases if case.is_streamed] == ["open-stream"]
    with pytest.raises(ValueError, match="unknown fault 'teapot'"):
        cases_of(["teapot"], 0.2, TABLE)


def test_cases_of_the_faults_that_a_client_gets_over():
    [case] = cases_of([MIXED], 0.3, TABLE)
    rates = dict(fault.split("=") for fault in case.faults)
    assert {"429", "500-page", "502", "403-rate", "reset", "finish-abort"} <= set(rates)
    assert not {"401", "403", "404", "500-always", "null-content", "unknown-tool"} & set(rates)
    assert Faults.parse(case.faults)
    shares = [float(rate) for kind, rate in rates.items() if kind != "429-burst"]
    assert sum(shares) == pytest.approx(0.3 * len(shares) / len(rates), rel=1e-4)


def test_rate_of_a_burst_makes_the_share():
    """A cycle consists of the requests before a burst and the burst itself."""
    assert rate_of("429", 0.2) == 0.2
    rate = rate_of("429-burst", 0.2)
    num_before = 1 / rate - 1
    assert BURST_LENGTH / (num_before + BURST_LENGTH) == pytest.approx(0.2)
    assert rate_of("429-burst", 0.0) == 0.0


@pytest.mark.slow
def test_faults_reports_every_row(tmp_path):
    file = tmp_path / "report.json"
    only = ("--only", "500-once", "--only", "bad-arguments")
    size = ("--tasks", "40", "--concurrency", "8", "--latency", "0")
    ended = run_script("faults", *only, *size, "--json", str(file))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    report = msgspec.json.decode(file.read_bytes())
    rows = {row["case"]: row for row in report["rows"]}
    assert list(rows) == ["no fault", "500-once", "no fault, a tool", "bad-arguments"]
    for name, row in rows.items():
        assert name in ended.stdout
        assert (row["tally"]["num_scored"], row["tally"]["num_own"]) == (40, 40)
        assert row["exit_code"] == 0
        assert row["problems"] == []
    tried = rows["500-once"]
    num_faults = tried["stats"]["faults"]["500-once"]
    assert tried["tally"]["retries"] == {"ServerError": num_faults}
    assert tried["stats"]["num_requests"] == 40 + num_faults
