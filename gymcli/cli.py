"""The Typer app: all commands, the options that each has, and how a command ends."""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, cast

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup
from typer.models import CommandInfo

from gymcli.commands.console import (
    LOGGER,
    TYPED,
    drop_unwritten,
    guard_descriptors,
    harmless,
    make_safe,
    message,
    results_apart,
    scrubbed,
)
from gymcli.commands.help import CommandHeading, HelpCommand, HelpGroup, wrong_usage
from gymcli.commands.signals import (
    exit_at_signals,
    exit_despite_threads,
    interrupt_of,
    raise_at_signals,
)
from gymcli.errors import (
    BudgetReachedError,
    ConfigError,
    GymError,
    InterruptedRunError,
    OutputError,
    RunError,
    UsageError,
)
from gymcli.store.supervised import Supervised, Tag
from gymcli.version import __version__

EXIT_CODES = """\b
Exit codes:
  0    success; all gates hold
  1    a bug in gymcli: please report the traceback
  2    a usage error: options, files or unknown names
  3    a gate or a check failed, or a run is worse
  4    the run is not usable: endpoint, key, coverage, run directory or stdout
  5    inconclusive: these tasks cannot tell whether a gate holds or a run is worse
  6    stopped at a budget; results so far are valid and the run can be resumed
  130  interrupted; results so far are saved
  141  the reader of stdout closed the pipe
  143  terminated; results so far are saved
"""

_COMMANDS: dict[CommandHeading, dict[str, str]] = {
    CommandHeading.READ: {
        "docs": "Print a page of the documentation, or list the pages.",
    },
    CommandHeading.RUN: {
        "collect": "Run tasks against a model and write scored rollouts.",
        "verify": "Score stored rollouts again and report what changed.",
        "metrics": "Report rewards with intervals, pass@k, tokens and failures; several runs "
        "in one table.",
        "compare": "Compare runs on shared tasks: is B worse than A?",
    },
    CommandHeading.LOOK: {
        "runs": "List the runs in a folder, the newest last.",
        "show": "List the attempts of a run, or print one: the conversation and its score "
        "or error.",
        "view": "Browse one run, or compare two, in the browser.",
        "report": "Write a self-contained HTML report about runs.",
    },
    CommandHeading.DATA: {
        "merge": "Merge runs with the same settings, such as shards.",
        "export": "Export rollouts for training or analysis.",
        "bench": "List the benchmarks, describe one (gym bench NAME), pull their tasks, or "
        "pin their rows.",
        "data": "Check, select, render, generate, describe and pull task files.",
    },
    CommandHeading.AUTHOR: {
        "envs": "List the environments, or describe one.",
        "init": "Create an example environment, its test and its tasks.",
        "check": "Check environments without a model; exit with 3 on failure.",
    },
    CommandHeading.SERVE: {
        "serve": "Serve an environment over NeMo Gym's protocol.",
        "mock": "Serve an endpoint without a model that fails on demand.",
    },
}
"""The first sentence of each command's help. The command is the function, or the Typer app, of the
module with its name in `gymcli.commands`, which is imported when it is asked for."""

_WARNING_LOGGERS = ("gymcli.environment.time_limit", "gymcli.rollout", "gymcli.runner.run_writer")
"""Only their warnings are printed; the command itself prints what the rest of gymcli logs."""

_SYSTEM_ERRORS: dict[int, type[GymError]] = {
    **dict.fromkeys((errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES, errno.EPERM), UsageError),
    **dict.fromkeys((errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO), RunError),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), RunError),
}
"""By errno: UsageError if the user's path is wrong, RunError if the machine is at fault."""


class _Group(HelpGroup):
    """Imports a command when it is asked for, and ends each the same way.

    A GymError becomes one message and an exit code.
    """

    def resolve_command(
        self, ctx: object, args: list[str]
    ) -> tuple[str | None, TyperCommand | TyperGroup | None, list[str]]:
        """Return the name of the command that the arguments name, itself and its arguments."""
        name, command, arguments = super().resolve_command(cast("typer.Context", ctx), args)
        if name is None or command is None:
            return name, None, arguments
        return name, load_command(name), arguments

    def parse_args(self, ctx: object, args: list[str]) -> list[str]:
        context = cast("typer.Context", ctx)
        context.meta[TYPED] = list(args)  # for the message that shows how to resume
        with _ending():
            return super().parse_args(context, _with_common_first(args))

    def invoke(self, ctx: object) -> object:
        context = cast("typer.Context", ctx)
        with _ending(), _unencodable(context.meta[TYPED]):
            result: object = super().invoke(context)
        return result


class _Command(HelpCommand):
    """Keeps stdout for results; `sys.exit` in an environment is an error."""

    def parse_args(self, ctx: object, args: list[str]) -> list[str]:
        context = cast("typer.Context", ctx)
        try:
            return super().parse_args(context, args)
        except typer.BadParameter as error:
            name = getattr(error.param, "name", None) or ""
            source = context.get_parameter_source(name)
            if source is None or source.name != "DEFAULT_MAP":
                raise
            from gymcli.models.settings import settings_file  # late: heavy

            raise ConfigError(f"{settings_file()}: [collect] {wrong_usage(error)}") from error

    def invoke(self, ctx: object) -> object:
        context = cast("typer.Context", ctx)
        for handler in logging.getLogger("gymcli").handlers:
            if isinstance(handler, _StderrHandler):
                handler.is_quiet = bool(context.params.get("quiet"))
        with results_apart():
            try:
                result: object = super().invoke(context)
            except SystemExit as error:
                raise RunError(f"code of an environment called sys.exit({error.code!r})") from error
        return result


@cache
def load_command(name: str) -> TyperCommand | TyperGroup:
    """Import a command of `gym` and return it, with the options that it has."""
    module = import_module(f"gymcli.commands.{name}")
    group: typer.Typer | None = getattr(module, "app", None)
    if group is not None:
        for member in group.registered_commands:
            member.cls = _Command
        return typer.main.get_group(group)
    epilog = getattr(module, "EXAMPLES", None)
    info = CommandInfo(name, cls=_Command, callback=getattr(module, name), epilog=epilog)
    command = typer.main.get_command_from_info(
        info, pretty_exceptions_short=True, rich_markup_mode=None
    )
    return cast("TyperCommand", command)


@contextmanager
def _unencodable(args: list[str]) -> Iterator[None]:
    """Name the argument that is not UTF-8 if a command fails because of it."""
    try:
        yield
    except UnicodeEncodeError as error:
        for before, argument in zip(["", *args], args, strict=False):
            # Python decodes a byte of an argument that is not UTF-8 to one of these (PEP 383).
            if any("\udc80" <= character <= "\udcff" for character in argument):
                option = f"{before} " if before.startswith("-") else ""
                readable = os.fsencode(argument).decode(errors="backslashreplace")
                text = (
                    f"{option}{readable} is not UTF-8, which this needs; rename the file or folder"
                )
                raise UsageError(text) from error
        raise


@contextmanager
def _ending() -> Iterator[None]:
    try:
        try:
            with _foreign_errors():
                yield
        except (GymError, KeyboardInterrupt):
            with suppress(OutputError):  # the error that ended the command is more useful
                sys.stdout.flush()
            raise
        finally:
            sys.stdout.flush()  # here, so that a full disk or a closed pipe is reported below
    except GymError as error:
        if LOGGER.hasHandlers():  # before the options are read, Python would print it
            LOGGER.error(harmless(str(error)))
        mark = "" if isinstance(error, (InterruptedRunError, BudgetReachedError)) else "error: "
        for line in str(error).splitlines() or [type(error).__name__]:
            message(f"{mark}{line}", word=mark.rstrip())
        raise typer.Exit(error.exit_code) from error
    except KeyboardInterrupt as error:
        text, code = interrupt_of(error)
        message(text)
        raise typer.Exit(code) from error
    except BrokenPipeError as error:
        # The reader closed the pipe (gym metrics | head): no message, and a shell's code for
        # SIGPIPE, 128 + 13.
        raise typer.Exit(141) from error


@contextmanager
def _foreign_errors() -> Iterator[None]:
    """Turn an error of Typer, or an OSError about a path that no check caught, into a GymError."""
    try:
        yield
    except typer.TyperException as error:
        raise UsageError(wrong_usage(error)) from error
    except OSError as error:
        kind = _SYSTEM_ERRORS.get(error.errno or 0)
        if kind is None or error.filename is None:
            raise
        raise kind(f"{error.filename}: {error.strerror}") from error


def _with_common_first(args: list[str]) -> list[str]:
    """Move the options that every command has before its name, up to a bare `--`."""
    common: list[str] = []
    arguments: list[str] = []
    remaining = iter(args)
    for argument in remaining:
        if argument == "--":
            arguments += [argument, *remaining]
        elif argument in ("--verbose", "--version") or argument.startswith("--log-file="):
            common.append(argument)
        elif argument == "--log-file":
            following = next(remaining, None)
            if following is None:
                raise typer.BadParameter("--log-file needs a file name")
            common += [argument, following]
        else:
            arguments.append(argument)
    return common + arguments


app = typer.Typer(
    cls=_Group,
    name="gym",
    epilog=EXIT_CODES,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _not_imported() -> None:
    """Stand for a command in the help of `gym`."""


for heading, sentences in _COMMANDS.items():
    for command_name, sentence in sentences.items():
        app.command(command_name, help=sentence, cls=HelpCommand, rich_help_panel=heading)(
            _not_imported
        )


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        print(f"gymcli {__version__}")
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
    verbose: Annotated[bool, typer.Option("--verbose", help="Also log to stderr.")] = False,
    log_file: Annotated[Path | None, typer.Option(help="Append the log to this file.")] = None,
) -> None:
    """Run language models through environments and score what they did."""
    # Without a handler, Python itself prints warnings to stderr.
    handlers: list[logging.Handler] = [_StderrHandler(is_verbose=verbose)]
    if log_file is not None:
        try:
            handlers.append(_FileHandler(log_file, encoding="utf-8"))
        except OSError as error:
            raise typer.BadParameter(f"{log_file}: {error.strerror}") from error
    is_brief = not verbose and log_file is None
    if context.invoked_subcommand == "collect" and not {"--help", "-h"} & {*context.meta[TYPED]}:
        from gymcli.commands.options import collect_defaults  # late: other commands need less

        options = load_command("collect").params
        repeatable = {option.name for option in options if getattr(option, "multiple", False)}
        context.default_map = {"collect": collect_defaults(repeatable)}
    context.with_resource(_logging_to(handlers, logging.WARNING if is_brief else logging.DEBUG))


class _StderrHandler(logging.Handler):
    """Prints log records that the command does not print itself; a live display stays intact."""

    def __init__(self, *, is_verbose: bool) -> None:
        super().__init__()
        self.is_verbose = is_verbose
        self.is_quiet = False
        """Whether the command prints no warnings; --verbose prints its logs all the same."""

    def emit(self, record: logging.LogRecord) -> None:
        if self.is_verbose and record.name != LOGGER.name:
            message(self.format(record))
        elif (
            not (self.is_verbose or self.is_quiet)
            and record.levelno >= logging.WARNING
            and record.name.startswith(_WARNING_LOGGERS)
        ):
            message(f"warning: {' '.join(record.getMessage().split())}", word="warning:")


class _FileHandler(logging.FileHandler):
    """Writes the log; if that fails, a warning is printed once and the command continues."""

    is_lost = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # logging's name
        if not self.is_lost:
            self.is_lost = True
            error = sys.exception()
            reason = getattr(error, "strerror", None) or error
            message(f"warning: {self.baseFilename}: cannot be written: {reason}", word="warning:")

    def close(self) -> None:
        with suppress(OSError):  # the warning was printed
            super().close()


class _Formatter(logging.Formatter):
    """Formats a record as one line without control characters and secrets."""

    def format(self, record: logging.LogRecord) -> str:
        return harmless(scrubbed(super().format(record)).replace("\n", "\\n"))


@contextmanager
def _logging_to(handlers: list[logging.Handler], level: int) -> Iterator[None]:
    logger = logging.getLogger("gymcli")
    before = logger.level
    logger.setLevel(level)
    for handler in handlers:
        handler.setFormatter(_Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
    try:
        yield
    finally:
        logger.setLevel(before)
        for handler in handlers:
            logger.removeHandler(handler)
            handler.close()


def main(supervised: Supervised | None = None) -> None:
    """Run the command line; `supervised` links to the supervisor that forked this process."""
    raise_at_signals()
    guard_descriptors()  # before the streams are wrapped: it replaces only Python's own stdout
    make_safe(os.environ)
    code = 1  # a traceback, which Python prints
    try:
        try:
            if supervised is not None:
                supervised.end_with_supervisor()
            # A signal that has arrived meanwhile is delivered now, inside this `try`.
            blocked = supervised.signals if supervised is not None else {signal.SIGINT}
            signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
            app(obj=supervised)
        except KeyboardInterrupt as error:  # before or after the command itself
            text, code = interrupt_of(error)
            message(text)
            sys.exit(code)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        main_thread = threading.main_thread()
        # Python would wait for threads of an environment, maybe forever.
        threads = (thread for thread in threading.enumerate() if thread is not main_thread)
        if any(not thread.daemon for thread in threads):
            exit_at_signals(code)
            exit_despite_threads(code)
        raise
    finally:
        drop_unwritten()
        if supervised is not None:
            # From here on, a signal ends the process with this code and cannot stop the report.
            exit_at_signals(code)
            supervised.tell(Tag.FINISHED, str(code))
