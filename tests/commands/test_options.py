"""Tests of options that several commands share."""

import math
import subprocess
import sys

import pydantic
import pytest

from gymcli.commands.options import (
    complete_env,
    complete_model,
    complete_run,
    complete_tasks,
    key_values,
    parameters,
    role_params,
    role_specs,
)
from gymcli.errors import UsageError
from gymcli.library.role_models import named_roles
from gymcli.runner.collect_options import CollectOptions
from tests.builders import clean_environment, gym

MAIN = "from gymcli.cli import main; main()"


def test_collect_options_refuse_what_the_command_line_refuses(working_folder):
    for name, value, option in (
        ("repeats", 0, "--repeats"),
        ("limit", 0, "--limit"),
        ("concurrency", 0, "--concurrency"),
        ("num_workers", 0, "--workers"),
        ("max_turns", 0, "--max-turns"),
        ("shard", "3/2", "--shard"),
        ("max_cost", 0.0, "--max-cost"),
        ("max_run_time", math.inf, "--max-run-time"),
        ("max_episode_time", math.nan, "--max-episode-time"),
        ("grace", -1.0, "--grace"),
        ("outage_deadline", -1.0, "--outage-deadline"),
    ):
        with pytest.raises(pydantic.ValidationError, match=name):
            CollectOptions(model="m", **{name: value})
        done = gym("collect", "arithmetic", "--model", "oracle", option, str(value), exit_code=2)
        assert option in done.stderr


def test_key_values():
    assert key_values("--x", ["a=1", "b=c=d", "e="]) == {"a": "1", "b": "c=d", "e": ""}


def test_key_values_refuses():
    for text in ("a", "=1", ""):
        with pytest.raises(UsageError, match=r"--x .*: expected key=value"):
            key_values("--x", [text])
    with pytest.raises(UsageError, match=r"--x .*: is not UTF-8"):
        key_values("--x", ["a=\udcff"])


def test_parameters_are_json_or_text():
    given = ["a=1", "b=true", "c=null", 'd={"x": [1]}', "e=text", "g=", "h=1.0e3", 'i="nan"']
    assert parameters("--param", given) == {
        "a": 1,
        "b": True,
        "c": None,
        "d": {"x": [1]},
        "e": "text",
        "g": "",
        "h": 1000.0,
        "i": "nan",
    }


def test_parameters_refuse_what_cannot_be_sent():
    for text in ("NaN", "nan", "Infinity", "-inf", "1e999", "-1e999"):
        with pytest.raises(UsageError, match="--param k: must be a finite number"):
            parameters("--param", [f"k={text}"])
    for text in ("[1", '{"a": NaN}', "[1e999]", ' {"a"}', "[" * 100_000):
        with pytest.raises(UsageError, match="--param k: is not JSON"):
            parameters("--param", [f"k={text}"])
    for text in ("judge.k=1e999", "judge.k=nan", "judge.k=[1e999]"):
        with pytest.raises(UsageError, match=r"^--role-param k: (must be|is not)"):
            role_params("--role-param", [text])


@pytest.mark.parametrize(
    "text",
    [
        "judge=http://user:hush@{host}/v1",
        "judge=http://user:hush@{host}/v1#m",
        "judge=http://{host}/v1?api_key=hush",
        "judge=http://{host}/v1?api_key=hush#m",
        "http://{host}/v1?api_key=hush#m",
        "http://user:hush@{host}/v1#m",
        "judge=http://user:hush\udcff@{host}/v1#m",
    ],
)
def test_roles_asks_and_shows_no_address_that_may_hold_a_secret(mock_server, text):
    host = mock_server.base_url.removeprefix("http://").removesuffix("/v1")
    with pytest.raises(UsageError, match=r"^--role ") as raised:
        named_roles(role_specs([text.format(host=host)]))
    assert "hush" not in str(raised.value)
    assert mock_server.num_requests == 0


def test_completion_of_environments_tasks_models_and_runs(tmp_path, working_folder):
    for folder in ("one", "runs/first", "runs/second", "runs/no_run"):
        (tmp_path / folder).mkdir(parents=True)
        if folder != "runs/no_run":
            (tmp_path / folder / "run.json").touch()
    for file in ("quiz.csv", "quiz.jsonl", "notes.md"):
        (tmp_path / file).touch()
    (tmp_path / "gym.toml").write_text('[models.big]\nbase_url = "http://h/v1"\n')

    assert complete_env("mcq") == ["mcqa"]
    assert complete_tasks("qui") == ["quiz.csv", "quiz.jsonl"]
    assert complete_tasks("mcq") == ["mcqa"]
    assert complete_model("") == ["local", "oracle", "big"]
    assert complete_run("") == ["one", "runs/first", "runs/second"]
    assert complete_run("runs/f") == ["runs/first"]
    assert complete_run(f"{tmp_path}/o") == [f"{tmp_path}/one"]
    assert complete_run("nowhere/") == []


def test_completion_survives_a_broken_settings_file(tmp_path, working_folder):
    (tmp_path / "gym.toml").write_text("[")
    assert complete_model("o") == ["oracle"]


def test_a_shell_completes_environments(tmp_path):
    """As the script does that `gym --install-completion` installs."""
    asked = {"_GYM_COMPLETE": "complete_bash", "COMP_WORDS": "gym envs mcq", "COMP_CWORD": "2"}
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv[0] = 'gym'\n" + MAIN],
        env={**clean_environment(), **asked},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "mcqa\n", "")
