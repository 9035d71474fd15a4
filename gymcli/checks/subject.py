"""An environment under check: its tasks, and the episodes that are played with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import msgspec
from pydantic import ValidationError

from gymcli.checks.findings import Finding, failed, passed
from gymcli.environment.contract import Model
from gymcli.environment.registry import (
    NUM_GENERATED,
    Found,
    Registry,
    generated_lines,
    generates,
    own_tasks,
)
from gymcli.environment.tool import EnvironmentOptions
from gymcli.errors import AttemptError, EpisodeError, SetupError, TasksError, boundary, frames_of
from gymcli.models.roles import declared_roles
from gymcli.rollout.episode import EpisodeFailedError, EpisodePlan, Policy, play
from gymcli.rollout.scoring import score, score_group
from gymcli.rollout.verifier_workers import Workers
from gymcli.runner.options import CollectOptions
from gymcli.runner.survey import survey
from gymcli.runner.task_source import TaskSource
from gymcli.types import Answer, Message, Request, Rollout, TaskRow, Verifier

__all__ = ["Episode", "Scripted", "Subject", "TaskSet", "Watch", "read_task_set", "says"]


class TaskSet(NamedTuple):
    """Tasks that an environment is checked on."""

    rows: list[TaskRow]
    """The first of those that are valid, without identical copies."""
    origin: str
    """Where they come from, for people."""
    finding: Finding
    """What is wrong with any of them."""


def read_task_set(found: Found, registry: Registry, given: Path | None, *, limit: int) -> TaskSet:
    """Read the tasks of a file, else those that ship with the environment, else generate some.

    Raises:
        TasksError: The file that was given is not there.

    """
    try:
        with _tasks_file(found, given) as (path, origin):
            options = CollectOptions(model="check", env=found.name)
            source = TaskSource([path], options, registry)
            read = (item for item in source.read() if isinstance(item, TaskRow))
            rows = [row for row in read if row.env == found.name]
            finding = _finding(source, registry, rows, origin)
            valid = (row for row in rows if row.first_attempt == 0 and _is_valid(row, found))
            return TaskSet(list(islice(valid, limit)), origin, finding)
    except AttemptError as error:
        return TaskSet([], "none", failed(str(error)))


@contextmanager
def _tasks_file(found: Found, given: Path | None) -> Iterator[tuple[Path, str]]:
    """Give the file to read, and how its origin is shown."""
    path = given or own_tasks(found)
    if path is not None:
        yield path, str(path)
        return
    if not generates(found):
        name = found.environment.__name__
        raise EpisodeError(f"{name} generates no tasks and ships none; give --tasks FILE")
    with TemporaryDirectory() as folder:
        path = Path(folder, "generated.jsonl")
        path.write_bytes(b"".join(generated_lines(found)))
        yield path, f"{NUM_GENERATED} generated with Random(0)"


def _finding(source: TaskSource, registry: Registry, rows: list[TaskRow], origin: str) -> Finding:
    """Say what `gym collect` would refuse, and what stands twice."""
    try:
        survey(source, registry)
    except TasksError as error:
        lines = str(error).replace(f"{source.paths[0].parent}/", "").splitlines()
        more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
        return failed(lines[0] + more)
    if not rows:
        return failed(f"{origin}: no row is of this environment")
    copies = [row.id for row in rows if row.first_attempt]
    if copies:
        return failed(f"{len(copies)} rows are copies of others", copies)
    return passed(f"{len(rows)} valid, each with an id of its own")


def _is_valid(row: TaskRow, found: Found) -> bool:
    try:
        found.environment.parse_task(row.fields)
    except ValidationError:
        return False
    return True


Watch = Callable[[str], None]
"""Told what is being done, as often as there is something to tell."""

_NOBODY = Verifier()


class Episode(NamedTuple):
    """One episode that was played for a check."""

    row: TaskRow
    record: Rollout
    """As far as it got; with its score where there is no error."""
    error: str = ""
    """Why it could not be played or scored."""
    frames: Sequence[str] = ()
    """Where the author's code failed."""

    @property
    def reward(self) -> float:
        """The reward of an episode that has one."""
        assert self.record.reward is not None, "an episode without an error is scored"
        return self.record.reward

    @property
    def prompt(self) -> list[Message]:
        """What the model saw first."""
        return self.record.messages[: self.record.num_prompt_messages]

    @property
    def turns(self) -> list[Message]:
        """What the policy said."""
        return [message for message in self.record.responses if message.role == "assistant"]


class Scripted:
    """A policy that says what it was given, the last of it again and again."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = list(messages)
        self._num_said = 0

    async def answer(self, request: Request) -> Answer:
        """Say the next message."""
        place = min(self._num_said, len(self._messages) - 1)
        self._num_said += 1
        return Answer(message=self._messages[place])


class _Echo:
    """A policy that says the last words of the user back."""

    async def answer(self, request: Request) -> Answer:
        """Say the text of the last user message."""
        texts = [message.text for message in request.messages if message.role == "user"]
        return Answer(message=says(texts[-1] if texts else ""))


class Subject:
    """One environment under check, on some of its tasks.

    The episodes of the oracle and those of the policies that know nothing are played once, and
    serve every check that looks at them.
    """

    def __init__(
        self,
        found: Found,
        tasks: TaskSet,
        options: EnvironmentOptions,
        *,
        workers: Workers,
        watch: Watch,
    ) -> None:
        self.name = found.name
        self.environment = found.environment
        self.tasks = tasks
        self.rows = tasks.rows
        self.verify_seconds: list[float] = []
        """How long each call of `verify` took."""
        self._options = options
        self._workers = workers
        self._watch = watch
        self._played: dict[str, list[Episode]] = {}

    async def oracles(self) -> list[Episode]:
        """Give the oracle's episode of every task."""
        return await self.episodes("oracle", lambda row: None)

    async def silences(self) -> list[Episode]:
        """Give the episode of every task in which the policy says nothing."""
        return await self.episodes("empty", lambda row: Scripted([says("")]))

    async def echoes(self) -> list[Episode]:
        """Give the episode of every task in which the policy says the user's words back."""
        return await self.episodes("echo", lambda row: _Echo())

    async def golds(self) -> list[Episode]:
        """Give the episodes of the oracle that have a score."""
        return [episode for episode in await self.oracles() if not episode.error]

    async def episodes(
        self, name: str, policy_of: Callable[[TaskRow], Policy | None]
    ) -> list[Episode]:
        """Give an episode of every task with the policy of this name; None plays the oracle."""
        if name not in self._played:
            self._played[name] = [await self.episode(row, policy_of(row)) for row in self.rows]
        return self._played[name]

    async def episode(self, row: TaskRow, policy: Policy | None) -> Episode:
        """Play a task and score it."""
        plan = EpisodePlan(
            row=row,
            attempt=0,
            environment=self.environment,
            options=self._options,
            env_version=self.environment.version,
            model="check",
            params={},
            run_seed=0,
            sends_seed=False,
            max_turns=None,
        )
        try:
            plan = msgspec.structs.replace(plan, roles=self._roles(row))
            record = await play(plan, policy)
        except EpisodeFailedError as failed:
            return Episode(row, failed.rollout, str(failed), frames_of(failed.error))
        except AttemptError as error:
            messages = list(row.messages)
            unplayed = Rollout(messages=messages, num_prompt_messages=len(messages))
            return Episode(row, unplayed, str(error), frames_of(error))
        return await self.scored(row, record, plan.roles)

    async def scored(
        self, row: TaskRow, record: Rollout, roles: Mapping[str, Model] | None = None
    ) -> Episode:
        """Score a record; roles that were not part of its episode are made anew."""
        try:
            scored = await score(
                self.environment,
                record,
                verifier=_NOBODY,
                options=self._options,
                roles=self._roles(row) if roles is None else roles,
                workers=self._workers,
            )
        except AttemptError as error:
            return Episode(row, record, str(error), frames_of(error))
        self.verify_seconds.append(scored.timing.verify_seconds)
        self._watch(f"{self.name}: {len(self.verify_seconds):,} records scored")
        return Episode(row, scored)

    async def scored_together(self, row: TaskRow, records: Sequence[Rollout]) -> list[Rollout]:
        """Score records of one task as a group.

        Raises:
            AttemptError: A verifier failed.

        """
        return await score_group(
            self.environment,
            records,
            verifier=_NOBODY,
            options=self._options,
            roles=[self._roles(row) for _ in records],
            workers=self._workers,
        )

    def choices(self, row: TaskRow) -> list[str]:
        """Give what a guesser would choose from.

        Raises:
            EpisodeError: The environment fails to say.

        """
        with boundary(EpisodeError):
            return list(self.environment.choices(self.environment.parse_task(row.fields)))

    def _roles(self, row: TaskRow) -> Mapping[str, Model]:
        """Give the scripted models of a task, fresh ones each time.

        Raises:
            SetupError: A required role is not among them, or one is that the class does not
                declare, or the environment fails to give them.

        """
        environment = self.environment
        with boundary(SetupError):
            roles = environment.stand_ins(environment.parse_task(row.fields))
        for role in environment.required_roles:
            if role not in roles:
                raise SetupError(
                    f'{environment.__name__} needs the role "{role}" and its stand_ins gives no '
                    "scripted model for it"
                )
        for role in roles:
            if role not in declared_roles(environment):
                raise SetupError(
                    f'stand_ins of {environment.__name__} gives a model for the role "{role}", '
                    "which no run provides: name it in required_roles or optional_roles"
                )
        return roles


def says(text: str) -> Message:
    """Give a message of the policy."""
    return Message(role="assistant", content=text)
