"""`gym mock`: an OpenAI-compatible server on this machine that can be scripted and made to fail."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from gymcli.command_line import Heading
from gymcli.commands.console import announce, warn
from gymcli.commands.model_options import with_model_options
from gymcli.commands.open_files import MOST_OPEN_FILES, allow_open_files
from gymcli.commands.options import HostOption, PortOption
from gymcli.commands.signals import run_async
from gymcli.environment.addresses import is_loopback
from gymcli.mock.mock_options import MockOptions


@with_model_options
def mock(
    *,
    host: HostOption = "127.0.0.1",
    port: PortOption = 0,
    options: MockOptions,
    with_parent: Annotated[
        bool,
        typer.Option(
            "--with-parent",
            help="Also stop when stdin closes.",
            rich_help_panel=Heading.SERVER,
        ),
    ] = False,
) -> None:
    """Serve an endpoint without a model that fails on demand.

    Prints its base URL on stdout. SIGTERM or Ctrl-C stops it with exit code 0; SIGUSR1 brings it
    back when it is down. Which requests fail depends only on the seed and the requests, not on
    their order. GET /stats returns counts; POST /down?seconds=N takes it down.
    """
    from gymcli.mock.process import mock_server, serve  # late: heavy, and `--help` needs neither

    server = mock_server(options, host=host, port=port, environ=os.environ)
    if not is_loopback(host):
        warn(f"--host {host}: other machines may reach the server")
    allow_open_files(MOST_OPEN_FILES)
    run_async(serve(server, announce, with_parent=with_parent))
