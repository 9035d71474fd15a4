"""Request parameters of rows and of the command line, put together."""

from __future__ import annotations

from collections.abc import Mapping

from gymcli.models.dialects import DIALECTS
from gymcli.runner.options import CollectOptions
from gymcli.runner.survey import Survey

__all__ = ["merged_params", "parameter_warnings"]

_TOKEN_LIMITS = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens"})
"""Names of one and the same parameter."""


def merged_params(of_row: Mapping[str, object], given: Mapping[str, object]) -> dict[str, object]:
    """Give the parameters of a request: those given win, whatever name a token limit has."""
    if not of_row:
        return dict(given)
    overridden = _TOKEN_LIMITS if _TOKEN_LIMITS & given.keys() else frozenset[str]()
    kept = {name: value for name, value in of_row.items() if name not in overridden}
    return {**kept, **given}


def parameter_warnings(options: CollectOptions, found: Survey) -> list[str]:
    """Say which parameters will not be sent."""
    warnings = []
    if found.ignored:
        names = ", ".join(sorted(found.ignored))
        warnings.append(f"rows set {names}: ignored, the command line decides these")
    dialect = DIALECTS[options.endpoint.dialect if options.endpoint else "chat"]
    asked: dict[str, object] = dict.fromkeys(sorted({*found.param_names, *options.params}))
    if options.seed is not None:
        asked["seed"] = options.seed
    unsent = dialect.unsent({**asked, **options.params})
    if unsent:
        warnings.append(f"the endpoint's dialect has no {', '.join(unsent)}: not sent")
    return warnings
