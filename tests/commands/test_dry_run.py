"""Tests of `gym collect --dry-run`."""

from pathlib import Path

import msgspec
import pytest
from inline_snapshot import snapshot

from gymcli.mock import MockAnswer
from gymcli.types import Usage
from tests.builders import FLAKY, add_up, gym, write_sums

PRICED = """[models.priced]
base_url = "http://127.0.0.1:9/v1"
prices = { prompt = 1e6, completion = 2e6 }

[models.free]
base_url = "http://127.0.0.1:9/v1"
"""


@pytest.fixture
def ask(working_folder, mock_server):
    """Return the arguments that collect ten sums from a mock server that can add."""
    mock_server.behaviour = add_up
    tasks = write_sums(Path("sums.jsonl"), 10)
    return ("collect", tasks, "--model", "m", "--base-url", mock_server.base_url)


@pytest.fixture
def plan(working_folder):
    """Return a function that plans a run of tasks and returns what is printed before a request."""
    Path("gym.toml").write_text(PRICED)
    tasks = write_sums(Path("sums.jsonl"), 10)

    def plan_run(*arguments, tasks=tasks):
        done = gym("collect", tasks, "--dry-run", *arguments, exit_code=0)
        texts = done.stdout.replace("first request (not sent):\n", "")
        return [
            line for line in texts.splitlines() if not line.startswith(("{", "}", '  "', "    "))
        ]

    return plan_run


def test_shows_the_first_request_and_sends_nothing(ask, mock_server):
    """The request it shows is byte for byte the one that is sent."""
    done = gym(
        *ask, "--dry-run", "--seed", "3", "--temperature", "0.5", "--repeats", "2", exit_code=0
    )
    assert mock_server.num_requests == 0
    assert sorted(path.name for path in Path().iterdir()) == ["sums.jsonl"]
    plan, _, request = done.stdout.partition("\n\n")
    for line in (
        "sums.jsonl (10 rows)",
        "20 of 10 tasks, 2 of each",
        "arithmetic",
        "m (http://127",
    ):
        assert line in plan
    shown = msgspec.json.decode(request.partition("\n")[2])
    gym(*ask, "--seed", "3", "--temperature", "0.5", "--concurrency", "1", "--limit", "1")
    assert shown == mock_server.requests[0].body


def test_shows_tools_and_what_is_done(working_folder):
    gym("collect", "example_multi_step", "--model", "oracle", "--limit", "2", "--out", "run")
    before = {path.name: path.read_bytes() for path in Path("run").iterdir()}
    line = ("collect", "example_multi_step", "--model", "oracle", "--out", "run", "--dry-run")
    done = gym(*line)
    assert "scored        2, left 82" in done.stdout
    assert '"name": "get_synonym_value"' in done.stdout
    assert {path.name: path.read_bytes() for path in Path("run").iterdir()} == before
    assert "made with other settings: seed" in gym(*line, "--seed", "5", exit_code=2).stderr


def test_json_prints_one_object(ask, mock_server):
    done = gym(*ask, "--dry-run", "--json", "--repeats", "2", "--limit", "3", exit_code=0)
    shown = msgspec.json.decode(done.stdout)
    assert shown.keys() == {"plan", "estimate", "request"}
    assert shown["request"]["model"] == "m"
    plan = shown["plan"]
    assert plan["run"].startswith("runs/sums-m-")
    assert (plan["num_tasks"], plan["num_expected"], plan["num_scored"]) == (3, 6, 0)
    assert (plan["model"], plan["base_url"]) == ("m", mock_server.base_url)
    assert plan["environments"] == ["arithmetic"]
    assert plan["tasks"][0]["num_rows"] == 10
    assert mock_server.num_requests == 0


def test_names_what_keeps_the_first_attempt_from_starting(working_folder):
    broken = 'async def setup(self):\n        raise OSError("no\\n world")\n\n    async def oracle'
    Path("flaky.py").write_text(FLAKY.replace("async def oracle", broken))
    tasks = write_sums(Path("t.jsonl"), 1, env="flaky")
    done = gym(
        "collect", tasks, "--model", "oracle", "--env", "flaky.py:Flaky", "--dry-run", exit_code=4
    )
    assert done.stderr == "error: the first attempt cannot start: OSError: no world\n"


def test_a_dry_run_warns_too(ask):
    Path("sums.jsonl").write_text(
        Path("sums.jsonl").read_text().replace('"answer"', '"params":{"model":"n"},"answer"')
    )
    assert "warning: rows set model: ignored" in gym(*ask, "--dry-run").stderr


def test_tokens_and_cost_are_estimated(plan):
    lines = plan("--model", "priced", "--max-tokens", "5")
    assert "\n".join(lines) == snapshot("""\
tasks         sums.jsonl (10 rows)
attempts      10 of 10 tasks
environments  arithmetic
model         priced (http://127.0.0.1:9/v1)
run           runs/sums-priced-8b3c249e
tokens        prompts about 35 (4 characters a token), answers at most 50
cost          prompts about 35, with the longest answers 135

  ]\
""")
    lines = plan("--model", "priced")
    assert "\n".join(lines) == snapshot("""\
tasks         sums.jsonl (10 rows)
attempts      10 of 10 tasks
environments  arithmetic
model         priced (http://127.0.0.1:9/v1)
run           runs/sums-priced-0d528ebc
tokens        prompts about 35 (4 characters a token), answers unlimited without --max-tokens
cost          prompts about 35

  ]\
""")
    assert "cost          unknown: the model has no prices in gym.toml" in plan("--model", "free")
    assert not any(line.startswith(("tokens", "cost")) for line in plan("--model", "oracle"))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("--max-tokens 5 --max-cost 200", "--max-cost 200 is enough: the upper bound is about 135"),
        (
            "--max-tokens 5 --max-cost 100",
            "--max-cost 100 may end the run early: the upper bound is about 135",
        ),
        (
            "--max-tokens 5 --max-cost 20",
            "--max-cost 20 will probably end the run early: it takes about 35 or more",
        ),
        (
            "--max-cost 100",
            "--max-cost 100 may end the run early: there is no upper bound, since answers have no "
            "max_tokens",
        ),
        (
            "--max-tokens 5 --max-tokens-total 5000",
            "--max-tokens-total 5,000 is enough: the upper bound is about 85",
        ),
    ],
)
def test_a_budget_is_judged_by_the_estimate(plan, arguments, text):
    assert plan("--model", "priced", *arguments.split())[-1] == f"budget        {text}"


def test_several_models_share_a_budget(plan):
    lines = plan(
        "--model", "priced", "--model", "free", "--max-tokens", "5", "--max-tokens-total", "9"
    )
    assert sum(line.startswith("tokens") for line in lines) == 2
    assert [line for line in lines if line.startswith("budget")] == [
        "budget        --max-tokens-total 9 will probably end the run early: it takes about 70 or "
        "more"
    ]
    arguments = ("--model", "priced", "--model", "free", "--max-tokens-total", "9", "--dry-run")
    printed = msgspec.json.decode(gym("collect", "sums.jsonl", *arguments, "--json").stdout)
    assert [one["estimate"]["prompt_tokens"] for one in printed["runs"]] == [35, 35]
    (budget,) = printed["budgets"]
    assert (budget["at_least"], budget["at_most"], budget["fits"]) == (70.0, None, False)


def test_turns_and_roles_that_are_not_counted_are_named(plan, tmp_path):
    done = gym("collect", "example_multi_step", "--model", "free", "--dry-run")
    assert "              only the first turns: an attempt may have 32\n" in done.stdout
    role = ("--role", "judge=free")
    done = gym("collect", "equivalence_llm_judge", "--model", "priced", "--dry-run", *role)
    assert "              without those of the judge\n" in done.stdout
    done = gym("collect", "circle_count", "--model", "priced", "--dry-run")
    assert "              without media, such as images\n" in done.stdout


def test_a_resumed_run_is_estimated_by_its_record(ask, mock_server):
    usage = Usage(prompt_tokens=30, completion_tokens=5)
    mock_server.behaviour = lambda request: MockAnswer(text="It is 1.", usage=usage)
    gym(*ask, "--out", "run", "--limit", "2", exit_code=0)
    done = gym(*ask, "--out", "run", "--dry-run")
    assert (
        "              at the rate of the attempts on record: prompts 240, answers 40\n"
        in done.stdout
    )
    assert mock_server.num_requests == 2
