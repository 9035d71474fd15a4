"""The Typer app; turns a GymError into a message and an exit code."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, cast

import typer
import typer.core

import gymcli
from gymcli.commands import check, collect, data, envs, init, metrics, show, verify
from gymcli.commands.console import LOGGER, harmless, message
from gymcli.errors import GymError

__all__ = ["app", "main"]

EXIT_CODES = """\b
Exit codes:
  0    done, all gates hold
  1    a bug of ours: a traceback, please report it
  2    the user's mistake: options, files, unknown names
  3    a check failed
  4    the run is not usable: endpoint, key, coverage, or the run directory
  130  interrupted; what was done is saved
  141  the reader of the output has left
"""

_INTERRUPTED = 130
_CLOSED_OUTPUT = 141


class _Group(typer.core.TyperGroup):
    """Ends every command the same way: an error of ours is one message and an exit code."""

    def parse_args(self, ctx: object, args: list[str]) -> list[str]:
        """Let the options that every command has stand behind its name as well."""
        with _ending():
            return super().parse_args(cast("typer.Context", ctx), _with_common_first(args))

    def invoke(self, ctx: object) -> object:
        """Run the command."""
        with _ending():
            result: object = super().invoke(cast("typer.Context", ctx))
        return result


@contextmanager
def _ending() -> Iterator[None]:
    """Turn what ends a command into a message and an exit code."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except GymError as error:
        LOGGER.error(harmless(str(error)))
        for line in str(error).splitlines() or [type(error).__name__]:
            message(f"error: {line}")
        raise typer.Exit(error.exit_code) from error
    except KeyboardInterrupt as error:
        message("interrupted")
        raise typer.Exit(_INTERRUPTED) from error
    except BrokenPipeError as error:
        # The reader has left (gym metrics | head): no message, and none from the flush at exit.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            os.dup2(nowhere, stream.fileno())
        raise typer.Exit(_CLOSED_OUTPUT) from error


def _with_common_first(args: list[str]) -> list[str]:
    """Move the options of every command before the command's name, up to a bare `--`."""
    first: list[str] = []
    rest: list[str] = []
    remaining = iter(args)
    for argument in remaining:
        if argument == "--":
            rest += [argument, *remaining]
        elif argument in ("--verbose", "--version") or argument.startswith("--log-file="):
            first.append(argument)
        elif argument == "--log-file":
            following = next(remaining, None)
            if following is None:
                raise typer.BadParameter("--log-file needs the name of a file")
            first += [argument, following]
        else:
            rest.append(argument)
    return first + rest


app = typer.Typer(
    cls=_Group,
    name="gym",
    help="Run language models through environments and score what they did.",
    epilog=EXIT_CODES,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("collect")(collect.collect)
app.command("verify")(verify.verify)
app.command("metrics")(metrics.metrics)
app.command("envs")(envs.envs)
app.command("show")(show.show)
app.command("init")(init.init)
app.command("check")(check.check)
app.add_typer(data.app, name="data")


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        print(f"gymcli {gymcli.__version__}")
        raise typer.Exit


@app.callback()
def common(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log to stderr as well.")] = False,
    log_file: Annotated[Path | None, typer.Option(help="Append a log to this file.")] = None,
) -> None:
    """Run language models through environments and score what they did."""
    # Without a handler of ours, Python would print warnings to stderr by itself.
    handlers: list[logging.Handler] = [logging.NullHandler()]
    if verbose:
        handlers.append(_StderrHandler())
    if log_file is not None:
        try:
            handlers.append(logging.FileHandler(log_file, encoding="utf-8"))
        except OSError as error:
            raise typer.BadParameter(f"{log_file}: {error.strerror}") from error
    context.with_resource(_logging_to(handlers))


class _StderrHandler(logging.Handler):
    """Prints what is not printed anyway, past a live display."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != LOGGER.name:
            message(self.format(record))


class _Formatter(logging.Formatter):
    """A record is one line, and what it quotes stays harmless."""

    def format(self, record: logging.LogRecord) -> str:
        return harmless(super().format(record).replace("\n", "\\n"))


@contextmanager
def _logging_to(handlers: list[logging.Handler]) -> Iterator[None]:
    """Send the log of gymcli to these handlers while a command runs."""
    logger = logging.getLogger("gymcli")
    level = logger.level
    logger.setLevel(logging.DEBUG if len(handlers) > 1 else logging.WARNING)
    for handler in handlers:
        handler.setFormatter(_Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
    try:
        yield
    finally:
        logger.setLevel(level)
        for handler in handlers:
            logger.removeHandler(handler)
            handler.close()


def main() -> None:
    """Run the command line."""
    app()
