"""What tests of many rooms build on: rows, rollouts, failures, runs, collections and commands."""

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import msgspec
from typer.main import get_command
from typer.testing import CliRunner, Result

import gymcli
from gymcli.cli import app
from gymcli.mock import MockAnswer, MockServer
from gymcli.mock.behaviours import Behaviour, last_user_text
from gymcli.models.endpoint import Endpoint
from gymcli.store.manifest import EnvironmentRecord, Manifest
from gymcli.types import (
    ErrorRecord,
    Failure,
    FunctionCall,
    Message,
    Request,
    Rollout,
    Timing,
    ToolCall,
    Usage,
)
from tests.processes import heed_signals

NO_ENDPOINT = {
    "OPENAI_API_KEY": None,
    "OPENAI_BASE_URL": None,
    "TERM": "dumb",
    "NO_COLOR": None,
    "COLUMNS": None,
}
"""Environment variables that a developer may have set, unset or fixed for tests."""

HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202eevil\u2066 [bold red]markup[/] \x9b31m"
"""Text as a model may write it: escape sequences, bidi characters, rich markup."""

UNSAFE = "\x1b\x07\x9b\u202e\u2066"

FLAKY = '''"""An environment whose verifier fails while a file named `broken` exists."""

from pathlib import Path

from gymcli import Context, Environment, Message, Rollout, Score, Task


class Flaky(Environment[Task]):
    """Say anything."""

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        if Path("broken").exists():
            raise RuntimeError("the verifier\\nis broken")
        return Score(1.0, details={"reason": "any"})

    async def oracle(self, rollout: Rollout) -> Message:
        if Path("closed").exists():
            raise RuntimeError("the oracle is closed")
        return Message(role="assistant", content="anything")
'''


def gym(*arguments: str | Path, exit_code: int | None = None) -> Result:
    """Run a command, which ends with this exit code if one is named; raise what is a bug."""
    runner, code = CliRunner(), 0
    with runner.isolation(env=NO_ENDPOINT) as outputs:
        try:
            _command_line()([str(argument) for argument in arguments], prog_name="gym")
        except SystemExit as end:
            code = int(end.code or 0)
        sys.stdout.flush()
        sys.stderr.flush()
        stdout, stderr, output = (stream.getvalue() for stream in outputs)
    result = Result(runner, stdout, stderr, output, None, code, None)
    assert exit_code in (None, result.exit_code), f"exit {result.exit_code}: {result.output}"
    return result


@cache
def _command_line() -> Callable[..., object]:
    """Return what a process builds once, too; `CliRunner.invoke` would build it for each call."""
    return get_command(app)


def gym_line(line: str, *, exit_code: int | None = None) -> Result:
    """Run a command that is one line of shell."""
    return gym(*shlex.split(line), exit_code=exit_code)


def gym_process(*arguments: str | Path, hangup: signal.Handlers = signal.SIG_DFL) -> list[str]:
    """Return the command line of a separate process that ends at SIGINT and SIGHUP."""
    start = f"{heed_signals(hangup)}; from gymcli.cli import main; main()"
    return [sys.executable, "-c", start, *(str(argument) for argument in arguments)]


def clean_environment() -> dict[str, str]:
    """Return the environment variables for a separate process."""
    return {name: value for name, value in os.environ.items() if name not in NO_ENDPOINT}


def unmeasured_environment() -> dict[str, str]:
    """Return the environment of a command that cannot write to the folder of coverage files."""
    measuring = ("COVERAGE_", "COV_")
    return {k: v for k, v in clean_environment().items() if not k.startswith(measuring)}


def write_rows(path: Path | str, rows: Iterable[object]) -> Path:
    """Write a JSONL file of these rows, and the folders above it."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(lines(*rows))
    return Path(path)


def write_prompts(path: Path, num: int) -> Path:
    """Write tasks that ask to say something."""
    prompts = (f"Say something about {n}." for n in range(num))
    return write_rows(path, ({"id": f"t{n}", "prompt": text} for n, text in enumerate(prompts)))


def write_sums(path: Path, num: int, *, env: str = "arithmetic", **fields: object) -> Path:
    """Write tasks that ask for sums, with the same further fields in each."""
    rows = (
        {"id": f"sum-{n}", "env": env, "prompt": f"What is {n} + 1?", "answer": n + 1, **fields}
        for n in range(num)
    )
    return write_rows(path, rows)


def add_up(request: Request) -> MockAnswer:
    """Answer a sum correctly."""
    words = last_user_text(request).rstrip("?").split()
    return MockAnswer(text=f"It is {int(words[2]) + int(words[4])}.")


def lines_of(path: Path) -> list[dict]:
    """Return the decoded lines of a JSONL file."""
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


QUICK = {"max_attempts": 1}
"""Options of an endpoint that is asked once, so that no test waits for retries."""


def collect_all(
    tasks: Path | list[Path], behaviour: Behaviour = add_up, *, max_attempts: int = 1, **options
) -> tuple[list[Rollout | Failure], MockServer]:
    """Collect everything from a mock server; return the records and the stopped server."""

    async def run() -> tuple[list[Rollout | Failure], MockServer]:
        async with MockServer(behaviour) as server:
            endpoint = Endpoint(base_url=server.base_url, model="m", max_attempts=max_attempts)
            records = [r async for r in gymcli.collect(tasks, endpoint=endpoint, **options)]
            return records, server

    return asyncio.run(run())


def scored(task_id="a", attempt=0, reward=1.0, env="quiz", **fields):
    said = fields.pop("said", "I say B")
    messages = [Message(role="user", content="A or B?"), Message(role="assistant", content=said)]
    given = {
        "messages": messages,
        "num_prompt_messages": 1,
        "task": {"category": "letters"},
        "stop_reason": "done",
        "model": "m",
        "usage": Usage(prompt_tokens=7, completion_tokens=3, reasoning_tokens=1),
        "timing": Timing(total_seconds=2.5),
        **fields,
    }
    key = {"schema_version": 1, "env": env, "task_id": task_id, "attempt": attempt}
    return Rollout(**key, reward=reward, **given)


def waiting(task_id="a", attempt=0, **fields):
    return scored(task_id, attempt, None, **fields)


def failed(
    task_id="a", attempt=0, error="ServerError", phase="model", env="quiz", said="sorry", **fields
):
    record = ErrorRecord(error_class=error, phase=phase, message=said)
    key = {"schema_version": 1, "env": env, "task_id": task_id, "attempt": attempt}
    return Failure(**key, error=record, **fields)


def with_tools(task_id="t", **fields):
    """Return a rollout of two turns, the first of which calls a tool twice."""
    call = ToolCall(id="1", function=FunctionCall("weather", '{"city": "Oslo"}'))
    other = ToolCall(id="2", function=FunctionCall("weather", '{"city": "Rom"}'))
    messages = [
        Message(role="system", content="Be brief."),
        Message(role="assistant", content="Hello"),
        Message(role="user", content=[{"type": "text", "text": "Where is it warm?"}]),
        Message(role="assistant", reasoning="let me look", tool_calls=[call, other]),
        Message(role="tool", tool_call_id="1", content="cold"),
        Message(role="tool", tool_call_id="2", content="warm"),
        Message(role="assistant", content="In Rom."),
    ]
    return scored(task_id, messages=messages, num_prompt_messages=3, **fields)


def lines(*records):
    """Return records as the lines of a JSONL file."""
    return b"".join(msgspec.json.encode(record) + b"\n" for record in records)


def append(path: Path, *records):
    with path.open("ab") as file:
        file.write(lines(*records))


def write_run(path: Path, *, rollouts=(), failures=(), generations=(), threshold=1.0):
    """Write a run directory with these records in its files."""
    path.mkdir(exist_ok=True)
    record = EnvironmentRecord(version="1", max_reward=1.0, pass_threshold=threshold)
    manifest = Manifest(environments={"quiz": record}, model="m")
    (path / "run.json").write_bytes(msgspec.json.encode(manifest))
    for name, records in (
        ("rollouts", rollouts),
        ("failures", failures),
        ("generations", generations),
    ):
        if records:
            (path / f"{name}.jsonl").write_bytes(lines(*records))
    return path
