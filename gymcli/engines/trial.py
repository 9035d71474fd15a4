"""Joins a Ray cluster and leaves it, to find out whether that can be done.

It is a process of its own, run by its path, since nothing ends a thread that hangs in Ray, and
what Ray writes to stderr cannot be kept from a terminal otherwise. Why it failed is what it says
on stdout, in one line. Exit codes: 0 joined, 1 there is no cluster, 2 Ray refuses the address.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from contextlib import suppress

__all__ = ["main"]

_LOCALHOST = ("localhost", "127.0.0.1", "::1")

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""How one begins to talk to Ray (RFC 9113, 3.4)."""

_ANSWER_SECONDS = 1.0


class _NobodyThereError(Exception):
    """Raised where nothing takes a connection, or what is not Ray does."""


def main() -> None:
    """Try it: `trial.py ADDRESS SECONDS [HOST PORT]`."""
    address, seconds, *place = sys.argv[1:]
    signal.alarm(int(seconds))  # whoever waited for it may be gone
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "3")  # else it sends a wrong token 20 times
    import ray

    try:
        if place:
            _connect(place[0], int(place[1]), is_client=address.startswith("ray://"))
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except _NobodyThereError as error:
        _fail(str(error), 1)
    except Exception as error:  # noqa: BLE001  # it is told, whatever it is
        _fail(f"{type(error).__name__}: {error}", 2 if isinstance(error, ValueError) else 1)
    ray.shutdown()


def _connect(host: str, port: int, *, is_client: bool) -> None:
    """See that somebody listens there who may be Ray, which waits for whoever may come to be.

    Raises:
        _NobodyThereError: Nobody does, or something else; or there is no such host.

    """
    import ray.util

    if host in _LOCALHOST and not is_client:
        host = ray.util.get_node_ip_address()  # as Ray does
    try:
        with socket.create_connection((host, port)) as connection:
            is_other = _is_other(connection)
    except socket.gaierror as error:
        raise _NobodyThereError(f"there is no host {host} ({error.strerror})") from error
    except OSError as error:
        raise _NobodyThereError(f"nothing listens at {host}:{port} ({error.strerror})") from error
    if is_other:
        raise _NobodyThereError(f"what listens at {host}:{port} is not Ray: a web server, perhaps")


def _is_other(connection: socket.socket) -> bool:
    """Say whether the other side answers in text, as no gRPC server does, with TLS or without."""
    connection.settimeout(_ANSWER_SECONDS)
    with suppress(OSError):
        connection.sendall(_PREFACE)
        return connection.recv(1) >= b" "
    return False


def _fail(text: str, code: int) -> None:
    sys.stdout.write(" ".join(text.split()) + "\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
