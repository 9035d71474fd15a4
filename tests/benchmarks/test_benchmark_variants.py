"""Variants of benchmarks: how they are named, what they change, and what they are compared with."""

import hashlib
import json
import re
from pathlib import Path

import pytest

import gymcli
from gymcli import Endpoint, GymError, UsageError
from gymcli.benchmarks.benchmark import find_benchmark, siblings, with_variants
from gymcli.benchmarks.benchmark_files import pulled_tasks, tasks_path
from gymcli.benchmarks.benchmark_runs import benchmark_score, check_references, with_benchmark
from gymcli.benchmarks.resolution import names_benchmark
from gymcli.metrics.measure import measure
from gymcli.runner.collect_options import CollectOptions
from gymcli.store.manifest import Manifest, read_manifest

BENCHMARK = """
name = "sums"
version = "1"
title = "Add numbers"
domain = "tests"
env = "mcqa"
env_args = { grading_mode = "lenient_boxed" }
prompt = "prompt.yaml"
params = { temperature = 0.0 }
margin = 0.1
citations = { margin = "the test", prompt = "the test's own" }
source = { env = "mcqa", rows = 30, licence = "Apache-2.0" }

[[reference]]
model = "m"
score = 0.5
settings = "others"
source = "a card"
date = "2026-01"
"""
VARIANT = """
[[variant]]
name = "warm"
params = { temperature = 1.0 }
repeats = 3
citations = { params = "a card" }

[[variant.reference]]
model = "m"
score = 0.9
source = "a card"
date = "2026-01"
"""
FILE = """
name = "sums"
version = "1"
title = "Add numbers"
domain = "tests"
env = "string_match"
prompt = "prompt.yaml"
source = { file = "rows.jsonl", sha256 = "SHA", rows = 2, licence = "Apache-2.0" }
variant = [{ name = "1-shot", examples = { file = "examples.yaml" } }]
"""


@pytest.fixture
def write(working_folder):
    """Return a function that writes a benchmark.toml and finds one of its variants."""
    Path("prompt.yaml").write_text("system: Add.\nuser: '{question}'")

    def written(text, variant=""):
        Path("benchmark.toml").write_text(text)
        return find_benchmark(f"benchmark.toml{variant}")

    return written


def test_a_variant_replaces_what_it_names_and_keeps_the_rest(write):
    base = write(BENCHMARK + VARIANT)
    warm = find_benchmark("./benchmark.toml@Warm")
    assert (base.name, warm.name) == ("sums", "sums@warm")
    assert (warm.params, warm.repeats, warm.margin) == ({"temperature": 1.0}, 3, 0.1)
    assert warm.env_args == base.env_args
    assert warm.citations == {**base.citations, "params": "a card"}
    assert [one.score for one in warm.testable] == [0.9]
    assert not base.testable
    assert [one.name for one in siblings(warm)] == ["sums"]
    assert [one.name for one in siblings(base)] == ["sums@warm"]
    assert tasks_path(warm) == tasks_path(base)


def test_a_run_is_one_of_the_variant(write):
    warm = write(BENCHMARK + VARIANT, "@warm")
    options = with_benchmark(CollectOptions(model="oracle"), warm)
    assert (options.params, options.repeats) == ({"temperature": 1.0}, 3)
    record = options.benchmark
    assert (record.name, record.deviations) == ("sums@warm", ())
    assert record.spec == f"{Path('benchmark.toml').absolute()}@warm"
    assert find_benchmark(record.spec).name == "sums@warm"
    base = with_benchmark(CollectOptions(model="oracle"), find_benchmark("benchmark.toml"))
    assert base.benchmark.settings_hash != record.settings_hash


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("gsm8k@", "gsm8k@: name a variant after the @ (8-shot), or leave it out"),
        ("mmlu_pro@4-shot", 'mmlu-pro has no variant "4-shot"; did you mean "5-shot"?'),
        ("aime24@8-shot", 'aime24 has no variant "8-shot"; it has none'),
        ("gsm9k@8-shot", "gsm9k: no benchmark has this name (gym bench lists them); did you mean"),
        ("@8-shot", "@8-shot: no benchmark has this name"),
        ("./gsm8k@8-shot", "./gsm8k: is neither a benchmark.toml nor a folder with one"),
    ],
)
def test_an_unknown_variant_is_named(spec, reason):
    with pytest.raises(UsageError) as error:
        find_benchmark(spec)
    assert reason in str(error.value)


def test_a_path_that_exists_comes_before_a_variant(write):
    assert names_benchmark("gsm8k@8-shot")
    assert names_benchmark("gsm8k@typo")
    assert names_benchmark("GSM8K@8_shot")
    assert not names_benchmark("mcqa@x")
    assert find_benchmark("gsm8k@8_shot").name == "gsm8k@8-shot"
    Path("gsm8k@8-shot").write_text("{}")
    assert not names_benchmark("gsm8k@8-shot")
    Path("a@b").mkdir()
    Path("a@b/benchmark.toml").write_text(BENCHMARK + VARIANT)
    Path("prompt.yaml").rename("a@b/prompt.yaml")
    assert find_benchmark("a@b").name == "sums"
    assert find_benchmark("a@b@warm").name == "sums@warm"
    assert find_benchmark("a@b/benchmark.toml@warm").spec == "a@b/benchmark.toml@warm"


@pytest.mark.parametrize(
    ("variant", "reason"),
    [
        ('name = "a"\nrepeats = 2\nprompts = "x"', 'prompts: is unknown; did you mean "prompt"?'),
        ('name = "a"', "variant.1: says nothing that moves a score"),
        ('name = "a"\nmargin = 0.2\ntitle = "x"', "variant.1: says nothing that moves a score"),
        ('name = "A b"\nrepeats = 2', "variant.1.name: must be lower-case letters"),
        ('name = "warm"\nrepeats = 2', "variant: two have the name warm"),
        ('name = "a"\nrows = 3', "variant.1: rows needs map"),
        (
            'name = "a"\nexamples = { file = "x", split = "y" }',
            "variant.1.examples: name exactly one of file and split",
        ),
        (
            'name = "a"\nexamples = { split = "train" }',
            "variant a: examples.split: needs a data set of the Hub",
        ),
        (
            'name = "a"\nprompt = ""\nexamples = { file = "x" }',
            "variant a: examples: need a prompt",
        ),
        ('name = "a"\nmap = "m.py:f"', "variant a: source.map: code is run only for benchmarks"),
        ('name = "a"\nmetric = "a / b / c"', "'a / b / c' is no metric"),
        ('name = "a"\nmetric = 5', "variant.1.metric: 5 is no metric"),
        ('name = "a"\nmetric = []', "name each metric once, and one at least"),
    ],
)
def test_a_wrong_variant_is_named_with_its_file(write, variant, reason):
    text = f"{BENCHMARK}{VARIANT}\n[[variant]]\n{variant}\n"
    with pytest.raises(UsageError) as error:
        write(text)
    assert str(error.value).startswith("benchmark.toml: ")
    assert reason in str(error.value)


def write_examples(write, examples, text=FILE):

    rows = "".join(
        json.dumps({"question": f"{n} + 1?", "expected_answer": str(n + 1)}) + "\n" for n in (5, 6)
    )
    Path("rows.jsonl").write_text(rows)
    Path("examples.yaml").write_text(examples)
    return write(text.replace("SHA", hashlib.sha256(rows.encode()).hexdigest()), "@1-shot")


def test_examples_are_earlier_turns_of_each_task(write):
    found = write_examples(write, "- {question: '1 + 1?', answer: 'It is 2.'}")
    rows = [
        json.loads(line)
        for line in pulled_tasks(found, cache=Path("cache")).read_text().splitlines()
    ]
    assert rows[1]["messages"] == [
        {"role": "system", "content": "Add."},
        {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": "It is 2."},
        {"role": "user", "content": "6 + 1?"},
    ]
    # The tasks have their prompts, so that none is given to the run.
    assert with_benchmark(CollectOptions(model="oracle"), found).prompt is None
    before = tasks_path(found)
    Path("examples.yaml").write_text("- {question: '2 + 1?', answer: 'It is 3.'}")
    assert tasks_path(found) != before


@pytest.mark.parametrize(
    ("examples", "reason"),
    [
        ("{}", "examples.yaml: examples are a YAML list"),
        ("- 3", "examples.yaml:1: is no YAML mapping"),
        ("- {question: x}", 'examples.yaml:1: an example needs the text "answer"'),
        ("- {answer: x}", 'examples.yaml:1: "question" is missing'),
    ],
)
def test_a_wrong_example_is_named_with_its_place(write, examples, reason):
    found = write_examples(write, examples)
    with pytest.raises(GymError) as error:
        pulled_tasks(found, cache=Path("cache"))
    assert reason in str(error.value)


def test_too_few_examples_are_an_error(write):
    text = FILE.replace('"examples.yaml" }', '"examples.yaml", by = "kind", num = 2 }')
    found = write_examples(write, "- {question: '1 + 1?', answer: 'It is 2.', kind: sum}", text)
    with pytest.raises(GymError, match='"kind" is missing, by which examples are chosen'):
        pulled_tasks(found, cache=Path("cache"))
    text = FILE.replace('"examples.yaml" }', '"examples.yaml", num = 2 }')
    found = write_examples(write, Path("examples.yaml").read_text(), text)
    with pytest.raises(GymError, match="has 1 of 2 examples"):
        pulled_tasks(found, cache=Path("cache"))


def test_a_gate_names_the_variant_that_could_be_tested(write):
    write(BENCHMARK + VARIANT)
    options = with_benchmark(
        CollectOptions(endpoint=Endpoint(base_url="http://host/v1", model="m")),
        find_benchmark("benchmark.toml"),
    )
    manifest = Manifest(benchmark=options.benchmark, model="m")
    with pytest.raises(UsageError, match="@warm has one that can be tested"):
        check_references(manifest)


def test_shipped_variants_have_scores_that_can_be_tested():
    for name in ("gsm8k", "gpqa-diamond", "ifeval", "mmlu-pro"):
        _, *variants = with_variants(name)
        for variant in variants:
            assert variant.reference
            assert variant.testable == variant.reference


async def test_the_mean_of_several_metrics_is_compared(write):
    text = BENCHMARK.replace('"mcqa"', '"instruction_following"').replace(
        '{ grading_mode = "lenient_boxed" }', '{ sentences = "rules" }'
    )
    text = text.replace("rows = 30", "rows = 3").replace('prompt = "prompt.yaml"\n', "")
    metrics = '["follow_all_loosely", "num_followed / num_instructions"]'
    write(f"{text}{VARIANT.replace('params', f'metric = {metrics}{chr(10)}params', 1)}")
    arguments = gymcli.benchmark("benchmark.toml@warm", model="oracle", repeats=2, out="run")
    assert [rollout.reward async for rollout in gymcli.collect(**arguments)] == [1.0] * 6
    aggregator, manifest = measure(Path("run")), read_manifest(Path("run"))
    score = benchmark_score(manifest, aggregator, aggregator.metrics())
    assert (score.value, score.problem) == (1.0, "")
    assert score.metric == "the mean of follow_all_loosely, num_followed / num_instructions"
    file = Path("benchmark.toml")
    file.write_text(file.read_text().replace("num_instructions", "num_words"))
    score = benchmark_score(manifest, aggregator, aggregator.metrics())
    assert score.problem == "the run has no num_words, the metric of benchmark sums@warm"
    file.write_text(file.read_text().replace("num_words", "num_instructions"))
    rollouts = Path("run/rollouts.jsonl")
    rollouts.write_text(
        re.sub(r'"num_instructions":[\d.]+', '"num_instructions":0', rollouts.read_text())
    )
    aggregator = measure(Path("run"))
    score = benchmark_score(manifest, aggregator, aggregator.metrics())
    assert (
        score.problem == "the metric of benchmark sums@warm divides by num_instructions, which is 0"
    )
