"""Tests that an installed package has the checkout's environments, tasks and generators."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import msgspec
import pytest

import gymcli
from tests.builders import clean_environment, gym_process

CHECKOUT = Path(gymcli.__file__).parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """Build a wheel from the source distribution, and unpack it."""
    target = tmp_path_factory.mktemp("dist")
    # An isolated build would need the network.
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", target, CHECKOUT]
    subprocess.run(build, check=True, capture_output=True)
    assert list(target.glob("*.tar.gz"))
    [wheel] = target.glob("*.whl")
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(site)
    return site


@pytest.mark.slow
def test_wheel_has_the_generators_of_the_checkout(installed):
    for folder, packaged in (("datasets", "_datasets"), ("envs", "_envs")):
        shipped = {path.relative_to(CHECKOUT / folder) for path in sources(CHECKOUT / folder)}
        found = installed / "gymcli" / packaged
        assert {path.relative_to(found) for path in sources(found)} == shipped


@pytest.mark.slow
@pytest.mark.parametrize("name", ["arithmetic", "mcqa", "workplace_assistant", "circle_click"])
def test_wheel_writes_its_tasks_again(installed, tmp_path, name):
    """A class's own generator, one in a file, one in a package, and one that uses another's."""
    done = subprocess.run(
        gym_process("data", "generate", "--check", name, "--json"),
        cwd=tmp_path,
        env={**clean_environment(), "PYTHONPATH": os.fspath(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [row["difference"] for row in msgspec.json.decode(done.stdout)] == [None]


@pytest.mark.slow
def test_wheel_has_the_documentation(installed, tmp_path):
    done = subprocess.run(
        gym_process("docs", "mock"),
        cwd=tmp_path,
        env={**clean_environment(), "PYTHONPATH": os.fspath(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == (CHECKOUT / "docs" / "mock.md").read_text(encoding="utf-8")


def sources(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*.py") if "__pycache__" not in path.parts]
