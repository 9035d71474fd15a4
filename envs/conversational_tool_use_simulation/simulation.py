"""The simulated customer and tools: the prompts of their models, and checks of their answers."""

import re
from typing import Literal

import msgspec
from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from gymcli import JSONObject, Message, Model, RoleError, SimulatedUser, Task

__all__ = [
    "TOOL_INSTRUCTIONS",
    "Ending",
    "GoldCall",
    "Scenario",
    "SimulationTask",
    "ToolSimulator",
    "ToolSpec",
    "customer",
    "transcript",
]

Ending = Literal["", "stop", "transfer"]
"""How the customer ended the conversation; empty: not at all."""


class ToolSpec(BaseModel):
    """A tool that the representative may call."""

    model_config = ConfigDict(extra="allow")

    # Rows of the reference use either name.
    name: str
    description: str = Field("", validation_alias=AliasChoices("description", "doc"))
    parameters: JSONObject | None = Field(
        None, validation_alias=AliasChoices("parameters", "params")
    )
    """The JSON Schema of its arguments; None: it takes none."""
    returns: JSONObject | None = None
    """The JSON Schema of its result; None: any JSON."""


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
    """The representative must transfer the customer instead of helping."""

    def render(self) -> str:
        """Return the scenario as text, with a line for each field that has a value."""
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
    """A call that the request needs, and its result."""

    name: str
    arguments: JSONObject
    result: JSONObject


class SimulationTask(Task):
    """A customer, and a representative with tools and rules."""

    domain_name: str = ""
    """The business of the representative."""
    policy: str
    """The rules of the representative, in Markdown."""
    tools: list[ToolSpec]
    """The representative's tools."""
    customer_scenario: Scenario
    """What the customer wants and knows."""
    profile: Literal["general", "proactive"] = "general"
    """`proactive`: the customer reveals only what they are asked for."""
    initial_user_message: str | None = None
    """The customer's first message; without it, the simulated customer writes it."""
    gold_calls: list[GoldCall] = []
    """The tool calls that serve the customer, for the oracle."""
    facts: dict[str, str] = {}
    """What the gold calls need from the customer, by the name that a question uses."""
    report: str = ""
    """The words that the customer must be told in the end; only our own rows have them."""


def transcript(messages: list[Message], ending: Ending = "") -> str:
    """Return a conversation as JSON lines, one for each message."""
    # JSON escapes line breaks, so no message can forge the line of another.
    names: dict[str | None, str] = {}
    lines: list[JSONObject] = []
    for message in messages:
        # Ids may repeat later in the conversation, so each result is named by the latest call.
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


SAMPLING: JSONObject = {"temperature": 1.0}
"""The reference's sampling of customer and tools."""
MAX_TRIES = 3
"""The most tries for a message of the customer or a result, as in the reference."""

CUSTOMER_INSTRUCTIONS = """You are a customer and talk with a representative of a business. \
The scenario below says who you are and what you want; stay in that role, and never write for the \
representative.

- Write one short message at a time, as people do in a chat.
- Say only what the scenario knows. What it does not say, you do not know: make nothing up.
- Your part is to want, to answer and to decide; the work is the representative's.
- {profile}
- Once your request has been carried out, or refused for good, and you have been told the outcome, \
write ###STOP###.
- Once the representative says that they are transferring you, write ###TRANSFER###.
- Write neither of these in your first message, nor for any other reason."""

PROFILES = {
    "general": "Say with your request what the representative will need to know for it.",
    "proactive": "Begin with why you call and nothing else. Tell a detail only where the "
    "representative asks for it, and then only that one.",
}

TOOL_INSTRUCTIONS = """You are the tools of a business: the system behind them, with its records. \
You are given the conversation of a representative with a customer, then one call. Answer with the \
result of that call: JSON that fits the tool's schema "returns", and nothing else.

- Stay true to the scenario, to the known results and to every result that you gave before.
- What a call changed stays changed. What the records cannot have, is not found.
- You only carry out calls: whether they were allowed is for others to judge."""


def customer(model: Model, task: SimulationTask) -> SimulatedUser:
    """Return the customer of a task."""
    return SimulatedUser(
        model,
        instructions=CUSTOMER_INSTRUCTIONS.format(profile=PROFILES[task.profile]),
        scenario=task.customer_scenario.render(),
        max_tries=MAX_TRIES,
        params=SAMPLING,
    )


class ToolSimulator:
    """All tools of an episode, played by one model that sees its earlier results."""

    def __init__(self, model: Model, task: SimulationTask) -> None:
        self.model = model
        self._known = [Message(role="system", content=_system(task))]

    async def result(
        self, tool: ToolSpec, arguments: JSONObject, conversation: list[Message]
    ) -> str:
        """Return the result of a call as JSON text.

        Raises:
            RoleError: The call of the model failed, no answer fits the tool's schema, or the schema
                is invalid.

        """
        call = msgspec.json.encode({"tool": tool.name, "arguments": arguments}).decode()
        shown = f"<conversation>\n{transcript(conversation)}\n</conversation>\n\n{call}"
        asked = [*self._known, Message(role="user", content=shown)]
        for _ in range(MAX_TRIES):
            try:
                answer = await self.model.complete(asked, params=SAMPLING)
            except RoleError as error:
                # An answer that is cut or empty is worth another try; a failed request is not.
                if not error.is_answered:
                    raise
                continue
            text = _unfenced(answer.text)
            if _fits(text, tool):
                # Earlier calls are kept without their conversation, which the newest one shows.
                self._known.append(Message(role="user", content=call))
                self._known.append(Message(role="assistant", content=text))
                return text
        raise RoleError(
            f"the simulated tool {tool.name} returned no JSON that fits its schema "
            f"in {MAX_TRIES} tries"
        )


def _system(task: SimulationTask) -> str:
    tools = [tool.model_dump(mode="json") for tool in task.tools]
    known = [gold.model_dump(mode="json") for gold in task.gold_calls]
    parts: dict[str, str] = {
        "policy": task.policy,
        "scenario": task.customer_scenario.render(),
        "tools": "\n".join(msgspec.json.encode(tool).decode() for tool in tools),
        "known_results": "\n".join(msgspec.json.encode(gold).decode() for gold in known),
    }
    sections = [f"<{name}>\n{text}\n</{name}>" for name, text in parts.items() if text]
    return "\n\n".join([TOOL_INSTRUCTIONS, *sections])


def _unfenced(text: str) -> str:
    fenced = re.fullmatch(r"\s*```\w*\n(.*?)\s*```\s*", text, re.DOTALL)
    return (fenced[1] if fenced else text).strip()


def _fits(text: str, tool: ToolSpec) -> bool:
    """Return whether a text is JSON that fits the tool's schema.

    Raises:
        RoleError: The schema is invalid, or has a reference that cannot be resolved.

    """
    import jsonschema  # late: heavy
    import referencing

    schema = tool.returns or {}
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
        # Without an empty registry, references would be fetched over the network.
        validator = jsonschema.Draft202012Validator(schema, registry=referencing.Registry())
        return validator.is_valid(msgspec.json.decode(text))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    except (jsonschema.SchemaError, referencing.exceptions.Unresolvable) as error:
        reason = " ".join(str(error).split())[:200]
        raise RoleError(
            f'"returns" of the tool {tool.name} is not a JSON Schema: {reason}'
        ) from error
