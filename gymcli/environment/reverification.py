"""Whether a resources server's `/verify` can be asked again, when the session is over."""

from __future__ import annotations

from typing import Literal

from gymcli.environment.address import checked_address
from gymcli.environment.session import ServerSession
from gymcli.errors import EpisodeError, RunError

__all__ = ["ReverifyMode", "asked_mode", "reverify_mode"]

ReverifyMode = Literal["stateless", "unsupported", "unknown"]
"""Whether a server's `/verify` needs no session; `unknown` where it does not say."""

_TIMEOUT = 10.0


async def reverify_mode(base_url: str) -> ReverifyMode:
    """Ask a server whether its `/verify` can be asked again later.

    Raises:
        UsageError: The address is none.
        RunError: The server cannot be reached.

    """
    async with ServerSession(checked_address(base_url), keeps_cookies=False) as session:
        try:
            return await asked_mode(session)
        except EpisodeError as error:
            raise RunError(str(error)) from error


async def asked_mode(session: ServerSession) -> ReverifyMode:
    """Ask for the mode; what is no answer to it is `unknown`.

    Raises:
        EpisodeError: The server cannot be reached.

    """
    reply = await session.get("reverify_mode", seconds=_TIMEOUT, error_class=EpisodeError)
    for mode in ("stateless", "unsupported"):
        if reply.status == 200 and reply.text.strip() == f'"{mode}"':
            return mode
    return "unknown"
