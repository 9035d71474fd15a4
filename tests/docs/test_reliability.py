"""Every promise of docs/reliability.md names tests, and these are there."""

import ast
import re
from pathlib import Path

import pytest

from tests.docs.pages import CHECKOUT, page

TEXT = page("reliability.md")
PROMISES, NOT_PROMISED = TEXT.split("\n## What is not promised\n")
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", TEXT)))


def names_of(path: Path) -> set[str]:
    """Give what pytest collects from a file: functions, classes, and cases that are assigned."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return names


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_named_tests_exist(path, name):
    assert name.lower().startswith("test")
    assert name in names_of(CHECKOUT / path)


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
