r"""Plays Sokoban: boxes are pushed onto targets, one move a message.

Source: the resources server grl_sokoban of NVIDIA NeMo Gym (Apache-2.0), its rules written anew,
and the rewards of gym-sokoban: -0.1 for every step, 1 for a box pushed onto a target, -1 for one
pushed off it, 10 more once all are there; their sum counts. The action is the first
`<action>up|down|left|right|1-4</action>` of a message, else the first such word or digit anywhere
in it, in upper or lower case. An episode has 20 messages. Where this differs:

- An episode that breaks off before its turns are used up, as at a token limit, is charged -0.1 for
  each turn that is left of the 20, as if the player had stood still: stopping must not pay.
- A message without an action is answered with what is expected, and is a step that moves nothing;
  in the reference it ends the rollout without a reward.
- A row may write its room out as `board`. From `seed`, `dim_room` and `num_boxes`, without a board,
  a room is made by our own generator: another one than gym-sokoban's of the same seed. A rollout of
  the reference with such a row stays unscored.
- A row without a board and a `seed` gets a room from the attempt's seed.
- `search_depth`, `max_steps` and `render_mode` of a row change nothing; its `max_turns` does.

One row (its system message shortened):
{"id": "sokoban-0", "difficulty": "easy", "messages": [{"role": "system", "content": "Push the box
onto the target."}, {"role": "user", "content": "#####\n#@$.#\n#####"}], "board":
"#####\n#@$.#\n#####", "num_boxes": 1}
"""

import math
import re
from collections.abc import Iterator
from random import Random
from typing import Annotated

from pydantic import Field, field_validator

from gymcli import (
    Context,
    Environment,
    JSONObject,
    Message,
    Properties,
    Rollout,
    Score,
    Step,
    Task,
    VerifierError,
)

from .rooms import ACTIONS, Room, make_room, solve

__all__ = ["Puzzle", "Sokoban"]

TAGGED = re.compile(r"<action>\s*(up|down|left|right|[1-4])\s*</action>", re.IGNORECASE | re.ASCII)
BARE = re.compile(r"\b(?ai:(up|down|left|right|[1-4]))\b")

STEP_REWARD = -0.1
BOX_REWARD = 1.0
SOLVED_REWARD = 10.0

USED_UP = (None, "done", "env_done", "max_turns")
"""Stop reasons of episodes that had all their turns, and of records that do not say."""

Side = Annotated[int, Field(ge=4, le=20)]


class Puzzle(Task):
    """A room, or what it is made from."""

    board: str | None = None
    """The room in signs, a line each row."""
    seed: int | None = None
    """Makes the room where there is no board; None: the attempt's own seed does."""
    dim_room: tuple[Side, Side] = (6, 6)
    """Rows and columns, the walls around the room included."""
    num_boxes: Annotated[int, Field(ge=1, le=8)] = 1

    @field_validator("board")
    @classmethod
    def _is_a_room(cls, board: str | None) -> str | None:
        if board is not None:
            Room.parse(board)
        return board


class Sokoban(Environment[Puzzle]):
    """Push every box onto a target, one move a message."""

    max_reward = None
    pass_threshold = 6.5
    """A room solved within 20 turns is worth 9 or more, one of 8 boxes that is not 6.3 at most."""
    max_turns = 20
    properties = Properties("multi-turn", "planning", "games", "puzzle", "replayed rewards")

    room: Room
    plan: list[str]
    """What is left of the oracle's solution."""
    num_moves: int
    """Actions that moved the player."""
    num_unreadable: int
    """Messages without an action."""

    async def setup(self) -> list[Message]:
        """Build the room; show it, unless the prompt does."""
        self.room, self.plan = self._built(), []
        self.num_moves = self.num_unreadable = 0
        if any(self.room.text in message.text for message in self.rollout.messages):
            return []
        return [Message(role="user", content=f"{SIGNS}\n\n{EXPECTED}\n\n{self.room.text}")]

    def _built(self) -> Room:
        if self.task.board is not None:
            return Room.parse(self.task.board)
        rng = self.rng if self.task.seed is None else Random(self.task.seed)
        return make_room(rng, *self.task.dim_room, self.task.num_boxes)

    async def step(self, message: Message) -> Step:
        """Play the message's action, show the room and reward the step."""
        if self.room.is_solved():
            return Step([], stop_reason="env_done")
        refused = await self.call_tools(message.tool_calls)
        before = self.room
        action = action_of(message.text)
        said = self._moved(action) if action else self._asked_again()
        reward = STEP_REWARD + BOX_REWARD * (self.room.num_on_target - before.num_on_target)
        answer = Message(role="user", content=f"{said}\n\n{self.room.text}")
        if self.room.is_solved():
            return Step([*refused, answer], reward + SOLVED_REWARD, "env_done")
        return Step([*refused, answer], reward)

    def _moved(self, action: str) -> str:
        """Carry out one action and say what it did."""
        before, self.room = self.room, self.room.after(action)
        self.plan = self.plan[1:] if self.plan[:1] == [action] else []
        if self.room == before:
            return f"Nothing moved: the way {action} is blocked."
        self.num_moves += 1
        if self.room.is_solved():
            return "Solved: every box stands on a target."
        verb = "moved" if self.room.boxes == before.boxes else "pushed a box"
        num_boxes = len(self.room.boxes)
        return f"You {verb} {action}. Boxes on targets: {self.room.num_on_target} of {num_boxes}."

    def _asked_again(self) -> str:
        self.num_unreadable += 1
        return f"I found no action, and nothing moved. {EXPECTED}"

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Play the record again, add up the step rewards, and charge the turns given away."""
        if not rollout.env_version and cls.parse_task(rollout.task).board is None:
            raise VerifierError('the record does not say what its room was: it has no "board"')
        world = await context.replay(rollout)
        assert isinstance(world, cls)
        is_solved = world.room.is_solved()
        rewards = [reward for reward in world.rollout.step_rewards if reward is not None]
        has_stopped = is_solved or rollout.stop_reason in USED_UP
        num_left = 0 if has_stopped else max(0, cls.max_turns - len(rewards))
        return Score(
            math.fsum([*rewards, *[STEP_REWARD] * num_left]),
            metrics={
                "solved": float(is_solved),
                "boxes_on_target": world.room.num_on_target / len(world.room.boxes),
                "moves": float(world.num_moves),
                "unreadable_actions": float(world.num_unreadable),
                "turns_given_away": float(num_left),
            },
            details={"reason": "solved" if is_solved else "unsolved", "board": world.room.text},
        )

    async def oracle(self, rollout: Rollout) -> Message | None:
        """Play a shortest solution; None where there is none, or the room is too large for it."""
        self.plan = self.plan or solve(self.room) or []
        if not self.plan:
            return None
        return Message(role="assistant", content=tagged(self.plan[0]))

    @classmethod
    def choices(cls, task: Puzzle) -> list[str]:
        """Give the four moves; a guesser takes one of them in every turn."""
        return [tagged(action) for action in ACTIONS]

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Write rooms with a shortest solution of bounded length, all of them different."""
        rows: dict[str, JSONObject] = {}
        while (number := len(rows)) < num:
            difficulty, sides, boxes, (shortest, longest) = LEVELS[number % len(LEVELS)]
            num_boxes = rng.choice(boxes)
            room = make_room(rng, rng.choice(sides), rng.choice(sides), num_boxes)
            solution = solve(room)
            board = room.text
            if board in rows or not solution or not shortest <= len(solution) <= longest:
                continue
            rows[board] = {
                "id": f"sokoban-{number}",
                "difficulty": difficulty,
                "messages": [
                    {"role": "system", "content": RULES},
                    {"role": "user", "content": board},
                ],
                "board": board,
                "num_boxes": num_boxes,
            }
        yield from rows.values()


def tagged(action: str) -> str:
    """Write an action as it is expected."""
    return f"<action>{action}</action>"


def action_of(text: str) -> str | None:
    """Find the action of a message: the first in a tag, else the first bare word or digit."""
    found = TAGGED.search(text) or BARE.search(text)
    if found is None:
        return None
    word = found[1].lower()
    return list(ACTIONS)[int(word) - 1] if word.isdigit() else word


LEVELS = [
    ("easy", (5, 6), (1,), (4, 9)),
    ("medium", (6,), (1, 2), (8, 14)),
    ("hard", (7,), (2,), (12, 18)),
]
"""Difficulty, rows and columns, boxes, and bounds of the shortest solution."""

SIGNS = "The signs: # wall, _ floor, . target, $ box, * box on a target, @ you, + you on a target."

EXPECTED = f"Reply with one move: {', '.join(map(tagged, ACTIONS))}."

RULES = (
    "You play Sokoban: push every box onto a target. You walk one cell up, down, left or right. "
    "Walking into a box pushes it one cell on, if the cell beyond it is free; you cannot push two "
    "boxes at once, nor pull one. Each move costs a little, a box on a target is worth more, and "
    f"the solved room most. The number of moves is limited.\n\n{SIGNS}\n\n"
    f"After each move you see the room. {EXPECTED}"
)
