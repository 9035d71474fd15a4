"""Source files of environments that end, block or fail their process, and their tasks."""

import json
from pathlib import Path

DEADLY = '''"""Ends or blocks its process if a file asks for it; the score is unaffected."""

import os
import signal
from pathlib import Path

from gymcli import Context, Environment, Rollout, Score, Step, Task


class Deadly(Environment[Task]):
    """Say anything."""

    blocking_timeout = 2.0

    async def step(self, message):
        task_id = self.rollout.task_id
        while Path(f"blocking-{task_id}").exists():
            pass
        deadly = Path(f"deadly-{task_id}")
        if deadly.exists():
            if deadly.read_text() == "once":
                deadly.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        with Path("played").open("a") as played:
            played.write(f"{task_id} {os.getpid()}\\n")
        return Step([])

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        if Path("broken").exists():
            raise RuntimeError("the verifier is broken")
        return Score(float(len(rollout.last_text)), answer=rollout.last_text)
'''


def write_tasks(folder: Path, num: int) -> Path:
    """Write this many tasks, with the environment in the same folder."""
    (folder / "deadly.py").write_text(DEADLY)
    path = folder / "tasks.jsonl"
    rows = ({"id": str(n), "prompt": f"Say {'x' * n}"} for n in range(num))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def records_of(path: Path) -> dict[tuple[str, int], dict]:
    """Return the records of a file without their times; fail on duplicates."""
    found = {}
    for line in path.read_text().splitlines():
        record = json.loads(line)
        del record["timing"]
        for call in record.get("calls", []):
            del call["seconds"]
        for use in record.get("role_usage", {}).values():
            del use["seconds"]
        key = (record["task_id"], record["attempt"])
        assert key not in found
        found[key] = record
    return found


HEAVY = '''"""Verifiers that fail, hang, take all memory, or end their process."""

import os
import signal
import subprocess
import time
from pathlib import Path

from gymcli import Context, Environment, Rollout, Score, Task


class Heavy(Environment[Task]):
    """Say anything."""

    verify_timeout = 4.0
    verify_memory_mb = 256

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        with Path("verified").open("a") as verified:
            verified.write(f"{os.getpid()} {os.getppid()}\\n")
        if not Path("cruel").exists():
            return Score(float(len(rollout.last_text)), details={"reason": "length"})
        if Path("lost").exists():
            Path("lost").unlink()
            asked = ["ps", "-o", "ppid=", "-p", str(os.getppid())]
            os.kill(int(subprocess.check_output(asked)), signal.SIGKILL)
            time.sleep(60)
        kind = {"3": "raises", "8": "dies", "11": "hangs", "19": "grows"}.get(rollout.task_id, "")
        if kind == "raises":
            raise RuntimeError("the verifier is broken")
        if kind == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        while kind == "hangs":
            pass
        if kind == "grows":
            held = bytearray(1 << 30)
            time.sleep(60 * bool(held))
        return Score(1.0, details={"reason": "one"})
'''

JUDGED = '''"""A judge looks at every attempt, and all attempts of a task are scored together."""

from gymcli import Context, Environment, Message, Rollout, Score, Task


class Judged(Environment[Task]):
    """Say anything."""

    max_reward = None
    required_roles = ("judge",)

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        question = f"How long is {rollout.last_text} of attempt {rollout.attempt}?"
        asked = [Message(role="user", content=question)]
        answer = await context.roles["judge"].complete(asked, cache="1")
        return Score(float(len(answer.text)))

    @classmethod
    async def verify_group(cls, rollouts: list[Rollout], context: Context) -> list[Score]:
        mean = sum(rollout.reward for rollout in rollouts) / len(rollouts)
        return [Score(rollout.reward - mean) for rollout in rollouts]
'''


def write_environments(folder: Path) -> None:
    """Write the environments with slow verifiers and with judges."""
    (folder / "heavy.py").write_text(HEAVY)
    (folder / "judged.py").write_text(JUDGED)
