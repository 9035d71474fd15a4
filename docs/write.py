"""Writes what the documentation takes from the sources: schemas, commands, parts of the README."""

import argparse
import ast
import inspect
import json
import pkgutil
import re
from pathlib import Path

import msgspec
import typer.main
from typer.core import TyperGroup
from typer.testing import CliRunner

import gymcli.envs
from gymcli.cli import app
from gymcli.environment.registry import Registry
from gymcli.metrics.comparison_results import Comparison
from gymcli.reporting.run_report import MetricsReport, MetricsReports
from gymcli.types import Failure, Rollout

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
SCHEMAS: dict[str, tuple[type, ...]] = {
    "rollout.schema.json": (Rollout,),
    "failure.schema.json": (Failure,),
    "metrics.schema.json": (MetricsReport, MetricsReports),
    "comparison.schema.json": (Comparison,),
}
"""By file, the types that a document may have."""
MARKED = "<!-- {name} -->\n```{language}\n{text}```\n<!-- end -->"
"""How a part of the README that is written here stands in it."""


def schema_text(*kinds: type) -> str:
    """Give the JSON Schema of a document of one of these types, indented."""
    schemas, definitions = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    shape = schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)}
    schema = {"$schema": DRAFT, **shape, "$defs": definitions}
    for definition in schema["$defs"].values():
        # Python strips the indentation of docstrings from 3.13 on, not before.
        definition["description"] = inspect.cleandoc(definition["description"])
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def tree() -> str:
    """List every module with the first sentence of its docstring."""
    lines = []
    for folder in ("gymcli", "envs"):
        lines += [f"{folder}/", *_folder_lines(ROOT / folder, depth=1)]
    return "\n".join(lines) + "\n"


def _folder_lines(folder: Path, depth: int) -> list[str]:
    files = [path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]
    packages = [path.parent for path in sorted(folder.glob("*/__init__.py"))]
    lines = [_line(path.name, path, depth) for path in files]
    for package in packages:
        lines.append(_line(f"{package.name}/", package / "__init__.py", depth))
        lines += _folder_lines(package, depth + 1)
    return lines


def _line(name: str, path: Path, depth: int) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return f"{'  ' * depth + name:39} {docstring.splitlines()[0]}"


def environments() -> str:
    """List every environment with its properties, and the checks that do not apply to it."""
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


def readme(text: str) -> str:
    """Put tree, environments and the example environment where the README marks them."""
    table = f"<!-- environments -->\n{environments()}<!-- end -->"
    text = re.sub(r"<!-- environments -->.*?<!-- end -->", lambda _: table, text, flags=re.DOTALL)
    example = (ROOT / "envs" / "arithmetic.py").read_text(encoding="utf-8")
    for name, language, part in (("tree", "", tree()), ("example", "python", example)):
        marked = MARKED.format(name=name, language=language, text=part)
        pattern = rf"<!-- {name} -->.*?<!-- end -->"
        text = re.sub(pattern, lambda _, marked=marked: marked, text, flags=re.DOTALL)
    return text


def reliability(text: str) -> str:
    """Put the tests of every promise into the table of docs/reliability.md."""
    tests = json.loads((DOCS / "reliability_tests.json").read_text(encoding="utf-8"))
    rows = [
        f"| {promise} | {'<br>'.join(f'`{test}`' for test in ids)} |"
        for promise, ids in tests.items()
    ]
    table = "\n".join(["| promise | tests |", "| --- | --- |", *rows])
    marked = f"<!-- tests -->\n{table}\n<!-- end -->"
    return re.sub(r"<!-- tests -->.*?<!-- end -->", lambda _: marked, text, flags=re.DOTALL)


def commands() -> str:
    """Give the help of every command, as `--help` prints it."""
    parts = [
        "# Commands\n\nWhat `--help` prints of each command; `make docs` writes this page anew.\n"
    ]
    for path in _command_paths((), typer.main.get_command(app)):
        done = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "80"}, prog_name="gym")
        title = " ".join(("gym", *path))
        parts.append(f"## {title}\n\n```text\n{done.stdout.strip()}\n```\n")
    return "\n".join(parts)


def _command_paths(path: tuple[str, ...], command: object) -> list[tuple[str, ...]]:
    """List the names that lead to a command and to all below it."""
    below = command.commands.items() if isinstance(command, TyperGroup) else ()
    return [path, *(found for name, one in below for found in _command_paths((*path, name), one))]


def pages() -> dict[Path, str]:
    """Give the text of every file that is written here, wholly or in part."""
    schemas = {DOCS / name: schema_text(*kinds) for name, kinds in SCHEMAS.items()}
    readme_text = readme(README.read_text(encoding="utf-8"))
    promises = DOCS / "reliability.md"
    return {
        **schemas,
        DOCS / "cli.md": commands(),
        README: readme_text,
        promises: reliability(promises.read_text(encoding="utf-8")),
    }


def update(texts: dict[Path, str], *, is_check: bool) -> None:
    """Write the files that are not current, or only see whether there are any.

    Raises:
        SystemExit: In a check there are; the message names them.
    """
    old = {
        path: text
        for path, text in texts.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    }
    if is_check and old:
        raise SystemExit(f"{', '.join(path.name for path in old)}: not current; run make docs")
    for path, text in old.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if one is old")
    update(pages(), is_check=parser.parse_args().check)
