"""Checks the address of a resources server."""

from __future__ import annotations

from urllib.parse import urlsplit

from gymcli.errors import UsageError

__all__ = ["checked_address"]


def checked_address(value: str) -> str:
    """Give a server's address without its trailing slash.

    Raises:
        UsageError: It is not http(s), has no host, or carries a user, a query or a fragment.

    """
    try:
        parts = urlsplit(value.strip())
        _ = parts.port
    except ValueError as error:
        raise UsageError(_complaint(value, "cannot be read")) from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(_complaint(value, "is no address"))
    if parts.username is not None or parts.password is not None:
        raise UsageError("the address of a remote environment must not carry a user or password")
    if parts.query or parts.fragment:
        raise UsageError(_complaint(value, "has a query or a fragment"))
    return value.strip().rstrip("/")


def _complaint(address: str, what: str) -> str:
    return f"the remote environment {address!r} {what}; it looks like http://host:port"
