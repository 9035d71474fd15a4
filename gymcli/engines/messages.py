"""What passes between the process of a command and its workers, but for the job itself."""

from __future__ import annotations

import msgspec

from gymcli.rollout.rescored import Rescored
from gymcli.store.lines import Line
from gymcli.types import (
    AttemptKey,
    Failure,
    JSONObject,
    Message,
    Rollout,
    TaskRow,
    Usage,
    Verifier,
)

__all__ = [
    "Block",
    "EndedAttempt",
    "NewVerdict",
    "Opened",
    "Orders",
    "Report",
    "ScoredBlock",
    "SentAttempt",
    "SentError",
    "SentPlan",
    "SpentTokens",
    "Stop",
]


class SentPlan(msgspec.Struct, omit_defaults=True, kw_only=True):
    """An `EpisodePlan` without what the worker has itself: classes, models, prices."""

    row: TaskRow
    attempt: int
    model: str
    params: JSONObject
    run_seed: int
    sends_seed: bool
    max_turns: int | None = None
    limits: tuple[int | None, float | None, float | None] = (None, None, None)
    """Tokens, cost and seconds of an episode."""
    has_cost: bool = False
    is_spending: bool = False


class SentAttempt(msgspec.Struct, omit_defaults=True, kw_only=True):
    """An `Attempt`; its environment is found by name, and must have this verifier."""

    env: str
    options: JSONObject = {}
    verifier: Verifier
    plan: SentPlan | None = None
    generation: Rollout | None = None
    group_size: int = 0
    is_done: bool = False
    keeps_score: bool = False


class SentError(msgspec.Struct, omit_defaults=True, kw_only=True):
    """An error of ours, as far as the other side needs it."""

    error_class: str
    text: str = ""
    status: int | None = None
    is_unreachable: bool = False
    """It says that no connection could be made."""
    follows_answers: bool = False
    """The endpoint had answered before."""
    cause: SentError | None = None


class Stop(msgspec.Struct, kw_only=True):
    """Why the run ends early, and how long attempts in flight may go on."""

    cause: SentError
    seconds: float


class NewVerdict(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What a judge answered."""

    key: str
    message: Message
    role: str = ""
    model: str = ""


class SpentTokens(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What one answer took."""

    usage: Usage
    cost: float | None = None


class Orders(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What a worker is told with each step."""

    units: list[list[SentAttempt]] = []
    """New work; the attempts of one unit are scored together, or it is a single one."""
    num_written: int = 0
    """So many of the conversations that this worker gave to be saved are on disk."""
    verdicts: list[NewVerdict] = []
    """What judges answered other workers."""
    stop: Stop | None = None


class EndedAttempt(msgspec.Struct, omit_defaults=True, kw_only=True):
    """An `Outcome`."""

    rollout: Rollout | None = None
    failure: Failure | None = None
    generation: Rollout | None = None
    was_answered: bool = False
    fatal: SentError | None = None
    is_own: bool = True

    @property
    def key(self) -> AttemptKey:
        """Which attempt ended."""
        record = self.rollout or self.failure
        assert record is not None, "an attempt ends with a record"
        return record.key


class Report(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What happened in a worker during a step."""

    saved: list[msgspec.Raw] = []
    """Finished conversations that wait for their score, as they were at that moment."""
    verdicts: list[NewVerdict] = []
    spent: list[SpentTokens] = []
    ended: list[EndedAttempt] = []
    num_under_way: int = 0
    is_stopped: bool = False
    num_outages: int = 0
    outage_seconds: float = 0.0
    error: SentError | None = None
    """What ends the whole run."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to tell."""
        return not (self.ended or self.saved or self.verdicts or self.spent or self.error)


class Opened(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What a worker is, once it can take work."""

    gymcli_version: str = ""
    place: str = ""
    """Its host and process, for messages."""
    error: SentError | None = None
    """Why it cannot take any."""


class Block(msgspec.Struct, kw_only=True):
    """Stored lines that one worker scores."""

    lines: list[Line]
    repeat: int = 0
    """Which scoring of the same lines it is, as of `RescoreJob`."""


class ScoredBlock(msgspec.Struct, kw_only=True):
    """The results of the lines of a block, or why there are none."""

    results: list[Rescored] = []
    error: SentError | None = None
