"""New environments: the generated files pass every check, and nothing is overwritten."""

import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import gymcli
from gymcli.checks.new_environment import create
from gymcli.commands.init import Pattern
from gymcli.errors import UsageError

TEMPLATES = Path(gymcli.__file__).parent / "checks" / "templates"


@pytest.mark.slow
@pytest.mark.parametrize("pattern", get_args(Pattern))
def test_create_writes_what_holds_every_check(pattern, tmp_path):
    files = create("demo_env", pattern, tmp_path)
    assert files.class_name == "DemoEnv"
    report = gymcli.check(f"{files.environment}:DemoEnv", tasks=files.tasks)
    assert report.failures == []
    assert report.num_tasks == 60
    statuses = {finding.check: finding.status for finding in report.findings}
    assert "skipped" not in statuses.values()
    assert statuses["judges"] == ("ok" if pattern == "judge" else "n/a")
    levels = {line.split(b'"difficulty":')[1][:5] for line in files.tasks.read_bytes().splitlines()}
    assert levels == {b'"easy', b'"medi', b'"hard'}
    for path in files[:2]:
        assert "NewEnvironment" not in path.read_text()
        assert "new_environment" not in path.read_text()


@pytest.mark.slow
def test_create_writes_a_test_that_passes(tmp_path):
    files = create("demo_env", "single-step", tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", files.test.name],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(gymcli.__file__).parents[1])},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert b"1 passed" in done.stdout


def test_create_begins_with_a_short_file():
    assert len((TEMPLATES / "single_step.py").read_text().splitlines()) <= 42


def test_every_template_is_a_pattern():
    names = {path.stem.replace("_", "-") for path in TEMPLATES.glob("*.py")}
    assert names == {*get_args(Pattern), "environment-test"}


@pytest.mark.parametrize("name", ["demo-env", "1st", "class", "", "_", "__", "a/b", "é", "a b"])
def test_create_refuses_what_is_no_name(name, tmp_path):
    with pytest.raises(UsageError, match="such as my_env"):
        create(name, "single-step", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["task", "random", "Product", "iterator", "gymcli", "score"])
def test_create_refuses_names_that_are_taken(name, tmp_path):
    with pytest.raises(UsageError, match=f"the name is taken by Python or gymcli; use {name}_env"):
        create(name, "single-step", tmp_path)


def test_create_refuses_names_of_environments(tmp_path):
    with pytest.raises(UsageError, match="mcqa: an environment of this name exists"):
        create("mcqa", "single-step", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["regex", "pytest", "aiohttp"])
def test_create_refuses_names_of_installed_packages(name, tmp_path):
    """The new environment's test would import the installed package instead."""
    reason = f"^{name}: a package of this name is installed; use {name}_env$"
    with pytest.raises(UsageError, match=reason):
        create(name, "single-step", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_create_takes_the_name_of_a_mere_folder(tmp_path, monkeypatch):
    (tmp_path / "lists").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert create("lists", "single-step", tmp_path).environment.is_file()


@pytest.mark.parametrize("there", ["demo.py", "test_demo.py", "demo.jsonl"])
def test_create_overwrites_nothing(there, tmp_path):
    (tmp_path / there).write_text("mine")
    with pytest.raises(UsageError, match="already exists; nothing was written"):
        create("demo", "game", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [there]
    assert (tmp_path / there).read_text() == "mine"


def test_create_in_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match=r"demo\.py: cannot be written: No such file"):
        create("demo", "judge", tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "class_name"), [("a", "A"), ("my_API_env", "MyAPIEnv"), ("Shop2", "Shop2")]
)
def test_create_names_the_class(name, class_name, tmp_path):
    files = create(name, "single-step", tmp_path)
    assert files.class_name == class_name
    assert f"class {class_name}(Environment[Product]):" in files.environment.read_text()
