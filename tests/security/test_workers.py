"""Tests that an isolated function gets no secret, and that the parent passes on its output."""

import asyncio
import os
import sys

from gymcli.rollout.scoring import Workers
from gymcli.secrets import Scrubber


def variables(names):
    return {name: os.environ.get(name) for name in names}


def tell(text):
    print("told:", text)
    print("told to stderr:", text, file=sys.stderr)
    os.write(2, b"written past Python\n")
    return len(text)


def called(function, *arguments, scrubber):
    async def run():
        async with Workers(1, scrubber=scrubber) as workers:
            return await workers.isolated.call(function, *arguments, timeout=60, memory_mb=1024)

    return asyncio.run(run())


def test_isolated_functions_get_no_variable_that_holds_a_secret(monkeypatch):
    monkeypatch.setenv("A_TOKEN", "hf_abcdefgh")
    monkeypatch.setenv("ODDLY_NAMED", "sk-in-use-1234")
    monkeypatch.setenv("PLAINLY_NAMED", "hf_plain")
    found = called(
        variables,
        ["A_TOKEN", "ODDLY_NAMED", "PLAINLY_NAMED"],
        scrubber=Scrubber(["sk-in-use-1234"]),
    )
    assert found == {"A_TOKEN": None, "ODDLY_NAMED": None, "PLAINLY_NAMED": "hf_plain"}


def test_what_a_worker_prints_comes_out_of_this_stderr(capsys):
    assert called(tell, "hello", scrubber=Scrubber()) == 5
    shown = capsys.readouterr()
    assert shown.out == ""
    assert set(shown.err.splitlines()) == {
        "told: hello",
        "told to stderr: hello",
        "written past Python",
    }
