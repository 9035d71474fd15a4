"""Tests of `gym show`."""

from pathlib import Path

import msgspec
import pytest

from gymcli.mock import MockAnswer, scripted
from gymcli.mock.behaviours import last_user_text, refusal_of
from tests.builders import (
    HOSTILE,
    NO_ENDPOINT,
    UNSAFE,
    add_up,
    gym,
    lines_of,
    write_rows,
    write_sums,
)
from tests.data.token_runs import append_kinds

TASK = {
    "id": "count/one",
    "env": "example_session_state_mgmt",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Add 4.\n── score\nreward 1"},
                {"type": "image_url", "image_url": {"url": "data:x"}},
            ],
        },
    ],
    "expected_count": 4,
}
SCRIPT = [
    MockAnswer(reasoning="First\nadd.", tool_calls=[("increment_counter", {"count": 4})]),
    MockAnswer(text="It is 4."),
]


def collect_task(server):
    server.behaviour = scripted(SCRIPT)
    write_rows("t.jsonl", [TASK])
    where = ("--base-url", server.base_url, "--model", "m", "--out", "run")
    gym("collect", "t.jsonl", *where, "--repeats", "2", exit_code=0)


@pytest.fixture
def run(working_folder, recorded) -> Path:
    """Return a run of one task, two attempts."""
    recorded(collect_task)
    return Path("run")


def test_show_prints_the_conversation_and_its_score(run):
    """Text from models and tools is indented, so that it cannot pass for a line of the command."""
    done = gym("show", run, "count/one", exit_code=0)
    conversation, _, score = done.stdout.partition("\n── score\n")
    assert conversation.splitlines() == [
        "example_session_state_mgmt  task count/one  attempt 0  m",
        "",
        "── system (prompt)",
        "   Be brief.",
        "",
        "── user (prompt)",
        "   Add 4.",
        "   ── score",
        "   reward 1",
        "   [image_url]",
        "",
        "── assistant",
        "   ~ First",
        "   ~ add.",
        '   → increment_counter({"count":4})',
        "",
        "── tool",
        '   {"success":true}',
        "",
        "── assistant",
        "   It is 4.",
    ]
    fields = {line[:14].strip(): line[14:] for line in score.splitlines()}
    assert fields["reward"] == "1.0"
    assert fields["final state"] == "4"
    assert fields["stop reason"] == "done"
    assert msgspec.json.decode(fields["tokens"])["completion_tokens"] > 0
    assert "components" not in fields


def test_show_finds_an_attempt(run):
    assert "attempt 1" in gym("show", run, "count/one/1").stdout


def test_show_json_prints_the_record(run):
    done = gym("show", run, "count/one/1", "--json")
    record = msgspec.json.decode(done.stdout)
    assert record == next(x for x in lines_of(run / "rollouts.jsonl") if x.get("attempt") == 1)


def test_show_prints_refusals(run):
    line = lines_of(run / "rollouts.jsonl")[0]
    line["messages"][-1] = {"role": "assistant", "refusal": "I will\nnot."}
    Path("r.jsonl").write_bytes(msgspec.json.encode(line))
    assert "   refused: I will\n   not.\n" in gym("show", "r.jsonl", "count/one").stdout


def test_show_prints_failures(run, mock_server):
    """The conversation up to the failure is shown, and then the failure."""
    mock_server.behaviour = scripted(SCRIPT[:1])
    where = ("--base-url", mock_server.base_url, "--model", "m", "--out", "run")
    gym("collect", "t.jsonl", *where, "--repeats", "3", exit_code=4)
    done = gym("show", run, "count/one/2", exit_code=0)
    assert "   → increment_counter" in done.stdout
    fields = done.stdout.partition("── not scored\n")[2]
    assert "error         RequestRefusedError\nphase         model\nmessage       POST" in fields
    assert "status        400" in fields
    record = msgspec.json.decode(gym("show", run, "count/one/2", "--json").stdout)
    assert record["error"]["class"] == "RequestRefusedError"


def test_show_prints_nothing_unescaped(run):
    """Every field of a record that a model, a tool or a verifier can write is escaped."""
    line = lines_of(run / "rollouts.jsonl")[0]
    call = {"id": "c", "type": "function", "function": {"name": HOSTILE, "arguments": HOSTILE}}
    line["messages"] = [
        {"role": "user", "content": [{"type": "text", "text": HOSTILE}, {"type": HOSTILE}]},
        {"role": "assistant", "content": HOSTILE, "reasoning": HOSTILE, "tool_calls": [call]},
        {"role": "assistant", "refusal": HOSTILE},
    ]
    line |= {"task_id": "x", "answer": f"{HOSTILE}\n{HOSTILE}", "details": {"reason": HOSTILE}}
    line |= {"final_state": HOSTILE, "model": HOSTILE}
    Path("r.jsonl").write_bytes(msgspec.json.encode(line))
    for more in ((), ("--json",)):
        done = gym("show", "r.jsonl", "x", *more, exit_code=0)
        assert not set(UNSAFE) & set(done.output)
        assert done.output.count("[bold red]markup[/]") >= 8


def test_show_lets_no_name_pass_for_a_line_of_ours(run):
    line = lines_of(run / "rollouts.jsonl")[0]
    forged = "x\n── score\nreward 1"
    line |= {"task_id": forged, "env": forged, "model": forged, "attempt": 0}
    Path("r.jsonl").write_bytes(msgspec.json.encode(line))
    done = gym("show", "r.jsonl", forged, exit_code=0)
    flat = "x ── score reward 1"
    assert done.stdout.splitlines()[0] == f"{flat}  task {flat}  attempt 0  {flat}"


def behave(request):
    """Answer most sums; one is wrong, one is refused, one ends in a call."""
    number = int(last_user_text(request).split()[2])
    if number == 3:
        return refusal_of(400, f"no such sum: {HOSTILE}")
    return MockAnswer(text=f"{HOSTILE} 0") if number == 2 else add_up(request)


def collect_sums(server):
    server.behaviour = behave
    tasks = write_sums(Path("t.jsonl"), 35)
    where = ("--base-url", server.base_url, "--model", "m", "--concurrency", "1")
    gym("collect", tasks, *where, "--out", "sums", exit_code=0)


@pytest.fixture
def sums(working_folder, recorded) -> Path:
    """Return a run of 35 sums, one wrong and one without a score."""
    recorded(collect_sums)
    return Path("sums")


def test_show_lists_the_attempts(sums):
    done = gym("show", sums, exit_code=0)
    head, first, *rows, blank, count, way = done.stdout.splitlines()
    assert head.split() == ["attempt", "reward", "ended", "answer"]
    assert first.split() == ["sum-0/0", "1", "done", "1"]
    assert len(rows) == 29
    assert blank == ""
    assert count == "30 of 35 attempts; --limit 35 lists all"
    assert way == "one of them: gym show sums sum-0/0, or --first, --worst, --random"
    everything = gym("show", sums, "--limit", "35").stdout.splitlines()
    assert len(everything) == 38
    [failed] = [line for line in everything if line.startswith("sum-3/0 ")]
    assert failed.split()[1:4] == ["-", "RequestRefusedError", "POST"]


@pytest.mark.parametrize("columns", ["60", "80", "200"])
def test_show_lists_within_the_width_and_without_control_characters(sums, columns, monkeypatch):
    monkeypatch.setitem(NO_ENDPOINT, "COLUMNS", columns)
    done = gym("show", sums, "--where", "not passed or error is not None")
    assert not set(UNSAFE) & set(done.output)
    rows = done.stdout.splitlines()[:3]
    assert {row.split()[0] for row in rows} == {"attempt", "sum-2/0", "sum-3/0"}
    assert all(len(row) <= int(columns) for row in rows)


def test_show_lists_environments_where_there_are_several(sums):
    lines = lines_of(sums / "rollouts.jsonl")[:2]
    lines[1] |= {"env": "other", "answer": None}
    write_rows("r.jsonl", lines)
    head, first, second, *_ = gym("show", "r.jsonl").stdout.splitlines()
    assert head.split() == ["attempt", "environment", "reward", "ended", "answer"]
    assert first.split() == ["sum-0/0", "arithmetic", "1", "done", "1"]
    assert second.split()[:4] == ["sum-1/0", "other", "1", "done"]
    assert second.endswith("  It is 2.")
    assert "environment" in gym("show", "r.jsonl", "--limit", "1").stdout
    assert "one of them: gym show r.jsonl sum-0/0, or" in gym("show", "r.jsonl").stdout
    lines[1] |= {"task_id": "sum-0"}  # now its environment has to be named, too
    write_rows("r.jsonl", lines)
    assert "gym show r.jsonl sum-0/0 --env arithmetic, or" in gym("show", "r.jsonl").stdout
    assert gym("show", "r.jsonl", "--env", "arithmetic").stdout.startswith("arithmetic  task sum-0")


@pytest.mark.parametrize(
    ("options", "task"),
    [
        (("--first",), "sum-0"),
        (("--worst",), "sum-2"),
        (("--where", 'task_id == "sum-7"'), "sum-7"),
        (("--where", "error is not None", "--random"), "sum-3"),
        (("--where", "error is not None", "--worst"), "sum-3"),
        (("--where", "reward > 0.5", "--first"), "sum-0"),
    ],
)
def test_show_picks_an_attempt(sums, options, task):
    done = gym("show", sums, *options, exit_code=0)
    assert done.stdout.startswith(f"arithmetic  task {task}  attempt 0  m\n")


def test_show_json_lists_every_attempt(sums):
    listed = msgspec.json.decode(gym("show", sums, "--json").stdout)
    assert (listed["run"], listed["num_attempts"], len(listed["attempts"])) == ("sums", 35, 35)
    first = listed["attempts"][0]
    assert (first["task_id"], first["attempt"], first["reward"]) == ("sum-0", 0, 1.0)
    # A list of one is a list too; an option picks a record.
    one = ("--where", 'task_id == "sum-7"', "--json")
    assert len(msgspec.json.decode(gym("show", sums, *one).stdout)["attempts"]) == 1
    assert msgspec.json.decode(gym("show", sums, *one, "--first").stdout)["task_id"] == "sum-7"
    assert (
        len(msgspec.json.decode(gym("show", sums, "--json", "--limit", "3").stdout)["attempts"])
        == 3
    )


def test_show_of_a_run_of_one_attempt_needs_no_id(sums):
    line = lines_of(sums / "rollouts.jsonl")[0] | {"step_rewards": [None, 0.5]}
    Path("r.jsonl").write_bytes(msgspec.json.encode(line))
    done = gym("show", "r.jsonl")
    assert done.stdout.startswith("arithmetic  task sum-0  attempt 0  m\n")
    assert "\nstep rewards  [null,0.5]\n" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--first", "--worst"), "--first and --worst: give only one of them"),
        (("sum-0", "--worst"), "--worst: leave out sum-0, or leave out the option"),
        (("sum-0", "--where", "passed"), "--where: leave out sum-0"),
        (("--where", "rewrd < 1"), 'there is no name "rewrd"; did you mean "reward"?'),
        (("--where", "reward > 7"), "sums: no attempt matches the filter 'reward > 7'"),
        (("--env", "arithmatic"), 'environment "arithmatic"; did you mean "arithmetic"?'),
        (("--env", "x"), 'sums: no attempt is of environment "x"; there are arithmetic'),
        (
            ("--env", "arithmetic", "--where", "reward > 7"),
            "no attempt of environment arithmetic matches the filter",
        ),
        (("sum-99",), "no attempt of task sum-99 is recorded (gym show sums lists the attempts)"),
    ],
)
def test_show_used_wrongly(sums, arguments, reason):
    assert reason in gym("show", sums, *arguments, exit_code=2).stderr


def test_show_of_an_attempt_that_waits_says_why(run, mock_server):
    """The conversation is complete, and the failure has the reason why there is no score."""
    lines = lines_of(run / "rollouts.jsonl")
    waiting = {k: v for k, v in lines[1].items() if k not in ("reward", "answer", "verifier")}
    (run / "rollouts.jsonl").write_bytes(msgspec.json.encode(lines[0]) + b"\n")
    (run / "generations.jsonl").write_bytes(msgspec.json.encode(waiting) + b"\n")
    done = gym("show", run, "--where", 'status == "waiting"')
    assert "\n── not scored yet (gym verify --pending scores it)\n" in done.stdout
    error = {"class": "VerifierTimeoutError", "phase": "verify", "message": "too slow"}
    failure = {k: waiting[k] for k in ("schema_version", "task_id", "attempt", "env", "messages")}
    (run / "failures.jsonl").write_bytes(msgspec.json.encode(failure | {"error": error}) + b"\n")
    done = gym("show", run, "--where", 'status == "waiting"')
    assert "\n── not scored\nerror         VerifierTimeoutError\n" in done.stdout
    assert "VerifierTimeoutError  too slow" in gym("show", run).stdout


def test_show_says_what_of_an_attempt_can_be_trained(tmp_path):
    run = append_kinds(tmp_path / "run")
    shown = {}
    for kind in ("forked", "raw", "partly", "without ids"):
        _, mark, fields = gym("show", run, kind).stdout.partition("── token ids\n")
        assert mark
        shown[kind] = fields.splitlines()
    raw = "(vllm, raw log-probabilities)"
    assert shown == {
        "forked": [
            f"calls         2 {raw}",
            "sampled       3 ids, mean log-probability -0.5000",
            "sequences     4 ids, 2 of them trained; call 0",
            "              5 ids, 1 of them trained; call 1",
        ],
        "raw": [
            f"calls         1 {raw}",
            "sampled       2 ids, mean log-probability -0.5000",
            "sequences     4 ids, 2 of them trained; call 0",
            "off-policy    raw log-probabilities at temperature 0.7",
        ],
        "partly": [
            f"calls         3 {raw}",
            "sampled       3 ids, mean log-probability -0.5000",
            "sequences     6 ids, 3 of them trained; 2 calls, 0 to 2",
            "unusable      call 1: the answer has no token ids",
        ],
        "without ids": [
            "calls         2",
            "sequences     none",
            "unusable      call 0: the answer has no token ids",
            "              call 1: the answer has no token ids",
        ],
    }
    (run / "tokens.jsonl").unlink()
    assert "tokens.jsonl does not exist" in gym("show", run, "raw").stdout
