"""Two runs task by task: the mean reward of both, and which way it went."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, get_args

import msgspec

from gymcli.index import RunIndex
from gymcli.reporting.viewer_queries import RefusedError

__all__ = ["KINDS", "Difference", "Differences", "Kind", "Standing", "differences", "standings"]

Kind = Literal["fixed", "broken", "flaky", "better", "worse", "same", "only_a", "only_b"]
"""`fixed`: all attempts failed in A and all pass in B; `broken`: the other way round; `flaky`: in
one of the runs some pass and some fail. Else what the means say."""

KINDS: tuple[Kind, ...] = get_args(Kind)


class Standing(NamedTuple):
    """What the scored attempts of a task come to in one run."""

    mean: float
    num_scored: int
    num_passed: int | None
    """None where nothing says from which reward an attempt passes."""


class Difference(msgspec.Struct, kw_only=True):
    """A task in two runs; what one of them has no score for is None."""

    env: str
    task_id: str
    mean_a: float | None
    mean_b: float | None
    difference: float | None
    """B - A."""
    num_a: int
    num_b: int
    passes_a: int | None
    passes_b: int | None
    kind: Kind


class Differences(NamedTuple):
    """All tasks that one of two runs has a score for."""

    rows: list[Difference]
    counts: Mapping[Kind, int]

    def select(self, kind: str, sort: str) -> Sequence[Difference]:
        """Give the tasks of a kind, all for an empty one; those that lack what is sorted by last.

        Raises:
            RefusedError: There is no such kind or name.

        """
        name, is_descending = sort.removeprefix("-"), sort.startswith("-")
        if name not in Difference.__struct_fields__:
            known = ", ".join(Difference.__struct_fields__)
            raise RefusedError(400, f"sort: there are {known}", field="sort")
        if kind and kind not in KINDS:
            raise RefusedError(400, f"kind: there are {', '.join(KINDS)}", field="kind")
        rows = [row for row in self.rows if not kind or row.kind == kind]
        known_rows = [row for row in rows if getattr(row, name) is not None]
        known_rows.sort(key=lambda row: getattr(row, name), reverse=is_descending)
        return known_rows + [row for row in rows if getattr(row, name) is None]


def standings(index: RunIndex) -> dict[tuple[str, str], Standing]:
    """Give what each task of a run comes to, by environment and task id."""
    rewards: dict[tuple[object, object], list[float]] = {}
    passes: dict[tuple[object, object], int] = {}
    names = ("env", "task_id", "reward", "passed", "status")
    columns = [index.values(name) for name in names]
    for env, task_id, reward, passed, status in zip(*columns, strict=True):
        if status != "scored" or not isinstance(reward, float):
            continue
        key = (env, task_id)
        rewards.setdefault(key, []).append(reward)
        if passed is not None:
            passes[key] = passes.get(key, 0) + bool(passed)
    return {
        (str(key[0]), str(key[1])): Standing(
            math.fsum(found) / len(found), len(found), passes.get(key)
        )
        for key, found in rewards.items()
    }


def differences(
    a: Mapping[tuple[str, str], Standing], b: Mapping[tuple[str, str], Standing]
) -> Differences:
    """Lay two runs side by side, by environment and task id."""
    rows = [_difference(key, a.get(key), b.get(key)) for key in _in_order(a, b)]
    return Differences(rows, Counter(row.kind for row in rows))


def _in_order(*keys: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return sorted({key for each in keys for key in each})


def _difference(key: tuple[str, str], a: Standing | None, b: Standing | None) -> Difference:
    return Difference(
        env=key[0],
        task_id=key[1],
        mean_a=a.mean if a else None,
        mean_b=b.mean if b else None,
        difference=b.mean - a.mean if a and b else None,
        num_a=a.num_scored if a else 0,
        num_b=b.num_scored if b else 0,
        passes_a=a.num_passed if a else None,
        passes_b=b.num_passed if b else None,
        kind=_kind(a, b),
    )


def _kind(a: Standing | None, b: Standing | None) -> Kind:
    if a is None or b is None:
        return "only_b" if a is None else "only_a"
    if a.num_passed is not None and b.num_passed is not None:
        if not (_is_settled(a) and _is_settled(b)):
            return "flaky"
        if bool(a.num_passed) != bool(b.num_passed):
            return "fixed" if b.num_passed else "broken"
    if b.mean == a.mean:
        return "same"
    return "better" if b.mean > a.mean else "worse"


def _is_settled(standing: Standing) -> bool:
    return standing.num_passed in (0, standing.num_scored)
