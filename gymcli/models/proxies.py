"""Which proxy the environment variables name for an address.

aiohttp's `trust_env` would do this anew for every request, in threads, and would send what it
finds in ~/.netrc along; so the variables are read here, once for an endpoint, and netrc never.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from gymcli.environment.addresses import is_loopback

__all__ = ["proxy_for"]


def proxy_for(base_url: str, environ: Mapping[str, str]) -> str | None:
    """Give the proxy of HTTPS_PROXY or HTTP_PROXY, unless NO_PROXY or loopback rules it out."""
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    name = f"{parts.scheme}_proxy"
    proxy = environ.get(name) or environ.get(name.upper())
    if not proxy or is_loopback(host):
        return None
    excluded = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    if any(_covers(entry.strip().lower(), host, parts.port) for entry in excluded.split(",")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _covers(entry: str, host: str, port: int | None) -> bool:
    """Say whether an entry of NO_PROXY stands for a host: a name, its subdomains, or `*`."""
    if entry == "*":
        return True
    name, _, entry_port = entry.partition(":")
    if entry_port and entry_port != str(port):
        return False
    name = name.lstrip(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))
