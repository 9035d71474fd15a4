"""How many attempts of each task are scored together, for the environments that compare them."""

from __future__ import annotations

from array import array

from gymcli.numbering import Numbering

__all__ = ["GroupSizes"]


class GroupSizes:
    """Counts the planned attempts of tasks, in environments whose attempts are scored together.

    Memory holds some 20 bytes of such a task beside its id, and nothing of others.
    """

    def __init__(self) -> None:
        self._tasks: dict[str, Numbering] = {}
        """By environment; one that scores each attempt by itself is not among them."""
        self._sizes: dict[str, array[int]] = {}

    def watch(self, env: str) -> None:
        """Count the attempts of an environment from now on."""
        self._tasks[env] = Numbering()
        self._sizes[env] = array("I")

    def add(self, env: str, task_id: str, num_attempts: int) -> None:
        """Count attempts of a task, where its environment is watched."""
        tasks = self._tasks.get(env)
        if tasks is None:
            return
        number, sizes = tasks.number_of(task_id.encode()), self._sizes[env]
        if number == len(sizes):
            sizes.append(0)
        sizes[number] += num_attempts

    def of(self, env: str, task_id: str) -> int:
        """Give how many attempts of a task are scored together; 0: each is scored by itself."""
        tasks = self._tasks.get(env)
        number = None if tasks is None else tasks.find(task_id.encode())
        return 0 if number is None else self._sizes[env][number]

    def clear(self) -> None:
        """Count anew, in the same environments."""
        for env in self._tasks:
            self.watch(env)
