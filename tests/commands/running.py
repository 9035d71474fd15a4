"""Run commands in a folder of their own, as a user does, for the tests of commands."""

import os
import shlex
import signal
import sys
from pathlib import Path

import msgspec
from typer.testing import CliRunner, Result

from gymcli.cli import app
from gymcli.mock import MockAnswer
from gymcli.mock.behaviours import last_user_text
from gymcli.types import Request
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


def gym(*arguments: str | Path) -> Result:
    """Run a command; an exception that is a bug is raised here, wrong use is in the result."""
    result = CliRunner().invoke(app, [str(a) for a in arguments], env=NO_ENDPOINT)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def gym_line(line: str) -> Result:
    """Run a command given as one line of shell."""
    return gym(*shlex.split(line))


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


def write_sums(path: Path, num: int, *, env: str = "arithmetic", **fields: object) -> Path:
    """Write tasks that ask for sums, with the same further fields in each."""
    rows = (
        {"id": f"sum-{n}", "env": env, "prompt": f"What is {n} + 1?", "answer": n + 1, **fields}
        for n in range(num)
    )
    path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    return path


def add_up(request: Request) -> MockAnswer:
    """Answer a sum correctly."""
    words = last_user_text(request).rstrip("?").split()
    return MockAnswer(text=f"It is {int(words[2]) + int(words[4])}.")


def lines_of(path: Path) -> list[dict]:
    """Return the decoded lines of a JSONL file."""
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
