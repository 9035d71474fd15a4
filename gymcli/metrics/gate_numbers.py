"""The numbers of a run that gates name, and what is said where there is none of a name."""

from __future__ import annotations

import builtins
import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import get_args

import msgspec

from gymcli import errors
from gymcli.errors import AttemptError, FilterError, UsageError
from gymcli.metrics.at_k import METRICS
from gymcli.metrics.results import Estimate, Metrics, RunMetrics
from gymcli.types import StopReason, Usage

__all__ = [
    "DIFFERENCE",
    "PLAIN_NAMES",
    "TOOL_FAULTS",
    "check_name",
    "is_estimate",
    "number_of",
    "numbers",
    "part_of",
]

PLAIN_NAMES = (
    *("num_expected", "num_present", "num_scored", "num_unscored", "coverage"),
    *("num_tasks", "num_clusters", "flaky", "standard_error", "cost", "tokens"),
    *("failures", "tool_errors", "retries"),
)
"""Numbers without an interval; `failures` and the two after it are sums over their kinds."""

TOOL_FAULTS = ("unknown_tool", "not_json", "not_an_object", "wrong_arguments", "raised", "timeout")
"""Kinds of `tool_errors`."""

_MEANS = ("mean_reward", "micro_mean_reward", "strict_mean_reward")
_AT_K = tuple(metric.name for metric in METRICS.values())
_IS_AT_K = re.compile(rf"(?:{'|'.join(map(re.escape, _AT_K))})[1-9][0-9]*")
_PERCENTILES = ("p50", "p90", "p95", "p99")
_TIMES = tuple(f"latency.{kind}{share}" for kind in ("", "model.") for share in _PERCENTILES)
_BOUNDS = ("bounds.low", "bounds.high")
_VARIANCE = tuple(
    f"variance.{name}" for name in ("between", "within", "intraclass_correlation", "design_effect")
)
DIFFERENCE = "difference"
"""To a baseline."""
_FIXED_NAMES = (*_MEANS, *PLAIN_NAMES, *_TIMES, *_BOUNDS, *_VARIANCE, DIFFERENCE)
_OPEN_NAMES = ("components", "metrics", "environment_metrics")
"""First parts of names whose rest the environment chooses."""
_COUNTED = ("failures", "stop_reasons", "tool_errors", "retries", "usage")
"""First parts of names whose rest is a kind that is counted."""
_KINDS = {
    "stop_reasons": get_args(StopReason),
    "tool_errors": TOOL_FAULTS,
    "usage": Usage.__struct_fields__,
}
"""Those of the counted ones that are known beforehand."""
_MAX_LISTED = 30


def is_estimate(name: str) -> bool:
    """Say whether a number of this name comes with an interval, where the run tells one."""
    is_named = name.partition(".")[0] in _OPEN_NAMES[:2]
    return is_named or name in (*_MEANS, DIFFERENCE) or _IS_AT_K.fullmatch(name) is not None


def check_name(name: str, text: str) -> None:
    """Refuse a name that no run has a number of, whatever it does.

    Raises:
        FilterError: It is one; the message has the one that is most like it.

    """
    first, dot, rest = name.partition(".")
    if name in _FIXED_NAMES or _IS_AT_K.fullmatch(name):
        return
    if first in _KINDS and dot and rest not in _KINDS[first]:
        raise FilterError(f"--gate {text}: {first} has {', '.join(_KINDS[first])}")
    if dot and rest and first in (*_OPEN_NAMES, *_COUNTED):
        return
    known = [*_FIXED_NAMES, *(f"{at}1" for at in _AT_K)]
    close = difflib.get_close_matches(name, known, n=1)
    open_names = [f"{first}.NAME" for first in (*_OPEN_NAMES, *_COUNTED)]
    names = [*_MEANS, *(f"{at}K" for at in _AT_K), *PLAIN_NAMES, *_TIMES, *_BOUNDS, *open_names]
    hint = f'did you mean "{close[0]}"?' if close else f"there are {', '.join(names)}"
    raise FilterError(f'--gate {text}: there is no number "{name}"; {hint}')


def part_of(
    metrics: RunMetrics, *, env: str | None, field: str | None, value: str | None
) -> Metrics:
    """Return the numbers of a part of a run.

    Args:
        metrics: Those of the run.
        env: An environment; None: all together.
        field: A field of the tasks that the run is sliced by; None: none.
        value: The name of its slice.

    Raises:
        UsageError: The run has no such part; the message says which it has.

    """
    part: Metrics = metrics
    if env is not None:
        part = _picked(metrics.environments, env, "env")
    if field is not None:
        name = field.removeprefix("task.")
        slices = part.slices.get(name) or part.slices.get(f"task.{name}", {})
        part = _picked(slices, value or "", field)
    return part


def number_of(part: Metrics, name: str) -> Estimate | float:
    """Return a number by its name.

    Raises:
        UsageError: The part has none; the message says why, and which it has.

    """
    known = numbers(part)
    found = known.get(name)
    if found is not None:
        return found
    first, _, rest = name.partition(".")
    if first in _COUNTED and _is_kind(first, rest):
        return 0.0
    raise UsageError(_why_missing(part, name, known))


def numbers(part: Metrics) -> dict[str, Estimate | float]:
    """Return every number that a gate can name, by its name; those that are not known are left out.

    A count of a kind that did not come up is left out too; a gate takes it for 0.
    """
    return dict(part.estimates) | dict(_plain(part))


def _plain(part: Metrics) -> Iterator[tuple[str, float]]:
    counts = {
        **{name: getattr(part, name) for name in PLAIN_NAMES if hasattr(part, name)},
        "flaky": part.num_flaky_tasks,
        "tokens": part.usage.get("prompt_tokens", 0) + part.usage.get("completion_tokens", 0),
        **{
            name: sum(getattr(part, name).values())
            for name in ("failures", "tool_errors", "retries")
        },
    }
    for first in (*_COUNTED, "environment_metrics"):
        counts |= {f"{first}.{name}": count for name, count in getattr(part, first).items()}
    for first, struct in (("bounds", part.bounds), ("variance", part.variance)):
        if struct is not None:
            own = msgspec.structs.asdict(struct)
            counts |= {f"{first}.{name}": value for name, value in own.items()}
    if part.latency is not None:
        for share in _PERCENTILES:
            counts[f"latency.{share}"] = getattr(part.latency.total_seconds, share)
            counts[f"latency.model.{share}"] = getattr(part.latency.model_seconds, share)
    for name, value in counts.items():
        if value is not None:
            yield name, float(value)


def _picked(parts: Mapping[str, Metrics], name: str, field: str) -> Metrics:
    found = parts.get(name)
    if found is not None:
        return found
    close = difflib.get_close_matches(name, list(parts), n=1)
    hint = f'did you mean "{close[0]}"?' if close else f"there are {_some(parts) or 'none'}"
    raise UsageError(f"no task has {field}={name}; {hint}")


def _is_kind(first: str, name: str) -> bool:
    """Say whether something of this name is counted, though it did not come up."""
    if first in _KINDS:
        return name in _KINDS[first]
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, AttemptError):
        return True
    kind = getattr(builtins, name, None)
    return isinstance(kind, type) and issubclass(kind, Exception)


def _why_missing(part: Metrics, name: str, known: Mapping[str, object]) -> str:
    """Say why a part has no number of a name, and what it has instead."""
    if name == DIFFERENCE:
        return "takes --baseline RUN"
    if name == "cost":
        return "what it cost is not known of every attempt; gym.toml takes prices"
    if name in ("coverage", "num_expected"):
        return "how many attempts were to be made is not known of slices, nor of a file alone"
    if not part.num_scored:
        return "nothing is scored"
    environments = getattr(part, "environments", {})
    if len(environments) > 1 and part.mean_reward is None and name not in PLAIN_NAMES:
        return (
            "the environments have different best rewards, so that there is none of all together; "
            f"write {name}[env=NAME] for {_some(environments)}"
        )
    if _IS_AT_K.fullmatch(name) and part.num_tasks_at_k:
        of_kind = [one for one in known if one.startswith(name.rstrip("0123456789"))]
        most = max(map(int, part.num_tasks_at_k))
        has = f"there are {_some(of_kind)}" if of_kind else "rewards have no threshold of success"
        return f"the most scored attempts of a task are {most}; {has}"
    first = name.partition(".")[0]
    of_kind = [one for one in known if one.startswith(f"{first}.")]
    close = difflib.get_close_matches(name, of_kind, n=1)
    if close:
        return f'there is none of this name; did you mean "{close[0]}"?'
    return f"there is none of this name; there are {_some(of_kind or known)}"


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _MAX_LISTED} more" if len(listed) > _MAX_LISTED else ""
    return ", ".join(listed[:_MAX_LISTED]) + more
