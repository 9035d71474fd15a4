"""Asks for the cost of an order; a tool looks up the prices.

One row: {"id": "order-0", "difficulty": "easy", "prompt": "What do 3 lamps cost? Answer with the
number.", "order": {"lamp": 3}, "prices": {"lamp": 17, "rug": 40}}
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


class Order(Task):
    """The ordered items with their counts, and the price of every item."""

    order: dict[str, int]
    prices: dict[str, int]

    @property
    def total(self) -> int:
        """The cost of the order."""
        return sum(self.prices[item] * count for item, count in self.order.items())


class NewEnvironment(Environment[Order]):
    """Look up prices with a tool and work out what an order costs."""

    properties = Properties("multi-step", "tool use", "shopping", "question", "exact match")

    @tool(reads_only=True)
    def price_of(self, item: str) -> JSONObject:
        """Look up the price of one item, named in the singular."""
        if item not in self.task.prices:
            raise ValueError(f"there is no {item!r} in this shop")
        return {"item": item, "price": self.task.prices[item]}

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if the last number of the last message is the total."""
        gold = str(cls.parse_task(rollout.task).total)
        last = (context.search(r"\d+", rollout.last_text) or [""])[-1]
        reason = "correct" if last == gold else "wrong_answer" if last else "no_answer"
        details: JSONObject = {"reason": reason, "expected": gold}
        return Score(float(last == gold), answer=last or None, details=details)

    async def oracle(self, rollout: Rollout) -> Message:
        """Look up one price per turn, then answer with the total."""
        num_known = len(rollout.tool_calls)
        if num_known == len(self.task.order):
            return Message(role="assistant", content=str(self.task.total))
        arguments = msgspec.json.encode({"item": list(self.task.order)[num_known]}).decode()
        call = ToolCall(id=f"call_{num_known}", function=FunctionCall("price_of", arguments))
        return Message(role="assistant", tool_calls=[call])

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Yield orders of one to three items."""
        rows: dict[str, JSONObject] = {}
        while (number := len(rows)) < num:
            difficulty, num_items = list(LEVELS.items())[number % len(LEVELS)]
            order = {item: rng.randint(2, 20) for item in rng.sample(ITEMS, num_items)}
            listed = " and ".join(f"{count} {item}s" for item, count in order.items())
            prompt = f"What do {listed} cost? Answer with the number."
            rows[prompt] = rows.get(prompt) or {
                "id": f"order-{number}",
                "difficulty": difficulty,
                "prompt": prompt,
                "order": order,
                "prices": {item: rng.randint(3, 60) for item in ITEMS},
            }
        yield from rows.values()


LEVELS = {"easy": 1, "medium": 2, "hard": 3}
"""The number of items in an order by difficulty."""
ITEMS = ["lamp", "rug", "chair", "clock", "mirror", "vase", "cushion", "basket"]
