"""Tests that every mistake of a user ends in a clear message and an exit code, not a traceback."""

import gzip
from collections.abc import Mapping
from typing import NamedTuple

import pytest

from gymcli.mock.behaviours import last_user_text, refusal_of
from gymcli.store.run_directory import RunDirectory
from tests.builders import add_up, gym_line

ROW = '{"id": "a", "env": "arithmetic", "prompt": "What is 1 + 1?", "answer": 2}\n'
OTHER = '{"id": "a", "env": "arithmetic", "prompt": "What is 1 + 2?", "answer": 3}\n'
RAW = '{"id": "a", "env": "arithmetic", "question": "1 + 1", "answer": 2}\n'
NO_ENV = '{"id": "a", "prompt": "What is 1 + 1?", "answer": 2}\n'
SCORED = (
    '{"schema_version": 1, "task_id": "a", "task_hash": "%s", "env": "arithmetic", "reward": 1}'
)
COLLECT = "collect tasks.jsonl --model oracle --out run"
ASK = "collect tasks.jsonl --model m --base-url {url}"

QUICK = '[models.quick]\nbase_url = "{url}"\nmax_attempts = 1\n'
DEAD = '[models.dead]\nbase_url = "http://127.0.0.1:9/v1"\nmax_attempts = 1\n'

LONG = "n" * 300


class Case(NamedTuple):
    """One mistake."""

    what: str
    line: str
    code: int
    fragment: str
    files: Mapping[str, str | bytes] = {}
    """Files next to tasks.jsonl, which holds one good row; written just before the command."""
    before: tuple[str, ...] = ()
    """Commands that succeed first."""
    num_lines: int = 1
    """Number of lines of the message."""


CASES = [
    Case("no such file", "collect no.jsonl --model oracle", 2, "no.jsonl: no such file"),
    Case("a folder as tasks", "collect folder --model oracle", 2, "folder: is a folder"),
    Case("a device as tasks", "collect /dev/null --model oracle", 2, "is not a regular file"),
    Case("bad JSON", COLLECT, 2, "tasks.jsonl:17: is not JSON", {"tasks.jsonl": ROW * 16 + "{\n"}),
    Case("no object", COLLECT, 2, "tasks.jsonl:1: must be a JSON object", {"tasks.jsonl": "[]\n"}),
    Case("a name that is too long", f"collect {LONG} --model oracle", 2, f"{LONG}: File name too"),
    Case(
        "a long --out", f"{COLLECT}{LONG}", 4, f"run{LONG}: cannot be created: File name too long"
    ),
    Case("metrics: a long name", f"metrics {LONG}", 2, f"{LONG}: File name too long"),
    Case("verify: a long --out", f"verify run --out {LONG}", 2, "File name too", {}, (COLLECT,)),
    Case("no rows", COLLECT, 2, "tasks.jsonl: no tasks", {"tasks.jsonl": "\n\n"}),
    Case(
        "a damaged archive",
        "collect tasks.jsonl.gz --model oracle",
        2,
        "tasks.jsonl.gz: cannot be read",
        {"tasks.jsonl.gz": gzip.compress(ROW.encode() * 99)[:-20]},
    ),
    Case(
        "unknown environment",
        "collect tasks.jsonl --model oracle --env arithmetik",
        2,
        'no environment "arithmetik"; did you mean "arithmetic"?',
    ),
    Case(
        "unknown environment in a row",
        COLLECT,
        2,
        'tasks.jsonl:1: no environment "mcqb"; did you mean "mcqa"?',
        {"tasks.jsonl": '{"env": "mcqb", "prompt": "x"}\n'},
    ),
    Case(
        "an endpoint for a model that has none",
        f"{COLLECT} --dialect responses",
        2,
        "--model oracle takes no --base-url, --api-key-env or --dialect",
        {"tasks.jsonl": ROW},
    ),
    Case("no environment", COLLECT, 2, "use --env NAME", {"tasks.jsonl": NO_ENV}),
    Case("no such file of code", f"{COLLECT} --env code.py:Env", 2, "code.py: no such file"),
    Case(
        "code that fails",
        f"{COLLECT} --env code.py:Env",
        2,
        "cannot be imported: ZeroDivisionError",
        {"code.py": "1 / 0\n"},
    ),
    Case(
        "code without the class",
        f"{COLLECT} --env code.py:Env",
        2,
        "code.py has no class Env",
        {"code.py": "x = 1\n"},
    ),
    Case(
        "a field is missing",
        COLLECT,
        2,
        'tasks.jsonl:1: "answer" is missing (environment arithmetic needs it)',
        {"tasks.jsonl": '{"env": "arithmetic", "prompt": "x"}\n'},
    ),
    Case(
        "a field of the wrong type",
        COLLECT,
        2,
        'tasks.jsonl:2: "answer": is not a whole number',
        {"tasks.jsonl": ROW + '{"env": "arithmetic", "prompt": "x", "answer": "two"}\n'},
    ),
    Case(
        "a field that an environment refuses",
        COLLECT,
        2,
        "tasks.jsonl:1: no circle has the \"target_color\" 'red' (environment circle_click)",
        {
            "tasks.jsonl": '{"env": "circle_click", "prompt": "x", "circles": [], '
            '"target_color": "red"}\n'
        },
    ),
    Case(
        "several wrong rows",
        COLLECT,
        2,
        "tasks.jsonl:3: must be a JSON object",
        {"tasks.jsonl": f"{{\n{ROW}[]\n"},
        num_lines=2,
    ),
    Case(
        "a row with two faults",
        COLLECT,
        2,
        'tasks.jsonl:1: "expected_answer" is missing (environment mcqa needs it)',
        {"tasks.jsonl": '{"env": "mcqa", "prompt": "x"}\n'},
        num_lines=2,
    ),
    Case(
        "very many wrong rows",
        COLLECT,
        2,
        "and 30 more rows are wrong",
        {"tasks.jsonl": "".join(f'{{"env": "no{n}", "prompt": "x"}}\n' for n in range(50))},
        num_lines=21,
    ),
    Case(
        "the same fault in many rows",
        COLLECT,
        2,
        'tasks.jsonl:1: no environment: the row has no "env"; use --env NAME (39 more rows: 2, 3, ',
        {"tasks.jsonl": '{"prompt": "x"}\n' * 40},
    ),
    Case(
        "no prompt",
        COLLECT,
        2,
        "rows without a prompt need --prompt FILE or --map FILE",
        {"tasks.jsonl": RAW.replace("question", "riddle")},
    ),
    Case(
        "a question, but no prompt",
        COLLECT,
        2,
        "tasks.jsonl:1: has no prompt; use --prompt FILE, or --map FILE with this map in it: ",
        {"tasks.jsonl": RAW},
    ),
    Case(
        "a JSON array",
        COLLECT,
        2,
        "is a JSON array, not one object a line; convert it: gym data pull tasks.jsonl -o tasks-r",
        {"tasks.jsonl": f"[\n{ROW}]"},
    ),
    Case(
        "JSON over several lines",
        COLLECT,
        2,
        "tasks.jsonl:1: is JSON over several lines, not one object a line; jq -c . FILE writes it ",
        {"tasks.jsonl": '{\n "prompt": "x"\n}\n'},
    ),
    Case(
        "a prompt and --prompt",
        f"{COLLECT} --prompt p.yaml",
        2,
        "leave out --prompt",
        {"p.yaml": "user: '{answer}'\n"},
    ),
    Case(
        "a template with an unknown field",
        f"{COLLECT} --prompt p.yaml",
        2,
        '"riddle" is missing (the prompt needs it; the row has: answer, id, question)',
        {"p.yaml": "user: '{riddle}'\n", "tasks.jsonl": RAW},
    ),
    Case("no such template", f"{COLLECT} --prompt p.yaml", 2, "p.yaml: cannot be read"),
    Case(
        "two rows with one id",
        COLLECT,
        2,
        'tasks.jsonl:2: another row, tasks.jsonl:1, has the same id "a"',
        {"tasks.jsonl": ROW + OTHER},
    ),
    Case("no such id field", f"{COLLECT} --id-field key", 2, 'tasks.jsonl:1: "key"'),
    Case(
        "a tool that is not there",
        COLLECT,
        2,
        'tool "fly" is not one of environment arithmetic',
        {
            "tasks.jsonl": ROW.replace(
                '"id"', '"tools": [{"type": "function", "function": {"name": "fly"}}], "id"'
            )
        },
    ),
    Case("unknown --task", f"{COLLECT} --task b", 2, "--task b: no task has this id"),
    Case("unknown --env-arg", f"{COLLECT} --env-arg speed=9", 2, "--env-arg speed: no environment"),
    Case(
        "--env-arg of the wrong type",
        "collect mcqa --model oracle --env-arg grading_mode=7",
        2,
        "--env-arg grading_mode: must be",
    ),
    Case("malformed --env-arg", f"{COLLECT} --env-arg x", 2, "--env-arg x: expected key=value"),
    Case("malformed --param", f"{COLLECT} --param =1", 2, "--param =1: expected key=value"),
    Case("--param that is none", f"{COLLECT} --param stream=true", 2, "--param stream: is no"),
    Case("too few --repeats", f"{COLLECT} --repeats 0", 2, "--repeats 0: must be 1 or more"),
    Case(
        "--min-coverage of 2",
        f"{COLLECT} --min-coverage 2",
        2,
        "--min-coverage 2: must be 1 or less",
    ),
    Case(
        "unknown --dialect",
        f"{ASK} --dialect morse",
        2,
        "--dialect morse: is not one of chat, responses",
    ),
    Case(
        "unknown option",
        f"{COLLECT} --sped 9",
        2,
        'gym collect: has no option --sped; did you mean "--seed"?',
    ),
    Case(
        "unknown command",
        "colect tasks.jsonl",
        2,
        'gym: has no command "colect"; did you mean "collect"?',
    ),
    Case("a log nowhere", f"{COLLECT} --log-file no/log", 2, "no/log: No such file"),
    Case(
        "unknown key of gym.toml",
        "collect tasks.jsonl --model x",
        2,
        'gym.toml: models.x.base_ur: unknown key (did you mean "base_url"?)',
        {"gym.toml": '[models.x]\nbase_url = "http://h/v1"\nbase_ur = "y"\n'},
    ),
    Case("gym.toml is no TOML", ASK, 2, "gym.toml: not TOML", {"gym.toml": "model ="}),
    Case("an empty key variable", f"{ASK} --api-key-env NO_KEY", 2, "variable NO_KEY"),
    Case("no endpoint", "collect tasks.jsonl --model m", 2, "use --model local"),
    Case("no endpoint and no model", "collect tasks.jsonl", 2, "no endpoint: use --model local"),
    Case("no model", "collect tasks.jsonl --base-url {url}", 2, "needs the name of a model"),
    Case("a wrong address", "collect tasks.jsonl --model m --base-url h:1", 2, "https://host/v1"),
    Case("no weights", "collect tasks.jsonl --model local:no.gguf", 2, "no.gguf: cannot be read"),
    Case("a refused key", f"{ASK}/401", 4, "wrong key; check the key"),
    Case("an unknown model", f"{ASK}/404", 4, "no model m; check --base-url and --model"),
    Case("a dead endpoint", "collect tasks.jsonl --model dead", 4, "is the server running"),
    Case(
        "too little coverage",
        "collect tasks.jsonl --model quick --min-coverage 0.8 --concurrency 1",
        4,
        "2 of 3 attempts are scored, less than --min-coverage 0.8 (failed: 1 RequestRefusedError)",
        {
            "tasks.jsonl": ROW
            + ROW.replace('"a"', '"b"')
            + ROW.replace('"a"', '"c"').replace("1 + 1", "9 + 9")
        },
    ),
    Case(
        "nothing scored",
        "collect tasks.jsonl --model quick --min-coverage 0",
        4,
        "0 of 1 attempts are scored",
        {"tasks.jsonl": ROW.replace("1 + 1", "9 + 9")},
    ),
    Case(
        "a run of other settings", f"{COLLECT} --seed 5", 2, "seed unset there, 5", {}, (COLLECT,)
    ),
    Case(
        "a changed task",
        COLLECT,
        2,
        'tasks.jsonl:1: the content of task "a" has changed since it was collected',
        {"tasks.jsonl": OTHER},
        (COLLECT,),
    ),
    Case("a folder that is no run", f"{COLLECT.replace('run', 'folder')}", 2, "holds no run"),
    Case("--out below a file", f"{COLLECT}/../tasks.jsonl/run", 4, "cannot be created"),
    Case(
        "--out is a file",
        "collect tasks.jsonl --model oracle --out tasks.jsonl",
        4,
        "tasks.jsonl: cannot be created: tasks.jsonl is a file, not a folder; use another --out",
    ),
    Case(
        "other tasks in the default folder",
        "collect tasks.jsonl --model oracle",
        2,
        "holds a run of other tasks",
        {"tasks.jsonl": OTHER.replace('"a"', '"b"')},
        ("collect tasks.jsonl --model oracle",),
    ),
    Case(
        "a damaged line of a run",
        COLLECT,
        2,
        "run/rollouts.jsonl:1: is damaged",
        {"run/rollouts.jsonl": f"{{torn\n{SCORED}\n"},
        (COLLECT,),
    ),
    Case(
        "a damaged line of conversations that wait",
        COLLECT,
        2,
        "run/generations.jsonl:1: is damaged: JSON is malformed: invalid character (byte 4); "
        "delete the line: its attempt is collected again",
        {"run/generations.jsonl": "torn\n\n{}\n"},
        (COLLECT,),
    ),
    Case(
        "verify: a damaged line of a run",
        "verify run",
        2,
        "run/rollouts.jsonl:1: is not a rollout: JSON is malformed: object keys must be strings "
        "(byte 1); delete the line: its attempt is collected again",
        {"run/rollouts.jsonl": f"{{torn\n{SCORED}\n"},
        (COLLECT,),
    ),
    Case(
        "a line that never ends",
        COLLECT,
        2,
        "tasks.jsonl:1: is longer than the limit of 128 MB",
        {"tasks.jsonl": b"[" * (1 << 27) + b"["},
    ),
    Case(
        "an attempt that is there twice",
        COLLECT,
        2,
        "attempt 0 of task a (arithmetic) appears twice",
        {"run/rollouts.jsonl": f"{SCORED}\n{SCORED}\n"},
        (COLLECT,),
    ),
    Case("a manifest that is none", COLLECT, 2, "is not a run's manifest", {"run/run.json": "7"}),
    Case("verify: nothing there", "verify no", 2, "no: no such run directory or rollout file"),
    Case("verify: no rollouts", "verify tasks.jsonl", 2, "tasks.jsonl:1: is not a rollout"),
    Case("verify: no run", "verify folder", 2, "folder: holds no rollouts.jsonl"),
    Case(
        "verify: --out is there",
        "verify run --out folder",
        2,
        "folder: already exists",
        {},
        (COLLECT,),
    ),
    Case(
        "verify: wrong tasks",
        "verify run --tasks bad.jsonl",
        2,
        "bad.jsonl:1: is not JSON",
        {"bad.jsonl": "{\n"},
        (COLLECT,),
    ),
    Case(
        "verify: unknown environment",
        "verify f.jsonl",
        2,
        'no environment "riddles"',
        {"f.jsonl": SCORED.replace("arithmetic", "riddles") + "\n"},
    ),
    Case("metrics: nothing there", "metrics no", 2, "no: no such run directory"),
    Case("metrics: no run", "metrics folder", 2, "folder: holds no rollouts.jsonl"),
    Case("metrics: no rollouts", "metrics tasks.jsonl", 2, "tasks.jsonl:1: is not a rollout"),
    Case(
        "metrics: no reward",
        "metrics f.jsonl",
        2,
        "f.jsonl:1: ",
        {"f.jsonl": '{"schema_version": 1, "task_id": "a"}\n'},
    ),
    Case(
        "metrics: unknown --env",
        "metrics run/rollouts.jsonl --env mcq",
        2,
        'did you mean "mcqa"?',
        {},
        (COLLECT,),
    ),
    Case("show: unknown task", "show run b", 2, "run: no attempt of task b", {}, (COLLECT,)),
    Case("show: unknown attempt", "show run a/1", 2, "no attempt of task a/1", {}, (COLLECT,)),
    Case("show: no run", "show folder a", 2, "folder: holds no rollouts.jsonl"),
    Case("envs: unknown name", "envs mqca", 2, 'no environment "mqca"; did you mean "mcqa"?'),
]


def refuse(request):
    """Refuse one of the sums, and answer the others."""
    if "9 + 9" in last_user_text(request):
        return refusal_of(400, "too hard")
    return add_up(request)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_bad_input(case, tmp_path, working_folder, mock_server):
    mock_server.behaviour = refuse
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "letter.txt").write_text("Dear Sir or Madam")
    (tmp_path / "tasks.jsonl").write_text(ROW)
    (tmp_path / "gym.toml").write_text(QUICK.format(url=mock_server.base_url) + DEAD)
    for line in case.before:
        gym_line(line, exit_code=0)
    for name, content in case.files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        data = content if isinstance(content, bytes) else content.encode()
        (tmp_path / name).write_bytes(data)

    line = case.line.format(url=mock_server.base_url)
    if line.endswith("/401"):
        line, mock_server.behaviour = line[:-4], lambda _: refusal_of(401, "wrong key")
    if line.endswith("/404"):
        line, mock_server.behaviour = line[:-4], lambda _: refusal_of(404, "no model m")
    result = gym_line(line)

    assert result.exit_code == case.code, result.output
    assert case.fragment in " ".join(result.stderr.split())
    assert "Traceback" not in result.output
    complaints = [line for line in result.stderr.splitlines() if line.lower().startswith("error: ")]
    assert len(complaints) == case.num_lines


def test_bad_input_two_processes(tmp_path, working_folder):
    (tmp_path / "tasks.jsonl").write_text(ROW)
    other = RunDirectory(tmp_path / "run")
    other.lock()
    result = gym_line(COLLECT)
    other.close()
    assert result.exit_code == 4
    assert "run: another process is writing this run" in result.stderr
    gym_line(COLLECT, exit_code=0)
