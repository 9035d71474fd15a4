"""Gates: what a run has to reach, read from a text such as `pass@1 >= 0.8`, and the verdict."""

from __future__ import annotations

import ast
import math
import re
import sys
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeVar

import msgspec

from gymcli.errors import FilterError
from gymcli.metrics.comparison_results import Comparison, Difference, Verdict
from gymcli.metrics.filters import parse_expression
from gymcli.metrics.gate_numbers import DIFFERENCE, check_name, is_estimate, number_of, part_of
from gymcli.metrics.intervals import interval_of, normal_quantile
from gymcli.metrics.planning import CHANCE, Needed
from gymcli.metrics.results import Estimate, Interval, Metrics, RunMetrics, Variance

__all__ = [
    "Gate",
    "GateOn",
    "GateProblem",
    "GateVerdict",
    "Sign",
    "Threshold",
    "judge",
    "needed",
    "parse_gate",
    "with_differences",
]

GateOn = Literal["bound", "point"]
"""`bound`: the whole interval has to hold; `point`: the number itself."""

Sign = Literal[">=", ">", "<=", "<", "=="]

_TURNED: dict[Sign, Sign] = {">=": "<=", ">": "<", "<=": ">=", "<": ">", "==": "=="}
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
    """`>= 0.8`, say: what stands on the right of a comparison."""

    sign: Sign
    number: float

    def turned(self) -> Threshold:
        """Return the same where the number stood on the left."""
        return Threshold(_TURNED[self.sign], self.number)

    @property
    def is_lower(self) -> bool:
        """Whether more is better."""
        return self.sign in (">=", ">")

    def holds(self, value: float) -> bool:
        """Say whether a number reaches it."""
        match self.sign:
            case ">=":
                return value >= self.number
            case ">":
                return value > self.number
            case "<=":
                return value <= self.number
            case "<":
                return value < self.number
        return value == self.number

    def holds_within(self, interval: Interval) -> bool | None:
        """Say whether all of an interval reaches it, or none of it; None: a part does."""
        low, high = self.holds(interval.low), self.holds(interval.high)
        return low if low == high else None


class Gate(NamedTuple):
    """What one number of a run has to reach."""

    text: str
    """As it was written."""
    name: str
    """Of the number."""
    thresholds: tuple[Threshold, ...]
    """All have to hold; one, or two of a chain such as `0.2 <= mean_reward <= 0.9`."""
    env: str | None = None
    """The environment whose number it is; None: of all together."""
    field: str | None = None
    """The field of the tasks that the run is sliced by for it."""
    value: str | None = None
    """The name of the slice."""


class GateVerdict(msgspec.Struct, kw_only=True):
    """What became of a gate."""

    gate: str
    """As it was written."""
    verdict: Verdict
    value: float
    interval: Interval | None = None
    """None for a number that has none, such as a count."""
    judged_on: Literal["bound", "point", "number"]
    """`number`: it has no interval, and is judged as it is."""
    way_out: str = ""
    """What would decide it, where it is inconclusive."""
    tasks_needed: int | None = None
    """Tasks that would decide with a chance of 80 %, if the number stays what it is."""
    attempts_needed: int | None = None
    """Attempts of each task that would; None where that is not known, or none would."""


def parse_gate(text: str) -> Gate:
    """Read a gate: a name and a number compared, `name[field=value]` for a part of the tasks.

    Raises:
        FilterError: It is none, or there is no such name; the message says what there is.

    """
    found = _PART.search(text)
    # Blanks in its place keep the places in the rest what they are.
    rest = (
        text if found is None else text[: found.start()] + " " * len(found[0]) + text[found.end() :]
    )
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
    """Return the verdict on the numbers of a run.

    On the bound a gate passes where the whole interval of the number holds, and fails where none
    of it does; a number without an interval, such as a count, is judged as it is.

    Raises:
        UsageError: The run has no such number; the message says why, and which it has.

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
        few = number.num_clusters < 2
        found.way_out = (
            "one task says nothing of others; two or more have to be scored"
            if few
            else "all tasks got the same, so that it has no interval"
        ) + ", or --gate-on point judges the number itself"
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
    """Return the verdict of thresholds that hold, do not, or are undecided (None)."""
    if all(held):
        return "PASS"
    return "FAIL" if any(one is False for one in held) else "INCONCLUSIVE"


def _comparison(tree: ast.expr, text: str) -> tuple[str, tuple[Threshold, ...]]:
    """Return the name of a comparison and what it is compared with."""
    if not isinstance(tree, ast.Compare):
        way_out = "give each condition in a --gate of its own"
        hint = way_out if isinstance(tree, ast.BoolOp) else "write one such as pass@1 >= 0.8"
        raise FilterError(f"--gate {text}: is no comparison of a name with a number; {hint}")
    sides = [tree.left, *tree.comparators]
    names = {side.id for side in sides if isinstance(side, ast.Name)}
    thresholds: list[Threshold] = []
    for left, operator, right in zip(sides, tree.ops, tree.comparators, strict=False):
        sign = _SIGNS.get(type(operator))
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
    """Read `field=value, env=name`; values may stand in quotes."""
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
    """Return what would decide a gate that an interval leaves open.

    Another run of n tasks has the standard error s/sqrt(n), s being that of one task here, and a
    number that is less favourable by 0.84 of it (the quantile of the chance); attempts shrink but
    the part of the variance that lies within tasks (Miller 2024, arXiv 2411.00640, section 5).

    Args:
        number: The number, with an interval.
        thresholds: Those of the gate.
        part: The numbers of the same part, for the variance within tasks.

    """
    assert number.interval is not None
    level, method = number.interval.level, number.interval.method
    error, num_tasks = number.standard_error or 0.0, number.num_clusters
    attempts = number.num_values / num_tasks
    best = 1.0 if method == "wilson-neff" and number.interval.high <= 1.0 else None

    def is_decided(tasks: int, attempts: float, error: float) -> bool:
        def at(value: float) -> Interval | None:
            return interval_of(
                value if best is None else min(best, max(0.0, value)),
                error,
                best=best,
                num_values=math.ceil(tasks * attempts),
                num_clusters=tasks,
                level=level,
            )

        return _decides(number.value, normal_quantile(CHANCE) * error, thresholds, at)

    tasks = _fewest(
        lambda n: is_decided(n, attempts, error * math.sqrt(num_tasks / n)),
        num_tasks + 1,
        _MAX_TASKS,
    )
    if tasks is None:
        return Needed(None, None, "the number is so near that no number of tasks would decide")
    more = _parts_of(number, part)
    most = None
    if more is not None:
        parts = more
        most = _fewest(
            lambda k: is_decided(
                num_tasks, k, math.sqrt((parts.between + parts.within / k) / num_tasks)
            ),
            max(2, math.ceil(attempts) + 1),
            _MAX_ATTEMPTS,
        )
    text = f"about {tasks:,} tasks such as these"
    if most is not None:
        text += f", or {most:,} attempts a task,"
    return Needed(tasks, most, f"{text} would decide")


def _decides(
    value: float,
    shift: float,
    thresholds: Sequence[Threshold],
    at: Callable[[float], Interval | None],
) -> bool:
    """Say whether intervals around a number, moved by chance, leave nothing open.

    Where the number reaches every threshold, each has to hold, with the number moved towards it;
    else one that it does not reach has to fail.
    """
    lacking = [threshold for threshold in thresholds if not threshold.holds(value)]
    for threshold in lacking or thresholds:
        is_away = threshold.is_lower == (threshold in lacking)
        interval = at(value + shift if is_away else value - shift)
        is_decided = interval is not None and threshold.holds_within(interval) == (not lacking)
        if lacking and is_decided:
            return True
        if not lacking and not is_decided:
            return False
    return not lacking


def _parts_of(number: Estimate, part: Metrics) -> Variance | None:
    """Return how the variance of the mean reward is split, where the number is just that mean."""
    is_mean = (number.value, number.standard_error) == (part.mean_reward, part.standard_error)
    return part.variance if is_mean else None


def _fewest(is_enough: Callable[[int], bool], least: int, most: int) -> int | None:
    """Return the smallest number from which on it is enough; None where even the largest is not."""
    high = least
    while not is_enough(high):
        if high >= most:
            return None
        least, high = high + 1, min(2 * high, most)
    while least < high:
        middle = (least + high) // 2
        if is_enough(middle):
            high = middle
        else:
            least = middle + 1
    return high
