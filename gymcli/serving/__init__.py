"""Plays environments for others, in NeMo Gym's resources-server protocol."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from gymcli.runner.judges import Judges
from gymcli.serving.applications import AsgiApplication, aiohttp_application, serve
from gymcli.serving.service import Limits, Service

__all__ = ["AsgiApplication", "Judges", "Limits", "Service", "application", "asgi", "serve"]


def application(
    env: str,
    *,
    env_args: Mapping[str, str] | None = None,
    judges: Judges | None = None,
    limits: Limits | None = None,
) -> web.Application:
    """Return an aiohttp application that serves an environment.

    Args:
        env: A name, `FILE.py:CLASS` or `MODULE:CLASS`.
        env_args: Its options as text, as in `--env-arg`.
        judges: The endpoints of its roles.
        limits: The limits of the server.

    Raises:
        UsageError: The environment does not exist or cannot be served.
    """
    return aiohttp_application(Service(env, env_args=env_args, judges=judges, limits=limits))


def asgi(
    env: str,
    *,
    env_args: Mapping[str, str] | None = None,
    judges: Judges | None = None,
    limits: Limits | None = None,
) -> AsgiApplication:
    """Like `application`, but return an ASGI application."""
    return AsgiApplication(Service(env, env_args=env_args, judges=judges, limits=limits))
