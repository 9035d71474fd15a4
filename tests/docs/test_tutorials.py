"""Tutorials: the output shown is that of the commands, the code that of the environments."""

import itertools
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gymcli.environment.registry import shipped_tasks
from gymcli.store.lines import iterate_lines
from tests.docs.pages import CHECKOUT, blocks, check_commands, page, shown_commands, write_blocks
from tests.models.test_local import local_model

FOLDER = CHECKOUT / "docs" / "tutorials"
INDEX = page("tutorials/README.md")
PATTERNS, *OTHERS = (
    sorted(re.findall(r"\(([\w-]+)\.md\) \|", table)) for table in INDEX.split("| what it does |")
)
PAGES = [*PATTERNS, *itertools.chain(*OTHERS)]


def text_of(pattern: str) -> str:
    return page(f"tutorials/{pattern}.md")


def environments_of(pattern: str) -> list[str]:
    """Return the environments that a page uses, according to the index."""
    [row] = [line for line in INDEX.splitlines() if f"({pattern}.md)" in line]
    return re.findall(r"`(\w+)`", row.split("|")[3])


def marked(pattern: str) -> object:
    """Mark the pages that use the embedded model."""
    lines = [line for line, _ in shown_commands(text_of(pattern))]
    needs = local_model if any("--model local" in line for line in lines) else []
    return pytest.param(pattern, marks=[pytest.mark.slow, *needs])


def test_index_names_every_page():
    assert sorted(PAGES) == sorted(p.stem for p in FOLDER.glob("*.md") if p.stem != "README")
    assert len(PATTERNS) == 8


def test_pages_can_be_followed_in_one_folder():
    """No two of them write the same run, environment or file."""
    named = [
        name
        for pattern in PAGES
        for line, _ in shown_commands(text_of(pattern))
        for name in re.findall(r"^gym init (\w+)|--out (\S+)|-o (\S+)", line)
    ]

    assert len(named) == len(set(named)) > len(PAGES)


@pytest.mark.parametrize("pattern", [marked(pattern) for pattern in PAGES])
def test_commands_print_what_is_shown(pattern, tmp_path, working_folder, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for script in FOLDER.glob("*.py"):
        shutil.copy(script, tmp_path)
    if pattern == "new-benchmark":
        for language in ("csv", "yaml", "toml", "python"):
            suffix = "py" if language == "python" else language
            write_blocks(text_of(pattern), language, suffix, tmp_path)
    commands = shown_commands(text_of(pattern))

    assert len(commands) >= 2
    check_commands(commands, tmp_path)


def test_files_of_the_evaluation_are_those_of_its_script(tmp_path):
    subprocess.run([sys.executable, FOLDER / "support_questions.py"], cwd=tmp_path, check=True)
    for language, name in (
        ("python", "map.py"),
        ("yaml", "prompt.yaml"),
        ("toml", "benchmark.toml"),
    ):
        shown = blocks(language, text_of("own-evaluation"))[0][1]
        assert shown == (tmp_path / "evaluation" / name).read_text(encoding="utf-8")


def lines_alone(code: str) -> str:
    """Return code without indentation, blank lines and comments, which a page may change."""
    lines = [line.strip() for line in code.splitlines()]
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("#"))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_code_is_that_of_the_environment(pattern):
    """Whole lines must match, so that a page cannot show code that no longer exists."""
    names = [f"{name}*" for name in environments_of(pattern)]
    files = [path for name in names for path in (CHECKOUT / "envs").glob(name)]
    paths = [path for file in files for path in ([file] if file.is_file() else file.glob("*.py"))]
    sources = [f"\n{lines_alone(path.read_text(encoding='utf-8'))}" for path in paths]
    shown = [lines_alone(block[1]) for block in blocks("python", text_of(pattern))]

    assert shown
    for code in shown:
        assert any(f"\n{code}" in source for source in sources), code


@pytest.mark.parametrize("pattern", PATTERNS)
def test_rows_are_those_that_ship(pattern):
    for block in blocks("json", text_of(pattern)):
        row = json.loads(block[1])
        lines = [
            json.loads(line.data)
            for name in environments_of(pattern)
            for line in iterate_lines(Path(shipped_tasks(name)))
        ]
        assert row in lines
