"""The Environment contract and @tool: everything that an environment is written against."""

from gymcli.environment.boxes import last_boxed, without_text_commands
from gymcli.environment.context import Cache, Context, Model
from gymcli.environment.contract import Environment, make, shown_tools
from gymcli.environment.parts import EnvironmentOptions, Properties, Step, Task
from gymcli.environment.returned import (
    UNENCODABLE,
    checked_json,
    checked_messages,
    checked_step,
    checked_turn,
    named,
    wrong_return,
)
from gymcli.environment.tool import Tool, ToolCallError, tool

__all__ = [
    "UNENCODABLE",
    "Cache",
    "Context",
    "Environment",
    "EnvironmentOptions",
    "Model",
    "Properties",
    "Step",
    "Task",
    "Tool",
    "ToolCallError",
    "checked_json",
    "checked_messages",
    "checked_step",
    "checked_turn",
    "last_boxed",
    "make",
    "named",
    "shown_tools",
    "tool",
    "without_text_commands",
    "wrong_return",
]
