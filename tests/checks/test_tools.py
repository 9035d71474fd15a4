"""Tools as a model is shown them."""

import pytest

from gymcli import FunctionCall, Message, Tool, ToolCall, tool
from tests.checks.subjects import Sound, finding, rows_of


class Tooled(Sound):
    @tool
    def find(self, name: str, limit: int = 3) -> list[str]:
        """Find something by its name."""
        return [name] * limit


class Untyped(Sound):
    @tool
    def find(self, name) -> str:  # what is checked
        """Find something by its name."""
        return name


class Made(Sound):
    """Tools that are known only at run time."""

    def tools(self):
        return [Tool(len, name="look up!", description="Look up.", parameters={})]


def function(**changed):
    spec = {
        "name": "find",
        "description": "Find it.",
        "parameters": {"type": "object", "properties": {"name": {"type": "string"}}},
    }
    return [{"type": "function", "function": {**spec, **changed}}]


def test_tools_hold():
    found = finding("tools", Tooled)
    assert (found.status, found.text) == ("ok", "1 documented, with valid schemas")
    assert finding("tools", Sound).status == "n/a"


class Calling(Sound):
    """Say the answer, once both tools were called."""

    @tool
    def look(self) -> str:
        """Look around."""
        return "look failed: says the tool itself"

    @tool
    def open(self, times: int) -> str:
        """Open the drawer."""
        if times > self.max_times:
            raise ValueError("the drawer is stuck")
        return "open"

    max_times = 1

    async def oracle(self, rollout):
        if rollout.responses:
            return await super().oracle(rollout)
        calls = [("look", "{}"), ("open", '{"times": 1}'), ("open", '{"times": 2}')]
        made = [ToolCall(id="x", function=FunctionCall(name=n, arguments=a)) for n, a in calls]
        return Message(role="assistant", tool_calls=made)


class Stuck(Calling):
    max_times = 0

    @tool
    def look(self) -> str:
        """Look around."""
        return "nothing"


def test_tools_that_raise_in_every_call_of_the_oracle_fail():
    assert finding("tools", Calling).status == "ok"
    found = finding("tools", Stuck)
    assert found.status == "failed"
    words = (
        "open raises in all 24 calls of the oracle: open failed: ValueError: the drawer is stuck."
    )
    assert found.text == words


def test_tools_of_a_row():
    assert finding("tools", Sound, rows_of("ab", tools=function())).status == "ok"
    built_in = [{"type": "web_search"}]
    assert finding("tools", Sound, rows_of("ab", tools=built_in)).status == "n/a"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"name": "find it"}, "the tool name 'find it' is none that endpoints take"),
        ({"name": "x" * 65}, "is none that endpoints take"),
        ({"description": " "}, "the tool find has no description"),
        ({"parameters": [1]}, "the parameters of find are no object but [1]"),
        (
            {"parameters": {"type": "objekt"}},
            "the parameters of find are no JSON Schema: $.type: 'objekt' is not valid",
        ),
        (
            {"parameters": {"properties": {"name": {}}}},
            "the parameter name of find has neither a type nor a description",
        ),
        (
            {"parameters": {"properties": {"name": True}}},
            "the parameter name of find has neither a type nor a description",
        ),
        (
            {"parameters": {"required": ["name"]}},
            "find requires the parameter name and does not describe it",
        ),
    ],
)
def test_tools_that_are_wrong(changed, reason):
    found = finding("tools", Sound, rows_of("ab", tools=function(**changed)))
    assert found.status == "failed"
    assert reason in found.text


def test_tools_that_are_none():
    rows = rows_of("ab", tools=[{"type": "function", "function": "find"}])
    assert "no object but 'find'" in finding("tools", Sound, rows).text


def test_tools_of_a_class():
    assert finding("tools", Untyped).status == "failed"


def test_tools_that_are_made_and_several_problems():
    class Several(Made):
        def tools(self):
            return [*super().tools(), Tool(len, name="f?", description="F.", parameters={})]

    assert "'look up!'" in finding("tools", Made).text
    assert finding("tools", Several).text.endswith("(and 1 more)")
