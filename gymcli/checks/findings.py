"""What the checks of an environment found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

__all__ = ["CheckReport", "Finding", "Status", "failed", "not_applicable", "passed"]


Status = Literal["ok", "failed", "skipped", "n/a"]

_MAX_IDS = 1000


class Finding(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What one check found."""

    check: str = ""
    status: Status
    """`skipped`: the class says that it does not apply, or a package is missing; `n/a`: there is
    nothing to look at."""
    text: str
    """The finding in one line; of a check that is skipped, the reason."""
    task_ids: list[str] = []
    """The tasks that fail, 1,000 at most."""
    numbers: dict[str, float] = {}
    """What was measured, by name."""
    frames: list[str] = []
    """Where the author's code failed, as in a line of failures.jsonl."""


class CheckReport(msgspec.Struct, kw_only=True):
    """Everything that was checked of one environment."""

    env: str
    version: str
    tasks: str
    """Where the tasks come from."""
    num_tasks: int
    """Tasks that were played."""
    findings: list[Finding]

    @property
    def failures(self) -> list[Finding]:
        """The checks that failed."""
        return [finding for finding in self.findings if finding.status == "failed"]


def passed(text: str, **numbers: float) -> Finding:
    """Give the finding of a check that holds."""
    return Finding(status="ok", text=text, numbers=numbers)


def failed(
    text: str, task_ids: Iterable[str] = (), frames: Sequence[str] = (), /, **numbers: float
) -> Finding:
    """Give the finding of a check that does not hold."""
    distinct = list(dict.fromkeys(task_ids))[:_MAX_IDS]
    return Finding(
        status="failed", text=text, task_ids=distinct, numbers=numbers, frames=list(frames)
    )


def not_applicable(text: str) -> Finding:
    """Give the finding of a check that has nothing to look at."""
    return Finding(status="n/a", text=text)
