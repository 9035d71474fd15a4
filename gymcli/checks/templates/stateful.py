"""Asks to carry things between rooms; tools move them, and the rooms at the end are scored.

One row: {"id": "move-0", "difficulty": "easy", "prompt": "Carry the lamp to the attic.", "places":
{"lamp": "cellar", "rug": "hall"}, "destinations": {"lamp": "attic"}}
"""

from collections.abc import Iterator
from random import Random

import msgspec

from gymcli import (
    Context,
    Environment,
    FunctionCall,
    JSONObject,
    Message,
    Properties,
    Rollout,
    Score,
    Task,
    ToolCall,
    tool,
)


class Move(Task):
    """The room of every thing at the start, and the rooms of those that have to move."""

    places: dict[str, str]
    destinations: dict[str, str]


class NewEnvironment(Environment[Move]):
    """Carry things to other rooms with two tools."""

    properties = Properties("stateful", "tool use", "household", "request", "end-state equality")

    places: dict[str, str]

    async def setup(self) -> list[Message]:
        """Put every thing into its first room; the state of an episode is attributes of `self`."""
        self.places = dict(self.task.places)
        return []

    @tool(reads_only=True)
    def look(self, room: str) -> JSONObject:
        """List the things in a room."""
        return {"things": [thing for thing, place in self.places.items() if place == room]}

    @tool
    def carry(self, thing: str, room: str) -> JSONObject:
        """Carry a thing to a room."""
        if thing not in self.places:
            raise ValueError(f"there is no {thing!r} in this house")
        self.places[thing] = room
        return {"thing": thing, "room": room}

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Replay the recorded calls; reward 1 if everything is where it should be, and no more."""
        world = await context.replay(rollout)
        assert isinstance(world, cls)
        task = cls.parse_task(rollout.task)
        expected = task.places | task.destinations
        misplaced_things = sorted(
            thing for thing in expected if world.places[thing] != expected[thing]
        )
        reason = "misplaced" if misplaced_things else "correct"
        return Score(
            float(not misplaced_things), details={"reason": reason, "misplaced": misplaced_things}
        )

    async def oracle(self, rollout: Rollout) -> Message:
        """Carry one thing per turn, then stop."""
        for thing, room in self.task.destinations.items():
            if self.places[thing] != room:
                arguments = msgspec.json.encode({"thing": thing, "room": room}).decode()
                call = ToolCall(f"call_{len(rollout.tool_calls)}", FunctionCall("carry", arguments))
                return Message(role="assistant", tool_calls=[call])
        return Message(role="assistant", content="Done.")

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Yield requests to move one to three things."""
        rows: dict[str, JSONObject] = {}
        while (number := len(rows)) < num:
            difficulty, num_things = list(LEVELS.items())[number % len(LEVELS)]
            places = {thing: rng.choice(ROOMS) for thing in THINGS}
            destinations = {
                thing: rng.choice([room for room in ROOMS if room != places[thing]])
                for thing in rng.sample(THINGS, num_things)
            }
            listed = " and ".join(
                f"the {thing} to the {room}" for thing, room in destinations.items()
            )
            prompt = f"Carry {listed}."
            rows[prompt] = rows.get(prompt) or {
                "id": f"move-{number}",
                "difficulty": difficulty,
                "prompt": prompt,
                "places": places,
                "destinations": destinations,
            }
        yield from rows.values()


LEVELS = {"easy": 1, "medium": 2, "hard": 3}
"""The number of things to carry by difficulty."""
THINGS = ["lamp", "rug", "chair", "clock", "mirror", "vase", "cushion", "basket"]
ROOMS = ["attic", "bathroom", "bedroom", "cellar", "hall", "kitchen"]
