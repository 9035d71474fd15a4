"""Runs language models through environments and scores what they did.

The public names are imported when they are first used, so that `gym --help` stays quick.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gymcli.checks.checks import check
    from gymcli.environment.contract import Context, Environment, Model
    from gymcli.environment.judge import Judge, StandIn, Verdict
    from gymcli.environment.model_text import last_boxed, without_text_commands
    from gymcli.environment.reward import Comparison, PairwiseJudge, RewardModel
    from gymcli.environment.tool import EnvironmentOptions, Properties, Step, Task, Tool, tool
    from gymcli.environment.user import SimulatedUser, UserTurn
    from gymcli.errors import (
        GymError,
        MissingPackageError,
        RoleError,
        UsageError,
        VerifierError,
        VerifierTimeoutError,
    )
    from gymcli.metrics import AttemptScore, Group
    from gymcli.models.endpoint import Endpoint
    from gymcli.runner.collection import collect
    from gymcli.runner.verifying import verify
    from gymcli.types import (
        JSON,
        Failure,
        FunctionCall,
        JSONObject,
        Message,
        Rollout,
        Score,
        ToolCall,
    )

__version__ = "0.1.0"

__all__ = [
    "JSON",
    "AttemptScore",
    "Comparison",
    "Context",
    "Endpoint",
    "Environment",
    "EnvironmentOptions",
    "Failure",
    "FunctionCall",
    "Group",
    "GymError",
    "JSONObject",
    "Judge",
    "Message",
    "MissingPackageError",
    "Model",
    "PairwiseJudge",
    "Properties",
    "RewardModel",
    "RoleError",
    "Rollout",
    "Score",
    "SimulatedUser",
    "StandIn",
    "Step",
    "Task",
    "Tool",
    "ToolCall",
    "UsageError",
    "UserTurn",
    "Verdict",
    "VerifierError",
    "VerifierTimeoutError",
    "check",
    "collect",
    "last_boxed",
    "tool",
    "verify",
    "without_text_commands",
]

_HOMES = {
    "gymcli.checking": ("check",),
    "gymcli.client": ("Endpoint",),
    "gymcli.environment": (
        "Context",
        "Environment",
        "EnvironmentOptions",
        "Model",
        "Properties",
        "Step",
        "Task",
        "Tool",
        "last_boxed",
        "tool",
        "without_text_commands",
    ),
    "gymcli.errors": (
        "GymError",
        "MissingPackageError",
        "RoleError",
        "UsageError",
        "VerifierError",
        "VerifierTimeoutError",
    ),
    "gymcli.metrics": ("AttemptScore", "Group"),
    "gymcli.roles": (
        "Comparison",
        "Judge",
        "PairwiseJudge",
        "RewardModel",
        "SimulatedUser",
        "StandIn",
        "UserTurn",
        "Verdict",
    ),
    "gymcli.runner": ("collect", "verify"),
    "gymcli.types": (
        "JSON",
        "Failure",
        "FunctionCall",
        "JSONObject",
        "Message",
        "Rollout",
        "Score",
        "ToolCall",
    ),
}


def __getattr__(name: str) -> object:
    """Import a public name from its module (PEP 562)."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names, so that completion finds them before they are imported."""
    return sorted({*globals(), *__all__})
