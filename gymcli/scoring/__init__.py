"""A recorded rollout becomes a score: at collection, and any time later from the file."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gymcli.scoring.context import VerifyContext
    from gymcli.scoring.rescored import (
        AttemptErrorText,
        Numbers,
        Rescored,
        RescoreJob,
        Scorers,
        calls_before,
        compared,
        kept,
        new_line,
        rescore_elsewhere,
        rescore_file,
        rescore_lines,
        unscored,
    )
    from gymcli.scoring.template import forget_templates
    from gymcli.scoring.verifying import score, score_group, verifies_in_loop
    from gymcli.scoring.workers import Workers

__all__ = [
    "AttemptErrorText",
    "Numbers",
    "RescoreJob",
    "Rescored",
    "Scorers",
    "VerifyContext",
    "Workers",
    "calls_before",
    "compared",
    "forget_templates",
    "kept",
    "new_line",
    "rescore_elsewhere",
    "rescore_file",
    "rescore_lines",
    "score",
    "score_group",
    "unscored",
    "verifies_in_loop",
]

_HOMES = {
    "AttemptErrorText": "rescored",
    "Numbers": "rescored",
    "RescoreJob": "rescored",
    "Rescored": "rescored",
    "Scorers": "rescored",
    "VerifyContext": "context",
    "Workers": "workers",
    "calls_before": "rescored",
    "compared": "rescored",
    "forget_templates": "template",
    "kept": "rescored",
    "new_line": "rescored",
    "rescore_elsewhere": "rescored",
    "rescore_file": "rescored",
    "rescore_lines": "rescored",
    "score": "verifying",
    "score_group": "verifying",
    "unscored": "rescored",
    "verifies_in_loop": "verifying",
}


def __getattr__(name: str) -> object:
    """Import a public name from its module (PEP 562): a worker needs few of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
