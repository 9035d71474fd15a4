"""Every promise of docs/reliability.md names tests, and these are there."""

import ast
import re
from pathlib import Path

from tests.docs.pages import CHECKOUT, page

TEXT = page("reliability.md")
PROMISES, NOT_PROMISED = TEXT.split("\n## What is not promised\n")
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", TEXT)))


def names_of(path: Path) -> set[str]:
    """Return what pytest collects from a file: functions, classes, and cases that are assigned."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return names


def test_named_tests_exist():
    found = {path: names_of(CHECKOUT / path) for path, _ in NAMED}
    assert all(name.lower().startswith("test") for _, name in NAMED)
    assert [f"{path}::{name}" for path, name in NAMED if name not in found[path]] == []


def test_every_promise_names_a_test():
    """A promise is an item of a list; what is not promised needs no test."""
    items = re.split(r"^- ", PROMISES, flags=re.MULTILINE)[1:]
    assert len(items) > 20
    for item in items:
        assert "::" in item, f"no test is named for: {item[:80]}"


def test_every_name_of_a_test_is_checked():
    """None is written in another way, in which this file would overlook it."""
    assert TEXT.count("::") == len(re.findall(r"`[\w/]+\.py::\w+`", TEXT))


def test_named_files_exist():
    names = re.findall(r"`((?:bench|docs|tests)/[\w/.]+|[\w-]+\.md)`", TEXT)
    assert names
    for name in names:
        assert (CHECKOUT / name).exists() or (CHECKOUT / "docs" / name).exists(), name


def test_what_is_not_promised_is_told():
    assert len(re.findall(r"^- ", NOT_PROMISED, flags=re.MULTILINE)) > 5
