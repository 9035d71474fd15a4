"""The generated parts of the documentation are current, and the README's code runs."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import jsonschema
import msgspec
import pytest

from gymcli.benchmarks.benchmark import benchmark_names
from gymcli.environment.registry import Registry
from gymcli.mock import MockServer
from gymcli.mock.process import serving
from gymcli.types import ErrorRecord, Failure, Message, Rollout, Score, Verifier
from tests.builders import gym

DOCS = Path(__file__).parents[2] / "docs"
README = DOCS.parent / "README.md"


@pytest.fixture(scope="module")
def write() -> ModuleType:
    """Return the script docs/write.py as a module."""
    location = importlib.util.spec_from_file_location("write", DOCS / "write.py")
    assert location is not None
    assert location.loader is not None
    module = importlib.util.module_from_spec(location)
    location.loader.exec_module(module)
    return module


def test_page_is_current(write: ModuleType, subtests: pytest.Subtests) -> None:
    """After a change of types, options or the first sentence of a module, run `make docs`."""
    for path, text in write.pages().items():
        with subtests.test(path.name):
            assert path.read_text(encoding="utf-8") == text


def test_update_writes_what_is_old(write: ModuleType, tmp_path: Path) -> None:
    texts = {tmp_path / "new.md": "a\n", tmp_path / "old.md": "b\n", tmp_path / "kept.md": "c\n"}
    (tmp_path / "old.md").write_text("a\n", encoding="utf-8")
    (tmp_path / "kept.md").write_text("c\n", encoding="utf-8")

    with pytest.raises(SystemExit, match=r"^new.md, old.md: out of date; run make docs$"):
        write.update(texts, is_check=True)
    assert (tmp_path / "old.md").read_text(encoding="utf-8") == "a\n"
    write.update(texts, is_check=False)
    assert {path: path.read_text(encoding="utf-8") for path in texts} == texts
    write.update(texts, is_check=True)


def test_readme_lists_exit_codes_and_counts(write: ModuleType) -> None:
    text = write.README.read_text(encoding="utf-8")

    assert "| 130 | " in text
    assert f"{len(benchmark_names())} at pinned revisions" in text
    assert f"{len(Registry.names())} environments" in text
    assert f"\n{len(benchmark_names())} [benchmarks]" in text
    assert len(text.splitlines()) <= 250


def test_architecture_shows_every_room(write: ModuleType) -> None:
    text = (write.DOCS / "architecture.md").read_text(encoding="utf-8")
    packages = {path.parent.name for path in (write.ROOT / "gymcli").glob("*/__init__.py")}

    assert packages <= {*re.findall(r"\| `(\w+)/` \|", text)}
    assert packages <= {*re.findall(r"\w+", text.partition("```text")[2].partition("```")[0])}


def test_architecture_names_places_that_exist(write: ModuleType) -> None:
    text = (write.DOCS / "architecture.md").read_text(encoding="utf-8")
    modules = re.findall(r"`(\w+/\w+\.py|\w+\.py)`", text)

    assert [name for name in modules if not (write.ROOT / "gymcli" / name).is_file()] == []
    for name, module in re.findall(r"`(\w+)`\s+(?:of \w+\s+)?in\s+`([\w/]+\.py)`", text):
        source = (write.ROOT / "gymcli" / module).read_text(encoding="utf-8")
        assert re.search(rf"^(async def|def|class) {name}\b|^{name}\b", source, re.MULTILINE), name


def test_readme_environment_scores(write: ModuleType, tmp_path: Path) -> None:
    """The class and the row of the README work together as shown."""
    text = write.README.read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(import re\n.*?)```", text, flags=re.DOTALL)
    [row] = re.findall(r'`(\{"id".*?\})`', text)
    (tmp_path / "sums.py").write_text(code, encoding="utf-8")
    tasks, out = tmp_path / "tasks.jsonl", tmp_path / "run"
    tasks.write_text(row, encoding="utf-8")
    environment = f"{tmp_path / 'sums.py'}:Sums"
    with serving(MockServer(lambda _: "It is 12.")) as server:
        options = ("--env", environment, "--model", "m", "--base-url", server.base_url)
        done = gym("collect", tasks, *options, "--out", out)

    assert done.exit_code == 0, done.stderr
    assert json.loads((out / "rollouts.jsonl").read_text(encoding="utf-8"))["reward"] == 1.0


def test_commands_are_all_there(write: ModuleType) -> None:
    """The commands of groups are listed too, each with its help."""
    text = write.commands()

    assert "## gym\n" in text
    assert "## gym collect\n\n```text\nUsage: gym collect [OPTIONS] TASKS...\n" in text
    assert "## gym data pull\n\n```text\nUsage: gym data pull [OPTIONS]" in text


def test_readme_python_runs(tmp_path: Path) -> None:
    """The README's Python example runs as shown, with the oracle as the model."""
    text = README.read_text(encoding="utf-8")
    section = text.split("## From Python")[1]
    code = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)[0]
    assert 'model="local"' in code
    code = code.replace('model="local"', 'model="oracle"')
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert ran.returncode == 0, ran.stderr
    numbers, verdict = ran.stdout.splitlines()
    assert numbers.startswith("1.0 Interval(")
    assert verdict == "PASS"


def test_schema_accepts_a_rollout() -> None:
    rollout = Rollout(
        schema_version=1,
        task_id="1",
        env="arithmetic",
        messages=[Message(role="user", content="2+2"), Message(role="assistant", content="4")],
        num_prompt_messages=1,
    ).scored(Score(1.0, answer="4"), Verifier("1", "ab"), 0.1)
    schema = json.loads((DOCS / "rollout.schema.json").read_text(encoding="utf-8"))

    jsonschema.validate(msgspec.to_builtins(rollout), schema)
    jsonschema.validate({**msgspec.to_builtins(rollout), "a_later_field": 1}, schema)


def test_schema_refuses_a_reward_that_is_text() -> None:
    schema = json.loads((DOCS / "rollout.schema.json").read_text(encoding="utf-8"))

    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"reward": "high"}, schema)


def test_schema_accepts_a_failure() -> None:
    failure = Failure(task_id="1", error=ErrorRecord(error_class="ServerError", phase="model"))
    schema = json.loads((DOCS / "failure.schema.json").read_text(encoding="utf-8"))

    jsonschema.validate(msgspec.to_builtins(failure), schema)


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """Return two runs of the same tasks, in which some attempts fail."""
    made = tmp_path / "a", tmp_path / "b"
    for run in made:
        options = ("--model", "oracle", "--limit", "5", "--repeats", "2", "--out", run)
        gym("collect", "arithmetic", "mcqa", *options, exit_code=0)
        rollouts = run / "rollouts.jsonl"
        text = rollouts.read_text(encoding="utf-8")
        rollouts.write_text(text.replace('"reward":1.0', '"reward":0.0', 3), encoding="utf-8")
    return made


def test_schema_accepts_what_metrics_print(runs: tuple[Path, Path]) -> None:
    """The output for one run and for several, with every option that adds to it."""
    schema = json.loads((DOCS / "metrics.schema.json").read_text(encoding="utf-8"))
    more = ("--by-task", "--by", "answer", "--power", "--gate", "coverage >= 0.5", "--json")
    labels = runs[0].parent / "labels.csv"
    scored = json.loads((runs[0] / "rollouts.jsonl").read_text(encoding="utf-8").splitlines()[0])
    labels.write_text(f"task_id,label\n{scored['task_id']},pass\n", encoding="utf-8")
    more += ("--labels", str(labels))

    for given in (runs[:1], runs):
        report = json.loads(gym("metrics", *given, *more).stdout)
        jsonschema.validate(report, schema)
        part = report["runs"][1] if len(given) > 1 else report
        assert part["gates"][0]["verdict"] == "PASS"
        assert len(part["tasks"]) == 10
        assert part["slices"]["answer"]
        assert part["agreement"]
        assert report["power"]


def test_schema_accepts_the_metrics_file_of_a_run(runs: tuple[Path, Path]) -> None:
    """As `gym collect` wrote it, and as `gym metrics` writes it again."""
    schema = json.loads((DOCS / "metrics.schema.json").read_text(encoding="utf-8"))

    jsonschema.validate(json.loads((runs[0] / "metrics.json").read_bytes()), schema)
    gym("metrics", runs[0], exit_code=0)
    jsonschema.validate(json.loads((runs[0] / "metrics.json").read_bytes()), schema)


def test_schema_refuses_other_metrics() -> None:
    schema = json.loads((DOCS / "metrics.schema.json").read_text(encoding="utf-8"))

    for wrong in ({}, {"run": "a", "coverage": "high"}, {"runs": [{"run": 1}]}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


def test_schema_accepts_a_comparison(runs: tuple[Path, Path]) -> None:
    schema = json.loads((DOCS / "comparison.schema.json").read_text(encoding="utf-8"))
    report = json.loads(gym("compare", *runs, "--by", "answer", "--by-task", "--json").stdout)

    jsonschema.validate(report, schema)
    assert report["slices"]["answer"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**report, "verdict": "MAYBE"}, schema)
