"""The options of a run of a benchmark, and how they deviate from the benchmark's."""

import asyncio
from pathlib import Path

import pytest

import gymcli
from gymcli import Endpoint, UsageError
from gymcli.benchmarks.benchmark import find_benchmark
from gymcli.benchmarks.benchmark_runs import missing_roles, with_benchmark, without_foreign_options
from gymcli.models.settings import ModelSettings, Settings
from gymcli.runner.collect_options import CollectOptions
from gymcli.store.manifest import read_manifest

BENCHMARK = """
name = "letters"
version = "3"
title = "Choose letters"
domain = "tests"
env = "mcqa"
env_args = { grading_mode = "lenient_boxed" }
prompt = "prompt.yaml"
params = { temperature = 0.0, max_tokens = 64 }
repeats = 4
margin = 0.1
citations = { margin = "the test" }
source = { env = "mcqa", rows = 30, licence = "Apache-2.0" }
"""
JUDGED = """
name = "same"
version = "1"
title = "Say the same"
domain = "tests"
env = "equivalence_llm_judge"
margin = 0.1
citations = { margin = "the test" }
source = { env = "equivalence_llm_judge", rows = 2, licence = "Apache-2.0" }
roles = { judge = { model = "maker/Strict-1", params = { temperature = 0.0 } } }
"""
CALLING = f"{JUDGED.partition('roles')[0]}".replace("equivalence_llm_judge", "possible_calls")
JUDGE = Endpoint(base_url="http://host/v1", model="strict-1")
MODEL = Endpoint(base_url="http://host/v1", model="m")


@pytest.fixture
def write(tmp_path, working_folder, monkeypatch):
    """Return a function that writes a benchmark.toml and finds it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    Path("prompt.yaml").write_text("user: '{question}'")
    Path("mine.yaml").write_text("user: '{question}?'")

    def written(text):
        Path("benchmark.toml").write_text(text)
        return find_benchmark("benchmark.toml")

    return written


def endpoint(**params):
    return Endpoint(base_url="http://host/v1", model="m", params=params)


def test_a_run_has_the_settings_of_its_benchmark(write):
    found = write(BENCHMARK)
    options = with_benchmark(CollectOptions(endpoint=endpoint(temperature=1.0)), found)
    assert (options.env, options.env_args) == ("mcqa", {"grading_mode": "lenient_boxed"})
    assert (options.prompt, options.repeats) == (found.path.parent / "prompt.yaml", 4)
    assert options.params == {"temperature": 0.0, "max_tokens": 64}
    record = options.benchmark
    assert (record.name, record.version) == ("letters", "3")
    assert record.spec == str(Path("benchmark.toml").absolute())
    assert (record.deviations, record.remarks) == ((), ())


@pytest.mark.parametrize(
    ("given", "deviations"),
    [
        ({"params": {"temperature": 0.7}}, ["temperature 0.7, not 0.0"]),
        ({"params": {"max_completion_tokens": 64}}, []),
        ({"params": {"max_completion_tokens": 9}}, ["max_tokens 9, not 64"]),
        ({"endpoint": endpoint(top_k=20)}, ["top_k 20, not the default"]),
        ({"env_args": {"mcqa.grading_mode": "lenient_boxed"}}, []),
        (
            {"env_args": {"grading_mode": "strict_single_letter_boxed"}},
            ["grading_mode strict_single_letter_boxed, not lenient_boxed"],
        ),
        ({"env_args": {"mcqa.grading_mode": "null"}}, ["grading_mode null, not lenient_boxed"]),
        ({"endpoint": MODEL.model_copy(update={"emulate_tools": True})}, []),
        ({"env": "arithmetic"}, ["environment arithmetic, not mcqa"]),
        ({"prompt": Path("mine.yaml")}, ["prompt mine.yaml, not its own"]),
        ({"prompt": Path("./prompt.yaml")}, []),
        (
            {"max_turns": 3, "max_episode_time": 9},
            [
                "max_episode_time 9.0, not the default",
                "max_turns 3, not the default",
            ],
        ),
        (
            {"map_file": Path("m.yaml"), "id_field": "x"},
            [
                "id_field x, not the default",
                "map_file m.yaml, not the default",
            ],
        ),
        ({"concurrency": 3, "seed": 1, "max_tokens_total": 9, "grace": 1, "shard": "1/2"}, []),
    ],
)
def test_what_differs_is_recorded_in_words(write, given, deviations):
    options = with_benchmark(
        CollectOptions.model_validate({"endpoint": endpoint(), **given}), write(BENCHMARK)
    )
    assert list(options.benchmark.deviations) == deviations


def test_messages_that_gym_toml_changes_are_another_setting(write):
    emulating = MODEL.model_copy(update={"emulate_tools": True, "send_reasoning": "reasoning"})
    options = with_benchmark(CollectOptions(endpoint=emulating), write(CALLING))
    assert options.benchmark.deviations == ("emulate_tools true, not the default",)
    several = write(CALLING.replace("possible_calls", "example_multi_turn"))
    options = with_benchmark(CollectOptions(endpoint=emulating), several)
    assert options.benchmark.deviations == ("send_reasoning reasoning, not the default",)


@pytest.mark.parametrize(
    ("given", "remark"),
    [
        ({"repeats": 2}, "repeats 2, not 4"),
        ({"repeats": 16}, "repeats 16, not 4"),
        ({"limit": 20}, "the first 20 of 30 tasks"),
        ({"limit": 20, "shuffle": True}, "20 random of 30 tasks"),
        ({"task_ids": ["a", "b"]}, "2 selected of 30 tasks"),
        ({"limit": 30, "shuffle": True}, None),
    ],
)
def test_how_many_tasks_and_attempts_is_a_remark(write, given, remark):
    options = with_benchmark(CollectOptions(model="oracle", **given), write(BENCHMARK))
    assert (options.repeats, options.benchmark.deviations) == (given.get("repeats", 4), ())
    assert list(options.benchmark.remarks) == list(filter(None, [remark]))


def test_a_token_limit_is_spelt_as_the_endpoint_wants_it(write):
    given = CollectOptions(endpoint=endpoint(max_completion_tokens=9))
    options = with_benchmark(given, write(BENCHMARK))
    assert options.params == {"temperature": 0.0, "max_completion_tokens": 64}
    assert options.benchmark.deviations == ()


@pytest.mark.parametrize(
    ("given", "deviations"),
    [
        ({"roles": {"judge": JUDGE}}, []),
        ({"roles": {"judge": "oracle"}}, ["judge oracle, not maker/Strict-1"]),
        (
            {"roles": {"judge": JUDGE}, "role_params": {"judge": {"top_p": 0.5}}},
            ["judge.top_p 0.5, not the default"],
        ),
        (
            {"roles": {"judge": JUDGE.model_copy(update={"model": "x", "name": "STRICT-1"})}},
            [],
        ),
    ],
)
def test_another_judge_is_another_setting(write, given, deviations):
    options = with_benchmark(
        CollectOptions.model_validate({"endpoint": endpoint(), **given}), write(JUDGED)
    )
    assert list(options.benchmark.deviations) == deviations
    assert options.role_params["judge"]["temperature"] == 0.0


def test_a_wrong_option_of_the_environment_is_named_with_its_file(write):
    found = write(f"env_args = {{ gradin_mode = 1 }}\n{BENCHMARK.replace('env_args', '#')}")
    with pytest.raises(UsageError, match=r"benchmark\.toml: env_args\.gradin_mode: is unknown"):
        with_benchmark(CollectOptions(model="oracle"), found)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (
            "roles = { judge",
            "roles = { jugde",
            'roles.jugde: is no role of .*; did you mean "judge"',
        ),
        (
            "source =",
            'reference = [{ model = "m", score = 71, date = "2026-05", source = "x" }]\nsource =',
            "reference: m has 71, but the best reward is 1; write 0.95, not 95",
        ),
    ],
)
def test_what_the_environment_cannot_have_is_named_with_its_file(write, before, after, reason):
    found = write(JUDGED.replace(before, after))
    given = CollectOptions(model="oracle", roles={"judge": JUDGE, "jugde": JUDGE})
    with pytest.raises(UsageError, match=rf"benchmark\.toml: {reason}"):
        with_benchmark(given, found)


def test_a_judge_is_found_in_gym_toml_by_its_name_or_its_model(write):
    found = write(JUDGED)
    other, named = (
        ModelSettings(base_url="http://host/v1", model=model) for model in ("x", "STRICT-1")
    )
    both = Settings(models={"x": other, "s": named})
    assert missing_roles(found, both, ()) == {"judge": "s"}
    assert missing_roles(found, both, {"judge"}) == {}
    assert missing_roles(found, Settings(models={"strict-1": other}), ()) == {"judge": "strict-1"}
    assert missing_roles(found, Settings(models={"x": other}), ()) == {}
    with pytest.raises(UsageError, match="the role judge needs maker/Strict-1, the model"):
        with_benchmark(CollectOptions(model="oracle", default_roles={"judge": JUDGE}), found)


def test_a_judge_of_gym_toml_is_not_used_where_the_benchmark_has_none(write):
    found = write(BENCHMARK.replace('"mcqa"', '"math_with_judge"').replace("env_args", "#"))
    options = with_benchmark(CollectOptions(model="oracle", default_roles={"judge": JUDGE}), found)
    assert options.default_roles == {}
    given = CollectOptions(model="oracle", roles={"judge": JUDGE})
    assert with_benchmark(given, found).benchmark.deviations == ("judge strict-1, not none",)
    # Beside a benchmark with a judge, the option is meant for that one.
    assert without_foreign_options(given, found).roles == {}
    assert without_foreign_options(given, write(JUDGED)).roles == {"judge": JUDGE}


async def test_a_benchmark_is_collected_from_python(write):
    write(BENCHMARK.replace("prompt =", "#"))
    arguments = gymcli.benchmark(Path.cwd(), model="oracle", repeats=1, out="run")
    assert [rollout.reward async for rollout in gymcli.collect(**arguments)] == [1.0] * 30
    assert read_manifest(Path("run")).benchmark.remarks == ("repeats 1, not 4",)


def test_collect_takes_a_benchmark_in_place_of_tasks(write):
    write(BENCHMARK.replace("prompt =", "#"))

    async def collected(tasks):
        records = gymcli.collect(tasks, model="oracle", repeats=1, limit=2, out="run")
        return [rollout.reward async for rollout in records]

    assert asyncio.run(collected(Path.cwd())) == [1.0] * 2
    assert read_manifest(Path("run")).benchmark.name == "letters"


def test_collect_takes_several_benchmarks_each_a_run_of_its_own(write, tmp_path):
    write(BENCHMARK.replace("prompt =", "#"))
    (tmp_path / "other").mkdir()
    text = BENCHMARK.replace("prompt =", "#").replace("letters", "vowels")
    (tmp_path / "other" / "benchmark.toml").write_text(text)

    async def collected(**options):
        benchmarks = [Path.cwd(), "other/benchmark.toml"]
        return await gymcli.collect(benchmarks, model="oracle", repeats=1, limit=2, **options)

    letters, vowels = asyncio.run(collected(out="runs"))
    assert (letters.benchmark, letters.run) == ("letters", "runs/letters")
    assert (vowels.benchmark, vowels.num_scored) == ("vowels", 2)
    assert read_manifest(Path("runs/vowels")).benchmark.name == "vowels"
    with pytest.raises(UsageError, match=r"--env-arg other\.key: none of these benchmarks has it"):
        asyncio.run(collected(env_args={"other.key": "1"}))
