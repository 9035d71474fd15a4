"""What metrics read: the few fields of a line that numbers are made of, and what is known beside.

Decoding a line as one of these leaves the conversation undecoded, which is most of its bytes.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from gymcli.types import LARGEST, ErrorRecord, RoleUse, Timing, Usage

__all__ = [
    "LAST_ATTEMPT",
    "EnvironmentFacts",
    "FailureLine",
    "ScoredLine",
    "ScoredTiming",
]

LAST_ATTEMPT = (1 << 63) - 1

_Number = Annotated[float, msgspec.Meta(ge=-LARGEST, le=LARGEST)]
_Attempt = Annotated[int, msgspec.Meta(ge=0, le=LAST_ATTEMPT)]


class ScoredTiming(msgspec.Struct, kw_only=True, gc=False):
    """The two times that metrics read of an attempt's `Timing`, in seconds."""

    model_seconds: float = 0.0
    total_seconds: float = 0.0


class ScoredLine(msgspec.Struct, kw_only=True, gc=False):
    """A line of rollouts.jsonl, as far as metrics need it.

    What most lines lack is None: five empty dicts a line would take a twelfth of the decoding.
    """

    env: str = ""
    task_id: str
    attempt: _Attempt = 0
    reward: _Number
    components: dict[str, _Number] | None = None
    metrics: dict[str, _Number] | None = None
    answer: str | None = None
    stop_reason: str = "done"
    usage: Usage = msgspec.field(default_factory=Usage)
    cost: _Number | None = None
    role_usage: dict[str, RoleUse] | None = None
    timing: ScoredTiming = msgspec.field(default_factory=ScoredTiming)
    tool_errors: dict[str, int] | None = None
    retries: dict[str, int] | None = None


class FailureLine(msgspec.Struct, kw_only=True):
    """A line of failures.jsonl, as far as metrics need it."""

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
    """What has to be known of an environment beside its lines."""

    max_reward: float | None = None
    """The best reward that there can be; None: unbounded, relative, chance, or not known."""
    pass_threshold: float | None = None
    """The reward from which an attempt counts as a success; None: `max_reward`."""
    can_be_negative: bool = False
    """Rewards below 0 are possible, so that 0 is not the worst an absent attempt could have got."""
    num_expected: int | None = None
    """The attempts that the run was to make; None where that is not known: a bare file."""

    @property
    def success_threshold(self) -> float | None:
        """The reward from which an attempt counts as a success; None where nothing says so."""
        return self.max_reward if self.pass_threshold is None else self.pass_threshold
