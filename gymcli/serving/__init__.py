"""Environments of gymcli behind NeMo Gym's resources-server protocol."""

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
        env_args: Its options as text, as `--env-arg` takes them.
        judges: Who plays its roles.
        limits: The most that the server holds.

    Raises:
        UsageError: There is no such environment, or it cannot be served.
    """
    return aiohttp_application(Service(env, env_args=env_args, judges=judges, limits=limits))


def asgi(
    env: str,
    *,
    env_args: Mapping[str, str] | None = None,
    judges: Judges | None = None,
    limits: Limits | None = None,
) -> AsgiApplication:
    """Return an ASGI application; arguments and errors are those of `application`."""
    return AsgiApplication(Service(env, env_args=env_args, judges=judges, limits=limits))
