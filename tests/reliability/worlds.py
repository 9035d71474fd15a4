"""Environments in which no two attempts are alike, and the model that plays and judges them."""

import math
import re
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from gymcli import Context, Environment, JSONObject, Message, Rollout, Score, Task, tool
from gymcli.mock import MockAnswer
from gymcli.mock.behaviours import num_turns, refusal_of
from gymcli.types import Request
from tests.builders import write_rows
from tests.runner.environments import Judged

NONCE = re.compile(r"<(task-\d+)>")
QUESTION = "Is this good?"


def draw(text: str, num: int) -> int:
    """Return one of `num` numbers, always the same for a text."""
    return zlib.crc32(text.encode()) % num


class Computed(Environment[Task]):
    """Say anything; the verifier computes the score without waiting."""

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        return Score(draw(rollout.last_text, 5) / 4, answer=rollout.last_text)


class Ranked(Environment[Task]):
    """Say anything; attempts of a task are scored together, and the last in order of text wins."""

    max_reward = None

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        return Score(0.0)

    @classmethod
    async def verify_group(cls, rollouts: list[Rollout], context: Context) -> list[Score]:
        best = max(rollout.last_text for rollout in rollouts)
        return [Score(float(rollout.last_text == best)) for rollout in rollouts]


class Walked(Environment[Task]):
    """Walk twice with a tool; the verifier replays the walk."""

    place: int

    async def setup(self) -> list[Message]:
        self.place = self.rng.randrange(100)
        return []

    @tool
    def go(self, steps: int) -> JSONObject:
        """Walk some steps."""
        self.place += steps * self.rng.randrange(1, 10)
        return {"place": self.place}

    async def reply(self, rollout: Rollout) -> str | None:
        spoken = [m for m in rollout.responses if m.role == "assistant" and not m.tool_calls]
        return "Go on." if len(spoken) == 1 else None

    async def final_state(self) -> int:
        return self.place

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        world = await context.replay(rollout)
        assert isinstance(world, cls)
        return Score(float(world.place == rollout.final_state), answer=str(world.place))


class World(NamedTuple):
    """An environment, and the number of attempts per task."""

    environment: type[Environment[Task]]
    repeats: int = 2

    @property
    def spec(self) -> str:
        """Its value for `--env`."""
        return f"{self.environment.__module__}:{self.environment.__name__}"

    @property
    def roles(self) -> tuple[str, ...]:
        return self.environment.required_roles


WORLDS = {
    "computed": World(Computed),
    "judged": World(Judged),
    "ranked": World(Ranked, repeats=3),
    "walked": World(Walked),
}

NUM_TASKS = 6


def write_tasks(path: Path, num: int = NUM_TASKS) -> Path:
    """Write tasks with a nonce each."""
    rows = ({"id": f"task-{n}", "prompt": f"<task-{n}> Begin."} for n in range(num))
    write_rows(path, rows)
    return path


class Asked(NamedTuple):
    """The attempt that a request is about."""

    role: str
    """`policy` or `judge`."""
    task_id: str
    seed: int
    """The seed in the request, which identifies the attempt."""

    @property
    def attempt(self) -> tuple[str, int]:
        return self.task_id, self.seed


FAILURES = {
    "refused": lambda: refusal_of(400, "not this one"),
    "broken": lambda: refusal_of(500, "out of order"),
    "cut": lambda: MockAnswer(fault="reset"),
    "garbled": lambda: MockAnswer(body='{"choices": [{"mess'),
}


class Model:
    """A behaviour of the mock server: policy and judge, whose answers depend only on the request.

    It records the requests, fails for given tasks, and at the n-th request of a command calls a
    function by which a test stops that command.
    """

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        """The requests since `begin`."""
        self.failing: dict[tuple[str, str], str] = {}
        """Pairs of role and task, with the kind of their failure."""
        self._first_held: float = math.inf
        self._alarm: tuple[int, Callable[[], None]] | None = None
        # A test calls `begin` in its own thread while the server answers in another.
        self._lock = threading.Lock()

    def hold_from(self, num: int) -> None:
        """Never answer the `num`-th request of a command or any later one."""
        self._first_held = num

    def recover(self) -> None:
        """Answer everything from now on."""
        self._first_held = math.inf
        self.failing.clear()

    def begin(self, num: int = 0, sound: Callable[[], None] | None = None) -> None:
        """Forget earlier requests; the `num`-th request from now on calls `sound`."""
        with self._lock:
            self.asked = []
            self._alarm = None if sound is None else (num, sound)

    def __call__(self, request: Request) -> MockAnswer:
        asked = about(request)
        with self._lock:
            self.asked.append(asked)
            is_held = len(self.asked) >= self._first_held
            is_time = self._alarm is not None and self._alarm[0] == len(self.asked)
            sound = self._alarm[1] if self._alarm is not None else None
        if is_time and sound is not None:
            sound()
        if is_held:
            return MockAnswer(fault="stall")
        kind = self.failing.get((asked.role, asked.task_id))
        if kind is not None:
            return FAILURES[kind]()
        name = f"{asked.task_id} {asked.seed}"
        if asked.role == "judge":
            return MockAnswer(text=f"[[{('GOOD', 'BAD')[draw(name, 2)]}]]")
        turn = num_turns(request)
        if request.tools and turn % 2 == 0:
            return MockAnswer(tool_calls=[("go", {"steps": draw(f"{name} {turn}", 9)})])
        return MockAnswer(text=f"<{asked.task_id}> by {asked.seed}")


def about(request: Request) -> Asked:
    """Return the attempt that a request is about."""
    first = next(m.text for m in request.messages if m.role == "user")
    nonce = NONCE.search(first)
    assert nonce is not None, f"a request of no task: {first}"
    if first.startswith(QUESTION):
        seed = re.search(r"by (\d+)", first)
        assert seed is not None
        return Asked("judge", nonce[1], int(seed[1]))
    return Asked("policy", nonce[1], int(str(request.params["seed"])))
