"""Validates addresses of servers and recognises loopback hosts."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def checked_address(value: str, *, name: str, example: str) -> str:
    """Return an address without its trailing slash.

    Raises:
        ValueError: The address is invalid; the message does not show it, since it may hold a
            secret, unless it is an option.
    """
    value = value.strip()
    if not value:
        raise ValueError(f"{name} is empty; it looks like {example}")
    if value.startswith("-"):  # the shell dropped an empty value, such as that of `$(cat file)`
        raise ValueError(f'{name} is "{value}", an option: its own value is missing or empty')
    try:
        parts = urlsplit(value)
        _ = parts.port
    except ValueError:
        # Not `from error`: its message shows a part of the address.
        raise ValueError(f"{name} cannot be read; it looks like {example}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{name} must look like {example}")
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"{name} must not carry a user or password")
    if parts.query or parts.fragment:
        raise ValueError(f"{name} must end with its path, without a query or a fragment")
    return value.rstrip("/")


def is_loopback(host: str) -> bool:
    """Return whether a host's address or name can be reached only from this machine."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback  # Python 3.11 ignores mapped IPv4 addresses
