"""The agreement of rewards with given labels: how far a judge or another verifier can be trusted.

A label says whether an attempt should pass. Cohen's kappa is the agreement beyond what the shares
of passes alone would cause: 1 if all agree, 0 if labels and rewards are independent. Cohen 1960,
"A coefficient of agreement for nominal scales".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from gymcli.errors import UsageError
from gymcli.metrics.aggregate import Aggregator
from gymcli.metrics.intervals import normal_quantile
from gymcli.metrics.results import Interval
from gymcli.store.scored_lines import EnvironmentFacts

_LEVEL = 0.95
_WORDS = {"pass": True, "true": True, "1": True, "fail": False, "false": False, "0": False}
_EXPECTED = "write pass or fail, true or false, 1 or 0; a score has to be made one of them first"

Outcome: TypeAlias = tuple[bool, bool]
"""Whether the label is a pass, and whether the reward is."""
_CELLS: tuple[Outcome, ...] = ((True, True), (True, False), (False, True), (False, False))
_ROUNDING = 1e-12
"""A standard error that rounding alone may cause."""


class Agreement(msgspec.Struct, kw_only=True):
    """The agreement of the rewards of one environment with labels."""

    num_values: int
    """Scored attempts with a label."""
    num_clusters: int
    """Their tasks."""
    num_unlabelled: int
    """Scored attempts without a label."""
    threshold: float
    """The reward from which an attempt passes."""
    agreement: float
    """The share of attempts whose label and reward agree."""
    kappa: float | None
    """Cohen's kappa; None if all labels and all rewards are the same."""
    interval: Interval | None
    """Of kappa; None if it would have no width, as if all agree."""
    num_both_pass: int
    num_only_label_passes: int
    num_only_reward_passes: int
    num_both_fail: int


class _Place(NamedTuple):
    env: str
    """Empty: any."""
    task_id: str
    attempt: int | None
    """None: all."""


Labels: TypeAlias = dict[_Place, bool]


def is_pass(value: object) -> bool:
    """Return whether a label is a pass; raise ValueError if it is neither a pass nor a fail."""
    if isinstance(value, bool | int | float) and value in (0, 1):
        return bool(value)
    word = _WORDS.get(value.strip().lower()) if isinstance(value, str) else None
    if word is None:
        raise ValueError(f"the label {value!r} is neither pass nor fail; {_EXPECTED}")
    return word


def labels_of_rows(rows: Iterable[tuple[str, Mapping[str, object] | str]]) -> Labels:
    """Return the labels in rows of `task_id`, `label` and, if they differ, `attempt` and `env`.

    Each row comes with its place, such as labels.csv:2, and is the reason if it cannot be read. A
    row with an empty label is left out. Raise UsageError for a wrong row.
    """
    labels: Labels = {}
    for where, row in rows:
        if isinstance(row, str):
            raise UsageError(f"{where}: {row}")
        # Blanks around a cell are not seen in a spreadsheet.
        cells = {n.strip(): c.strip() if isinstance(c, str) else c for n, c in row.items()}
        for name in ("task_id", "label"):
            if name not in cells:
                raise UsageError(
                    f'{where}: "{name}" is missing; a row has task_id and label, and may have '
                    "attempt and env"
                )
        if cells["label"] in (None, ""):
            continue
        attempt = cells.get("attempt")
        place = _Place(
            env=str(cells.get("env") or ""),
            task_id=str(cells["task_id"]),
            attempt=None if attempt in (None, "") else _attempt(attempt, where),
        )
        if place in labels:
            raise UsageError(f"{where}: the task {place.task_id} has a label already")
        try:
            labels[place] = is_pass(cells["label"])
        except ValueError as error:
            raise UsageError(f"{where}: {error}") from None
    return labels


def _attempt(value: object, where: str) -> int:
    text = str(value)
    if not text.isdecimal():
        raise UsageError(f"{where}: the attempt {value!r} is not a whole number from 0 on")
    return int(text)


def agreement(
    aggregator: Aggregator,
    labels: Labels | str,
    *,
    source: str,
    warn: Callable[[str], None] = lambda text: None,
) -> dict[str, Agreement]:
    """Return the agreement of each environment that has labels, by name.

    `labels` are those of `labels_of_rows`, or the field of the task rows that has them, which is
    one of `Aggregator.fields`; `source` names them in messages. `warn` is told of labels that no
    scored attempt has.

    Raises:
        UsageError: No scored attempt has a label, a label is neither pass nor fail, or an
            environment with labels has no threshold of success.
    """
    tables: dict[str, list[list[Outcome]]] = {}
    unused = set() if isinstance(labels, str) else set(labels)
    num_unlabelled: Counter[str] = Counter()
    for env, group in aggregator.groups():
        threshold = aggregator.facts.get(env, EnvironmentFacts()).success_threshold
        outcomes = []
        for score in group.scores:
            if isinstance(labels, str):
                label = _label_of_field(group.fields[labels], f"{source} of task {group.task_id}")
            else:
                place = _place_of(labels, env, group.task_id, score.attempt)
                unused.discard(place)
                label = None if place is None else labels[place]
            if label is None:
                num_unlabelled[env] += 1
                continue
            if threshold is None:
                raise UsageError(
                    f"--labels: environment {env} has no threshold of success, so its rewards "
                    "cannot be compared with labels"
                )
            outcomes.append((label, score.reward >= threshold))
        if outcomes:
            tables.setdefault(env, []).append(outcomes)
    if not tables:
        raise UsageError(f"--labels {source}: no scored attempt of this run has a label")
    if unused:
        warn(
            f"--labels {source}: {len(unused):,} of {len(labels):,} labels apply to no scored "
            "attempt of this run"
        )
    agreements = {}
    for env, tasks in tables.items():
        agreements[env] = agreement_of(
            tasks, threshold=aggregator.facts[env].success_threshold or 0.0
        )
        agreements[env].num_unlabelled = num_unlabelled[env]
    return agreements


def _place_of(labels: Labels, env: str, task_id: str, attempt: int) -> _Place | None:
    # The label that says most wins: of this attempt, then of its task.
    places = (
        _Place(env, task_id, attempt),
        _Place("", task_id, attempt),
        _Place(env, task_id, None),
        _Place("", task_id, None),
    )
    return next((place for place in places if place in labels), None)


def _label_of_field(value: object, where: str) -> bool | None:
    if value in (None, ""):
        return None
    try:
        return is_pass(value)
    except ValueError as error:
        raise UsageError(f"--labels: {where}: {error}") from None


def agreement_of(tasks: Sequence[Sequence[Outcome]], *, threshold: float) -> Agreement:
    """Return the agreement of the attempts of each task, at least one in all.

    The interval is the large-sample one of Fleiss, Cohen and Everitt 1969, "Large sample standard
    errors of kappa and weighted kappa", Psychological Bulletin 72(5), with the sums of squares
    taken over tasks, since attempts of a task are not independent; with one attempt of each task it
    is exactly theirs.
    """
    flat = [outcome for task in tasks for outcome in task]
    num = len(flat)
    counts = {cell: flat.count(cell) for cell in _CELLS}
    agreed = (counts[True, True] + counts[False, False]) / num
    # The shares of passes and fails among labels, and among rewards.
    labelled, rewarded = (
        {passes: sum(cell[side] is passes for cell in flat) / num for passes in (True, False)}
        for side in (0, 1)
    )
    chance = math.fsum(labelled[passes] * rewarded[passes] for passes in (True, False))
    kappa, interval = None, None
    if chance < 1.0:
        kappa = (agreed - chance) / (1.0 - chance)
        # The derivative of kappa by the share of each cell.
        slopes = {
            (label, reward): (label is reward) / (1.0 - chance)
            - (1.0 - agreed) / (1.0 - chance) ** 2 * (rewarded[label] + labelled[reward])
            for label, reward in _CELLS
        }
        centre = math.fsum(slopes[cell] for cell in flat) / num
        sums = (math.fsum(slopes[cell] - centre for cell in task) for task in tasks)
        error = math.sqrt(math.fsum(total * total for total in sums)) / num
        if error > _ROUNDING:
            half = normal_quantile((1.0 + _LEVEL) / 2.0) * error
            interval = Interval(
                low=max(-1.0, kappa - half),
                high=min(1.0, kappa + half),
                level=_LEVEL,
                method="normal",
            )
    return Agreement(
        num_values=num,
        num_clusters=len(tasks),
        num_unlabelled=0,
        threshold=threshold,
        agreement=agreed,
        kappa=kappa,
        interval=interval,
        num_both_pass=counts[True, True],
        num_only_label_passes=counts[True, False],
        num_only_reward_passes=counts[False, True],
        num_both_fail=counts[False, False],
    )
