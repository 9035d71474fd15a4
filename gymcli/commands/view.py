"""`gym view`: show one run or two in the browser."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from gymcli.commands.console import announce, message, results
from gymcli.commands.options import LineEnvOption, PortOption, complete_run
from gymcli.commands.signals import run_async
from gymcli.errors import UsageError
from gymcli.secrets import scrubber_of

_MAX_RUNS = 2


def view(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="One or two run directories or rollout files.",
            autocompletion=complete_run,
        ),
    ],
    port: PortOption = 0,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
    env: LineEnvOption = None,
) -> None:
    """Browse one run, or compare two, in the browser.

    Filter and read rollouts, or lay them side by side; two runs are compared task by task. The only
    line on stdout is the address with a token: whoever has it can read the runs, but only from this
    machine. A run that is still being written is followed. SIGTERM or Ctrl-C stops it with exit
    code 0.
    """
    import webbrowser

    from gymcli.reporting.viewer import ViewedRun, serve

    if len(runs) > _MAX_RUNS:
        raise UsageError(f"gym view: shows at most {_MAX_RUNS} runs, not {len(runs)}")
    viewed_runs = []
    for path in runs:
        message(f"reading {path}")
        viewed_runs.append(ViewedRun(path, env))
    scrubber = scrubber_of((), os.environ)
    is_opened = not no_open and results().isatty() and _has_display()

    def announce_and_open(address: str) -> None:
        announce(address)
        if is_opened:
            # In a thread, because the server must answer the browser meanwhile.
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    run_async(serve(viewed_runs, port=port, scrubber=scrubber, announce=announce_and_open))


def _has_display() -> bool:
    """Return whether a graphical browser can open; a text browser would take over the terminal."""
    is_named = any(os.environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))
    return is_named or sys.platform == "darwin"
