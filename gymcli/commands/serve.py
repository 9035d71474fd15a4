"""`gym serve`: serve an environment in NeMo Gym's resources-server protocol."""

from __future__ import annotations

from typing import Annotated

import typer

from gymcli.command_line import positive
from gymcli.commands.console import announce, message, warn
from gymcli.commands.model_options import RoleOptions, checked_by, with_model_options
from gymcli.commands.options import (
    HostOption,
    OwnEnvArgOption,
    PortOption,
    complete_env,
    judges_of,
    key_values,
    role_specs,
)
from gymcli.commands.signals import run_async


@with_model_options
def serve(
    env: Annotated[
        str,
        typer.Argument(
            metavar="ENV",
            help="Environment: NAME, FILE.py:CLASS or MODULE:CLASS.",
            autocompletion=complete_env,
        ),
    ],
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
    env_arg: OwnEnvArgOption = None,
    *,
    role_options: RoleOptions,
    concurrency: Annotated[
        int,
        typer.Option(
            "--concurrency", "-j", min=1, help="Maximum requests in flight to each role's model."
        ),
    ] = 64,
    session_lifetime: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            callback=checked_by(positive),
            help="End a session after this time without use.",
        ),
    ] = 3600.0,
    max_sessions: Annotated[
        int, typer.Option(min=1, help="Answer 503 to more open sessions than this.")
    ] = 10_000,
) -> None:
    """Serve an environment over NeMo Gym's protocol.

    It speaks the protocol of resources servers and prints its base URL on stdout. NeMo Gym's agents
    can play it, and so can `gym collect TASKS --env NAME=URL`. SIGTERM or Ctrl-C stops it with exit
    code 0. There is no authentication: anyone who reaches the port can use it.
    """
    from gymcli.environment.addresses import is_loopback
    from gymcli.serving import Limits, Service
    from gymcli.serving import serve as serve_until_stopped

    service = Service(
        env,
        env_args=key_values("--env-arg", env_arg or ()),
        judges=judges_of(role_specs(role_options.role), role_options.role_params, concurrency),
        limits=Limits(session_lifetime, max_sessions),
    )
    for text in service.warnings:
        warn(text)
    if not is_loopback(host):
        warn(f"--host {host}: other machines may reach the server, which needs no key")
    message(f"serving {service.name}")
    run_async(serve_until_stopped(service, host=host, port=port, announce=announce))
