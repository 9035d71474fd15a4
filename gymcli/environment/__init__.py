"""The Environment contract and @tool: everything that an environment is written against."""

from gymcli.environment.boxes import last_boxed, without_text_commands
from gymcli.environment.context import Cache, Context, Model
from gymcli.environment.contract import Environment, make
from gymcli.environment.parts import EnvironmentOptions, Properties, Step, Task
from gymcli.environment.tool import Tool, ToolCallError, tool

__all__ = [
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
    "last_boxed",
    "make",
    "tool",
    "without_text_commands",
]
