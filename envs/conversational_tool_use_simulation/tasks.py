"""A task: the representative's policy and tools, the customer's scenario, the gold where known."""

from typing import Literal

import msgspec
from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from gymcli import JSONObject, Message, Task

__all__ = ["Ending", "GoldCall", "Scenario", "SimulationTask", "ToolSpec", "transcript"]

Ending = Literal["", "stop", "transfer"]
"""How the customer ended the conversation; empty: not at all."""


class ToolSpec(BaseModel):
    """A tool that the representative may call."""

    model_config = ConfigDict(extra="allow")

    name: str
    description: str = Field("", validation_alias=AliasChoices("description", "doc"))
    parameters: JSONObject | None = Field(
        None, validation_alias=AliasChoices("parameters", "params")
    )
    """The JSON Schema of its arguments; None: it takes none."""
    returns: JSONObject | None = None
    """The JSON Schema of its result; None: any JSON will do."""


class Scenario(BaseModel):
    """Who the customer is and what they want."""

    model_config = ConfigDict(extra="allow")

    customer_persona: str | None = None
    representative_domain: str | None = None
    reason_for_contact: str | None = None
    customer_details: str | None = None
    """What the customer knows."""
    unknown_info: str | None = None
    """What the customer does not know."""
    task_instructions: str | None = None
    outside_policy_scope: bool = False
    """The representative must not help, but hand the customer over."""

    def render(self) -> str:
        """Write the scenario out, a paragraph for each thing that it says."""
        parts = {
            "Who the customer is": self.customer_persona,
            "Where they call": self.representative_domain,
            "Why they call": self.reason_for_contact,
            "What they know": self.customer_details,
            "What they do not know": self.unknown_info,
            "What they are to do": self.task_instructions,
        }
        return "\n".join(f"{name}: {text}" for name, text in parts.items() if text)


class GoldCall(BaseModel):
    """A call that the request needs, and what its tool answers."""

    name: str
    arguments: JSONObject
    result: JSONObject


class SimulationTask(Task):
    """A customer, and a representative with tools and rules."""

    domain_name: str = ""
    policy: str
    """What the representative may and may not do, in Markdown."""
    tools: list[ToolSpec]
    customer_scenario: Scenario
    profile: Literal["general", "proactive"] = "general"
    """`proactive`: the customer tells only what they are asked for."""
    initial_user_message: str | None = None
    """The customer's first words, where they are not left to the simulated customer."""
    gold_calls: list[GoldCall] = []
    facts: dict[str, str] = {}
    """What the gold calls need to know of the customer, by the name that one asks for it with."""
    report: str = ""
    """What the customer must be told in the end, word for word; of our own rows."""


def transcript(messages: list[Message], ending: Ending = "") -> str:
    """Write a conversation as JSON, a line for each message, so that no message can forge one."""
    names: dict[str | None, str] = {}
    lines: list[JSONObject] = []
    for message in messages:
        names |= {call.id: call.name for call in message.tool_calls}
        if message.role == "user":
            lines.append({"speaker": "customer", "says": message.text})
        elif message.role == "tool":
            name = names.get(message.tool_call_id)
            lines.append({"speaker": "tool", "tool": name, "result": message.text})
        elif message.role == "assistant" and not message.is_reasoning_only:
            calls = [
                {"tool": call.name, "arguments": call.arguments} for call in message.tool_calls
            ]
            line: JSONObject = {"speaker": "representative", "says": message.text}
            lines.append({**line, "calls": calls} if calls else line)
    if ending:
        lines.append({"speaker": "customer", "ends": ending})
    return "\n".join(msgspec.json.encode(line).decode() for line in lines)
