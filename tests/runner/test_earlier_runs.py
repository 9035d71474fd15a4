"""Tests that runs of an earlier release can be read, rescored, compared, exported and resumed.

`tests/earlier_runs/README.md` describes how the runs were made.
"""

import shlex
import shutil
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from gymcli.environment.registry import Registry
from gymcli.mock.behaviours import read_script
from tests.commands.running import gym, lines_of

RUNS = Path(__file__).parent.parent / "earlier_runs"
OPTIONS = {
    "tools": "--repeats 2 --temperature 0.7 --max-tokens 512",
    "groups": "--repeats 3 --role-param reward.temperature=0",
    "mixed": "--repeats 2",
}
ROLES = {"groups": "reward", "mixed": "judge"}
ROWS = {  # sft and dpo leave out calls whose arguments are not JSON
    "tools": {"sft": 8, "dpo": 2, "jsonl": 9, "csv": 12, "parquet": 12, "nemo-gym": 9},
    "groups": {"sft": 6, "dpo": 2, "jsonl": 6, "csv": 12, "parquet": 12, "nemo-gym": 6},
    "mixed": {"sft": 16, "dpo": 4, "jsonl": 16, "csv": 16, "parquet": 16, "nemo-gym": 16},
}


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(params=OPTIONS)
def name(request):
    """Return the name of a run that was copied into the working directory."""
    copy(request.param)
    return request.param


def copy(name):
    """Copy a run, its tasks and its script into the working directory."""
    shutil.copytree(RUNS / name, ".", dirs_exist_ok=True)


def play(server, name):
    """Let a server answer as when the run was made, and answer what it refused then."""
    script = read_script(RUNS / name / "script.jsonl")

    def behave(request):
        answer = script(request)
        return answer if answer.status == 200 else script(request)

    server.behaviour = behave


def role_of(server, name):
    """Return the options that send a run's role to the server."""
    role = ROLES.get(name)
    return ["--role", f"{role}={server.base_url}#critic"] if role else []


def collect(server, name, *options, tasks="tasks.jsonl", out="run"):
    """Run the command that made a run."""
    role = role_of(server, name)
    where = ("--base-url", server.base_url, "--model", "policy", "--seed", "7", "--out", out)
    return gym("collect", tasks, *where, *shlex.split(OPTIONS[name]), *role, *options)


def asked(server, model):
    """Return the bodies of the requests to a model."""
    return [one.body for one in server.requests if one.body["model"] == model]


def key_of(line):
    return line["env"], line["task_id"], line["attempt"]


def keys_of(lines):
    return sorted(key_of(line) for line in lines)


def rollouts(run="run"):
    return lines_of(Path(run, "rollouts.jsonl"))


def moved():
    """Return the current versions of the environments of `mixed` that were at version 1."""
    names = {line["env"] for line in rollouts()}
    versions = {name: Registry().find(name).environment.version for name in sorted(names)}
    return {name: version for name, version in versions.items() if version != "1"}


def holds(found, expected):
    """Return whether a JSON value contains another one; it may have further keys."""
    if isinstance(expected, dict):
        return all(key in found and holds(found[key], value) for key, value in expected.items())
    return found == expected


def test_the_numbers_are_those_of_the_release(name):
    expected = msgspec.json.decode(Path("run/metrics.json").read_bytes())
    parts = expected["environments"].values()
    ks = {int(k) for part in parts for k in part["num_tasks_at_k"] or {}}
    # The release had avg@k of each k.
    done = gym("metrics", "run", "--json", "--k", ",".join(map(str, sorted(ks))))
    assert done.exit_code == 0, done.stderr
    assert "its code changed" not in done.stderr
    found = msgspec.json.decode(done.stdout)
    assert found["num_scored"] == len(rollouts())
    for key, value in expected.items():
        assert holds(found[key], value), key


def test_no_reward_changes(name, mock_server):
    play(mock_server, name)
    before = Path("run/rollouts.jsonl").read_bytes()
    done = gym("verify", "run", "--json", *role_of(mock_server, name), "--out", "rescored")
    assert done.exit_code == 0, done.stderr
    report = msgspec.json.decode(done.stdout)
    lines = rollouts()
    assert (report["num_changed"], report["num_failed"], report["environments"]) == (0, 0, {})
    assert report["num_rescored"] == len(lines)
    assert Path("run/rollouts.jsonl").read_bytes().startswith(before)
    rewards = {key_of(line): line["reward"] for line in rollouts("rescored")}
    assert rewards == {key_of(line): line["reward"] for line in lines}
    # Verdicts of judges of the same version are recorded; list-2 lacked two comparisons.
    assert len(asked(mock_server, "critic")) == {"tools": 0, "groups": 2, "mixed": 4}[name]
    assert not asked(mock_server, "policy")


def test_a_run_is_resumed_with_missing_attempts(mock_server):
    copy("tools")
    play(mock_server, "tools")
    old, before = rollouts(), Path("run/rollouts.jsonl").read_bytes()
    done = collect(mock_server, "tools")
    assert done.exit_code == 0, done.stderr
    assert "7 attempts to go (9 already scored)" in done.stderr
    lines = rollouts()
    assert Path("run/rollouts.jsonl").read_bytes().startswith(before)
    ids = [row["id"] for row in lines_of(Path("tasks.jsonl"))]
    assert sorted(key[1:] for key in keys_of(lines)) == sorted((i, n) for i in ids for n in (0, 1))
    openings = [one for one in asked(mock_server, "policy") if len(one["messages"]) <= 2]
    seeds = Counter(body["seed"] for body in openings)
    new = [line for line in lines if key_of(line) not in map(key_of, old)]
    assert not {line["seed"] for line in old} & set(seeds)
    assert seeds == Counter(line["seed"] for line in new)
    failed = {key_of(line): line["seed"] for line in lines_of(Path("run/failures.jsonl"))}
    assert len(failed) == 3
    assert failed.items() <= {key_of(line): line["seed"] for line in lines}.items()
    # The two releases compute source hashes differently, so that no change is reported.
    assert "its code changed" not in done.stderr
    environments = msgspec.json.decode(Path("run/run.json").read_bytes())["environments"]
    for name, record in environments.items():
        hashes = {line["verifier"]["source_hash"] for line in lines if line["env"] == name}
        assert {record["source_hash"], *record["earlier_source_hashes"]} == hashes
        assert len(hashes) == 2

    num_requests = len(mock_server.requests)
    assert collect(mock_server, "tools").exit_code == 0
    assert len(mock_server.requests) == num_requests


def test_waiting_groups_are_scored_and_not_played_again(mock_server):
    copy("groups")
    play(mock_server, "groups")
    before = Path("run/rollouts.jsonl").read_bytes()
    waiting = {key_of(line): line["messages"] for line in lines_of(Path("run/generations.jsonl"))}
    done = collect(mock_server, "groups")
    assert done.exit_code == 0, done.stderr
    assert "6 attempts to go (6 already scored)" in done.stderr
    assert Path("run/rollouts.jsonl").read_bytes().startswith(before)
    lines = rollouts()
    assert keys_of(lines) == [
        ("genrm_compare", f"list-{task}", attempt) for task in range(4) for attempt in range(3)
    ]
    assert all(
        line["messages"] == waiting[key_of(line)] for line in lines if key_of(line) in waiting
    )
    played = [line["seed"] for line in lines if key_of(line) not in waiting]
    assert [body["seed"] for body in asked(mock_server, "policy")] == played
    # One comparison of list-2 has a verdict; none of list-3 has, as one of its attempts failed.
    assert len(asked(mock_server, "critic")) == 2 + 3

    num_requests = len(mock_server.requests)
    assert collect(mock_server, "groups").exit_code == 0
    done = gym("verify", "run", "--json", *role_of(mock_server, "groups"))
    assert msgspec.json.decode(done.stdout)["num_changed"] == 0
    assert len(mock_server.requests) == num_requests


def test_a_run_of_other_versions_is_not_resumed(mock_server):
    copy("mixed")
    before = Path("run/rollouts.jsonl").read_bytes()
    refused = collect(mock_server, "mixed")
    assert refused.exit_code == 2
    assert 'tasks.jsonl:8: the row was written for other tables, because it has no "tables"' in (
        refused.stderr
    )
    *rows, office = lines_of(Path("tasks.jsonl"))
    lines = [msgspec.json.encode(row) for row in (*rows, {**office, "tables": "made_up"})]
    Path("tasks.jsonl").write_bytes(b"\n".join(lines))
    refused = collect(mock_server, "mixed")
    assert refused.exit_code == 2
    assert "this run was made with other settings: " in refused.stderr
    for env, version in moved().items():
        assert f'environments.{env}.version "1" there, "{version}" here' in refused.stderr
    assert "Use another --out, or --fresh for a new run" in refused.stderr
    assert not mock_server.requests
    assert Path("run/rollouts.jsonl").read_bytes() == before


def test_a_run_of_today_compares_with_one_of_the_release(mock_server):
    copy("tools")
    play(mock_server, "tools")
    assert collect(mock_server, "tools", "--concurrency", "1", out="today").exit_code == 0
    done = gym("compare", "run", "today", "--json")
    assert done.exit_code == 5, done.stderr  # five equal tasks are no evidence
    report = msgspec.json.decode(done.stdout)
    assert (report["drift"], report["fixed"], report["broken"]) == ([], [], [])
    assert (report["num_tasks"], report["mean_a"], report["difference"]["value"]) == (5, 0.8, 0.0)


def test_rollouts_of_other_versions_are_compared_where_drift_is_allowed(mock_server):
    copy("mixed")
    play(mock_server, "mixed")
    role = role_of(mock_server, "mixed")
    assert gym("verify", "run", *role, "--out", "rescored").exit_code == 0
    refused = gym("compare", "run", "rescored")
    assert refused.exit_code == 2
    assert "--allow-drift compares them anyway" in refused.stderr
    done = gym("compare", "run", "rescored", "--allow-drift", "--json")
    assert done.exit_code == 5, done.stderr  # one task per environment is inconclusive
    report = msgspec.json.decode(done.stdout)
    drift = [(one["env"], one["name"], one["a"], one["b"]) for one in report["drift"]]
    kinds = ("version", "verifier version")
    versions = moved()
    assert drift == [(env, kind, "1", now) for env, now in versions.items() for kind in kinds]
    for env, now in versions.items():
        assert f"warning: A and B differ: {env}: version 1 in A, {now} in B" in done.stderr
    differences = [one["difference"]["value"] for one in report["environments"].values()]
    assert differences == [0.0] * 5


@pytest.mark.parametrize("to", ["sft", "dpo", "jsonl", "csv", "parquet", "nemo-gym"])
def test_each_format_is_exported(name, to):
    if to == "parquet":
        pytest.importorskip("pyarrow", reason="writing Parquet is an extra")
    suffix = to if to in ("csv", "parquet") else "jsonl"
    done = gym("export", "run", "--to", to, "-o", f"x.{suffix}")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines()[0] == f"rows          {ROWS[name][to]}"


def test_a_run_of_today_merges_with_one_of_the_release(mock_server):
    copy("tools")
    row = {**lines_of(Path("tasks.jsonl"))[-1], "id": "counter-9"}
    Path("more.jsonl").write_bytes(msgspec.json.encode(row))
    play(mock_server, "tools")
    assert collect(mock_server, "tools", tasks="more.jsonl", out="more").exit_code == 0
    done = gym("merge", "run", "more", "-o", "both")
    assert done.exit_code == 0, done.stderr
    assert "7 of 18 attempts are not scored" in done.stderr
    assert keys_of(rollouts("both")) == keys_of([*rollouts(), *rollouts("more")])
    assert len(lines_of(Path("both/failures.jsonl"))) == 3


def test_every_rollout_is_shown(name):
    for line in rollouts():
        done = gym("show", "run", f"{line['task_id']}/{line['attempt']}", "--json")
        assert done.exit_code == 0, done.stderr
        assert msgspec.json.decode(done.stdout) == line
