"""The failures of an environment, told apart by whether their attempt was scored after all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

from gymcli.metrics.costs import Totals, add_role_usage
from gymcli.metrics.records import FailureLine

__all__ = ["Failures"]


class Failures:
    """The last failure of each attempt; those that were made up for count for nothing."""

    def __init__(self) -> None:
        self._last: dict[str, dict[int, FailureLine]] = {}
        """By task and attempt; those that were made up for are among them."""
        self._unscored: dict[str, list[FailureLine]] = {}
        """By task, those that were not made up for, once `settle` was told what is scored."""
        self.never_scored: AbstractSet[str] = frozenset()
        """Tasks of which there are failures only, once `settle` was told what is scored."""

    def add(self, line: FailureLine) -> None:
        """Keep a failure in place of an earlier one of the same attempt."""
        self._last.setdefault(line.task_id, {})[line.attempt] = line

    @property
    def tasks(self) -> AbstractSet[str]:
        """The tasks that have a failure, made up for or not."""
        return self._last.keys()

    def settle(self, scored: Iterable[tuple[str, AbstractSet[int]]]) -> None:
        """Take which attempts are scored of the tasks that have both; a later call counts."""
        self._unscored = {task_id: [*own.values()] for task_id, own in self._last.items()}
        never_scored = set(self._last)
        for task_id, attempts in scored:
            own = self._last[task_id]
            self._unscored[task_id] = [own[number] for number in own if number not in attempts]
            never_scored.remove(task_id)
        self.never_scored = never_scored

    def num_unscored(self, task_id: str) -> int:
        """Count the attempts of a task with a failure that are not scored."""
        return len(self._unscored[task_id])

    def unscored(self) -> Iterator[FailureLine]:
        """Give for each attempt that was not scored its last failure, by task id."""
        for task_id in sorted(self._unscored):
            yield from self._unscored[task_id]

    def add_to(self, totals: Totals) -> None:
        """Add what the attempts took that were not scored.

        A failure that was made up for is not among them: where only its verifier had failed, the
        scored line has the same tokens again.
        """
        for line in self.unscored():
            totals.usage.add(line.usage)
            if line.cost is not None or line.usage.prompt_tokens or line.usage.completion_tokens:
                totals.cost.add(line.cost)  # what failed before an answer cost nothing
            add_role_usage(totals.role_usage, line.role_usage)
            totals.retries.update(line.retries)
