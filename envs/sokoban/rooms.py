"""Sokoban rooms: read, shown, walked in, solved and made.

A room is written in signs: `#` wall, `_` floor (`-` and a space are read too), `.` target,
`$` box, `*` box on a target, `@` player, `+` player on a target. Every other cell is wall, so
that a room needs no border.
"""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

__all__ = ["ACTIONS", "Room", "make_room", "solve"]

Cell = tuple[int, int]
"""Row and column, counted from the top left."""

ACTIONS: dict[str, Cell] = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
"""Where each action leads."""

_MAX_STATES = 100_000
_MAX_TRIES = 500
_MIN_STEPS = 20
"""Steps of the walk backwards, for every box."""
_MAX_STEPS = 50
"""Steps of the walk backwards, for every cell of the floor."""
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
"""Whether a floor cell of this sign is a target, holds a box, holds the player."""

_SIGN_OF = {kind: sign for sign, kind in _SIGNS.items()}


class Room(NamedTuple):
    """A room as it stands; moving gives another one."""

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
            ValueError: It has an unknown sign, not one player, or not as many targets as boxes;
                or all its boxes stand on targets already.

        """
        lines = text.replace("-", "_").replace(" ", "_").strip("\n").splitlines()
        signs = {
            (row, column): sign
            for row, line in enumerate(lines)
            for column, sign in enumerate(line)
        }
        unknown = sorted({*signs.values()} - {*_SIGNS, "#"})
        if unknown:
            raise ValueError(f"a room has no sign {unknown[0]!r}; it is written in # _ . $ * @ +")
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
        """The room in its signs, a line each row."""
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
        """How many boxes stand on targets."""
        return len(self.boxes & self.targets)

    def is_solved(self) -> bool:
        """Whether every box stands on a target."""
        return self.boxes == self.targets

    def after(self, action: str) -> "Room":
        """Give the room after one action: itself where a wall or a second box is in the way."""
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


def solve(room: Room, *, max_states: int = _MAX_STATES) -> list[str] | None:
    """Give a shortest way to solve a room, by breadth-first search.

    None where there is none, or where more than `max_states` positions would have to be looked at.
    """
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
    """Find the cells from which a box alone in the room can be pushed to some target."""
    alive = set(room.targets)
    waiting = list(alive)
    while waiting:
        cell = waiting.pop()
        for step in ACTIONS.values():
            behind = _moved(cell, step)
            if behind not in alive and {behind, _moved(behind, step)} <= room.floor:
                alive.add(behind)
                waiting.append(behind)
    return frozenset(alive)


def make_room(rng: Random, height: int, width: int, num_boxes: int) -> Room:
    """Make a room that can be solved: its boxes are pulled off their targets, a push backwards.

    Args:
        rng: Where the room comes from.
        height: Rows, the walls around the room included.
        width: Columns, the walls around the room included.
        num_boxes: How many boxes and targets; none of the boxes stands on a target.

    Raises:
        ValueError: No such room was found, mostly since the boxes leave no space to move.

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
    """Walk at random and pull boxes along, until all are off the targets or patience ends."""
    directions = list(ACTIONS.values())
    for number in range(_MAX_STEPS * len(room.floor)):
        if number >= _MIN_STEPS * len(room.boxes) and not room.num_on_target:
            break
        step = rng.choice(directions)
        ahead, behind = _moved(room.player, step), _moved(room.player, step, back=True)
        if ahead not in room.floor or ahead in room.boxes:
            continue
        if behind in room.boxes and rng.random() < _PULL_SHARE:
            room = room._replace(boxes=room.boxes - {behind} | {room.player})
        room = room._replace(player=ahead)
    return room


def _neighbours(cell: Cell) -> Iterator[Cell]:
    return (_moved(cell, step) for step in ACTIONS.values())


def _moved(cell: Cell, step: Cell, *, back: bool = False) -> Cell:
    sign = -1 if back else 1
    return cell[0] + sign * step[0], cell[1] + sign * step[1]
