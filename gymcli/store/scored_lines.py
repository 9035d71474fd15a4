"""The fields of lines that metrics read, and the groups that `Environment.metrics` receives.

Decoding a line as one of these structs skips the conversation, which is most of its bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, NamedTuple

import msgspec

from gymcli.errors import VerifierError
from gymcli.types import JSON, LARGEST, ErrorRecord, RoleUse, Timing, Usage

LAST_ATTEMPT = (1 << 63) - 1
"""The largest number of an attempt: columns hold them in 64 bits."""

_Number = Annotated[float, msgspec.Meta(ge=-LARGEST, le=LARGEST)]
_Attempt = Annotated[int, msgspec.Meta(ge=0, le=LAST_ATTEMPT)]


class ScoredTiming(msgspec.Struct, kw_only=True, gc=False):
    """The times of an attempt that metrics read, in seconds."""

    model_seconds: float = 0.0
    total_seconds: float = 0.0


class ScoredDetails(msgspec.Struct, gc=False):
    """The only detail of a score that is ever counted."""

    reason: JSON = None


class ScoredLine(msgspec.Struct, kw_only=True, gc=False):
    """The fields of a line of rollouts.jsonl that metrics need.

    Fields that most lines lack are None: five empty dicts would take a twelfth of the decoding.
    """

    env: str = ""
    task_id: str
    attempt: _Attempt = 0
    play: str = ""
    reward: _Number
    components: dict[str, _Number] | None = None
    metrics: dict[str, _Number] | None = None
    answer: str | None = None
    details: ScoredDetails | None = None
    stop_reason: str = "done"
    usage: Usage = msgspec.field(default_factory=Usage)
    cost: _Number | None = None
    role_usage: dict[str, RoleUse] | None = None
    timing: ScoredTiming = msgspec.field(default_factory=ScoredTiming)
    tool_errors: dict[str, int] | None = None
    retries: dict[str, int] | None = None


class FailureLine(msgspec.Struct, kw_only=True):
    """The fields of a line of failures.jsonl that metrics need."""

    env: str = ""
    task_id: str
    attempt: _Attempt = 0
    error: ErrorRecord
    usage: Usage = msgspec.field(default_factory=Usage)
    cost: _Number | None = None
    role_usage: dict[str, RoleUse] = {}
    timing: Timing = msgspec.field(default_factory=Timing)
    retries: dict[str, int] = {}


class EnvironmentFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about an environment that metrics need besides its lines."""

    max_reward: float | None = None
    """The best possible reward; None: unbounded, relative, a matter of chance, or unknown."""
    pass_threshold: float | None = None
    """The reward from which an attempt counts as a success; None: `max_reward`."""
    can_be_negative: bool = False
    """Rewards below 0 are possible, so 0 is not the worst for an absent attempt."""
    num_expected: int | None = None
    """The attempts that the run was to make; None if that is unknown, as for a bare file."""

    @property
    def success_threshold(self) -> float | None:
        """The reward from which an attempt counts as a success; None if unknown."""
        return self.max_reward if self.pass_threshold is None else self.pass_threshold


class AttemptScore(NamedTuple):
    """The score of one attempt."""

    attempt: int
    reward: float
    components: dict[str, float]
    metrics: dict[str, float]
    answer: str | None


class Group(NamedTuple):
    """All scored attempts of one task."""

    task_id: str
    fields: dict[str, JSON]
    """The task row's values of the class's `slice_fields`; None for fields that it lacks."""
    scores: list[AttemptScore]
    """In order of attempt; at least one."""


class OwnMetrics(NamedTuple):
    """The metrics that an environment computes itself from its groups."""

    compute: Callable[[Iterator[Group]], Mapping[str, float]]
    slice_fields: tuple[str, ...] = ()
    """Fields of the task rows that it needs."""

    def numbers(self, groups: Iterable[Group]) -> dict[str, float]:
        """Return its numbers; raise GymError if its code fails or a number is not finite."""
        from gymcli.errors import boundary  # late: heavy, and few environments get here

        # Groups also have the fields of --by, and of other environments, on which numbers must not
        # depend.
        groups = (
            group._replace(fields={name: group.fields[name] for name in self.slice_fields})
            for group in groups
        )
        with boundary(VerifierError):
            values: dict[str, object] = dict(self.compute(groups))
            numbers = {}
            for name, value in sorted(values.items()):
                if not isinstance(value, int | float) or not math.isfinite(value):
                    raise ValueError(f"{name!r} is {value!r}, not a finite number")
                numbers[name] = float(value)
        return numbers
