"""Every promise of docs/reliability.md names its tests, and these exist."""

import ast
import json
import re
from pathlib import Path

from tests.docs.pages import CHECKOUT, page

TEXT = page("reliability.md")
PROMISES, NOT_PROMISED = TEXT.split("\n## What is not promised\n")
TESTS: dict[str, list[str]] = json.loads(page("reliability_tests.json"))


def names_of(path: Path) -> set[str]:
    """Return the names that pytest collects in a file: functions, classes and assigned cases."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return names


def test_named_tests_exist():
    ids = sorted({tuple(test.split("::")) for tests in TESTS.values() for test in tests})
    found = {path: names_of(CHECKOUT / path) for path, _ in ids}
    assert all(name.lower().startswith("test") for _, name in ids)
    assert [f"{path}::{name}" for path, name in ids if name not in found[path]] == []


def test_every_promise_names_a_test():
    """A promise is a list item that begins with its name; what is not promised names no test."""
    items = re.split(r"^- ", PROMISES, flags=re.MULTILINE)[1:]
    names = [re.match(r"\*\*(.+?)\.\*\* ", item) for item in items]
    assert all(names), "a promise has no name"
    assert [name[1] for name in names if name is not None] == list(TESTS)
    assert len(TESTS) > 20
    assert all(TESTS.values())


def test_tests_are_named_in_the_table_only():
    """A test that is named in the prose would not be checked."""
    prose, table = TEXT.split("<!-- tests -->")
    assert "::" not in prose
    assert table.count("::") == sum(map(len, TESTS.values()))


def test_named_files_exist():
    names = re.findall(r"`((?:bench|docs|tests)/[\w/.]+|[\w-]+\.md)`|\]\(([\w./]+)\)", TEXT)
    assert names
    for code, link in names:
        assert (CHECKOUT / code if code else CHECKOUT / "docs" / link).exists(), code or link


def test_page_lists_what_is_not_promised():
    assert len(re.findall(r"^- ", NOT_PROMISED, flags=re.MULTILINE)) > 5
