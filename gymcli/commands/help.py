"""The text of `--help` and of errors in the command line, in place of Typer's.

Options of a command with many stand in groups, types and defaults are written in one way, no
sentence is cut, and lines are as wide as the terminal.
"""

from __future__ import annotations

import inspect
import re
import shutil
import textwrap
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import cast, get_args

import typer
import typer.core

from gymcli.command_line import Heading
from gymcli.commands.console import message
from gymcli.suggestions import did_you_mean, pydantic_reason

_MIN_WIDTH, _MAX_WIDTH = 40, 160
_MAX_UNGROUPED = 12
"""A command with more options than this shows them in groups."""
_TYPES = {int: "N", float: "NUMBER", Path: "PATH"}


class CommandHeading(StrEnum):
    """The groups of commands in the help of `gym`, in this order."""

    READ = "Documentation"
    RUN = "Run and score"
    LOOK = "Look at runs"
    DATA = "Tasks and data"
    AUTHOR = "Write environments"
    SERVE = "Serve"
    OTHER = "Commands"
    """Those of a group such as `gym data`."""


class HelpCommand(typer.core.TyperCommand):
    """A command with our help."""

    def get_help(self, ctx: object) -> str:
        """Return the text of `--help`."""
        return _help_of(self, cast("typer.Context", ctx))


class HelpGroup(typer.core.TyperGroup):
    """A group of commands with our help."""

    def commands_by_heading(self) -> dict[CommandHeading, dict[str, HelpCommand | HelpGroup]]:
        """Return the commands by heading, in the order of the help."""
        commands = cast("dict[str, HelpCommand | HelpGroup]", self.commands)
        sections: dict[CommandHeading, dict[str, HelpCommand | HelpGroup]] = {}
        for heading in CommandHeading:
            for name, command in commands.items():
                if (command.rich_help_panel or CommandHeading.OTHER) == heading:
                    sections.setdefault(heading, {})[name] = command
        return sections

    def get_help(self, ctx: object) -> str:
        """Return the text of `--help`."""
        return _help_of(self, cast("typer.Context", ctx))

    def parse_args(self, ctx: object, args: list[str]) -> list[str]:
        """Parse the options; without any argument, print the help and end with exit code 2."""
        context = cast("typer.Context", ctx)
        if not args and not context.resilient_parsing:
            message(self.get_help(context))
            raise typer.Exit(2)
        return super().parse_args(context, args)


def _help_of(command: HelpCommand | HelpGroup, context: typer.Context) -> str:
    width = max(min(shutil.get_terminal_size().columns, _MAX_WIDTH), _MIN_WIDTH)
    parameters = command.get_params(context)
    arguments = [item for item in parameters if isinstance(item, typer.core.TyperArgument)]
    options = [item for item in parameters if isinstance(item, typer.core.TyperOption)]
    is_grouped = len(options) > _MAX_UNGROUPED
    sections: dict[str, list[tuple[str, str]]] = {heading: [] for heading in Heading}
    for argument in arguments:
        heading = argument.rich_help_panel if is_grouped else None
        section = sections.setdefault(heading or "Arguments", [])
        section.append((_name_of(argument), _described(argument, context)))
    for option in options:
        heading = option.rich_help_panel if is_grouped else None
        section = sections.setdefault(heading or "Options", [])
        section.append((_option_name(option), _described(option, context)))
    usage = ["COMMAND", "..."] if isinstance(command, HelpGroup) else map(_usage_of, arguments)
    first = f"Usage: {context.command_path} "
    lines = _wrapped(" ".join(["[OPTIONS]", *usage]), width, first, indent=" " * len(first))
    lines += _paragraphs(command.help or "", width, "  ")
    names = [name for section in sections.values() for name, _ in section]
    column = min(max(map(len, names)), max(width // 3, 18)) + 4
    if isinstance(command, HelpGroup):
        for heading, commands in command.commands_by_heading().items():
            sections[heading] = [(name, _first(member.help)) for name, member in commands.items()]
    for heading, section in sections.items():
        if section:
            lines += ["", f"{heading}:"]
        if isinstance(command, HelpGroup) and heading in set(CommandHeading):
            column = max(map(len, command.commands)) + 4
        for name, text in section:
            start = f"  {name:{column - 4}}  "
            if len(start) > column:  # a long name stands on a line of its own
                lines.append(start.rstrip())
                start = " " * column
            lines += _wrapped(text, width, start, indent=" " * column) or [start.rstrip()]
    return "\n".join([*lines, *_paragraphs(command.epilog or "", width)])


def _wrapped(text: str, width: int, start: str, *, indent: str) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=start,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _paragraphs(text: str, width: int, indent: str = "") -> Iterator[str]:
    r"""Yield the lines of a text; a paragraph whose first line is `\b` keeps its lines."""
    for paragraph in filter(None, inspect.cleandoc(text).split("\n\n")):
        yield ""
        if not paragraph.startswith("\b\n"):
            yield from _wrapped(paragraph, width, indent, indent=indent)
            continue
        for line in paragraph.splitlines()[1:]:
            # What does not fit continues below the text, not below the exit code before it.
            start = re.match(r" *(?:\d+ +)?", line)
            assert start is not None
            below = " " * (len(indent) + start.end())
            yield from _wrapped(line[start.end() :], width, indent + start[0], indent=below)


def _first(text: str | None) -> str:
    return " ".join((text or "").partition("\n\n")[0].split())


def _name_of(argument: typer.core.TyperArgument) -> str:
    return argument.metavar or argument.name.upper()


def _usage_of(argument: typer.core.TyperArgument) -> str:
    name = _name_of(argument) if argument.required else f"[{_name_of(argument)}]"
    return name if argument.nargs == 1 else f"{name}..."


def _option_name(option: typer.core.TyperOption) -> str:
    names = ", ".join(sorted(option.opts, key=lambda name: name.startswith("--")))
    if option.is_flag:
        return names
    descriptor = option.type_descriptor
    if option.metavar is not None:
        value = option.metavar
    elif descriptor.choices is not None:
        value = "|".join(map(str, descriptor.choices))
    else:
        kind = descriptor.annotation
        if descriptor.is_list:
            kind = get_args(kind)[0]
        value = _TYPES.get(kind, "TEXT")
    return f"{names} {value}"


def _described(
    parameter: typer.core.TyperArgument | typer.core.TyperOption, context: typer.Context
) -> str:
    """Return the help of a parameter, with its default."""
    text = " ".join((parameter.help or "").split())
    default = parameter.show_default
    if default is True:
        value = parameter.get_default(context, call=False)
        if isinstance(value, float):
            default = f"{value:g}"
        else:
            default = str(value) if isinstance(value, int | str) and value is not False else ""
    notes = [f"default: {default}"] if default else []
    if isinstance(parameter, typer.core.TyperOption):
        if parameter.required:
            notes.append("required")
        if parameter.multiple and "repeat" not in text:
            notes.append("repeatable")
    return f"{text.removesuffix('.')} ({'; '.join(notes)})." if notes else text


def wrong_usage(error: typer.TyperException) -> str:
    """Return one line about an error of Typer's parser, in the words of our own errors."""
    context = cast("typer.Context | None", getattr(error, "ctx", None))
    path = "gym" if context is None else context.command_path
    way_out = f"{path} --help explains it"
    if context is not None and isinstance(context.command, HelpCommand):
        way_out = f"usage: {_usage(context.command, context)}; {way_out}"
    if isinstance(error, typer.BadParameter):
        return _wrong_value(error, path, way_out)
    text = error.message
    if text == "Missing command.":
        return f"{path}: needs a command; {path} --help lists them"
    if text.startswith("No such option"):
        name = str(getattr(error, "option_name", ""))
        options = [] if context is None else context.command.get_params(context)
        hint = did_you_mean(name, (spelling for option in options for spelling in option.opts))
        return f"{path}: has no option {name}; {hint or f'{path} --help lists them'}"
    if match := re.match(r"No such command '(.+?)'\.", text):
        known_commands = getattr(context and context.command, "commands", ())
        hint = did_you_mean(match[1], known_commands)
        return f'{path}: has no command "{match[1]}"; {hint or f"{path} --help lists them"}'
    if match := re.match(r"Option '(.+?)' (requires|does not take)", text):
        problem = "needs a value" if match[2] == "requires" else "takes no value"
        return f"{match[1]}: {problem}"
    if match := re.fullmatch(r"Got unexpected extra argument\(s\) \((.*)\)", text):
        return f"{path}: unexpected argument{'s' * (' ' in match[1])} {match[1]}; {way_out}"
    return f"{path}: {text[:1].lower()}{text[1:].removesuffix('.')}; {way_out}"


def _usage(command: HelpCommand, context: typer.Context) -> str:
    """Return the command with everything that it needs, such as `gym merge RUN... --out DIR`."""
    parameters = command.get_params(context)
    arguments = [
        _usage_of(item) for item in parameters if isinstance(item, typer.core.TyperArgument)
    ]
    options = [item for item in parameters if isinstance(item, typer.core.TyperOption)]
    required = [
        f"--{_option_name(option).partition('--')[2]}" for option in options if option.required
    ]
    return " ".join([context.command_path, *arguments, *required])


def _wrong_value(error: typer.BadParameter, path: str, way_out: str) -> str:
    from pydantic import ValidationError  # late: heavy

    parameter = error.param
    if parameter is None:
        return error.message
    name = max(parameter.opts, key=len)
    if isinstance(parameter, typer.core.TyperArgument):
        name = _name_of(parameter)
    cause = error.__cause__
    if not isinstance(cause, ValidationError):
        return f"{name}: {error.message}" if error.message else f"{path}: needs {name}; {way_out}"
    detail = cause.errors()[0]
    choices = parameter.type_descriptor.choices
    if choices is None:
        return f"{name} {detail['input']}: {pydantic_reason(detail)}"
    hint = did_you_mean(str(detail["input"]), map(str, choices))
    choices_text = ", ".join(map(str, choices))
    return f"{name} {detail['input']}: is not one of {choices_text}{hint and f'; {hint}'}"
