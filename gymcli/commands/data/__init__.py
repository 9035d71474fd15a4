"""`gym data`: task files, checked and made."""

from __future__ import annotations

import typer

from gymcli.commands.data.generate import generate
from gymcli.commands.data.pull import pull
from gymcli.commands.data.render import render
from gymcli.commands.data.stats import stats
from gymcli.commands.data.validate import validate

__all__ = ["app"]

app = typer.Typer(
    help="Check, render, generate, describe and pull task files.",
    rich_markup_mode=None,
    no_args_is_help=True,
)
app.command("validate")(validate)
app.command("render")(render)
app.command("generate")(generate)
app.command("stats")(stats)
app.command("pull")(pull)
