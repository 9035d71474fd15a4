r"""Plays Sokoban: the model pushes boxes onto targets, one move per message.

Source: the resources server grl_sokoban of NVIDIA NeMo Gym 0.7 (Apache-2.0), reimplemented
independently, with the rewards of gym-sokoban: -0.1 for every step, 1 for a box pushed onto a
target, -1 for a box pushed off one, and 10 for the solved room; the reward is their sum. The action
is the first `<action>up|down|left|right|1-4</action>` of a message, else the first such word or
digit anywhere in it, in upper or lower case. An episode has 20 messages. Differences from the
reference:

- An episode that ends early, for example at a token limit, is charged -0.1 for each turn left of
  the 20, as if the player had stood still: stopping must not pay.
- A message without an action is answered with the expected format, and counts as a step without a
  move; in the reference it ends the rollout without a reward.
- A row may have its room as `board`. Without one, our own generator makes a room from `seed`,
  `dim_room` and `num_boxes`, which differs from gym-sokoban's for the same seed. A rollout of the
  reference with such a row stays unscored.
- A row with neither `board` nor `seed` gets a room from the attempt's seed.
- `search_depth`, `max_steps` and `render_mode` of a row are ignored; its `max_turns` is not.

One row (its system message shortened):
{"id": "sokoban-0", "difficulty": "easy", "messages": [{"role": "system", "content": "Push the box
onto the target."}, {"role": "user", "content": "#####\n#@$.#\n#####"}], "board":
"#####\n#@$.#\n#####", "num_boxes": 1}
"""

import math
import re
from collections.abc import Iterator
from random import Random
from typing import Annotated, NamedTuple

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

__all__ = ["ACTIONS", "Puzzle", "Room", "Sokoban", "make_room", "solve"]

TAGGED = re.compile(r"<action>\s*(up|down|left|right|[1-4])\s*</action>", re.IGNORECASE | re.ASCII)
# The flags hold for the group only: `\b` must know that "é" is a letter, but the words must not
# match a dotless i.
BARE = re.compile(r"\b(?ai:(up|down|left|right|[1-4]))\b")

STEP_REWARD = -0.1
BOX_REWARD = 1.0
SOLVED_REWARD = 10.0

USED_UP = (None, "done", "env_done", "max_turns")
"""Stop reasons of episodes that used all their turns, and of records without a reason."""

Side = Annotated[int, Field(ge=4, le=20)]


class Puzzle(Task):
    """A room, or the parameters to make one."""

    board: str | None = None
    """The room in signs, one line per row."""
    seed: int | None = None
    """The seed of the room, if there is no board; by default the attempt's seed."""
    dim_room: tuple[Side, Side] = (6, 6)
    """Rows and columns, including the walls around the room."""
    num_boxes: Annotated[int, Field(ge=1, le=8)] = 1
    """The number of boxes in a room that is made from a seed."""

    @field_validator("board")
    @classmethod
    def _is_a_room(cls, board: str | None) -> str | None:
        if board is not None:
            Room.parse(board)
        return board


# How a room is written, played, solved and made.
#
# The signs of a room: `#` wall, `_` floor (`-` and a space are read too), `.` target,
# `$` box, `*` box on a target, `@` player, `+` player on a target. Every other cell is a wall, so a
# room needs no border.

Cell = tuple[int, int]
"""Row and column, counted from the top left."""


class Room(NamedTuple):
    """An immutable room; a move returns a new one."""

    size: Cell
    """Rows and columns."""
    floor: frozenset[Cell]
    targets: frozenset[Cell]
    boxes: frozenset[Cell]
    player: Cell

    @classmethod
    def parse(cls, text: str) -> "Room":
        """Read a room from its signs.

        Raises:
            ValueError: It has an unknown sign, not exactly one player, or not as many targets as
                boxes; or all its boxes are on targets already.

        """
        lines = text.replace("-", "_").replace(" ", "_").strip("\n").splitlines()
        signs = {
            (row, column): sign
            for row, line in enumerate(lines)
            for column, sign in enumerate(line)
        }
        unknown = sorted({*signs.values()} - {*_SIGNS, "#"})
        if unknown:
            raise ValueError(f"a room has no sign {unknown[0]!r}; its signs are # _ . $ * @ +")
        kinds = {cell: _SIGNS[sign] for cell, sign in signs.items() if sign != "#"}
        targets, boxes, players = (
            frozenset(cell for cell, kind in kinds.items() if kind[part]) for part in range(3)
        )
        if len(players) != 1:
            raise ValueError(f"a room needs one player, this has {len(players)}")
        if len(boxes) != len(targets) or boxes == targets:
            raise ValueError(
                "a room needs as many boxes as targets, and a box that stands off them"
            )
        size = (len(lines), max(map(len, lines)))
        return cls(size, frozenset(kinds), targets, boxes, min(players))

    @property
    def text(self) -> str:
        """The room in its signs, one line per row."""
        height, width = self.size
        return "\n".join(
            "".join(self._sign((row, column)) for column in range(width)) for row in range(height)
        )

    def _sign(self, cell: Cell) -> str:
        if cell not in self.floor:
            return "#"
        return _SIGN_OF[cell in self.targets, cell in self.boxes, cell == self.player]

    @property
    def num_on_target(self) -> int:
        """The number of boxes on targets."""
        return len(self.boxes & self.targets)

    def is_solved(self) -> bool:
        """Return whether every box is on a target."""
        return self.boxes == self.targets

    def after(self, action: str) -> "Room":
        """Return the room after one action, unchanged if a wall or a second box is in the way."""
        step = ACTIONS[action]
        ahead = _moved(self.player, step)
        if ahead not in self.floor:
            return self
        if ahead not in self.boxes:
            return self._replace(player=ahead)
        beyond = _moved(ahead, step)
        if beyond not in self.floor or beyond in self.boxes:
            return self
        return self._replace(player=ahead, boxes=self.boxes - {ahead} | {beyond})


class Sokoban(Environment[Puzzle]):
    """Push every box onto a target, one move per message."""

    max_reward = None
    pass_threshold = 6.5
    """A room solved within 20 turns gets at least 9, an unsolved one of 8 boxes at most 6.3."""
    max_turns = 20
    properties = Properties("multi-turn", "planning", "games", "puzzle", "replayed rewards")

    room: Room
    plan: list[str]
    """The rest of the oracle's solution."""
    num_moves: int
    """The number of actions that moved the player."""
    num_unreadable: int
    """The number of messages without an action."""

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
        """Carry out one action and describe its effect."""
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
        """Replay the record, add up the step rewards, and charge for unused turns."""
        # Without a version, another program made the record, and its generator made the room.
        if not rollout.env_version and cls.parse_task(rollout.task).board is None:
            raise VerifierError('the room of the record is unknown: its row has no "board"')
        world = await context.replay(rollout)
        assert isinstance(world, cls)
        is_solved = world.room.is_solved()
        rewards = [reward for reward in world.rollout.step_rewards if reward is not None]
        has_stopped = is_solved or rollout.stop_reason in USED_UP
        num_left = 0 if has_stopped else max(0, cls.max_turns - len(rewards))
        reason = "solved" if is_solved else "unsolved"
        if 0 < len(rewards) == world.num_unreadable:
            reason = "no_answer"
        return Score(
            math.fsum([*rewards, *[STEP_REWARD] * num_left]),
            metrics={
                "solved": float(is_solved),
                "boxes_on_target": world.room.num_on_target / len(world.room.boxes),
                "moves": float(world.num_moves),
                "unreadable_actions": float(world.num_unreadable),
                "turns_given_away": float(num_left),
            },
            details={"reason": reason, "board": world.room.text},
        )

    async def oracle(self, rollout: Rollout) -> Message | None:
        """Play a shortest solution; None if there is none, or the room is too large to search."""
        self.plan = self.plan or solve(self.room) or []
        if not self.plan:
            return None
        return Message(role="assistant", content=tagged(self.plan[0]))

    @classmethod
    def choices(cls, task: Puzzle) -> list[str]:
        """Return the four moves; a guesser picks one of them every turn."""
        return [tagged(action) for action in ACTIONS]

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Write different rooms whose shortest solutions have a bounded length."""
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
    """Write an action in the expected format."""
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
"""Difficulty, sides, numbers of boxes, and the bounds of the shortest solution."""

SIGNS = "The signs: # wall, _ floor, . target, $ box, * box on a target, @ you, + you on a target."

ACTIONS: dict[str, Cell] = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
"""The step of each action, in the order of its digits."""

EXPECTED = f"Reply with one move: {', '.join(map(tagged, ACTIONS))}."

RULES = (
    "You play Sokoban: push every box onto a target. You walk one cell up, down, left or right. "
    "Walking into a box pushes it one cell on, if the cell beyond it is free; you cannot push two "
    "boxes at once, nor pull one. Each move costs a little, a box on a target is worth more, and "
    f"the solved room most. The number of moves is limited.\n\n{SIGNS}\n\n"
    f"After each move you see the room. {EXPECTED}"
)

_MAX_STATES = 100_000
_MAX_TRIES = 500
_MIN_STEPS = 20
"""The minimum number of steps of the walk backwards, per box."""
_MAX_STEPS = 50
"""The maximum number of steps of the walk backwards, per floor cell."""
_WALL_SHARE = 0.15
_PULL_SHARE = 0.7

_SIGNS = {
    "_": (False, False, False),
    ".": (True, False, False),
    "$": (False, True, False),
    "*": (True, True, False),
    "@": (False, False, True),
    "+": (True, False, True),
}
"""Whether a floor cell with this sign is a target, holds a box, holds the player."""

_SIGN_OF = {kind: sign for sign, kind in _SIGNS.items()}


def solve(room: Room, *, max_states: int = _MAX_STATES) -> list[str] | None:
    """Return a shortest solution of a room, by breadth-first search.

    None if there is none, or if the search would visit more than `max_states` positions.
    """
    # A box on a cell that is not alive never reaches a target, so no such position is followed.
    alive = _alive_cells(room)
    arrived: dict[Room, tuple[Room, str] | None] = {room: None}
    layer = [room]
    while layer:
        following: list[Room] = []
        for state in layer:
            if state.is_solved():
                return _way(arrived, state)
            for action in ACTIONS:
                new = state.after(action)
                if new not in arrived and new.boxes <= alive:
                    arrived[new] = (state, action)
                    following.append(new)
        if len(arrived) > max_states:
            return None
        layer = following
    return None


def _way(arrived: dict[Room, tuple[Room, str] | None], end: Room) -> list[str]:
    actions: list[str] = []
    while (step := arrived[end]) is not None:
        end, action = step
        actions.append(action)
    return actions[::-1]


def _alive_cells(room: Room) -> frozenset[Cell]:
    """Return the cells from which a box, if it were the only one, can be pushed to a target."""
    alive = set(room.targets)
    waiting = list(alive)
    while waiting:
        cell = waiting.pop()
        for step in ACTIONS.values():
            behind = _moved(cell, step)
            # Backwards from the targets: the box was at `behind`, the player one cell further.
            if behind not in alive and {behind, _moved(behind, step)} <= room.floor:
                alive.add(behind)
                waiting.append(behind)
    return frozenset(alive)


def make_room(rng: Random, height: int, width: int, num_boxes: int) -> Room:
    """Make a solvable room: pull boxes off their targets, each pull being a push backwards.

    Args:
        rng: The source of randomness.
        height: Rows, including the walls around the room.
        width: Columns, including the walls around the room.
        num_boxes: The number of boxes and of targets; no box is on a target.

    Raises:
        ValueError: No such room was found, usually because the boxes leave no space to move.

    """
    for _ in range(_MAX_TRIES):
        floor = _floor(rng, height, width)
        if len(floor) <= 2 * num_boxes or not _is_connected(floor):
            continue
        player, *targets = rng.sample(sorted(floor), num_boxes + 1)
        solved = Room((height, width), floor, frozenset(targets), frozenset(targets), player)
        room = _pulled_apart(rng, solved)
        if not room.num_on_target:
            return room
    raise ValueError(f"found no room of {height} x {width} cells with {num_boxes} boxes")


def _floor(rng: Random, height: int, width: int) -> frozenset[Cell]:
    inside = [(row, column) for row in range(1, height - 1) for column in range(1, width - 1)]
    return frozenset(cell for cell in inside if rng.random() >= _WALL_SHARE)


def _is_connected(floor: frozenset[Cell]) -> bool:
    seen = {min(floor)}
    waiting = list(seen)
    while waiting:
        new = {*_neighbours(waiting.pop())} & floor - seen
        seen |= new
        waiting += new
    return seen == floor


def _pulled_apart(rng: Random, room: Room) -> Room:
    """Walk at random and pull boxes, until all are off the targets or the steps run out."""
    directions = list(ACTIONS.values())
    for number in range(_MAX_STEPS * len(room.floor)):
        if number >= _MIN_STEPS * len(room.boxes) and not room.num_on_target:
            break
        step = rng.choice(directions)
        ahead, behind = _moved(room.player, step), _moved(room.player, step, back=True)
        if ahead not in room.floor or ahead in room.boxes:
            continue
        # A pull: the box follows to where the player was.
        if behind in room.boxes and rng.random() < _PULL_SHARE:
            room = room._replace(boxes=room.boxes - {behind} | {room.player})
        room = room._replace(player=ahead)
    return room


def _neighbours(cell: Cell) -> Iterator[Cell]:
    return (_moved(cell, step) for step in ACTIONS.values())


def _moved(cell: Cell, step: Cell, *, back: bool = False) -> Cell:
    sign = -1 if back else 1
    return cell[0] + sign * step[0], cell[1] + sign * step[1]
