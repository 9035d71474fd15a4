"""The pipelines of docs/ci.md run as shown, and the lists of the page are complete."""

import re
import subprocess
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

import msgspec
import pytest
import yaml

from gymcli.commands.ci import CiOptions
from gymcli.comparison.gates import PLAIN_NAMES, check_name, parse_gate
from gymcli.mock import MockAnswer, MockServer
from gymcli.mock.behaviours import last_user_text, refusal_of
from gymcli.reporting.markdown import MAX_CHARACTERS
from tests.builders import add_up, clean_environment
from tests.docs.pages import blocks, page, table_names, table_rows, write_gym

TEXT = page("ci.md")
NUM_TASKS = 24


class Step(NamedTuple):
    """A step of a job that a shell runs."""

    script: str
    condition: str
    environment: dict[str, str]


class Played(NamedTuple):
    """The outcome of a job."""

    exit_code: int
    """Of the first step that failed."""
    output: str


def github_steps() -> list[Step]:
    """Return the steps of the workflow that a shell runs."""
    workflow = yaml.safe_load(blocks("yaml", TEXT)[0][1])
    steps = workflow["jobs"]["evaluate"]["steps"]
    return [
        Step(step["run"], step.get("if", "success()"), step.get("env", {}))
        for step in steps
        if "run" in step
    ]


def gitlab_steps() -> list[Step]:
    """Return the scripts of the pipeline: of both jobs, and what follows the first."""
    pipeline = yaml.safe_load(blocks("yaml", TEXT)[1][1])
    job = pipeline["evaluate"]
    return [
        Step("\n".join(job["script"]), "success()", {}),
        Step("\n".join(job["after_script"]), "always()", {}),
        Step("\n".join(pipeline["baseline"]["script"]), "success() && main", {}),
    ]


class Machine:
    """A CI machine: a checkout, and fake programs that record their arguments."""

    def __init__(self, folder: Path, server: MockServer) -> None:
        self.folder = folder
        self.asked = folder / "asked"
        self._server = server
        programs = folder / "bin"
        write_gym(programs)
        noting = f'#!/bin/sh\necho "$(basename $0) $@" >> {self.asked}\n'
        for name in ("pip", "gh", "curl"):
            (programs / name).write_text(noting)
            (programs / name).chmod(0o755)
        rows = (
            {"id": f"{n}", "env": "arithmetic", "prompt": f"What is {n} + 1?", "answer": n + 1}
            for n in range(NUM_TASKS)
        )
        tasks = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
        (folder / "tasks.jsonl").write_bytes(tasks)

    def play(self, steps: list[Step], *, is_main: bool = False) -> Played:
        """Run the steps as a runner does: after a failure, only those that always run."""
        environment = clean_environment() | {
            "PATH": f"{self.folder / 'bin'}:{clean_environment()['PATH']}",
            "OPENAI_BASE_URL": self._server.base_url,
            "GITHUB_STEP_SUMMARY": str(self.folder / "step-summary.md"),
            "GITHUB_EVENT_NAME": "push" if is_main else "pull_request",
            **({} if is_main else {"CI_MERGE_REQUEST_IID": "7"}),
            "CI_API_V4_URL": "http://forge/api",
            "CI_MERGE_REQUEST_PROJECT_ID": "1",
            "GITLAB_NOTE_TOKEN": "t",
        }
        exit_code, output = 0, ""
        for step in steps:
            if "always()" not in step.condition and exit_code:
                continue
            if ("pull_request" in step.condition and is_main) or (
                "main" in step.condition and not is_main
            ):
                continue
            done = subprocess.run(
                ["bash", "-e", "-o", "pipefail", "-c", step.script],
                cwd=self.folder,
                env=environment | dict.fromkeys(step.environment, "7"),
                capture_output=True,
                text=True,
                check=False,
            )
            exit_code = exit_code or done.returncode
            output += done.stdout + done.stderr
        return Played(exit_code, output)

    def forget_run(self) -> None:
        """Leave only what the next checkout has, the baseline."""
        subprocess.run(["rm", "-rf", "run"], cwd=self.folder, check=True)
        for name in ("summary.md", "junit.xml", "asked", "step-summary.md"):
            (self.folder / name).unlink(missing_ok=True)


def wrong_every(number: int):
    """Return a model that answers one in `number` tasks wrongly."""

    def behave(request):
        is_wrong = int(last_user_text(request).split()[2]) % number == 0
        return MockAnswer(text="It is 0.") if is_wrong else add_up(request)

    return behave


@pytest.fixture
def machine(tmp_path, mock_server) -> Machine:
    return Machine(tmp_path, mock_server)


WORSE = (wrong_every(2), 3, "FAIL")
UNSURE = (wrong_every(NUM_TASKS // 2), 5, "INCONCLUSIVE")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "comment", "scenes"),
    [
        (github_steps(), "gh pr comment 7 --edit-last", [WORSE, UNSURE]),
        (gitlab_steps(), "merge_requests/7/notes", [UNSURE]),
    ],
    ids=["github", "gitlab"],
)
def test_pipeline_tells_good_from_worse(machine, mock_server, steps, comment, scenes):
    """On the main branch the run becomes the baseline; a worse run fails."""
    mock_server.behaviour = add_up
    first = machine.play(steps, is_main=True)
    assert first.exit_code == 0, first.output
    assert (machine.folder / "baseline" / "rollouts.jsonl").is_file()
    assert comment not in machine.asked.read_text()

    for behave, exit_code, verdict in scenes:
        machine.forget_run()
        mock_server.behaviour = behave
        played = machine.play(steps)
        assert played.exit_code == exit_code, played.output
        summary = (machine.folder / "summary.md").read_text(encoding="utf-8")
        assert summary.startswith(f"## **{verdict}**: `run` of `my-model`")
        assert "### Compared with `baseline`" in summary
        suites = ET.parse(machine.folder / "junit.xml").getroot()
        assert [suite.get("name") for suite in suites] == ["gates"]
        asked = machine.asked.read_text()
        assert asked.startswith("pip install wheels/gymcli-*.whl\n")
        assert comment in asked
        assert "summary.md" in asked
        shown = [path.read_text(encoding="utf-8") for path in machine.folder.glob("step-*.md")]
        assert shown == ([summary] if comment.startswith("gh") else [])
    assert (machine.folder / "run").is_dir()
    assert (machine.folder / "baseline").is_dir()


@pytest.mark.slow
@pytest.mark.parametrize("steps", [github_steps(), gitlab_steps()], ids=["github", "gitlab"])
def test_pipeline_that_is_run_again_asks_only_for_what_is_left(machine, mock_server, steps):
    """The run folder is what the cache restores."""
    wrong = 3

    def fail_some(request):
        number = int(last_user_text(request).split()[2])
        return refusal_of(400, "no") if number < wrong else add_up(request)

    mock_server.behaviour = fail_some
    assert machine.play(steps).exit_code == 4
    num_requests = mock_server.num_requests
    mock_server.behaviour = add_up
    again = machine.play(steps)
    assert again.exit_code == 0, again.output
    assert mock_server.num_requests == num_requests + 2 * wrong


def test_pipelines_cache_the_run_folder_for_the_same_run_only():
    workflow = yaml.safe_load(blocks("yaml", TEXT)[0][1])
    steps = workflow["jobs"]["evaluate"]["steps"]
    cached = [step for step in steps if step.get("with", {}).get("path") == "run"]
    restored, saved = (step["with"] for step in cached if "cache" in step["uses"])
    assert restored["key"] == saved["key"]
    assert saved["key"].startswith(restored["restore-keys"])
    assert "github.run_id" in restored["restore-keys"]
    evaluation = next(n for n, step in enumerate(steps) if step.get("name") == "Evaluate")
    assert [n - evaluation for n, step in enumerate(steps) if step in cached] == [-1, 1]
    assert "--out run " in steps[evaluation]["run"]
    pipeline = yaml.safe_load(blocks("yaml", TEXT)[1][1])
    (cache,) = (one for one in pipeline["evaluate"]["cache"] if one["paths"] == ["run"])
    assert (cache["when"], "CI_PIPELINE_ID" in cache["key"]) == ("always", True)


def test_inconclusive_pipeline_is_a_warning_of_gitlab():
    pipeline = yaml.safe_load(blocks("yaml", TEXT)[1][1])
    assert pipeline["evaluate"]["allow_failure"] == {"exit_codes": UNSURE[1]}


@pytest.mark.slow
@pytest.mark.parametrize("steps", [github_steps(), gitlab_steps()], ids=["github", "gitlab"])
def test_pipeline_ends_as_the_command_where_nothing_is_judged(machine, mock_server, steps):
    """Without tasks there is nothing to summarise either."""
    (machine.folder / "tasks.jsonl").unlink()
    played = machine.play(steps)
    assert played.exit_code == 2
    assert "tasks.jsonl" in played.output
    assert not (machine.folder / "summary.md").exists()


def test_gates_that_are_shown_can_be_read():
    code = " ".join(block[1] for language in ("sh", "yaml") for block in blocks(language, TEXT))
    shown = re.findall(r"--gate '([^']+)'", TEXT)
    assert len(shown) >= 6
    assert all(f"--gate '{gate}'" in TEXT for gate in re.findall(r"--gate '([^']+)'", code))
    for gate in shown:
        parse_gate(gate)
    for part in re.findall(r"`(pass@1\[[^`]+\])`", TEXT):
        parse_gate(f"{part} > 0")
    parse_gate(re.findall(r"`(components\[[^`]+)`", TEXT)[0])


def test_numbers_are_those_that_are_shown():
    names = table_names("number |", TEXT)
    known = {"usage": "prompt_tokens", "stop_reasons": "length", "tool_errors": "raised"}
    for name in names:
        kind = known.get(name.partition(".")[0], "x")
        check_name(re.sub(r"\b(NAME|CLASS)\b", kind, name).replace("K", "1"), name)
    assert set(names) >= set(PLAIN_NAMES)


def test_options_are_all_described():
    for name in CiOptions.model_fields:
        assert f"`--{name.replace('_', '-')}" in TEXT
    assert f"{MAX_CHARACTERS:,} characters" in TEXT


def test_exit_codes_go_in_the_order_that_is_shown():
    codes = [row[0] for row in table_rows("exit code |", TEXT)]
    assert codes == ["0", "2", "3", "4", "5", "6, 130, 143"]
