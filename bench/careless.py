"""An environment that leaks secrets wherever it can, for bench/planted.py."""

import asyncio
import logging
import os
import sys
import warnings

from gymcli import Context, Environment, JSONObject, Judge, Message, Rollout, Score, Task, tool

JUDGE = Judge(
    "Is this good? {text} End with [[YES]] or [[NO]].", labels={"y": "[[YES]]", "n": "[[NO]]"}
)


class CarelessTask(Task):
    """A task with the name of the part that fails."""

    fails_in: str = ""


class EscapeError(BaseException):
    """Not an `Exception`, so that the command ends with a traceback."""


class Careless(Environment[CarelessTask]):
    """Sends, prints, logs and raises secrets."""

    required_roles = ("judge",)

    @classmethod
    def parse_task(cls, fields: JSONObject) -> CarelessTask:
        if fields.get("fails_in") == "everything":
            raise EscapeError(f"no service with {os.environ['SETUP_BUG_TOKEN']}")
        return super().parse_task(fields)

    async def setup(self) -> list[Message]:
        if self.task.fails_in == "setup":
            raise RuntimeError(f"no service with {os.environ['SETUP_BUG_TOKEN']}")
        print("printed:", os.environ["PRINTED_TOKEN"])
        # Redacting each write by itself would miss a secret that arrives in pieces.
        print("in pieces:", end=" ", file=sys.stderr)
        for piece in os.environ["PRINTED_TOKEN"]:
            print(piece, end="", file=sys.stderr)
        print(file=sys.stderr)
        warnings.warn(f"warned: {os.environ['PRINTED_TOKEN']}", stacklevel=1)
        logging.getLogger("gymcli.careless").warning("logged: %s", os.environ["PRINTED_TOKEN"])
        # asyncio logs an exception that nobody retrieves when the future is collected.
        lost = asyncio.get_running_loop().create_future()
        lost.set_exception(RuntimeError(f"lost: {os.environ['PRINTED_TOKEN']}"))
        return []

    @tool
    def look_up(self) -> JSONObject:
        """Look the account up."""
        return {"account": {"token": os.environ["TOOL_OUTPUT_TOKEN"]}, "wide": "é" * 4}

    @tool
    def pay(self) -> str:
        """Pay the bill."""
        raise RuntimeError(f"401 for key {os.environ['TOOL_ERROR_TOKEN']}")

    async def final_state(self) -> JSONObject:
        return {"state": os.environ["TOOL_OUTPUT_TOKEN"]}

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        password = os.environ["VERIFIER_PASSWORD"]
        if cls.parse_task(rollout.task).fails_in == "verify":
            raise ValueError(f"cannot compare with {password!r}")
        inside = await context.isolated(look_inside, password)
        verdict = await JUDGE.ask(context.roles["judge"], text=rollout.last_text)
        details: JSONObject = {"reason": f"used {password}", password: inside}
        return Score(1.0, answer=password, details=details | {"verdict": verdict.record()})


def look_inside(password: str) -> JSONObject:
    """Print in a worker, and return which secrets are in its environment."""
    print("in a worker:", password)
    print("in a worker's stderr:", password, file=sys.stderr)
    return {
        "found": sorted(name for name, value in os.environ.items() if value.startswith("planted"))
    }
