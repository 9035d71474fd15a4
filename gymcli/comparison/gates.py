"""Gates such as `pass@1 >= 0.8`: the numbers they can name, their parser and their verdicts."""

from __future__ import annotations

import ast
import builtins
import math
import operator
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar, get_args

import msgspec

from gymcli import errors
from gymcli.comparison.comparison_results import Comparison, Difference, Verdict
from gymcli.comparison.planning import CHANCE, DecidingSize, fewest
from gymcli.errors import AttemptError, FilterError, UsageError
from gymcli.metrics.at_k import METRICS
from gymcli.metrics.intervals import NO_SCALE, Scale, interval_of, normal_quantile
from gymcli.metrics.results import MEANS, Estimate, Interval, Metrics, NoAnswers, RunMetrics
from gymcli.metrics.slicing import NONE, check_num_slices, slice_order
from gymcli.store.filters import parse_expression
from gymcli.store.scored_lines import EnvironmentFacts
from gymcli.suggestions import did_you_mean
from gymcli.types import StopReason, ToolFault, Usage

if TYPE_CHECKING:
    from gymcli.comparison.reproduction import BenchmarkScore

PLAIN_NAMES = (
    *("num_expected", "num_present", "num_scored", "num_unscored", "coverage"),
    *("num_tasks", "num_clusters", "flaky", "standard_error", "cost", "tokens"),
    *("failures", "tool_errors", "retries", "no_answer"),
)
"""Numbers without an interval; `failures` and the two after it are sums over their kinds.
`no_answer` is the share of attempts in which no answer could be read, of those whose score has a
reason."""

_ACCURACY = "accuracy"
"""Another name of `mean_reward` where all rewards are 0 or 1."""
_MEANS = (*MEANS, _ACCURACY)
_AT_K = {metric.name: metric for metric in METRICS.values()}
_IS_AT_K = re.compile(rf"({'|'.join(map(re.escape, _AT_K))})([1-9][0-9]*)")
_AT_NO_K = re.compile(rf"(?<![\w.])({'|'.join(map(re.escape, _AT_K))})(?![0-9])")
_PERCENTILES = ("p50", "p90", "p95", "p99")
_TIMES = tuple(f"latency.{kind}{share}" for kind in ("", "model.") for share in _PERCENTILES)
_BOUNDS = ("bounds.low", "bounds.high")
_VARIANCE = tuple(
    f"variance.{name}" for name in ("between", "within", "intraclass_correlation", "design_effect")
)
DIFFERENCE = "difference"
"""The difference from a baseline."""
REFERENCE = "reference"
"""A gate of this one word: the published scores of the run's benchmark are reproduced."""
_FIXED_NAMES = (*_MEANS, *PLAIN_NAMES, *_TIMES, *_BOUNDS, *_VARIANCE, DIFFERENCE)
_OPEN_NAMES = ("components", "metrics", "environment_metrics")
"""First parts of names whose second part the environment chooses."""
_COUNTED = ("failures", "stop_reasons", "tool_errors", "retries", "usage")
"""First parts of names whose second part is a kind that is counted."""
_KINDS = {
    "stop_reasons": get_args(StopReason),
    "tool_errors": get_args(ToolFault),
    "usage": Usage.__struct_fields__,
}
"""The kinds that are known beforehand; failures and retries are counted by error class."""
_NO_ANSWERS = "no answer was extracted from any attempt, so there is no vote"
_NO_THRESHOLD = "rewards have no threshold of success, so no attempt passes or fails"
_MAX_LISTED = 30


def is_estimate(name: str) -> bool:
    """Return whether the number of this name has an interval."""
    is_named = name.partition(".")[0] in _OPEN_NAMES[:2]
    return is_named or name in (*_MEANS, DIFFERENCE) or _IS_AT_K.fullmatch(name) is not None


def check_name(name: str, text: str) -> None:
    """Raise FilterError if no run can have a number of this name; it suggests a similar name."""
    family, dot, kind = name.partition(".")
    if name in _FIXED_NAMES or _IS_AT_K.fullmatch(name):
        return
    if name == REFERENCE:
        raise FilterError(
            f"--gate {text}: write {REFERENCE} alone; the benchmark says which margin counts"
        )
    if family in _KINDS and dot and kind not in _KINDS[family]:
        raise FilterError(f"--gate {text}: {family} has {', '.join(_KINDS[family])}")
    if dot and kind and family in (*_OPEN_NAMES, *_COUNTED):
        return
    k = name[len(name.rstrip("0123456789")) :].lstrip("0") or "1"
    full_names = [*_FIXED_NAMES, *(f"{prefix}{k}" for prefix in _AT_K)]
    open_names = [f"{family}.NAME" for family in (*_OPEN_NAMES, *_COUNTED)]
    names = [
        *_MEANS,
        *(f"{prefix}K" for prefix in _AT_K),
        *PLAIN_NAMES,
        *_TIMES,
        *_BOUNDS,
        *open_names,
    ]
    hint = did_you_mean(name, full_names) or f"there are {', '.join(names)}"
    raise FilterError(f'--gate {text}: there is no number "{name}"; {hint}')


def part_of(
    metrics: RunMetrics, *, env: str | None, field: str | None, value: str | None
) -> Metrics:
    """Return the numbers of an environment, of a slice of the tasks, or of a slice of both.

    Raise UsageError if the run has no such part.
    """
    part: Metrics = metrics
    if env is not None:
        part = _find_part(metrics.environments, env, "env")
    if field is not None:
        # `task.` is optional in --by and in a gate: the slices may be stored under either name.
        name = field.removeprefix("task.")
        slices = part.slices.get(name) or part.slices.get(f"task.{name}", {})
        part = _find_part(slices, value or "", field)
    return part


def number_of(part: Metrics, name: str) -> Estimate | float:
    """Return a number by its name; raise UsageError with the reason if it is missing."""
    numbers_by_name = numbers(part)
    number = numbers_by_name.get(name)
    if number is not None:
        return number
    if name == _ACCURACY and part.is_graded is not None:
        if not part.is_graded:
            return part.estimates["mean_reward"]
        raise UsageError(
            "there is no accuracy, since some rewards are neither 0 nor 1; use mean_reward, or "
            "pass@1 for the share of attempts that pass"
        )
    # Counts list only kinds that occurred: another kind counts 0, a misspelt one is an error.
    family, _, kind = name.partition(".")
    if family in _COUNTED and _can_be_counted(family, kind):
        return 0.0
    raise UsageError(_why_missing(part, name, numbers_by_name))


def numbers(part: Metrics) -> dict[str, Estimate | float]:
    """Return every known number that a gate can name, by its name.

    A kind that never occurred has no count here; `number_of` returns 0 for it.
    """
    counts = {
        **{name: getattr(part, name) for name in PLAIN_NAMES if hasattr(part, name)},
        "flaky": part.num_flaky_tasks,
        "no_answer": part.no_answers.share if part.no_answers.num_attempts else None,
        "tokens": part.usage.get("prompt_tokens", 0) + part.usage.get("completion_tokens", 0),
        **{
            name: sum(getattr(part, name).values())
            for name in ("failures", "tool_errors", "retries")
        },
    }
    for family in (*_COUNTED, "environment_metrics"):
        counts |= {f"{family}.{name}": count for name, count in getattr(part, family).items()}
    for family, struct in (("bounds", part.bounds), ("variance", part.variance)):
        if struct is not None:
            fields = msgspec.structs.asdict(struct)
            counts |= {f"{family}.{name}": value for name, value in fields.items()}
    if part.latency is not None:
        for share in _PERCENTILES:
            counts[f"latency.{share}"] = getattr(part.latency.total_seconds, share)
            counts[f"latency.model.{share}"] = getattr(part.latency.model_seconds, share)
    plain = {name: float(value) for name, value in counts.items() if value is not None}
    return {**part.estimates, **plain}


def _find_part(parts: Mapping[str, Metrics], name: str, field: str) -> Metrics:
    part = parts.get(name)
    if part is None:
        raise UsageError(_missing_part_reason(parts, name, field))
    return part


def _missing_part_reason(names: Iterable[str], name: str, field: str) -> str:
    hint = did_you_mean(name, names) or f"there are {_list_some(names) or 'none'}"
    return f"no task has {field}={name}; {hint}"


def _can_be_counted(family: str, name: str) -> bool:
    if family in _KINDS:
        return name in _KINDS[family]
    # Only a name of an error class, ours or Python's, can be a kind that has not occurred.
    gymcli_error, builtin_error = getattr(errors, name, None), getattr(builtins, name, None)
    return (isinstance(gymcli_error, type) and issubclass(gymcli_error, AttemptError)) or (
        isinstance(builtin_error, type) and issubclass(builtin_error, Exception)
    )


def _why_missing(part: Metrics, name: str, numbers_by_name: Mapping[str, object]) -> str:
    if name == DIFFERENCE:
        return "needs --baseline RUN, a run that can be compared with this one"
    if name == "cost":
        return "the cost of some attempts is unknown; set prices in gym.toml"
    if name in ("coverage", "num_expected"):
        return "the number of expected attempts is unknown for slices and for single files"
    if not part.num_scored:
        return "nothing is scored"
    if name == "no_answer":
        return "no score has a reason in its details, so nobody knows which answers could be read"
    environments = getattr(part, "environments", {})
    if len(environments) > 1 and part.mean_reward is None and name not in PLAIN_NAMES:
        return _no_common_scale(name, environments)
    if (at_k := _IS_AT_K.fullmatch(name)) and part.num_tasks_at_k:
        if getattr(part, (metric := _AT_K[at_k[1]]).key) is None:
            return _NO_ANSWERS if metric.needs_answers else _NO_THRESHOLD
        return too_few_attempts(int(at_k[2]), max(map(int, part.num_tasks_at_k)))
    family = name.partition(".")[0]
    siblings = [other for other in numbers_by_name if other.startswith(f"{family}.")]
    hint = did_you_mean(name, siblings) or f"there are {_list_some(siblings or numbers_by_name)}"
    return f"no number has this name; {hint}"


def too_few_attempts(k: int, max_attempts: int) -> str:
    """Return the reason why there is no metric of k attempts if no task has more than `most`."""
    attempts = "1 attempt" if max_attempts == 1 else f"{max_attempts} attempts"
    return f"no task has more than {attempts}; --repeats {k} would make {k} of each"


def _no_common_scale(name: str, environments: Iterable[str]) -> str:
    return (
        "the environments have different best rewards, so they have no common number; "
        f"write {name}[env=NAME] for {_list_some(environments)}"
    )


def _list_some(names: Iterable[str]) -> str:
    name_list = list(names)
    more = f" and {len(name_list) - _MAX_LISTED} more" if len(name_list) > _MAX_LISTED else ""
    return ", ".join(name_list[:_MAX_LISTED]) + more


GateOn = Literal["bound", "point"]
"""`bound`: the whole interval must meet the thresholds; `point`: the number itself."""

Sign = Literal[">=", ">", "<=", "<", "=="]

_MIRRORED: dict[Sign, Sign] = {">=": "<=", ">": "<", "<=": ">=", "<": ">", "==": "=="}
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
# The lookahead takes `[field=value]` only: `components["a"]` is left to the grammar of filters.
_PART = re.compile(r"""\[(?=\s*[\w.-]+\s*=(?!=))((?:"[^"]*"|'[^']*'|[^\[\]"'])*)\]""")
_SELECTOR = re.compile(r"""\s*([\w.-]+)\s*=\s*("[^"]*"|'[^']*'|[^,"']*?)\s*(?:,|$)""")
_ENV = "env"
_MAX_TASKS = 10_000_000
_MAX_ATTEMPTS = 10_000


class Threshold(NamedTuple):
    """The right side of a comparison, such as `>= 0.8`."""

    sign: Sign
    number: float

    def mirror(self) -> Threshold:
        """Return the threshold of a comparison that has the number on its left side."""
        return Threshold(_MIRRORED[self.sign], self.number)

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
    """The name of the number."""
    thresholds: tuple[Threshold, ...]
    """One, or two of a chain such as `0.2 <= mean_reward <= 0.9`; all must hold; none for the
    gate `reference`."""
    env: str | None = None
    """None: all environments together."""
    field: str | None = None
    """The field that the tasks are sliced by."""
    value: str | None = None
    """The name of the slice."""

    @property
    def k(self) -> int | None:
        """The k of its metric of k attempts; None for another number."""
        match = _IS_AT_K.fullmatch(self.name)
        return int(match[2]) if match else None


class GateVerdict(msgspec.Struct, kw_only=True):
    """The verdict on a gate."""

    gate: str
    verdict: Verdict
    value: float
    interval: Interval | None = None
    """None for a number that has no interval, such as a count."""
    judged_on: Literal["bound", "point", "number"]
    """`number`: one that never has an interval, such as a count, is compared directly."""
    way_out: str = ""
    tasks_needed: int | None = None
    """Tasks that would decide with a chance of 80 % if the number stays the same."""
    attempts_needed: int | None = None
    """Attempts per task that would decide; None if unknown or if no number would."""


def parse_gate(text: str) -> Gate:
    """Parse a gate: a name compared with a number, `name[field=value]` for a part of the tasks.

    Raise FilterError if the text is not a gate or no run can have a number of this name.
    """
    if text.strip() == REFERENCE:
        return Gate(text, REFERENCE, ())
    selector_match = _PART.search(text)
    # Blanks instead of the part keep the character positions that error messages report.
    condition = _PART.sub(lambda part: " " * len(part[0]), text, count=1)
    if without_k := _AT_NO_K.search(condition):
        example = f"{without_k[0]}5"
        raise FilterError(
            f"--gate {text}: write a number of attempts after {without_k[0]}, such as {example}"
        )
    try:
        expression = parse_expression(condition)
    except FilterError as error:
        raise FilterError(f"--gate {text}: {error}") from error
    name, thresholds = _parse_comparison(expression.tree, text)
    check_name(name, text)
    if is_estimate(name) and any(threshold.sign == "==" for threshold in thresholds):
        raise FilterError(
            f"--gate {text}: {name} has an interval, which never equals a number; "
            f"write a chain such as 0.2 <= {name} <= 0.9"
        )
    gate = Gate(text, name, thresholds)
    if reason := _why_never(gate, *_range_of(name)):
        raise FilterError(f"--gate {text}: {reason}")
    if selector_match is None:
        return gate
    parts = _parse_selectors(selector_match[1], text)
    env = parts.pop(_ENV, None)
    if len(parts) > 1:
        raise FilterError(f"--gate {text}: names {len(parts)} fields; name one, besides env")
    field, value = next(iter(parts.items()), (None, None))
    return gate._replace(env=env, field=field, value=value)


def _range_of(name: str) -> tuple[float, float]:
    """Return the lowest and the highest value that a number of this name can have in any run."""
    at_k = _IS_AT_K.fullmatch(name)
    if name in (_ACCURACY, "coverage", "no_answer") or (at_k and _AT_K[at_k[1]].needs_threshold):
        return 0.0, 1.0
    is_counted = name.partition(".")[0] in (*_COUNTED, "latency", "variance")
    return (0.0 if is_counted or name in PLAIN_NAMES else -math.inf), math.inf


def _is_reward(name: str) -> bool:
    """Return whether a number is on the scale of rewards."""
    at_k = _IS_AT_K.fullmatch(name)
    return name in _MEANS or bool(at_k and not _AT_K[at_k[1]].needs_threshold)


def _why_never(gate: Gate, low: float, high: float) -> str:
    """Return why a number of this range never meets the gate, or always; empty if it may."""
    name, thresholds = gate.name, gate.thresholds
    for threshold in thresholds:
        can_hold = threshold.sign == "==" or threshold.holds(low) or threshold.holds(high)
        if low <= threshold.number <= high and can_hold:
            continue
        if high == math.inf:
            return f"{name} is never below {low:g}"
        if low == -math.inf:
            return f"{name} is never above {high:g}, the best reward"
        is_percent = high == 1.0 and 2.0 < threshold.number <= 100.0
        hint = (
            f"; write {threshold.number / 100.0:g} for {threshold.number:g} %" if is_percent else ""
        )
        return f"{name} lies between {low:g} and {high:g}{hint}"
    lower_bound = max(
        (threshold.number for threshold in thresholds if threshold.is_lower), default=low
    )
    upper_bound = min(
        (threshold.number for threshold in thresholds if threshold.sign in ("<", "<=")),
        default=high,
    )
    return "no number meets both conditions" if lower_bound > upper_bound else ""


def why_impossible(
    gate: Gate, environments: Mapping[str, EnvironmentFacts], *, most_attempts: int
) -> str:
    """Return why no run of these environments has the gate's number, or meets it; empty if it may.

    `most_attempts` is the largest number of attempts of a task.
    """
    if gate.env is not None and gate.env not in environments:
        return _missing_part_reason(environments, gate.env, _ENV)
    facts_by_env = environments if gate.env is None else {gate.env: environments[gate.env]}
    if gate.k is not None and gate.k > most_attempts:
        return too_few_attempts(gate.k, most_attempts)
    is_reward = _is_reward(gate.name)
    if gate.k is None and not is_reward:
        return ""
    best_rewards = {facts.max_reward for facts in facts_by_env.values()}
    # The tasks of a slice may be those of one environment.
    if (
        len(facts_by_env) > 1
        and gate.field is None
        and (len(best_rewards) > 1 or None in best_rewards)
    ):
        return _no_common_scale(gate.name, facts_by_env)
    if not is_reward:
        has_threshold = any(facts.success_threshold is not None for facts in facts_by_env.values())
        return "" if has_threshold else _NO_THRESHOLD
    best = max(
        (math.inf if best_reward is None else best_reward for best_reward in best_rewards),
        default=math.inf,
    )
    return _why_never(gate, -math.inf, best)


def why_no_slice(gate: Gate, slice_names: frozenset[str]) -> str:
    """Return why no task is in the gate's slice, of which `known` has the names; empty if some is.

    Raise UsageError if the field has too many values to slice by.
    """
    assert gate.field is not None
    check_num_slices(gate.field, len(slice_names))
    if gate.value is None or gate.value in slice_names:
        return ""
    if slice_names == {NONE}:
        return f"no task has the field {gate.field}"
    return _missing_part_reason(sorted(slice_names, key=slice_order), gate.value, gate.field)


class GateProblem(msgspec.Struct, kw_only=True):
    """A gate or a comparison that could not be judged."""

    what: str  # noqa: GYM001  # a key of the JSON output
    """The text of the gate, or the baseline."""
    reason: str


def judge(
    gate: Gate,
    metrics: RunMetrics,
    *,
    on: GateOn = "bound",
    comparison: Comparison | None = None,
) -> GateVerdict:
    """Return the verdict on the numbers of a run; raise UsageError if it lacks the number.

    On the bound a gate passes if the whole interval of the number meets the thresholds and fails
    if none of it does. A number that never has an interval, such as a count, is compared directly.
    A gate on rewards is inconclusive if most answers could not be read; for the difference, also if
    most of the baseline's could not, which `comparison` knows.
    """
    part = part_of(metrics, env=gate.env, field=gate.field, value=gate.value)
    number = number_of(part, gate.name)
    gate_verdict = _judge_number(gate, part, number, on=on)
    if not _depends_on_answers(gate.name):
        return gate_verdict
    no_answers_by_place = {"": part.no_answers}
    if isinstance(part, RunMetrics) and len(part.environments) > 1:
        for env, numbers_of_env in part.environments.items():
            if numbers_of_env.no_answers.are_most:
                no_answers_by_place[f"{env}: "] = numbers_of_env.no_answers
    if gate.name == DIFFERENCE and comparison is not None:
        no_answers_by_place["in the baseline, "] = max(
            (
                no_answers
                for env, no_answers in comparison.a.no_answers.items()
                if gate.env in (None, env)
            ),
            key=lambda no_answers: no_answers.share,
            default=NoAnswers(),
        )
    if any(no_answers.are_most for no_answers in no_answers_by_place.values()):
        gate_verdict.verdict, gate_verdict.way_out = "INCONCLUSIVE", ""
        gate_verdict.tasks_needed = gate_verdict.attempts_needed = None
    sentences = [
        f"{place}{no_answers.sentence}"
        for place, no_answers in no_answers_by_place.items()
        if no_answers.are_many
    ]
    gate_verdict.way_out = "; ".join(filter(None, [gate_verdict.way_out, *sentences]))
    return gate_verdict


def _depends_on_answers(name: str) -> bool:
    """Return whether a number is about rewards; the verifier's `metrics` may be about anything."""
    family = name.partition(".")[0]
    is_reward = is_estimate(name) and family != "metrics"
    return is_reward or family in ("bounds", "environment_metrics")


def _judge_number(
    gate: Gate, part: Metrics, number: Estimate | float, *, on: GateOn
) -> GateVerdict:
    if not isinstance(number, Estimate):
        verdict = _verdict([t.holds(number) for t in gate.thresholds])
        return GateVerdict(gate=gate.text, verdict=verdict, value=number, judged_on="number")
    best = part.max_reward if _is_reward(gate.name) and part.max_reward is not None else math.inf
    # Nothing keeps a verifier from rewards above the declared best one.
    if number.value <= best and (reason := _why_never(gate, -math.inf, best)):
        raise UsageError(reason)
    gate_verdict = GateVerdict(
        gate=gate.text,
        verdict="INCONCLUSIVE",
        value=number.value,
        interval=number.interval,
        judged_on=on,
    )
    if on == "point":
        gate_verdict.verdict = _verdict([t.holds(number.value) for t in gate.thresholds])
    elif number.interval is None:
        reason = "all tasks have the same value, so there is no interval"
        if number.num_clusters < 2:
            reason = "an interval needs two or more scored tasks"
        gate_verdict.way_out = f"{reason}; --gate-on point judges the number itself"
    else:
        gate_verdict.verdict = _verdict([t.holds_within(number.interval) for t in gate.thresholds])
        if gate_verdict.verdict == "INCONCLUSIVE":
            top = best if math.isfinite(best) else 1.0
            needs = deciding_size(number, gate.thresholds, part, best=top)
            gate_verdict.tasks_needed, gate_verdict.attempts_needed, gate_verdict.way_out = needs
    return gate_verdict


def judge_references(gate: Gate, score: BenchmarkScore) -> GateVerdict:
    """Return `PASS` if the run reproduces each published score that can be tested.

    Raise UsageError if there is no published score of the run's model, or none can be read.
    """
    if score.problem:
        raise UsageError(score.problem)
    if not score.references or score.value is None:
        raise UsageError(f"{score.benchmark} has no published score of {score.model}")
    verdicts = [reference.verdict for reference in score.references]
    verdict: Verdict = "PASS"
    if "not_reproduced" in verdicts:
        verdict = "FAIL"
    elif "cannot_tell" in verdicts or "reproduced" not in verdicts:
        verdict = "INCONCLUSIVE"
    reasons = []
    for reference in score.references:
        if reference.verdict == "not_reproduced":
            reasons.append(f"{reference.score:g} of {reference.source} is not reproduced")
        elif reference.verdict == "cannot_tell":
            reasons.append(
                f"cannot tell whether {reference.score:g} is reproduced: {reference.way_out}"
            )
    if set(verdicts) == {"other_settings"}:
        settings = dict.fromkeys(
            text for reference in score.references for text in reference.other_settings
        )
        reasons = [f"no published score can be tested: {'; '.join(settings)}"]
    return GateVerdict(
        gate=gate.text,
        verdict=verdict,
        value=score.value,
        judged_on="bound",
        way_out="; ".join(reasons),
    )


def with_differences(metrics: RunMetrics, comparison: Comparison) -> RunMetrics:
    """Return the numbers with `difference`, the difference from a baseline, among the estimates.

    Its interval is the one that decides in `gym compare`, so `difference > -0.02` passes if
    that command passes with a margin of 0.02.
    """
    environments, slices = comparison.environments, comparison.slices
    parts_by_env = {
        name: _with_difference(part, environments.get(name))
        for name, part in metrics.environments.items()
    }
    parts_by_slice = {
        field: {
            name: _with_difference(part, slices.get(field, {}).get(name))
            for name, part in parts.items()
        }
        for field, parts in metrics.slices.items()
    }
    return _with_difference(
        msgspec.structs.replace(metrics, environments=parts_by_env, slices=parts_by_slice),
        comparison,
    )


_Numbers = TypeVar("_Numbers", bound=Metrics)


def _with_difference(metrics: _Numbers, difference: Difference | None) -> _Numbers:
    if difference is None or difference.difference is None:
        return metrics
    estimate = msgspec.structs.replace(difference.difference, interval=difference.deciding_interval)
    estimates = {**metrics.estimates, DIFFERENCE: estimate}
    return msgspec.structs.replace(metrics, estimates=estimates)


def _verdict(outcomes: list[bool | None]) -> Verdict:
    if all(outcomes):  # None is undecided
        return "PASS"
    return "FAIL" if any(outcome is False for outcome in outcomes) else "INCONCLUSIVE"


def _parse_comparison(tree: ast.expr, text: str) -> tuple[str, tuple[Threshold, ...]]:
    if not isinstance(tree, ast.Compare):
        hint = "write one such as pass@1 >= 0.8"
        if isinstance(tree, ast.BoolOp):
            hint = "use a separate --gate for each condition"
        raise FilterError(f"--gate {text}: does not compare a name with a number; {hint}")
    sides = [tree.left, *tree.comparators]
    names = {side.id for side in sides if isinstance(side, ast.Name)}
    thresholds: list[Threshold] = []
    for left, operation, right in zip(sides, tree.ops, tree.comparators, strict=False):
        sign = _SIGNS.get(type(operation))
        if sign is None:
            raise FilterError(f"--gate {text}: compare with >=, >, <=, < or ==")
        first, second = _number(left), _number(right)
        if isinstance(left, ast.Name) and second is not None:
            thresholds.append(Threshold(sign, second))
        elif isinstance(right, ast.Name) and first is not None:
            thresholds.append(Threshold(sign, first).mirror())
        else:
            raise FilterError(
                f"--gate {text}: compare a name with a number, such as pass@1 >= 0.8 or "
                "0.2 <= mean_reward <= 0.9"
            )
    if len(names) != 1:
        raise FilterError(f"--gate {text}: has {len(names)} names; use a separate --gate for each")
    return names.pop(), tuple(thresholds)


def _number(node: ast.expr) -> float | None:
    match node:
        case ast.Constant(value=bool()):  # True and False are ints, too
            return None
        # An int may have hundreds of digits, which float() refuses, and 1e999 is infinity.
        case ast.Constant(value=int() | float() as value) if value <= sys.float_info.max:
            return float(value)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            size = _number(operand)
            return -size if size is not None and isinstance(sign, ast.USub) else size
    return None


def _parse_selectors(selectors: str, text: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    place = 0
    while place < len(selectors):
        match = _SELECTOR.match(selectors, place)
        if match is None or not match[2] or match[1] in parts:
            raise FilterError(
                f"--gate {text}: [{selectors}] selects no tasks; write [field=value] or "
                "[env=NAME], and quote a value that has commas or brackets"
            )
        value = match[2]
        parts[match[1]] = value[1:-1] if value[0] in "\"'" else value
        place = match.end()
    return parts


def deciding_size(
    number: Estimate, thresholds: Sequence[Threshold], part: Metrics, *, best: float = 1.0
) -> DecidingSize:
    """Return the number of tasks or attempts that would decide an inconclusive gate.

    `best` is the top of the number's range, if it has one.

    Another run of n tasks has the standard error s/sqrt(n), where s is that of one task here. Its
    number is taken to be less favourable by 0.84 standard errors, the normal quantile of `CHANCE`.
    More attempts shrink only the variance within tasks (Miller 2024, arXiv 2411.00640, section 5).
    """
    assert number.interval is not None
    level, method = number.interval.level, number.interval.method
    error, num_tasks = number.standard_error or 0.0, number.num_clusters
    if method == "t-adjusted" and not error:
        return DecidingSize(
            None, None, "no task differs from the others; gym compare says what decides"
        )
    attempts = number.num_values / num_tasks
    # An estimate does not say whether rewards are graded, which matters only if they vary less than
    # passes and failures would.
    is_graded = number.value * (best - number.value) > number.num_values * error**2
    scale = Scale(best, is_graded) if method == "wilson-neff" else NO_SCALE
    is_decided = partial(_is_decided, number.value, thresholds, scale, level)
    tasks = fewest(
        lambda n: is_decided(n, attempts, error * math.sqrt(num_tasks / n)),
        num_tasks + 1,
        _MAX_TASKS,
    )
    if tasks is None:
        reason = "the number is so close to the threshold that no number of tasks would decide"
        return DecidingSize(None, None, reason)
    text, attempts_needed, variances = f"about {tasks:,} tasks such as these", None, part.variance
    # `part.variance` splits the variance of the mean reward, and of no other number.
    is_mean = (number.value, number.standard_error) == (part.mean_reward, part.standard_error)
    if is_mean and variances is not None:
        between, within = variances.between, variances.within
        attempts_needed = fewest(
            lambda k: is_decided(num_tasks, k, math.sqrt((between + within / k) / num_tasks)),
            max(2, math.ceil(attempts) + 1),
            _MAX_ATTEMPTS,
        )
        if attempts_needed is not None:
            text += f", or {attempts_needed:,} attempts a task,"
    return DecidingSize(tasks, attempts_needed, f"{text} would decide")


def _is_decided(
    number: float,
    thresholds: Sequence[Threshold],
    scale: Scale,
    level: float,
    num_tasks: int,
    attempts: float,
    error: float,
) -> bool:
    """Return whether a number of so many tasks and attempts would decide despite chance.

    A number that meets every threshold must still meet each after chance moved it towards that
    threshold; else one of the thresholds that it misses must fail in the same way.
    """
    missed_thresholds = [threshold for threshold in thresholds if not threshold.holds(number)]
    shift = normal_quantile(CHANCE) * error
    for threshold in missed_thresholds or thresholds:
        is_away = threshold.is_lower == bool(missed_thresholds)
        value = number + shift if is_away else number - shift
        interval = interval_of(
            value if scale.best is None else min(scale.best, max(0.0, value)),
            error,
            scale=scale,
            num_values=math.ceil(num_tasks * attempts),
            num_clusters=num_tasks,
            level=level,
        )
        is_sure = interval is not None and threshold.holds_within(interval) == (
            not missed_thresholds
        )
        if is_sure == bool(missed_thresholds):
            return is_sure
    return not missed_thresholds
