"""Writes the generated parts of the documentation: schemas, commands and tables."""

import argparse
import ast
import inspect
import json
import pkgutil
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import typer.main
from typer.testing import CliRunner

import gymcli.envs
from gymcli.benchmarks.benchmark import benchmark_names, with_variants
from gymcli.cli import EXIT_CODES, app, load_command
from gymcli.commands.help import HelpGroup
from gymcli.environment.registry import Registry
from gymcli.library.baseline import ComparisonReport, ComparisonReports
from gymcli.library.measurement import MetricsReport, MetricsReports
from gymcli.store.tokens import TokenCall
from gymcli.types import Failure, Rollout

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
SCHEMAS: dict[str, tuple[type, ...]] = {
    "rollout.schema.json": (Rollout,),
    "failure.schema.json": (Failure,),
    "tokens.schema.json": (TokenCall,),
    "metrics.schema.json": (MetricsReport, MetricsReports),
    "comparison.schema.json": (ComparisonReport, ComparisonReports),
}
"""The types of the documents that each schema describes."""


def schema_text(*kinds: type) -> str:
    """Return the JSON Schema of a document of one of these types, indented."""
    schemas, definitions = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    shape = schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)}
    schema = {"$schema": DRAFT, **shape, "$defs": definitions}
    for definition in schema["$defs"].values():
        # Python strips the indentation of docstrings only from 3.13 on; the file must not change.
        definition["description"] = inspect.cleandoc(definition["description"])
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def layers() -> Iterator[list[str]]:
    """Yield the modules and packages of each layer, the top one first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for layer in settings["tool"]["importlinter"]["contracts"][0]["layers"]:
        names = [name.strip() for name in layer.split("|")]
        if built := [name for name in names if not name.startswith("(")]:
            yield built


def layer_picture() -> str:
    """Return a picture of the layers: a box for each, the top one first."""
    width = max(len(" │ ".join(names)) for names in layers()) + 2
    boxes = [" │ ".join(names).center(width) for names in layers()]
    border = "─" * width
    inside = f"│\n├{border}┤\n│".join(boxes)
    return f"```text\n┌{border}┐\n│{inside}│\n└{border}┘\n```\n"


def rooms() -> str:
    """Return a table of the modules and packages, by layer, with the first line of each docstring.

    Small modules that any other may use (the version, the path of `envs/`) are left out.
    """
    rows = ["| room | contents |", "| --- | --- |"]
    for name in (name for names in layers() for name in names):
        package, module = ROOT / "gymcli" / name / "__init__.py", ROOT / "gymcli" / f"{name}.py"
        path, shown = (package, f"{name}/") if package.exists() else (module, f"{name}.py")
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        rows.append(f"| `{shown}` | {docstring.splitlines()[0]} |")
    return "\n".join(rows) + "\n"


def exit_codes() -> str:
    """Return a table of the exit codes, from the help of `gym`."""
    rows = ["| code | meaning |", "| --- | --- |"]
    rows += [f"| {code} | {text} |" for code, text in re.findall(r"  (\d+) +(.+)", EXIT_CODES)]
    return "\n".join(rows) + "\n"


def environments() -> str:
    """Return a table of all environments, and a list of the checks that do not apply to some."""
    head = "| environment | what it asks | structure | capability | domain | tasks | verification |"
    rows = [head, "| --- | --- | --- | --- | --- | --- | --- |"]
    reasons = []
    registry = Registry()
    for name in sorted(module.name for module in pkgutil.iter_modules(gymcli.envs.__path__)):
        environment = registry.find(name).environment
        first = inspect.getdoc(environment).splitlines()[0]
        rows.append(f"| `{name}` | {' | '.join((first, *environment.properties))} |")
        for reason in dict.fromkeys(environment.skipped_checks.values()):
            checks = [c for c, why in environment.skipped_checks.items() if why == reason]
            reasons.append(f"- `{name}`: {', '.join(checks)}: {reason}.")
    skipped = ["", "Checks of `gym check` that do not apply, and why:", "", *reasons]
    return "\n".join(rows + (skipped if reasons else [])) + "\n"


def benchmarks() -> str:
    """Return a table of all benchmarks, with the source of each one's pin."""
    head = ("benchmark", "what it asks", "tasks", "environment", "references (tested)", "licence")
    rows = [f"| {' | '.join(head)} | pinned by |", "| --- | --- | ---: | --- | ---: | --- | --- |"]
    for found in [found for name in benchmark_names() for found in with_variants(name)]:
        pin = found.citations.get("revision", "its seed and the hash of its tasks")
        environment = f"`{found.env}`" + "".join(f", role {role}" for role in found.roles)
        licence = found.source.licence + (" (gated)" if found.source.gated else "")
        num_tested = len(found.testable)
        references = f"{len(found.reference)} ({num_tested})"
        cells = (f"`{found.name}`", found.title, f"{found.source.rows:,}", environment, references)
        rows.append(f"| {' | '.join((*cells, licence, pin))} |")
    return "\n".join(rows) + "\n"


def with_parts(text: str, **parts: str) -> str:
    """Replace the text between `<!-- NAME -->` and `<!-- end -->`; `_` in a name is a space."""
    for name, part in parts.items():
        mark = f"<!-- {name.replace('_', ' ')} -->"
        marked = f"{mark}\n{part}<!-- end -->"
        # A function, because `re.sub` would read backslashes in a string as escapes.
        text = re.sub(rf"{mark}.*?<!-- end -->", lambda _, m=marked: m, text, flags=re.DOTALL)
    return text


def promises() -> str:
    """Return a table of the tests of each promise of docs/reliability.md."""
    tests = json.loads((DOCS / "reliability_tests.json").read_text(encoding="utf-8"))
    rows = ["| promise | tests |", "| --- | --- |"]
    for promise, ids in tests.items():
        rows.append(f"| {promise} | {'<br>'.join(f'`{test}`' for test in ids)} |")
    return "\n".join(rows) + "\n"


def commands() -> str:
    """Return the help of every command, as `--help` prints it."""
    parts = [
        "# Commands\n\nThe output of `--help` for each command; `make docs` updates this page.\n"
    ]
    for path in _command_paths((), typer.main.get_command(app)):
        # A fixed width, so that the page does not depend on the terminal.
        done = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "80"}, prog_name="gym")
        title = " ".join(("gym", *path))
        parts.append(f"## {title}\n\n```text\n{done.stdout.strip()}\n```\n")
    return "\n".join(parts)


def _command_paths(path: tuple[str, ...], command: object) -> list[tuple[str, ...]]:
    """Return the path of a command and of all its subcommands, in the order of the help."""
    if len(path) == 1:
        command = load_command(path[0])
    if not isinstance(command, HelpGroup):
        return [path]
    sections = command.commands_by_heading().values()
    below = [(name, one) for section in sections for name, one in section.items()]
    return [path, *(found for name, one in below for found in _command_paths((*path, name), one))]


def pages() -> dict[Path, str]:
    """Return the new text of every file that is generated, completely or in part."""
    schemas = {DOCS / name: schema_text(*kinds) for name, kinds in SCHEMAS.items()}
    parts = {
        README: {"exit_codes": exit_codes()},
        DOCS / "architecture.md": {"layers": layer_picture(), "rooms": rooms()},
        DOCS / "environment-list.md": {"environments": environments()},
        DOCS / "benchmark-list.md": {"benchmarks": benchmarks()},
        DOCS / "reliability.md": {"tests": promises()},
    }
    written = {
        path: with_parts(path.read_text(encoding="utf-8"), **own) for path, own in parts.items()
    }
    return {**schemas, DOCS / "cli.md": commands(), **written}


def update(texts: dict[Path, str], *, is_check: bool) -> None:
    """Write the files that are out of date, or only check whether there are any.

    Raises:
        SystemExit: A check found such files; the message names them.
    """
    old = {
        path: text
        for path, text in texts.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    }
    if is_check and old:
        raise SystemExit(f"{', '.join(path.name for path in old)}: out of date; run make docs")
    for path, text in old.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if a file is out of date"
    )
    update(pages(), is_check=parser.parse_args().check)
