"""The mock server in a process of its own: its counts, and the share of a core that it takes."""

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
"""The command line of this checkout, whichever `gym` is on the path."""

MAX_SHARE = 0.8
"""Of a core: from here on a server sets the pace, and gathers answers."""


class Stats(msgspec.Struct):
    """The counts of the mock server so far."""

    num_requests: int
    in_flight: int = 0
    max_in_flight: int = 0
    first_at: float | None = None
    """Seconds since its start, when the first request arrived."""
    last_at: float | None = None
    by_status: dict[str, int] = {}
    faults: dict[str, int] = {}


class Server(NamedTuple):
    """A mock server that runs."""

    process_id: int
    base_url: str

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.base_url.removesuffix("/v1").rpartition(":")[2])

    def stats(self) -> Stats:
        """Ask for its counts."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(self.base_url.removesuffix("/v1") + "/stats", timeout=30) as response:
            return msgspec.json.decode(response.read(), type=Stats)

    def num_requests(self) -> int:
        """Ask how many requests arrived."""
        return self.stats().num_requests


def cpu_seconds(process_id: int) -> float:
    """Return the user and system time of a process, in steps of a clock tick (10 ms).

    Raises:
        SystemExit: There is no /proc, which is Linux's.
    """
    try:
        text = Path(f"/proc/{process_id}/stat").read_text()
    except FileNotFoundError:
        raise SystemExit("needs Linux, where /proc tells what the server used") from None
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def check_share(share: float) -> None:
    """Refuse a measurement in which the server was the slower one.

    Raises:
        SystemExit: It was.
    """
    if share >= MAX_SHARE:
        raise SystemExit(
            f"the mock server used {share:.0%} of a core, so it set the pace: nothing is reported; "
            "give it a longer latency, or wait until the machine has less to do"
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
            process.stdin.close()
