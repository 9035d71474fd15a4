"""Runs language models through environments and scores what they did.

The public names are imported on first use, which keeps `gym --help` fast.
"""

import importlib
from typing import TYPE_CHECKING

from gymcli.version import __version__ as __version__

if TYPE_CHECKING:
    from gymcli.benchmarks.benchmark_runs import benchmark
    from gymcli.checks.checks import check
    from gymcli.environment.answers import (
        closed_boxes,
        last_answer_line,
        last_boxed,
        plain_answer,
        without_text_commands,
    )
    from gymcli.environment.contract import Context, Environment, Model
    from gymcli.environment.judge import Judge, StandIn, Verdict
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
    from gymcli.models.endpoint import Endpoint
    from gymcli.rescoring.file_rescoring import verify
    from gymcli.runner.collection import collect
    from gymcli.store.scored_lines import AttemptScore, Group
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
    "benchmark",
    "check",
    "closed_boxes",
    "collect",
    "last_answer_line",
    "last_boxed",
    "plain_answer",
    "tool",
    "verify",
    "without_text_commands",
]

_MODULES = (
    "gymcli.types",
    "gymcli.errors",
    "gymcli.environment.tool",
    "gymcli.environment.contract",
    "gymcli.environment.answers",
    "gymcli.environment.judge",
    "gymcli.environment.reward",
    "gymcli.environment.user",
    "gymcli.store.scored_lines",
    "gymcli.models.endpoint",
    "gymcli.rescoring.file_rescoring",
    "gymcli.runner.collection",
    "gymcli.benchmarks.benchmark_runs",
    "gymcli.checks.checks",
)
"""The modules that define the public names, those with the fewest imports first."""


def __getattr__(name: str) -> object:
    """Import a public name from its module (PEP 562)."""
    if name in __all__:
        for module in map(importlib.import_module, _MODULES):
            if name in module.__all__:
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names, so that completion finds them before they are imported."""
    return sorted({*globals(), *__all__})
