"""Gates: what a run has to reach, read from a text such as `pass@1 >= 0.8`, and the verdict."""

from __future__ import annotations

import ast
import re
import sys
from typing import Literal, NamedTuple, TypeVar

import msgspec

from gymcli.errors import FilterError
from gymcli.metrics.comparison.results import Comparison, Difference, Verdict
from gymcli.metrics.deciding import Needed, needed
from gymcli.metrics.filters import parse_expression
from gymcli.metrics.gate_numbers import DIFFERENCE, check_name, is_estimate, number_of, part_of
from gymcli.metrics.results import Estimate, Interval, Metrics, RunMetrics
from gymcli.metrics.thresholds import Sign, Threshold

__all__ = [
    "DIFFERENCE",
    "Gate",
    "GateOn",
    "GateProblem",
    "GateVerdict",
    "judge",
    "parse_gate",
    "with_differences",
]

GateOn = Literal["bound", "point"]
"""`bound`: the whole interval has to hold; `point`: the number itself."""

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
    """Give the verdict on the numbers of a run.

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
            _add_needed(found, needed(number, gate.thresholds, part))
    return found


def with_differences(metrics: RunMetrics, comparison: Comparison) -> RunMetrics:
    """Give the numbers with `difference`, which the run has to a baseline, among the estimates.

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
    """Give the verdict of thresholds that hold, do not, or are undecided (None)."""
    if all(held):
        return "PASS"
    return "FAIL" if any(one is False for one in held) else "INCONCLUSIVE"


def _add_needed(found: GateVerdict, needs: Needed) -> None:
    found.tasks_needed, found.attempts_needed, found.way_out = needs


def _comparison(tree: ast.expr, text: str) -> tuple[str, tuple[Threshold, ...]]:
    """Give the name of a comparison and what it is compared with."""
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
