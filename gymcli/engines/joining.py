"""Finds out whether a Ray cluster can be joined, without hanging in Ray where it cannot."""

from __future__ import annotations

import logging
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from gymcli.errors import EngineError, UsageError

__all__ = ["JOIN_SECONDS", "LOOKS_LIKE", "Place", "Trial", "place_of"]

_LOGGER = logging.getLogger(__name__)

JOIN_SECONDS = 30
"""So long a cluster may take to let somebody in. Ray itself would try for a quarter of an hour."""

LOOKS_LIKE = "HOST:6379, [IPV6]:6379, ray://HOST:10001 or auto"
"""An address of a cluster, for messages."""

_TRIAL = Path(__file__).with_name("trial.py")

_RAY_LOG = re.compile(r"^\[.*?\] \S+?:\d+: +(?P<text>.*)$", re.MULTILINE)
"""A line that Ray's C++ part logs to stderr."""

_REFUSED = 2
"""The exit code of a trial whose address Ray refuses."""


class Place(NamedTuple):
    """Where a cluster is to listen."""

    host: str
    port: int


def place_of(address: str) -> Place | None:
    """Read HOST:PORT and ray://HOST:PORT; None is a name, which is Ray's own affair.

    Raises:
        UsageError: It is none of these.

    """
    if address and ":" not in address:
        return None
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _malformed(address) from None
    if parts.scheme not in ("", "ray"):
        return None
    if not host or not port or "@" in parts.netloc or not address.endswith(parts.netloc):
        raise _malformed(address)
    return Place(host, port)


def _malformed(address: str) -> UsageError:
    return UsageError(
        f"--address {address}: is no address of a Ray cluster; it looks like {LOOKS_LIKE}"
    )


class Trial:
    """One try to join a cluster and to leave it again; another thread may give it up.

    Args:
        address: Of the cluster.
        place: Where it listens, if that is known.
        seconds: So long it may take.

    """

    def __init__(self, address: str, place: Place | None, seconds: int = JOIN_SECONDS) -> None:
        self._address = address
        self._place = place
        self._seconds = seconds
        self._process: subprocess.Popen[str] | None = None
        self._is_given_up = threading.Event()

    def run(self) -> None:
        """Try it.

        Raises:
            EngineError: The cluster cannot be joined, or the trial was given up.
            UsageError: Ray makes nothing of the address.

        """
        place = () if self._place is None else (self._place.host, str(self._place.port))
        with subprocess.Popen(  # noqa: S603  # of our own words, but for an address
            [sys.executable, "-P", str(_TRIAL), self._address, str(self._seconds), *place],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C is for this process alone
        ) as process:
            self._process = process
            if self._is_given_up.is_set():
                process.kill()
            try:
                said, logged = process.communicate(timeout=self._seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                said, logged = process.communicate()
        for line in logged.splitlines():
            _LOGGER.info("Ray: %s", line)
        if process.returncode:
            self._fail(process.returncode, said, logged)

    def give_up(self) -> None:
        """End it, if it is under way or yet to come."""
        self._is_given_up.set()
        if self._process is not None:
            self._process.kill()

    def _fail(self, code: int, said: str, logged: str) -> None:
        """Say why the cluster cannot be joined.

        Raises:
            EngineError: Always, but for what is the user's mistake.
            UsageError: Ray makes nothing of the address.

        """
        reason = said.strip().rpartition("\n")[2].rstrip(".")
        if code == _REFUSED and reason:
            raise UsageError(f"Ray at --address {self._address}: {reason}")
        complaints = [found["text"] for found in _RAY_LOG.finditer(logged)]
        if code in (-signal.SIGKILL, -signal.SIGALRM):
            reason = f"what is there let nobody in within {self._seconds} seconds"
        else:
            reason = reason or f"Ray ended with code {code}"
            reason += "".join(f" ({text})" for text in complaints[-1:])
        way_out = "give the HOST:PORT that `ray start --head` printed"
        if "authentic" in reason.lower():
            way_out = "set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN to the token of the cluster"
        raise EngineError(f"Ray at --address {self._address}: {reason}; {way_out}")
