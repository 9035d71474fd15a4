"""An engine in this process that reports token ids, and an environment of two turns for it."""

import asyncio

from gymcli import Context, Environment, Message, Rollout, Score, Task, tool
from gymcli.training import SampledMessage, Tokens
from gymcli.types import FunctionCall, ToolCall

TRAINED = [{"id": name, "prompt": f"Task {name}: add up."} for name in ("a", "b", "c")]


class Adding(Environment[Task]):
    """Add numbers with a tool, and then say anything."""

    waits_to_verify = True  # no worker process has to start

    async def setup(self) -> list[Message]:
        self.total = 0
        return []

    @tool
    def add(self, number: int) -> int:
        """Add a number to the total."""
        self.total += number
        return self.total

    async def final_state(self) -> int:
        return self.total

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        return Score(float(rollout.final_state))


class Ranked(Adding):
    """The rewards of a group are places."""

    max_reward = None

    @classmethod
    async def verify_group(cls, rollouts: list[Rollout], context: Context) -> list[Score]:
        return [Score(float(place)) for place, _ in enumerate(rollouts)]


class Engine:
    """Adds the number of its call in the first turn and stops in the second; an id is a character.

    Args:
        fails: The numbers of the calls that raise an error.
        rewrites: Render the beginning of the conversation in another way in each turn.
    """

    name = "tiny"

    def __init__(self, fails=(), *, rewrites=False) -> None:
        self.calls: list[Tokens] = []
        self.num_calls = 0
        self.num_at_once = self.most_at_once = 0
        self.params = []
        self._fails = fails
        self._rewrites = rewrites

    async def complete(self, messages, *, tools, schema, params):
        self.num_calls += 1
        number = self.num_calls
        self.num_at_once += 1
        self.most_at_once = max(self.most_at_once, self.num_at_once)
        await asyncio.sleep(0)
        self.num_at_once -= 1
        if number in self._fails:
            raise RuntimeError("out of memory")
        self.params.append(params)
        is_first = messages[-1].role == "user"
        text = f'{{"number":{number}}}' if is_first else "Done."
        prompt = f"{len(messages)} messages:" if self._rewrites else ""
        prompt += "".join(_line(message) for message in messages) + "<assistant>"
        tokens = Tokens(
            prompt=[ord(one) for one in prompt],
            sampled=[ord(one) for one in f"{text}\n"],
            logprobs=[-number / 7] * (len(text) + 1),
            source="model",
            logprob_mode="processed",
        )
        self.calls.append(tokens)
        calls = [ToolCall(id="1", function=FunctionCall("add", text))] if is_first else []
        content = None if is_first else text
        return SampledMessage(role="assistant", content=content, tool_calls=calls, tokens=tokens)


def _line(message: Message) -> str:
    said = message.text + "".join(call.arguments for call in message.tool_calls)
    return f"<{message.role}>{said}\n"
