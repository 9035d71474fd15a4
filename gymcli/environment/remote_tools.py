"""The tools that a row declares, each a call of its server."""

from __future__ import annotations

from gymcli.environment.session import ServerSession
from gymcli.environment.tool import Tool
from gymcli.errors import EpisodeError, SetupError
from gymcli.nemo_gym.payload import object_in
from gymcli.types import JSONObject

__all__ = ["check_callable", "declared_names", "server_tool"]

_PROTOCOL_PATHS = (
    "aggregate_metrics",
    "close",
    "close_session",
    "mcp",
    "reset",
    "reverify_mode",
    "sandbox_access",
    "seed_session",
    "step",
    "verify",
)
"""What a tool may not be named: calling it would change the episode, or ask for its score."""


def declared_names(specs: list[JSONObject]) -> list[str]:
    """Give the names of tools in chat shape, in their order."""
    functions = [object_in(spec.get("function")) for spec in specs]
    return [name for function in functions if isinstance(name := function.get("name"), str)]


def check_callable(names: list[str]) -> None:
    """See that tools can be called by their names.

    Raises:
        SetupError: One of them is an address of the protocol, or none at all.

    """
    for name in names:
        # A slash could lead to another address on servers that decode paths before they route.
        if name in _PROTOCOL_PATHS or "/" in name or name in ("", ".", ".."):
            raise SetupError(
                f"the row declares the tool {name!r}, which is an address of the protocol or none "
                "at all, and cannot be called; rename it on the server and in the row"
            )


def server_tool(session: ServerSession, name: str, *, seconds: float) -> Tool:
    """Give a tool that posts its arguments to a server; the text of the answer is the result.

    Any object fits, and any status: what the server says to it is the result.
    """

    async def call(**arguments: object) -> str:
        reply = await session.post(name, arguments, seconds=seconds, error_class=EpisodeError)
        return reply.text

    # Its own time limit is the request's, which comes first and fails the attempt rather than
    # being told to the model.
    return Tool(
        call, name=name, description=f"/{name} of the server.", parameters={}, timeout=seconds + 10
    )
