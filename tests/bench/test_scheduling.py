"""List scheduling, with the same waits as the server's."""

import msgspec
import pytest

from bench.scheduling import figure_of, list_scheduling, run_once, waits_of
from gymcli.mock import Exchange, Latency, MockServer
from tests.mock.talking import CHAT, post, talk


def test_list_scheduling_gives_each_wait_to_the_first_free_place():
    assert list_scheduling([3.0, 1.0, 1.0, 2.0], 2) == 4.0
    assert list_scheduling([1.0, 2.0], 5) == 2.0


def test_waits_are_those_of_the_server(tmp_path):
    """The log has the duration of each request, which is never less than its wait."""
    log = tmp_path / "log.jsonl"
    spec = "uniform:0.01:0.05"

    async def ask(server: MockServer, session) -> None:
        for _ in range(3):
            await post(session, server, "/chat/completions", CHAT)

    talk(ask, latency=Latency.parse(spec), seed=7, log=log)
    exchanges = [msgspec.json.decode(line, type=Exchange) for line in log.read_bytes().splitlines()]
    waits = waits_of(exchanges, Latency.parse(spec), 7)
    assert len(set(waits)) == 3
    for exchange, wait in zip(exchanges, waits, strict=True):
        assert exchange.ended - exchange.started >= wait


@pytest.mark.slow
def test_scheduling_runs_once():
    run = run_once(8, 24)
    assert run.max_in_flight == 8
    assert run.seconds > 0.9 * run.ideal > 0.3
    figure = figure_of(8, 24, [run])
    assert figure.goal == ""
    assert figure.value == 24 / run.seconds
