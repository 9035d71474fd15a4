"""Runs language models through environments and scores what they did.

The public names are imported on first use, which keeps `gym --help` fast.
"""

import importlib
from typing import TYPE_CHECKING

from gymcli.version import __version__ as __version__

if TYPE_CHECKING:
    from gymcli.benchmarks.benchmark_runs import benchmark as benchmark
    from gymcli.environment.answers import closed_boxes as closed_boxes
    from gymcli.environment.answers import last_answer_line as last_answer_line
    from gymcli.environment.answers import last_boxed as last_boxed
    from gymcli.environment.answers import plain_answer as plain_answer
    from gymcli.environment.answers import without_text_commands as without_text_commands
    from gymcli.environment.contract import Context as Context
    from gymcli.environment.contract import Environment as Environment
    from gymcli.environment.contract import Model as Model
    from gymcli.environment.judge import Judge as Judge
    from gymcli.environment.judge import StandIn as StandIn
    from gymcli.environment.judge import Verdict as Verdict
    from gymcli.environment.reward import Comparison as Comparison
    from gymcli.environment.reward import PairwiseJudge as PairwiseJudge
    from gymcli.environment.reward import RewardModel as RewardModel
    from gymcli.environment.tool import EnvironmentOptions as EnvironmentOptions
    from gymcli.environment.tool import Properties as Properties
    from gymcli.environment.tool import Step as Step
    from gymcli.environment.tool import Task as Task
    from gymcli.environment.tool import Tool as Tool
    from gymcli.environment.tool import tool as tool
    from gymcli.environment.user import SimulatedUser as SimulatedUser
    from gymcli.environment.user import UserTurn as UserTurn
    from gymcli.errors import GymError as GymError
    from gymcli.errors import MissingPackageError as MissingPackageError
    from gymcli.errors import RoleError as RoleError
    from gymcli.errors import UsageError as UsageError
    from gymcli.errors import VerifierError as VerifierError
    from gymcli.errors import VerifierTimeoutError as VerifierTimeoutError
    from gymcli.library.baseline import compare as compare
    from gymcli.library.environment_checks import check as check
    from gymcli.library.measurement import gate as gate
    from gymcli.library.measurement import measure as measure
    from gymcli.library.run_collection import collect as collect
    from gymcli.library.run_list import runs as runs
    from gymcli.library.verification import verify as verify
    from gymcli.models.endpoint import Endpoint as Endpoint
    from gymcli.rescoring.file_rescoring import rescore as rescore
    from gymcli.store.scored_lines import AttemptScore as AttemptScore
    from gymcli.store.scored_lines import Group as Group
    from gymcli.types import JSON as JSON
    from gymcli.types import Failure as Failure
    from gymcli.types import FunctionCall as FunctionCall
    from gymcli.types import JSONObject as JSONObject
    from gymcli.types import Message as Message
    from gymcli.types import Rollout as Rollout
    from gymcli.types import Score as Score
    from gymcli.types import ToolCall as ToolCall

_MODULES = {
    "JSON": "types",
    "AttemptScore": "store.scored_lines",
    "Comparison": "environment.reward",
    "Context": "environment.contract",
    "Endpoint": "models.endpoint",
    "Environment": "environment.contract",
    "EnvironmentOptions": "environment.tool",
    "Failure": "types",
    "FunctionCall": "types",
    "Group": "store.scored_lines",
    "GymError": "errors",
    "JSONObject": "types",
    "Judge": "environment.judge",
    "Message": "types",
    "MissingPackageError": "errors",
    "Model": "environment.contract",
    "PairwiseJudge": "environment.reward",
    "Properties": "environment.tool",
    "RewardModel": "environment.reward",
    "RoleError": "errors",
    "Rollout": "types",
    "Score": "types",
    "SimulatedUser": "environment.user",
    "StandIn": "environment.judge",
    "Step": "environment.tool",
    "Task": "environment.tool",
    "Tool": "environment.tool",
    "ToolCall": "types",
    "UsageError": "errors",
    "UserTurn": "environment.user",
    "Verdict": "environment.judge",
    "VerifierError": "errors",
    "VerifierTimeoutError": "errors",
    "benchmark": "benchmarks.benchmark_runs",
    "check": "library.environment_checks",
    "closed_boxes": "environment.answers",
    "collect": "library.run_collection",
    "compare": "library.baseline",
    "gate": "library.measurement",
    "last_answer_line": "environment.answers",
    "last_boxed": "environment.answers",
    "measure": "library.measurement",
    "plain_answer": "environment.answers",
    "rescore": "rescoring.file_rescoring",
    "runs": "library.run_list",
    "tool": "environment.tool",
    "verify": "library.verification",
    "without_text_commands": "environment.answers",
}
"""The module of each public name."""

__all__ = [*_MODULES]


def __getattr__(name: str) -> object:
    """Import a public name from its module (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"gymcli.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    """List the public names, so that completion finds them before they are imported."""
    return sorted({*globals(), *__all__})
