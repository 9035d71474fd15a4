"""What a run may spend, in tokens, money and time, and what it spent, earlier commands included."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from gymcli.errors import BudgetReachedError, UsageError
from gymcli.models.endpoint import Endpoint
from gymcli.models.roles import ORACLE, RoleSource
from gymcli.runner.options import CollectOptions
from gymcli.store.run import FAILURES, GENERATIONS, ROLLOUTS, read_structs
from gymcli.types import RoleUse, Timing, Usage

__all__ = ["Budget", "Spent", "check_prices", "spent_on_record"]


class Budget:
    """The budgets of a run, and how much of them is spent.

    Counted is what the policy and the models of roles answered with, as their endpoints say it.

    Args:
        options: Names the budgets.
        stop: Called each time an answer comes while a budget is used up, or cannot be kept because
            the answer does not say what it took.

    """

    def __init__(self, options: CollectOptions, stop: Callable[[BudgetReachedError], None]) -> None:
        self._max_tokens = options.max_tokens_total
        self._max_cost = options.max_cost
        self._max_seconds = options.max_run_time
        self._stop = stop
        self.num_tokens = 0
        self.cost = 0.0
        self.has_unknown = False
        """An answer did not say what it took."""

    @property
    def is_limited(self) -> bool:
        """Whether tokens or money are limited; what nobody limits need not be counted."""
        return self._max_tokens is not None or self._max_cost is not None

    def add(self, usage: Usage, cost: float | None) -> None:
        """Count what one answer took."""
        num_tokens = _num_tokens(usage)
        self.num_tokens += num_tokens
        self.cost += cost or 0.0
        if num_tokens:
            self.check()
        else:
            self.has_unknown = True
            limits = {"--max-tokens-total": self._max_tokens, "--max-cost": self._max_cost}
            options = " and ".join(name for name, limit in limits.items() if limit is not None)
            text = f"an answer did not say how many tokens it took, so {options} cannot be kept"
            self._stop(BudgetReachedError(f"{text}; leave that out to go on without"))

    def check(self) -> None:
        """Stop the run where a budget is used up."""
        if self._max_tokens is not None and self.num_tokens >= self._max_tokens:
            text = f"the budget --max-tokens-total {self._max_tokens} is reached"
            self._stop(BudgetReachedError(text))
        elif self._max_cost is not None and self.cost >= self._max_cost:
            self._stop(BudgetReachedError(f"the budget --max-cost {self._max_cost:g} is reached"))

    @contextmanager
    def timed(self, started: float) -> Iterator[None]:
        """Stop the run when its time is over; `started` is by `time.monotonic`."""
        seconds = self._max_seconds
        if seconds is None:
            yield
            return
        cause = BudgetReachedError(f"the {seconds:g} seconds of --max-run-time are over")
        left = max(0.0, started + seconds - time.monotonic())
        timer = asyncio.get_running_loop().call_later(left, self._stop, cause)
        try:
            yield
        finally:
            timer.cancel()

    def told(self) -> str:
        """Say what is spent, in the units of the budgets; an empty text where nobody knows."""
        parts = []
        if self._max_tokens is not None:
            parts.append(f"{self.num_tokens} tokens")
        if self._max_cost is not None:
            parts.append(f"a cost of {self.cost:.4g}")
        if not parts or self.has_unknown:
            return ""
        return f"{' and '.join(parts)} {'is' if self._max_tokens is None else 'are'} spent"

    def add_record(self, folder: Path, policy: RoleSource, roles: Mapping[str, RoleSource]) -> None:
        """Count what earlier commands of a run spent, at the prices of today.

        Raises:
            RunFileError: A line is damaged.

        """
        spent = spent_on_record(folder)
        sources = [(policy, spent.policy)]
        sources += [(roles[role], usage) for role, usage in spent.roles.items() if role in roles]
        for source, usage in sources:
            self.num_tokens += _num_tokens(usage)
            if isinstance(source, Endpoint):
                self.cost += source.cost(usage) or 0.0


class Spent(NamedTuple):
    """The tokens that a run took."""

    policy: Usage
    roles: dict[str, Usage]


class _Line(msgspec.Struct):
    """A line of any of a run's files, as far as it tells what was spent."""

    env: str = ""
    task_id: str = ""
    attempt: int = 0
    usage: Usage = msgspec.field(default_factory=Usage)
    role_usage: dict[str, RoleUse] = {}
    timing: Timing = msgspec.field(default_factory=Timing)

    @property
    def conversation(self) -> tuple[str, str, int, float]:
        """What tells a conversation from another one of the same attempt."""
        return self.env, self.task_id, self.attempt, self.timing.started_at


def spent_on_record(folder: Path) -> Spent:
    """Add up the tokens of every conversation of a run, and of every scoring of each.

    A conversation that waited for its score has several lines: one in generations.jsonl, one for
    each scoring that failed, one for its score. Each holds the tokens of the conversation again.

    Raises:
        RunFileError: A line is damaged.

    """
    spent = Spent(Usage(), {})
    played: dict[tuple[str, str, int, float], dict[str, RoleUse]] = {}
    decoder = msgspec.json.Decoder(_Line)
    for name in (GENERATIONS, FAILURES, ROLLOUTS):
        if not (folder / name).is_file():
            continue
        for line in read_structs(folder / name, decoder):
            before = played.get(line.conversation)
            if before is None:
                spent.policy.add(line.usage)
            elif name == GENERATIONS:
                continue
            for role, use in line.role_usage.items():
                known = before.get(role) if before else None
                total = spent.roles.setdefault(role, Usage())
                total.add(use.usage if known is None else _more(use.usage, known.usage))
            if name == GENERATIONS:
                played[line.conversation] = line.role_usage
    return spent


def _more(usage: Usage, than: Usage) -> Usage:
    """Give what one count has more than another."""
    return Usage(
        **{
            name: max(0, getattr(usage, name) - getattr(than, name))
            for name in usage.__struct_fields__
        }
    )


def _num_tokens(usage: Usage) -> int:
    return usage.prompt_tokens + usage.completion_tokens


def check_prices(options: CollectOptions, roles: Mapping[str, RoleSource]) -> None:
    """Refuse limits on money where nobody knows what a model costs.

    Raises:
        UsageError: The policy, or a role of a run with a budget, has no prices.

    """
    policy: RoleSource = options.endpoint or options.model
    if options.max_episode_cost is not None:
        _check_price("--max-episode-cost", "the model", policy)
    if options.max_cost is not None:
        _check_price("--max-cost", "the model", policy)
        for role, source in roles.items():
            _check_price("--max-cost", f"the {role}", source)


def _check_price(option: str, who: str, source: RoleSource) -> None:
    if source == ORACLE:
        return  # asks nobody
    if isinstance(source, str):
        raise UsageError(
            f"{option}: the embedded model ({who}) has no prices; limit tokens instead"
        )
    if source.cost(Usage()) is None:
        table = source.name or source.model
        raise UsageError(
            f"{option}: what {who} {source.model} costs is unknown; give its table in gym.toml "
            f'prices of a million tokens: [models."{table}"] '
            "prices = { prompt = ..., completion = ... }"
        )
