"""Gates such as `pass@1 >= 0.8`: which numbers they can name, how they are parsed and judged."""

from __future__ import annotations

import ast
import builtins
import math
import operator
import re
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar, get_args

import msgspec

from gymcli import errors
from gymcli.errors import AttemptError, FilterError, UsageError, did_you_mean
from gymcli.metrics.at_k import METRICS
from gymcli.metrics.comparison_results import Comparison, Difference, Verdict
from gymcli.metrics.filters import parse_expression
from gymcli.metrics.intervals import interval_of, normal_quantile
from gymcli.metrics.planning import CHANCE, Needed
from gymcli.metrics.results import Estimate, Interval, Metrics, RunMetrics
from gymcli.types import StopReason, Usage

__all__ = [
    "DIFFERENCE",
    "PLAIN_NAMES",
    "TOOL_FAULTS",
    "Gate",
    "GateOn",
    "GateProblem",
    "GateVerdict",
    "Sign",
    "Threshold",
    "check_name",
    "judge",
    "needed",
    "number_of",
    "numbers",
    "parse_gate",
    "with_differences",
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
"""The difference from a baseline."""
_FIXED_NAMES = (*_MEANS, *PLAIN_NAMES, *_TIMES, *_BOUNDS, *_VARIANCE, DIFFERENCE)
_OPEN_NAMES = ("components", "metrics", "environment_metrics")
"""First parts of names whose second part the environment chooses."""
_COUNTED = ("failures", "stop_reasons", "tool_errors", "retries", "usage")
"""First parts of names whose second part is a kind that is counted."""
_KINDS = {
    "stop_reasons": get_args(StopReason),
    "tool_errors": TOOL_FAULTS,
    "usage": Usage.__struct_fields__,
}
"""Those of the counted ones that are known beforehand."""
_MAX_LISTED = 30


def is_estimate(name: str) -> bool:
    """Return whether the number of this name has an interval."""
    is_named = name.partition(".")[0] in _OPEN_NAMES[:2]
    return is_named or name in (*_MEANS, DIFFERENCE) or _IS_AT_K.fullmatch(name) is not None


def check_name(name: str, text: str) -> None:
    """Check that a run can have a number of this name; the error suggests a similar one."""
    first, dot, rest = name.partition(".")
    if name in _FIXED_NAMES or _IS_AT_K.fullmatch(name):
        return
    if first in _KINDS and dot and rest not in _KINDS[first]:
        raise FilterError(f"--gate {text}: {first} has {', '.join(_KINDS[first])}")
    if dot and rest and first in (*_OPEN_NAMES, *_COUNTED):
        return
    known = [*_FIXED_NAMES, *(f"{at}1" for at in _AT_K)]
    open_names = [f"{first}.NAME" for first in (*_OPEN_NAMES, *_COUNTED)]
    names = [*_MEANS, *(f"{at}K" for at in _AT_K), *PLAIN_NAMES, *_TIMES, *_BOUNDS, *open_names]
    hint = did_you_mean(name, known) or f"there are {', '.join(names)}"
    raise FilterError(f'--gate {text}: there is no number "{name}"; {hint}')


def part_of(
    metrics: RunMetrics, *, env: str | None, field: str | None, value: str | None
) -> Metrics:
    """Return the numbers of an environment, of a slice of the tasks, or of a slice of its tasks.

    Raise UsageError where the run has no such part.
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
    """Return a number by its name; raise UsageError with the reason if it is missing."""
    known = numbers(part)
    found = known.get(name)
    if found is not None:
        return found
    first, _, rest = name.partition(".")
    if first in _COUNTED and _can_be_counted(first, rest):
        return 0.0
    raise UsageError(_why_missing(part, name, known))


def numbers(part: Metrics) -> dict[str, Estimate | float]:
    """Return every known number that a gate can name, by its name.

    A count of a kind that did not come up is left out too; a gate takes it for 0.
    """
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
    plain = {name: float(value) for name, value in counts.items() if value is not None}
    return {**part.estimates, **plain}


def _picked(parts: Mapping[str, Metrics], name: str, field: str) -> Metrics:
    found = parts.get(name)
    if found is not None:
        return found
    hint = did_you_mean(name, parts) or f"there are {_some(parts) or 'none'}"
    raise UsageError(f"no task has {field}={name}; {hint}")


def _can_be_counted(first: str, name: str) -> bool:
    if first in _KINDS:
        return name in _KINDS[first]
    own, foreign = getattr(errors, name, None), getattr(builtins, name, None)
    return (isinstance(own, type) and issubclass(own, AttemptError)) or (
        isinstance(foreign, type) and issubclass(foreign, Exception)
    )


def _why_missing(part: Metrics, name: str, known: Mapping[str, object]) -> str:
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
    hint = did_you_mean(name, of_kind) or f"there are {_some(of_kind or known)}"
    return f"there is none of this name; {hint}"


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _MAX_LISTED} more" if len(listed) > _MAX_LISTED else ""
    return ", ".join(listed[:_MAX_LISTED]) + more


GateOn = Literal["bound", "point"]
"""`bound`: the whole interval has to hold; `point`: the number itself."""

Sign = Literal[">=", ">", "<=", "<", "=="]

_TURNED: dict[Sign, Sign] = {">=": "<=", ">": "<", "<=": ">=", "<": ">", "==": "=="}
_TESTS: dict[Sign, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
    "==": operator.eq,
}
_SIGNS: dict[type[ast.cmpop], Sign] = {
    ast.GtE: ">=",
    ast.Gt: ">",
    ast.LtE: "<=",
    ast.Lt: "<",
    ast.Eq: "==",
}
_PART = re.compile(r"""\[(?=\s*[\w.-]+\s*=(?!=))((?:"[^"]*"|'[^']*'|[^\[\]"'])*)\]""")
_SELECTOR = re.compile(r"""\s*([\w.-]+)\s*=\s*("[^"]*"|'[^']*'|[^,"']*?)\s*(?:,|$)""")
_ENV = "env"
_MAX_TASKS = 10_000_000
_MAX_ATTEMPTS = 10_000


class Threshold(NamedTuple):
    """The right side of a comparison, such as `>= 0.8`."""

    sign: Sign
    number: float

    def turned(self) -> Threshold:
        """Return the threshold of a comparison whose number stands on the left."""
        return Threshold(_TURNED[self.sign], self.number)

    @property
    def is_lower(self) -> bool:
        """Whether this is a lower bound."""
        return self.sign in (">=", ">")

    def holds(self, value: float) -> bool:
        """Return whether a number meets the threshold."""
        return _TESTS[self.sign](value, self.number)

    def holds_within(self, interval: Interval) -> bool | None:
        """Return whether all of an interval meets the threshold; None if only a part does."""
        low, high = self.holds(interval.low), self.holds(interval.high)
        return low if low == high else None


class Gate(NamedTuple):
    """A condition on one number of a run."""

    text: str
    name: str
    """Of the number."""
    thresholds: tuple[Threshold, ...]
    """All have to hold; one, or two of a chain such as `0.2 <= mean_reward <= 0.9`."""
    env: str | None = None
    """None: all environments together."""
    field: str | None = None
    """The field that the tasks are sliced by."""
    value: str | None = None
    """The name of the slice."""


class GateVerdict(msgspec.Struct, kw_only=True):
    """The verdict on a gate."""

    gate: str
    verdict: Verdict
    value: float
    interval: Interval | None = None
    """None for a number without one, such as a count."""
    judged_on: Literal["bound", "point", "number"]
    """`number`: it has no interval, and is judged as it is."""
    way_out: str = ""
    tasks_needed: int | None = None
    """Tasks that would decide with a chance of 80 % if the number stays the same."""
    attempts_needed: int | None = None
    """Attempts per task that would decide; None if unknown or if no number would."""


def parse_gate(text: str) -> Gate:
    """Read a gate: a name and a number compared, `name[field=value]` for a part of the tasks.

    Raise FilterError where it cannot be read, or there is no such name.
    """
    found = _PART.search(text)
    # Blanks in its place keep the places in the rest what they are.
    rest = _PART.sub(lambda part: " " * len(part[0]), text, count=1)
    try:
        expression = parse_expression(rest)
    except FilterError as error:
        raise FilterError(f"--gate {text}: {error}") from error
    name, thresholds = _comparison(expression.tree, text)
    check_name(name, text)
    if is_estimate(name) and any(threshold.sign == "==" for threshold in thresholds):
        raise FilterError(
            f"--gate {text}: {name} is known within an interval, which equals nothing; "
            f"write a chain such as 0.2 <= {name} <= 0.9"
        )
    if found is None:
        return Gate(text, name, thresholds)
    parts = _parts(found[1], text)
    env = parts.pop(_ENV, None)
    if len(parts) > 1:
        raise FilterError(f"--gate {text}: names {len(parts)} fields; give one, and an env")
    field, value = next(iter(parts.items()), (None, None))
    return Gate(text, name, thresholds, env, field, value)


class GateProblem(msgspec.Struct, kw_only=True):
    """A gate, or a comparison, that could not be judged."""

    what: str
    """The gate as it was written, or the baseline."""
    reason: str


def judge(gate: Gate, metrics: RunMetrics, *, on: GateOn = "bound") -> GateVerdict:
    """Return the verdict on the numbers of a run; raise UsageError where it has no such number.

    On the bound a gate passes where the whole interval of the number holds, and fails where none
    of it does; a number without an interval, such as a count, is judged as it is.
    """
    part = part_of(metrics, env=gate.env, field=gate.field, value=gate.value)
    number = number_of(part, gate.name)
    if not isinstance(number, Estimate):
        verdict = _verdict([t.holds(number) for t in gate.thresholds])
        return GateVerdict(gate=gate.text, verdict=verdict, value=number, judged_on="number")
    found = GateVerdict(
        gate=gate.text,
        verdict="INCONCLUSIVE",
        value=number.value,
        interval=number.interval,
        judged_on=on,
    )
    if on == "point":
        found.verdict = _verdict([t.holds(number.value) for t in gate.thresholds])
    elif number.interval is None:
        reason = "all tasks got the same, so that it has no interval"
        if number.num_clusters < 2:
            reason = "one task says nothing of others; two or more have to be scored"
        found.way_out = f"{reason}, or --gate-on point judges the number itself"
    else:
        found.verdict = _verdict([t.holds_within(number.interval) for t in gate.thresholds])
        if found.verdict == "INCONCLUSIVE":
            needs = needed(number, gate.thresholds, part)
            found.tasks_needed, found.attempts_needed, found.way_out = needs
    return found


def with_differences(metrics: RunMetrics, comparison: Comparison) -> RunMetrics:
    """Return the numbers with `difference`, which the run has to a baseline, among the estimates.

    Its interval is the one that decides in `gym compare`, so that `difference > -0.02` is that
    verdict with a margin of 0.02.
    """
    environments, slices = comparison.environments, comparison.slices
    own = {name: _with(part, environments.get(name)) for name, part in metrics.environments.items()}
    sliced = {
        field: {name: _with(part, slices.get(field, {}).get(name)) for name, part in parts.items()}
        for field, parts in metrics.slices.items()
    }
    return _with(msgspec.structs.replace(metrics, environments=own, slices=sliced), comparison)


_Numbers = TypeVar("_Numbers", bound=Metrics)


def _with(metrics: _Numbers, found: Difference | None) -> _Numbers:
    if found is None or found.difference is None:
        return metrics
    difference = msgspec.structs.replace(found.difference, interval=found.deciding_interval)
    estimates = {**metrics.estimates, DIFFERENCE: difference}
    return msgspec.structs.replace(metrics, estimates=estimates)


def _verdict(held: list[bool | None]) -> Verdict:
    if all(held):  # None is undecided
        return "PASS"
    return "FAIL" if any(one is False for one in held) else "INCONCLUSIVE"


def _comparison(tree: ast.expr, text: str) -> tuple[str, tuple[Threshold, ...]]:
    if not isinstance(tree, ast.Compare):
        way_out = "give each condition in a --gate of its own"
        hint = way_out if isinstance(tree, ast.BoolOp) else "write one such as pass@1 >= 0.8"
        raise FilterError(f"--gate {text}: is no comparison of a name with a number; {hint}")
    sides = [tree.left, *tree.comparators]
    names = {side.id for side in sides if isinstance(side, ast.Name)}
    thresholds: list[Threshold] = []
    for left, compared, right in zip(sides, tree.ops, tree.comparators, strict=False):
        sign = _SIGNS.get(type(compared))
        if sign is None:
            raise FilterError(f"--gate {text}: compare with >=, >, <=, < or ==")
        first, second = _number(left), _number(right)
        if isinstance(left, ast.Name) and second is not None:
            thresholds.append(Threshold(sign, second))
        elif isinstance(right, ast.Name) and first is not None:
            thresholds.append(Threshold(sign, first).turned())
        else:
            raise FilterError(
                f"--gate {text}: compare a name with a number, such as pass@1 >= 0.8 or "
                "0.2 <= mean_reward <= 0.9"
            )
    if len(names) != 1:
        raise FilterError(f"--gate {text}: has {len(names)} names; give each a --gate of its own")
    return names.pop(), tuple(thresholds)


def _number(node: ast.expr) -> float | None:
    match node:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int() | float() as value) if value <= sys.float_info.max:
            return float(value)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            size = _number(operand)
            return -size if size is not None and isinstance(sign, ast.USub) else size
    return None


def _parts(inside: str, text: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    place = 0
    while place < len(inside):
        found = _SELECTOR.match(inside, place)
        if found is None or not found[2] or found[1] in parts:
            raise FilterError(
                f"--gate {text}: [{inside}] names no part; write [field=value] or [env=NAME], "
                "a value with commas or brackets in quotes"
            )
        value = found[2]
        parts[found[1]] = value[1:-1] if value[0] in "\"'" else value
        place = found.end()
    return parts


def needed(number: Estimate, thresholds: Sequence[Threshold], part: Metrics) -> Needed:
    """Return the tasks or attempts that would decide an inconclusive gate.

    Another run of n tasks has the standard error s/sqrt(n), s being that of one task here, and a
    number that is less favourable by 0.84 of it (the quantile of the chance); attempts shrink only
    the part of the variance within tasks (Miller 2024, arXiv 2411.00640, section 5).
    """
    assert number.interval is not None
    level, method = number.interval.level, number.interval.method
    error, num_tasks = number.standard_error or 0.0, number.num_clusters
    attempts = number.num_values / num_tasks
    best = 1.0 if method == "wilson-neff" and number.interval.high <= 1.0 else None
    lacking = [threshold for threshold in thresholds if not threshold.holds(number.value)]

    def is_decided(tasks: int, attempts: float, error: float) -> bool:
        # Where the number reaches every threshold, each has to hold, with the number moved towards
        # it by chance; else one that it does not reach has to fail.
        shift = normal_quantile(CHANCE) * error
        for threshold in lacking or thresholds:
            is_away = threshold.is_lower == bool(lacking)
            value = number.value + shift if is_away else number.value - shift
            interval = interval_of(
                value if best is None else min(best, max(0.0, value)),
                error,
                best=best,
                num_values=math.ceil(tasks * attempts),
                num_clusters=tasks,
                level=level,
            )
            is_sure = interval is not None and threshold.holds_within(interval) == (not lacking)
            if is_sure == bool(lacking):
                return is_sure
        return not lacking

    tasks = _fewest(
        lambda n: is_decided(n, attempts, error * math.sqrt(num_tasks / n)),
        num_tasks + 1,
        _MAX_TASKS,
    )
    if tasks is None:
        return Needed(None, None, "the number is so near that no number of tasks would decide")
    text, most, parts = f"about {tasks:,} tasks such as these", None, part.variance
    # How the variance is split is known of the mean reward alone.
    is_mean = (number.value, number.standard_error) == (part.mean_reward, part.standard_error)
    if is_mean and parts is not None:
        between, within = parts.between, parts.within
        most = _fewest(
            lambda k: is_decided(num_tasks, k, math.sqrt((between + within / k) / num_tasks)),
            max(2, math.ceil(attempts) + 1),
            _MAX_ATTEMPTS,
        )
        if most is not None:
            text += f", or {most:,} attempts a task,"
    return Needed(tasks, most, f"{text} would decide")


def _fewest(is_enough: Callable[[int], bool], least: int, most: int) -> int | None:
    """Return the smallest number that is enough; None if even the largest is not."""
    high = least
    while not is_enough(high):
        if high >= most:
            return None
        least, high = high + 1, min(2 * high, most)
    return bisect_left(range(high), True, lo=least, key=is_enough)
