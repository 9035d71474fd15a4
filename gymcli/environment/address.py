"""Checks the address of a resources server."""

from __future__ import annotations

from gymcli.environment.addresses import checked_address as checked_http_address
from gymcli.errors import UsageError

__all__ = ["checked_address"]


def checked_address(value: str) -> str:
    """Give a server's address without its trailing slash.

    Raises:
        UsageError: It is not http(s), has no host, or carries a user, a query or a fragment.

    """
    what = "the address of a remote environment"
    try:
        return checked_http_address(value, what=what, example="http://host:port")
    except ValueError as error:
        raise UsageError(str(error)) from error
