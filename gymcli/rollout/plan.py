"""What an episode is played with, and its record while it is played."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import msgspec

from gymcli.environment.contract import Environment, Model
from gymcli.environment.tool import EnvironmentOptions, Task
from gymcli.errors import AttemptError, Phase
from gymcli.rollout.flight import Flight
from gymcli.rollout.watchdog import Watchdog
from gymcli.types import (
    SCHEMA_VERSION,
    Answer,
    JSONObject,
    Request,
    Rollout,
    TaskRow,
    Timing,
    Usage,
)

__all__ = [
    "Episode",
    "EpisodeFailedError",
    "EpisodeLimits",
    "EpisodePlan",
    "Policy",
    "attempt_seed",
]


class Policy(Protocol):
    """The model under test, as the loop sees it."""

    async def answer(self, request: Request) -> Answer:
        """Answer a conversation with one message.

        Raises:
            ModelError: There is no usable answer.

        """
        ...


class EpisodeLimits(NamedTuple):
    """What one episode may take of its model; at a limit it ends, and is scored."""

    max_tokens: int | None = None
    """Prompt and completion tokens of all its requests."""
    max_cost: float | None = None
    max_seconds: float | None = None
    """From the start of the episode; a request that is under way then is cut off."""


class EpisodePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one attempt is played with."""

    row: TaskRow
    attempt: int
    environment: type[Environment[Task]]
    options: EnvironmentOptions
    env_version: str
    env_options: JSONObject | None = None
    """What is recorded of the options, where that is known already."""
    model: str
    """The model's name, for the record."""
    params: JSONObject
    """Request parameters: the row's, overridden by the command line's."""
    run_seed: int
    sends_seed: bool
    """Whether the attempt's seed goes into the requests."""
    max_turns: int | None
    """The command line's limit, if any."""
    roles: Mapping[str, Model] = {}
    limits: EpisodeLimits = EpisodeLimits()
    cost: Callable[[Usage], float | None] | None = None
    """What tokens of the policy cost; None: nobody knows."""
    spend: Callable[[Usage, float | None], None] | None = None
    """Told of every answer's tokens and their cost, as it comes."""
    watchdog: Watchdog | None = None
    """Keeps the limits of what waits. None: the episode has one of its own."""


class Episode:
    """One episode under way: its record so far, and where it stands."""

    def __init__(self, plan: EpisodePlan) -> None:
        self.rollout = _new_record(plan)
        self.phase: Phase = "setup"
        self.is_finished = False
        """The record is whole and can be scored; only `close` is left."""
        self.num_turns = 0
        """Messages of the model on record."""
        self.has_known_usage = True
        """False where an answer did not say what it took."""
        self.flight: Flight | None = None
        """The task that plays it, once it is played."""
        self.started = time.perf_counter()
        self.waited = 0.0
        """Seconds since then that its requests waited for others, or for an endpoint that is gone;
        they do not count as its time."""


class EpisodeFailedError(Exception):
    """Raised when an episode cannot be finished; `__cause__` is an AttemptError."""

    def __init__(self, rollout: Rollout, error: AttemptError) -> None:
        super().__init__(str(error))
        self.rollout = rollout
        self.error = error


def attempt_seed(run_seed: int, task_id: str, attempt: int) -> int:
    """Derive the seed of one attempt: 31 bits, which every endpoint takes."""
    text = f"{run_seed}\0{task_id}\0{attempt}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:4], "big") >> 1


def _recorded_options(plan: EpisodePlan) -> JSONObject:
    if plan.env_options is not None:
        return plan.env_options
    return plan.options.model_dump(mode="json", exclude_defaults=True)


def _new_record(plan: EpisodePlan) -> Rollout:
    row = plan.row
    seed = attempt_seed(plan.run_seed, row.id, plan.attempt)
    return Rollout(
        schema_version=SCHEMA_VERSION,
        task_id=row.id,
        task_hash=row.hash,
        attempt=plan.attempt,
        env=row.env,
        env_version=plan.env_version,
        env_options=_recorded_options(plan),
        seed=seed,
        task=row.fields,
        messages=list(row.messages),
        tools=row.tools or [],
        num_prompt_messages=len(row.messages),
        model=plan.model,
        sampling=plan.params,
        timing=Timing(started_at=time.time_ns() // 1_000_000 / 1000),
    )
