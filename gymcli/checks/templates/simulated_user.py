"""Takes bookings from a customer, whom another model plays; the booking at the end is scored.

One row: {"id": "booking-0", "difficulty": "easy", "messages": [{"role": "system", "content": "You
take bookings ..."}], "name": "Ada Berg", "day": "Friday", "people": 4, "num_questions": 0}
"""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from random import Random

import msgspec

from gymcli import (
    JSON,
    Context,
    Environment,
    FunctionCall,
    JSONObject,
    Message,
    Model,
    Properties,
    Rollout,
    Score,
    SimulatedUser,
    StandIn,
    Task,
    ToolCall,
    tool,
)

INSTRUCTIONS = """You are a customer who books a table by telephone. Write only what you say next.
Do not make anything up. Once the table is booked, thank and write ###STOP###."""


class Booking(Task):
    """What the customer wants, and how often the customer must be asked for it."""

    name: str
    day: str
    people: int
    num_questions: int

    @property
    def expected_booking(self) -> JSONObject:
        """The arguments of the right booking."""
        return {"name": self.name, "day": self.day, "people": self.people}


class NewEnvironment(Environment[Booking]):
    """Find out what a customer wants and book it."""

    required_roles = ("user",)
    properties = Properties(
        "multi-turn", "proactive asking", "customer service", "dialogue", "end-state equality"
    )

    booked: JSONObject | None = None

    async def setup(self) -> list[Message]:
        """Let the customer begin."""
        task = self.task
        wish = f"You are {task.name} and want a table on {task.day} for {task.people} people."
        self.customer = SimulatedUser(
            self.roles["user"],
            instructions=INSTRUCTIONS,
            scenario=f"{wish} {MANNERS[task.num_questions]}",
        )
        return [Message(role="user", content=(await self.customer.opening()).text)]

    @tool
    def book(self, name: str, day: str, people: int) -> JSONObject:
        """Book a table for the customer; a second booking replaces the first."""
        self.booked = {"name": name, "day": day, "people": people}
        return {"booked": True}

    async def reply(self, rollout: Rollout) -> str | None:
        """Let the customer answer; the episode ends when the customer is content."""
        turn = await self.customer.reply(rollout.messages)
        return None if turn.ended else turn.text

    async def final_state(self) -> JSON:
        """Return the booking for the verifier."""
        return self.booked

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if exactly what the customer wants is booked."""
        booked = rollout.final_state
        is_right = booked == cls.parse_task(rollout.task).expected_booking
        reason = "correct" if is_right else "wrong_booking" if booked else "not_booked"
        answer = msgspec.json.encode(booked).decode() if booked else None
        return Score(float(is_right), answer=answer, details={"reason": reason})

    @classmethod
    def stand_ins(cls, task: Booking) -> Mapping[str, Model]:
        """Return a scripted customer."""
        return {"user": StandIn(partial(speak, task))}

    async def oracle(self, rollout: Rollout) -> Message:
        """Ask as often as necessary, book, and confirm."""
        if rollout.tool_calls:
            return Message(role="assistant", content="Your table is booked.")
        if len(rollout.responses) < 2 * self.task.num_questions:  # each question has an answer
            return Message(role="assistant", content="For which day, and for how many people?")
        arguments = msgspec.json.encode(self.task.expected_booking).decode()
        call = ToolCall("call_0", FunctionCall("book", arguments))
        return Message(role="assistant", tool_calls=[call])

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Yield customers of different names; harder ones have to be asked more often."""
        names = rng.sample([f"{first} {last}" for first, last in product(FIRST, LAST)], num)
        for number, name in enumerate(names):
            num_questions = number % len(LEVELS)
            yield {
                "id": f"booking-{number}",
                "difficulty": LEVELS[num_questions],
                "messages": [{"role": "system", "content": SYSTEM}],
                "name": name,
                "day": rng.choice(DAYS),
                "people": rng.randint(2, 9),
                "num_questions": num_questions,
            }


def speak(task: Booking, messages: list[Message]) -> str:
    """Play the customer without a model: say the next line."""
    hello = f"Hello, this is {task.name}. I would like to book a table"
    day, people = f"on {task.day}", f"for {task.people} people"
    lines = (
        [f"{hello} {day} {people}."],
        [f"{hello}.", f"It is {day}, {people}."],
        [f"{hello}.", f"It is {day}.", f"It is {people}."],
    )[task.num_questions]
    num_said = sum(message.role == "assistant" for message in messages)
    return lines[num_said] if num_said < len(lines) else "Thank you. ###STOP###"


SYSTEM = "You take bookings for a restaurant. Ask for what you need to know, then book the table."
MANNERS = ["Say all of it at once.", "Say it when asked.", "Say one thing at a time, when asked."]
"""How the customer tells it, by the number of questions that this takes."""
LEVELS = ["easy", "medium", "hard"]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
FIRST = ["Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gita", "Hugo", "Ines", "Jon"]
LAST = ["Berg", "Castro", "Dale", "Frost", "Lind", "Moss", "Novak", "Okoro", "Pohl", "Reed"]
