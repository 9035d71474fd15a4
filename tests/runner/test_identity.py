"""Tests of what identifies a run, and of its manifest."""

from pathlib import Path

import msgspec
import pytest

import gymcli
from gymcli.comparison.paired_runs import RunProvenance, drift_of, settings, unrecorded_settings
from gymcli.metrics.measure import ComparedLine, read_compared_lines
from gymcli.models.endpoint import Endpoint
from gymcli.runner.collect_options import CollectOptions
from gymcli.runner.plan import RunPlan, plan_run
from gymcli.store.manifest import EnvironmentRecord, Manifest
from gymcli.store.rollout_files import RolloutReading
from gymcli.store.scored_lines import EnvironmentFacts, FailureLine
from gymcli.tasks.task_source import TaskFile
from gymcli.types import Verifier
from tests.builders import write_prompts, write_rows, write_sums
from tests.comparison.compared import line, nemo
from tests.models.test_local import PLAIN, WITH_TOOLS, write_gguf
from tests.runner.test_roles import JUDGED

SECRET = "sk-never-to-be-seen"


def plan(tasks: Path, **options) -> RunPlan:
    return plan_run([TaskFile(tasks)], CollectOptions(**{"model": "oracle", **options}))


@pytest.mark.parametrize(
    "options",
    [
        {"seed": 1},
        {"params": {"temperature": 0.5}},
        {"max_turns": 3},
        {"model": "local", "endpoint": None},
        {"model": "m", "endpoint": Endpoint(base_url="http://h", model="m", dialect="responses")},
    ],
)
def test_identity_is_what_changes_answers(tmp_path, options):
    tasks = write_sums(tmp_path / "t.jsonl", 1)
    if options.get("model") == "local":
        pytest.importorskip("xllamacpp")
    assert plan(tasks).manifest.identity != plan(tasks, **options).manifest.identity


@pytest.mark.parametrize(("template", "expected"), [(PLAIN, True), (WITH_TOOLS, None)])
def test_identity_says_whether_the_embedded_model_has_no_tools(tmp_path, template, expected):
    pytest.importorskip("xllamacpp")
    tasks = write_sums(tmp_path / "t.jsonl", 1)
    weights = write_gguf(tmp_path / "a.gguf", chat_template=template)
    assert plan(tasks, model=f"local:{weights}").manifest.identity.get("emulate_tools") is expected


@pytest.mark.parametrize(
    "options",
    [{"concurrency": 2}, {"limit": 1}, {"repeats": 3}, {"shuffle": True}, {"out": Path("x")}],
)
def test_identity_is_not_speed_nor_selection(tmp_path, options):
    tasks = write_sums(tmp_path / "t.jsonl", 2)
    assert plan(tasks).manifest.identity == plan(tasks, **options).manifest.identity


def test_identity_is_not_the_address(tmp_path):
    tasks = write_sums(tmp_path / "t.jsonl", 1)
    found = [
        plan(tasks, model="m", endpoint=Endpoint(base_url=url, model="m", api_key=key))
        for url, key in (("http://one", SECRET), ("http://two", None))
    ]
    assert found[0].manifest.identity == found[1].manifest.identity
    assert found[0].path == found[1].path


def test_identity_does_not_depend_on_the_spelling_of_a_number(tmp_path):
    """Otherwise the default directory would differ and the run would not resume."""
    tasks = write_sums(tmp_path / "t.jsonl", 1)
    spellings = (
        {"temperature": 1, "logit_bias": {"7": -100}, "stops": [2]},
        {"temperature": 1.0, "logit_bias": {"7": -100.0}, "stops": [2.0]},
    )
    found = [plan(tasks, params=params) for params in spellings]
    assert found[0].manifest.identity == found[1].manifest.identity
    assert found[0].path == found[1].path
    judged = write_prompts(tmp_path / "judged.jsonl", 1)
    judges = [
        plan(judged, env=JUDGED, roles={"judge": "oracle"}, role_params={"judge": params})
        for params in spellings
    ]
    assert "role" in str(judges[0].manifest.identity)
    assert judges[0].path == judges[1].path


def endpoint_with(**params):
    return Endpoint(base_url="http://h", model="m", params=params)


def test_identity_has_the_resolved_parameters(tmp_path):
    """An option that moves to gym.toml continues the run, unless rows override it."""
    tasks = write_sums(tmp_path / "t.jsonl", 2)
    typed = plan(tasks, model="m", endpoint=endpoint_with(), params={"temperature": 0.5})
    named = plan(tasks, model="m", endpoint=endpoint_with(temperature=0.5))
    both = plan(
        tasks, model="m", endpoint=endpoint_with(temperature=2), params={"temperature": 0.5}
    )
    identities = [one.manifest.identity for one in (typed, named, both)]
    assert identities[0]["params"] == {"temperature": 0.5}
    assert identities[1:] == identities[:1] * 2
    row = {"id": "own", "env": "arithmetic", "prompt": "1 + 1?", "answer": 2}
    row["params"] = {"temperature": 0}
    with tasks.open("ab") as file:
        file.write(msgspec.json.encode(row) + b"\n")
    named = plan(tasks, model="m", endpoint=endpoint_with(temperature=0.5), limit=1)
    assert named.manifest.identity == {**identities[0], "params_of_rows": ["temperature"]}
    typed = plan(tasks, model="m", endpoint=endpoint_with(), params={"temperature": 0.5})
    assert typed.manifest.identity == identities[0]


@pytest.mark.parametrize(
    ("tasks", "model", "start"),
    [
        ("sums.jsonl", "org/model-7B", "runs/sums-model-7B-"),
        ("deep/tasks.jsonl", "m", "runs/deep-m-"),
        ("tasks.jsonl", "m", "runs/tasks-m-"),
        ("a b;c.v2.jsonl", "../../x y", "runs/a-b-c-x-y-"),
    ],
)
def test_default_out(working_folder, tasks, model, start):
    Path(tasks).parent.mkdir(exist_ok=True)
    write_sums(Path(tasks), 1)
    endpoint = Endpoint(base_url="http://h", model=model)
    path = plan(Path(tasks), model=model, endpoint=endpoint).path
    assert str(path).startswith(start)
    assert len(str(path)) == len(start) + 8


def test_fresh_takes_a_folder_that_is_not_there(tmp_path):
    tasks, out = write_sums(tmp_path / "t.jsonl", 1), tmp_path / "run"
    assert plan(tasks, out=out, fresh=True).path == out
    out.mkdir()
    (tmp_path / "run-2").mkdir()
    assert plan(tasks, out=out, fresh=True).path == tmp_path / "run-3"


async def test_manifest_says_no_secret(tmp_path, mock_server):
    """Keys, headers, queries and passwords of proxies are left out."""
    endpoint = Endpoint(
        base_url=mock_server.base_url,
        model="m",
        api_key=SECRET,
        headers={"X-Key": SECRET},
        query={"key": SECRET},
        idle_timeout=99,
    )
    tasks, out = write_sums(tmp_path / "t.jsonl", 1), tmp_path / "run"
    assert (
        len([r async for r in gymcli.collect(tasks, endpoint=endpoint, out=out, env="arithmetic")])
        == 1
    )
    for path in out.iterdir():
        assert SECRET not in path.read_text()
    manifest = msgspec.json.decode((out / "run.json").read_bytes())
    shown = manifest["options"]["endpoint"]
    assert shown == {"base_url": mock_server.base_url, "model": "m", "idle_timeout": 99.0}
    assert manifest["options"]["env"] == "arithmetic"


def test_manifest_describes_what_the_run_is_made_with(tmp_path, working_folder, monkeypatch):
    """Outside a repository, and without git, there is no commit."""
    monkeypatch.setenv("PATH", "")
    manifest = plan(write_sums(tmp_path / "t.jsonl", 3), repeats=2).manifest
    assert manifest.git_commit is None
    assert manifest.libraries.keys() >= {"python", "msgspec"}
    assert (manifest.num_expected, manifest.num_tasks) == (6, 3)
    record = manifest.environments["arithmetic"]
    assert (record.version, record.max_reward, record.num_expected) == ("2", 1.0, 6)


def test_manifest_names_the_commit(tmp_path, working_folder):
    import subprocess

    who = ["-c", "user.name=x", "-c", "user.email=x@y"]
    subprocess.run(["git", "init", "-q"], check=True)
    subprocess.run(["git", *who, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    commit = plan(write_sums(tmp_path / "t.jsonl", 1)).manifest.git_commit
    assert commit is not None
    assert len(commit) == 40


@pytest.mark.parametrize(
    ("options", "added"),
    [
        ({}, {}),
        ({"emulate_tools": True}, {"emulate_tools": True}),
        ({"send_reasoning": "reasoning"}, {"send_reasoning": "reasoning"}),
        ({"send_fields": ["b", "a"]}, {"send_fields": ["a", "b"]}),
    ],
)
def test_identity_has_what_changes_the_prompt_only_where_it_does(tmp_path, options, added):
    tasks = write_sums(tmp_path / "t.jsonl", 1)
    endpoints = [Endpoint(base_url="http://h", model="m", **more) for more in ({}, options)]
    plain, other = (plan(tasks, model="m", endpoint=e).manifest.identity for e in endpoints)
    assert other == {**plain, **added}


def made(**more):
    """Return a line in gymcli's format."""
    said = {"env_version": "1", "verifier": Verifier("1", "s"), "model": "m", **more}
    for name in ("sampling", "env_options"):
        if name in said:
            said[name] = msgspec.Raw(said[name])
    return ComparedLine(schema_version=1, task_id="x", reward=1.0, **said)


def provenance(*lines, manifest=None, name="run"):
    """Return how a run of these lines was made."""
    found = RunProvenance(name, manifest)
    found.add("e", lines)
    return found


def drift(a, b, facts=({}, {})):
    return [str(one) for one in drift_of(a, b, ["e"], facts)]


def test_runs_that_were_made_alike_have_no_drift():
    assert drift(provenance(made()), provenance(made(model="other", sampling=b'{"seed": 1}'))) == []


def test_a_run_with_two_verifiers_differs_from_one_with_the_last():
    """Such a run was resumed after its environment had changed."""
    two = provenance(made(), made(verifier=Verifier("1", "t")))
    assert drift(two, provenance(made())) == ["e: verifier source s, t in A, s in B"]


def test_the_order_of_options_does_not_matter():
    a, b = (provenance(made(env_options=text)) for text in (b'{"a": 1, "b": 2}', b'{"b":2,"a":1}'))
    assert drift(a, b) == []


def test_a_fact_that_one_line_lacks_is_unknown_for_the_run():
    mixed = provenance(made(), made(env_version="", verifier=Verifier()), name="mixed")
    assert drift(mixed, provenance(made(env_version="2"))) == []
    assert list(unrecorded_settings(mixed, ["e"])) == [
        "mixed does not record for e: version, options, verifier version, verifier source, "
        "group size"
    ]
    assert list(unrecorded_settings(provenance(made()), ["e"])) == []


def test_a_threshold_that_follows_from_the_best_reward_is_named_once():
    one, two = EnvironmentFacts(max_reward=1.0), EnvironmentFacts(max_reward=2.0)
    low = EnvironmentFacts(max_reward=2.0, pass_threshold=0.5)
    a = provenance(made())
    assert drift(a, a, ({"e": one}, {"e": two})) == ["e: best reward 1.0 in A, 2.0 in B"]
    assert len(drift(a, a, ({"e": one}, {"e": low}))) == 2
    assert drift(a, a, ({"e": two}, {"e": low})) == ["e: threshold of success 2.0 in A, 0.5 in B"]
    assert drift(a, a, ({"e": one}, {})) == []


def test_prompting_is_compared_where_both_manifests_know_it():
    known, other = (Manifest(identity={"prompt": text, "seed": 0}) for text in ("p", "q"))
    a, b = provenance(made(), manifest=known), provenance(made(), manifest=other)
    assert drift(a, b) == ["prompt template p in A, q in B"]
    assert drift(a, provenance(made())) == []


def test_a_judge_that_one_run_lacks_is_drift_where_both_played_the_same_environments():
    def judged(identity, *environments):
        records = {name: EnvironmentRecord() for name in environments}
        identity = {"seed": 0, **identity}
        return provenance(made(), manifest=Manifest(identity=identity, environments=records))

    a = judged({"roles": {"judge": {"model": "j"}}}, "e")
    assert drift(a, judged({}, "e")) == ['role judge {"model":"j"} in A, none in B']
    assert drift(judged({}, "e"), a) == ['role judge none in A, {"model":"j"} in B']
    assert drift(a, judged({}, "e", "f")) == [], "it may be the other environment's"


def test_settings_of_a_bare_file_are_not_known():
    endpoint = Manifest(options={"endpoint": {"base_url": "http://a/v1"}})
    a, b = provenance(made(), manifest=endpoint), provenance(made())
    assert [one.name for one in settings(a, b)] == ["model"]


def test_settings_show_the_model_and_what_differs():
    a = provenance(
        made(),
        manifest=Manifest(
            model="recorded",
            identity={"model": "m", "seed": 0, "prompt": "p", "params": {}},
            options={"endpoint": {"base_url": "http://a/v1"}},
        ),
    )
    b = provenance(made(model=""), manifest=Manifest(model="n", identity={"model": "n", "seed": 1}))
    shown = [(one.name, one.a, one.b) for one in settings(a, b)]
    assert shown == [
        ("model", "m", "n"),
        ("endpoint", "http://a/v1", "none"),
        ("seed", "0", "1"),
    ]


def test_samplings_that_rows_set_themselves_are_several():
    a = provenance(*(made(sampling=b'{"max_tokens": %d}' % n) for n in range(20)))
    assert settings(a, provenance(made()))[1].a == "several"


def test_options_that_are_nested_too_deeply_are_shown_as_they_are():
    deep = b'{"a":' * 20_000 + b"1" + b"}" * 20_000
    assert drift(provenance(made(env_options=deep)), provenance(made(env_options=deep))) == []


def lines_of(path):
    """Read all lines, with their raw parts copied: these are only valid until the next block."""
    found = []
    for lines in read_compared_lines(path, RolloutReading(str(path))):
        found += [(one, getattr(one, "prompt_hash", None)) for one in lines]
    return found


def test_lines_of_ours_say_how_they_were_made(tmp_path):
    path = write_rows(tmp_path / "r.jsonl", [line("x", seed=5, group_size=2)])
    ((made, _),) = lines_of(path)
    assert isinstance(made, ComparedLine)
    assert (made.seed, made.group_size, made.task_hash) == (5, 2, "00000000000000aa")
    assert made.verifier == Verifier("1", "s1")


def test_the_prompt_is_what_stands_before_the_answer(tmp_path):
    prompt = {"role": "user", "content": "Hi."}
    said = [{"role": "assistant", "content": text} for text in ("Hello.", "Yes?")]
    lines = [
        line("x", messages=[prompt, said[0]]),
        line("y", messages=[prompt, said[1]]),
        line("z", messages=[said[0], said[1]]),
        line("v", messages=[prompt, said[0]], tools=[{"type": "function"}]),
        line("w", messages=[prompt, said[0]], role_usage={"user": {"model": "u"}}),
        line("u", messages=[prompt, said[0]], role_usage={"judge": {"model": "j"}}),
    ]
    x, y, z, v, w, u = (number for _, number in lines_of(write_rows(tmp_path / "r.jsonl", lines)))
    assert x == y == u
    assert len({x, z, v, 0}) == 4
    assert w == 0, "a model wrote a part of it"


def test_the_prompt_of_a_rollout_of_nemo_gym_is_that_of_the_same_of_ours(tmp_path):
    ours = line("x", messages=[{"role": "user", "content": "Hi."}])
    theirs = nemo("x", prompt="Hi.")
    (_, one), (made, other) = lines_of(write_rows(tmp_path / "r.jsonl", [ours, theirs]))
    assert one == other
    assert (made.task_hash, made.env_version, made.verifier) == ("", "", Verifier())
    assert (made.model, made.reward) == ("theirs", 1.0)


def test_a_rollout_whose_verifier_failed_is_a_failure(tmp_path):
    path = write_rows(tmp_path / "r.jsonl", [nemo("x", 0.0, _ng_failure_class="Timeout")])
    ((found, _),) = lines_of(path)
    assert isinstance(found, FailureLine)
    assert found.error.error_class == "Timeout"


def test_many_lines_come_in_several_lists(tmp_path):
    """Raw parts of a block are valid until the next one, however long the lines are."""
    lines = [line(f"t{n}", fields={"text": "x" * 30_000}) for n in range(100)]
    path = write_rows(tmp_path / "r.jsonl", lines)
    sizes, ids = [], []
    for part in read_compared_lines(path, RolloutReading(str(path))):
        sizes.append(len(part))
        ids += [one.task_id for one in part]
        assert all(len(msgspec.json.decode(one.task)["text"]) == 30_000 for one in part)
    assert ids == [f"t{n}" for n in range(100)]
    assert len(sizes) > 1
