"""How an engine is asked for, and what is said where it cannot be had."""

import subprocess
import sys

import pytest

from gymcli.engines import engine_of
from gymcli.errors import MissingPackageError
from gymcli.runner.options import CollectOptions
from tests.commands.running import gym


def test_collect_without_ray_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    result = gym("collect", "arithmetic", "--model", "oracle", "--engine", "ray")
    assert result.exit_code == 2
    assert "pip install 'gymcli[ray]'" in result.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("more", [(), ("--pending",)])
def test_verify_without_ray_says_how_to_get_it(tmp_path, monkeypatch, more):
    monkeypatch.chdir(tmp_path)
    assert gym("collect", "arithmetic", "--model", "oracle", "--limit", "2", "--out", "run").output
    monkeypatch.setitem(sys.modules, "ray", None)
    result = gym("verify", "run", "--engine", "ray", *more)
    assert result.exit_code == 2
    assert "pip install 'gymcli[ray]'" in result.stderr
    alone = gym("verify", "run/rollouts.jsonl", "--engine", "ray")
    assert alone.exit_code == 2
    assert gym("verify", "run", "--workers", "2").exit_code == 2


def test_engine_of_library_options_without_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackageError):
        engine_of(CollectOptions(model="oracle", engine="ray"))
    assert engine_of(CollectOptions(model="oracle")) is None


@pytest.mark.parametrize("option", [("--address", "auto"), ("--workers", "2")])
def test_collect_options_of_a_cluster_without_one(tmp_path, monkeypatch, option):
    monkeypatch.chdir(tmp_path)
    result = gym("collect", "arithmetic", "--model", "oracle", *option)
    assert result.exit_code == 2
    assert "--engine ray" in result.stderr


def test_collect_locally_imports_nothing_of_ray():
    code = (
        "import sys; from gymcli.cli import main; import gymcli.engines.library\n"
        "sys.exit(any(name.partition('.')[0] == 'ray' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
