"""The examples of docs/environments.md run as shown, and its lists are complete."""

import inspect
import re
import tomllib
from pathlib import Path
from typing import get_args

import msgspec
import pytest

import gymcli
from gymcli import errors
from gymcli.checks.checks import CHECKS
from gymcli.commands.init import Pattern
from gymcli.environment.contract import Context, Environment, Model
from gymcli.environment.judge import Judge, Verdict
from gymcli.environment.registry import ALIASES, ENTRY_POINT_GROUP
from gymcli.environment.tool import EnvironmentOptions
from gymcli.mock import MockAnswer, MockServer
from gymcli.mock.behaviours import last_user_text, num_turns
from tests.builders import gym, lines_of
from tests.docs.pages import (
    CHECKOUT,
    blocks,
    check_commands,
    output_of,
    page,
    shown_commands,
    table_names,
    table_rows,
    write_blocks,
)

TEXT = page("environments.md")
PROSE = re.sub(r"^```.*?^```$", "", TEXT, flags=re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder(tmp_path, working_folder) -> Path:
    """Return a folder with every module of the page and its tasks as the working directory."""
    write_blocks(TEXT, "json", "jsonl", tmp_path)
    write_blocks(TEXT, "python", "py", tmp_path)
    return tmp_path


def test_every_block_has_a_file_of_its_own(tmp_path):
    names = write_blocks(TEXT, "python", "py", tmp_path)
    environments = ["capitals", "shelf", "letters", "pattern", "shortest", "levels", "desk"]

    assert names == [f"{name}.py" for name in environments]


@pytest.mark.slow
def test_commands_print_what_is_shown(folder):
    """The last command writes the same tasks as `gym init`."""
    *commands, (generate, _) = shown_commands(TEXT)
    assert len(commands) == 6
    check_commands(commands, folder)

    before = Path("demo_env.jsonl").read_bytes()
    Path("demo_env.jsonl").unlink()
    output_of(generate, folder)
    assert Path("demo_env.jsonl").read_bytes() == before


@pytest.mark.slow
def test_commands_of_the_readme_that_need_no_model_run(folder):
    readme = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    offline = [line for line, _ in shown_commands(readme) if re.match("gym (init|check)", line)]

    assert len(offline) == 2
    for line in offline:
        output_of(line, folder)


@pytest.mark.parametrize("pattern", get_args(Pattern))
def test_patterns_are_those_of_gym_init(folder, pattern):
    assert f"`{pattern}`" in TEXT
    gym("init", "other_env", "--pattern", pattern, exit_code=0)


def played(spec: str, server: MockServer, rows: list[dict], *options: str) -> list[dict]:
    """Collect rows with a policy on a server; return the records in the order of the rows."""
    tasks = b"".join(msgspec.json.encode({"id": str(n), **r}) + b"\n" for n, r in enumerate(rows))
    Path("t.jsonl").write_bytes(tasks)
    policy = ("--model", "m", "--base-url", server.base_url, "--concurrency", "1")
    gym("collect", "t.jsonl", "--env", spec, *policy, "--out", "run", *options, exit_code=0)
    return sorted(
        lines_of(Path("run/rollouts.jsonl")), key=lambda line: (line["task_id"], line["attempt"])
    )


def test_shelf_counts_what_stands_there_at_the_end(folder, mock_server):
    def put(request):
        if num_turns(request):
            return "Done."
        count = int(last_user_text(request))
        return MockAnswer(tool_calls=[("put", {"item": "lamp", "count": count})])

    mock_server.behaviour = put
    rows = [{"prompt": str(count), "wanted": {"lamp": 2}} for count in (2, 3, 9)]
    records = played("shelf.py:Shelf", mock_server, rows, "--env-arg", "max_goods=5")

    assert [record["reward"] for record in records] == [1.0, 0.0, 0.0]
    assert [record.get("tool_errors") for record in records] == [None, None, {"raised": 1}]
    assert records[2]["messages"][-2]["content"].endswith("there is no room for that many.")


@pytest.mark.slow
def test_pattern_takes_what_hangs_for_wrong(folder, mock_server):
    mock_server.behaviour = last_user_text
    rows = [
        {"prompt": "a+b?", "words": ["a", "aab"]},
        {"prompt": "(", "words": ["a"]},
        {"prompt": "(a+)+b", "words": ["a" * 40]},
    ]
    records = played("pattern.py:Pattern", mock_server, rows)

    assert [record["reward"] for record in records] == [1.0, 0.0, 0.0]
    reasons = [record["details"]["reason"] for record in records]
    assert reasons == ["compared", "compared", "too_slow"]


@pytest.mark.parametrize(
    ("answers", "rewards"),
    [
        (("a tower with a lamp", "a lighthouse", "a lit tower"), [0.0, 0.0, 1.0]),
        (("lighthouse", "a lighthouse", " "), [0.0, 0.0, 0.0]),
    ],
)
def test_shortest_compares_all_attempts(folder, mock_server, answers, rewards):
    left = list(answers)
    mock_server.behaviour = lambda request: left.pop(0)
    rows = [{"prompt": "Describe it.", "word": "lighthouse"}]
    records = played("shortest.py:Shortest", mock_server, rows, "--repeats", "3")

    assert [record["reward"] for record in records] == rewards


def test_levels_gives_a_number_of_its_own(folder, mock_server):
    mock_server.behaviour = last_user_text
    words = ((1, "lamp"), (2, "tower"), (2, "light"), (3, "house"))
    rows = [{"prompt": "lamp, tower, light", "word": w, "level": level} for level, w in words]
    played("levels.py:Levels", mock_server, rows)

    written = msgspec.json.decode(Path("run/metrics.json").read_bytes())
    assert written["environment_metrics"] == {"highest_level": 2.0}


def test_letters_asks_for_every_item_of_its_rubric(folder, mock_server):
    mock_server.behaviour = last_user_text
    rows = [{"prompt": text, "letters": "bt"} for text in ("big toe", "big arm", "big")]
    records = played("letters.py:Letters", mock_server, rows, "--role", "judge=oracle")

    assert [record["reward"] for record in records] == [1.0, 0.0, 0.0]
    labels = [[verdict["label"] for verdict in r["details"]["verdicts"]] for r in records]
    assert labels == [["true", "true"], ["true", "false"], ["true", "false"]]


def test_letters_scores_nothing_without_a_verdict(folder, mock_server):
    mock_server.behaviour = lambda request: "I cannot say."
    Path("t.jsonl").write_text('{"id": "0", "prompt": "Two words.", "letters": "bt"}\n')
    models = ("--model", "m", "--base-url", mock_server.base_url)
    judge = ("--role", f"judge={mock_server.base_url}#j")
    gym(
        "collect",
        "t.jsonl",
        "--env",
        "letters.py:Letters",
        *models,
        *judge,
        "--out",
        "run",
        exit_code=4,
    )

    [failure] = lines_of(Path("run/failures.jsonl"))
    assert (failure["error"]["class"], failure["error"]["phase"]) == ("RoleError", "role")
    assert "the judge's answer has no readable verdict" in failure["error"]["message"]


def test_letters_judge_is_not_spoken_for(folder):
    Path("t.jsonl").write_text('{"id": "0", "prompt": "Two words.", "letters": "bt"}\n')
    report = gymcli.check("letters.py:Letters", tasks="t.jsonl")

    statuses = {finding.check: finding.status for finding in report.findings}
    assert statuses["judges"] == statuses["empty"] == statuses["repeatable"] == "ok"
    assert statuses["oracle"] == "failed", "the page shows no oracle"


def test_desk_lets_the_visitor_open_and_end_the_talk(folder, mock_server):
    def behave(request):
        if not request.messages[0].text.startswith("You call a shop."):
            return "From 9 to 12."
        return "Thank you. ###STOP###" if num_turns(request) else "When do you open?"

    mock_server.behaviour = behave
    no_prompt = {"responses_create_params": {"input": []}}
    rows = [{**no_prompt, "hours": hours} for hours in ("9 to 12", "3 to 7")]
    records = played("desk.py:Desk", mock_server, rows, "--role", f"user={mock_server.base_url}#u")

    assert [record["reward"] for record in records] == [1.0, 0.0]
    assert [message["role"] for message in records[0]["messages"]] == ["user", "assistant"]
    assert records[0]["role_usage"]["user"]["num_calls"] == 2


def test_attributes_have_the_defaults_that_are_shown():
    rows = {row[0].strip("`"): row[2].strip('`"') for row in table_rows("attribute | ", TEXT)}
    hints = inspect.get_annotations(Environment, eval_str=True)
    public = {name for name in hints if hasattr(Environment, name)}

    assert rows.keys() == {name for name in public if not name.startswith("_")} | {"Options"}
    for name in rows.keys() - {"Task", "Options", "properties"}:
        value = getattr(Environment, name)
        expected = "none" if value in ((), {}) else str(value)
        assert rows[name].replace(",", "") == expected, name


def test_options_that_are_shown_for_a_judge_are_its_own():
    names = table_names("argument | ", TEXT)
    parameters = inspect.signature(Judge).parameters

    assert set(names) == parameters.keys() - {"template"}
    for name in ("rule", "votes", "version"):
        [shown] = [
            row[2].strip('`"') for row in table_rows("argument | ", TEXT) if f"`{name}`" in row[0]
        ]
        assert shown == str(parameters[name].default)


@pytest.mark.parametrize("owner", [Environment, Context, Model, Judge, Verdict, EnvironmentOptions])
def test_members_of_the_contract_are_described(owner):
    """Every public name that the class itself defines is on the page as code."""
    own = {*vars(owner), *getattr(owner, "__annotations__", {})}
    code = set(re.findall(r"\w+", " ".join(re.findall(r"`[^`]+`", PROSE))))
    left_out = {"Task", "model_config", "template"}

    assert {name for name in own if not name.startswith("_")} - code <= left_out


def test_public_names_for_authors_are_described():
    """Names that only callers of gymcli need are left out."""
    words = set(re.findall(r"\w+", TEXT))
    for_callers = {
        "Endpoint",
        "Failure",
        "GymError",
        "JSONObject",
        "benchmark",
        "collect",
        "gate",
        "measure",
        "verify",
    }
    for_oracles = {"FunctionCall", "ToolCall"}

    assert set(gymcli.__all__) - words <= for_callers | for_oracles


def test_checks_are_all_listed_in_their_order():
    names = table_names("check | ", TEXT)

    assert names == list(CHECKS)


def test_errors_have_the_phases_that_are_shown():
    cells = [re.findall(r"`(\w+)`", row[1]) for row in table_rows("what | class", TEXT)]
    named = [cell for cell in cells if cell and cell[0].endswith("Error")]

    assert len(named) == 14
    for name, phase in (cell for cell in named if len(cell) == 2):
        assert getattr(errors, name).phase == phase


def test_names_of_others_are_those_that_are_known():
    assert all(f"`{name}`" in TEXT for name in ALIASES)
    [wheel] = blocks("toml", TEXT)
    assert tomllib.loads(wheel[1])["project"]["entry-points"] == {
        ENTRY_POINT_GROUP: {"shelf": "my_package.shelf:Shelf"}
    }
