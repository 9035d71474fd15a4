"""Environment code that writes to the descriptors that it inherits, or closes them."""

import subprocess
import sys
from pathlib import Path

import pytest

from gymcli.store.run_directory import RunDirectory
from tests.builders import clean_environment, lines_of, write_rows

WRITING = '''
import os
from contextlib import suppress
from gymcli import Environment, FunctionCall, Message, Score, Task, ToolCall, tool

class Writing(Environment[Task]):
    """Call the tool."""

    waits_to_verify = True

    @tool
    def scribble(self) -> str:
        """Write to every low descriptor."""
        for number in range(3, 64):
            with suppress(OSError):
                {what}
        return "written"

    async def oracle(self, rollout):
        if rollout.messages[-1].role == "tool":
            return Message(role="assistant", content="done")
        call = ToolCall("c", FunctionCall("scribble", "{{}}"))
        return Message(role="assistant", tool_calls=[call])

    @classmethod
    async def verify(cls, rollout, context):
        return Score(1.0)
'''


def collect(folder):
    """Collect in a supervised process; return what it prints to stderr."""
    start = "from gymcli.supervisor import main; main()"
    options = ("--env", "writing.py", "--model", "oracle", "--out", "run")
    ended = subprocess.run(
        [sys.executable, "-c", start, "collect", "t.jsonl", *options],
        cwd=folder,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "what", ['os.write(number, b"garbage\\n")', "os.ftruncate(number, 0)", "os.close(number)"]
)
def test_what_a_tool_does_to_low_descriptors_harms_no_file_of_the_run(tmp_path, what):
    (tmp_path / "writing.py").write_text(WRITING.format(what=what))
    rows = [{"id": f"t{number}", "prompt": "Go."} for number in range(6)]
    write_rows(tmp_path / "t.jsonl", rows)
    for _ in range(2):  # the second one reads what the first one wrote
        errors = collect(tmp_path)
        # The sockets of the loop are closed: it cannot end, and the run is restarted.
        assert "died" not in errors or "close" in what
    assert [line["reward"] for line in lines_of(tmp_path / "run" / "rollouts.jsonl")] == [1.0] * 6


def test_the_files_of_a_run_have_high_descriptors(tmp_path):
    def opened():
        return {int(path.name) for path in Path("/dev/fd").iterdir()}

    before = opened()
    directory = RunDirectory(tmp_path / "run")
    directory.lock()
    directory.reserve(records_tokens=True)
    directory.append_rollout(b"{}")
    directory.begun.open(())
    new = opened() - before
    directory.begun.remove()
    directory.close()
    assert len(new) > 10
    assert min(new) >= 200
    assert opened() == before


LIMITED = """
import os, resource, sys
from pathlib import Path
from gymcli.store.durability import LineAppender
resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))
appender = LineAppender(Path(sys.argv[1]))
appender.append(b"{{}}")
print(appender._descriptor)
appender.close()
"""


@pytest.mark.parametrize(("limit", "lowest"), [(256, 200), (128, 100), (80, 64), (20, 3)])
def test_a_low_limit_of_open_files_leaves_lower_descriptors(tmp_path, limit, lowest):
    ended = subprocess.run(
        [sys.executable, "-c", LIMITED.format(limit=limit), tmp_path / "out.jsonl"],
        capture_output=True,
        check=True,
    )
    assert lowest <= int(ended.stdout) < limit
    assert (tmp_path / "out.jsonl").read_bytes() == b"{}\n"


LOOPED = """
import asyncio, resource
from gymcli.rollout import event_loop
resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))
event_loop.run(asyncio.sleep(0))
"""


@pytest.mark.parametrize("limit", [64, 205, 240])
def test_an_event_loop_starts_with_few_open_files(limit):
    """Between 200 and 208 files there was no room for those of libuv, which then aborts."""
    ended = subprocess.run([sys.executable, "-c", LOOPED.format(limit=limit)], check=False)
    assert ended.returncode == 0
