"""The mock server in its own process, its counts, and its share of a core."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

__all__ = ["GYM", "MAX_SHARE", "Server", "Stats", "check_share", "cpu_seconds", "serving"]

GYM = [sys.executable, "-c", "from gymcli.cli import main; main()"]
"""Runs `gym` from this checkout, whichever one is on the path."""

MAX_SHARE = 0.8
"""The share of a core from which a server sets the pace and sends answers in batches."""


class Stats(msgspec.Struct):
    """The counts of a mock server."""

    num_requests: int
    in_flight: int = 0
    max_in_flight: int = 0
    first_at: float | None = None
    """When the first request arrived, in seconds since the server started."""
    last_at: float | None = None
    """When the last request arrived."""
    by_status: dict[str, int] = {}
    faults: dict[str, int] = {}


class Server(NamedTuple):
    """A running mock server."""

    process_id: int
    base_url: str

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.base_url.removesuffix("/v1").rpartition(":")[2])

    def stats(self) -> Stats:
        """Return its counts so far."""
        # An empty handler, so that the proxy variables of the environment do not apply.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(self.base_url.removesuffix("/v1") + "/stats", timeout=30) as response:
            return msgspec.json.decode(response.read(), type=Stats)

    def num_requests(self) -> int:
        """Return the number of requests so far."""
        return self.stats().num_requests


def cpu_seconds(process_id: int) -> float:
    """Return the user and system time of a process, in steps of a clock tick (10 ms).

    Raises:
        SystemExit: There is no /proc (only Linux has it), or the process has ended.
    """
    try:
        text = Path(f"/proc/{process_id}/stat").read_text()
    except FileNotFoundError:
        raise SystemExit("needs Linux: the server's CPU time is read from /proc") from None
    # The second field, the name, is in brackets and may itself contain spaces and brackets.
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def check_share(share: float) -> None:
    """Refuse a measurement in which the server was the bottleneck.

    Raises:
        SystemExit: The share is `MAX_SHARE` or more.
    """
    if share >= MAX_SHARE:
        raise SystemExit(
            f"the mock server used {share:.0%} of a core and set the pace, so nothing is reported; "
            "use a longer latency, or wait until the machine is less busy"
        )


@contextmanager
def serving(*options: str | Path) -> Iterator[Server]:
    """Run `gym mock` with these options while the block lasts."""
    command = [*GYM, "mock", "--with-parent", *map(str, options)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            base_url = process.stdout.readline().decode().strip()
            if not base_url:
                raise SystemExit("gym mock did not start")
            yield Server(process.pid, base_url)
        finally:
            # With --with-parent the server ends when its stdin is closed.
            process.stdin.close()
