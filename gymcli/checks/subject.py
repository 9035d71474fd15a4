"""The subject of checks (an environment with its tasks and episodes) and their findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

import msgspec
from pydantic import ValidationError

from gymcli.benchmarks.resolution import task_inputs
from gymcli.environment.contract import Model
from gymcli.environment.registry import (
    NUM_GENERATED,
    Registration,
    Registry,
    generated_lines,
    generates,
    own_tasks,
)
from gymcli.environment.tool import EnvironmentOptions, shortened
from gymcli.errors import (
    AttemptError,
    EnvironmentTimeoutError,
    EpisodeError,
    MissingPackageError,
    SetupError,
    SetupTimeoutError,
    TasksError,
    VerifierTimeoutError,
    boundary,
)
from gymcli.models.roles import declared_roles
from gymcli.rollout.episode import EpisodeFailedError, EpisodePlan, Policy, play
from gymcli.rollout.scoring import Workers, score, score_group
from gymcli.tasks.task_options import TaskOptions
from gymcli.tasks.task_source import TaskSource, survey
from gymcli.tracebacks import frames_of
from gymcli.types import Answer, Message, Request, Rollout, TaskRow, Verifier

Status = Literal["ok", "failed", "skipped", "n/a"]

PolicyName = Literal["oracle", "empty", "echo"]
"""The policy of an episode: the oracle, an empty message, or an echo of the user's words."""

Watch = Callable[[str], None]
"""Called often, with the progress of the checks in words."""

_MAX_IDS = 1000
_MAX_TURNS = 20
_MAX_TURN = 2000
"""Characters of a turn in a finding."""
_MAX_TIMEOUTS = 2
"""After so many episodes over a time limit, the others would only take as long."""
_NO_VERIFIER = Verifier()
_TIMEOUTS = (SetupTimeoutError, EnvironmentTimeoutError, VerifierTimeoutError)


class Finding(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The result of one check."""

    check: str = ""
    status: Status
    """`skipped`: the class declares that it does not apply, or a package is missing; `n/a`: there
    is nothing to check."""
    text: str
    """The finding in one line; the reason if the check is skipped."""
    task_ids: list[str] = []
    """The failing tasks, at most 1,000."""
    numbers: dict[str, float] = {}
    """Measurements by name."""
    frames: list[str] = []
    """Where the author's code failed, in the form of failures.jsonl."""
    turns: list[str] = []
    """The reply to the first failing task, a text for each turn; empty if the oracle replied."""


def passed(text: str, **numbers: float) -> Finding:
    return Finding(status="ok", text=text, numbers=numbers)


def failed(
    text: str,
    task_ids: Iterable[str] = (),
    frames: Sequence[str] = (),
    /,
    *,
    turns: Iterable[Message] = (),
    **numbers: float,
) -> Finding:
    return Finding(
        status="failed",
        text=text,
        task_ids=list(dict.fromkeys(task_ids))[:_MAX_IDS],
        numbers=numbers,
        frames=list(frames),
        turns=[shortened(_turn_text(turn), _MAX_TURN) for turn in islice(turns, _MAX_TURNS)],
    )


def _turn_text(turn: Message) -> str:
    calls = [f"{call.name}({call.arguments})" for call in turn.tool_calls]
    return " ".join([*filter(None, [turn.text]), *calls])


def not_applicable(text: str) -> Finding:
    return Finding(status="n/a", text=text)


class UnscoredError(AttemptError):
    """Raised when episodes that a check needs cannot be played or scored."""

    def __init__(self, episodes: Sequence[CheckedEpisode], num: int) -> None:
        error = episodes[0].error
        super().__init__(f"{len(episodes)} of {num} tasks cannot be played or scored: {error}")
        self.episodes = episodes
        self.frames = episodes[0].frames


class TaskSet(NamedTuple):
    """The tasks on which an environment is checked."""

    rows: list[TaskRow]
    """The first valid tasks, without copies."""
    origin: str
    """Their source, in words."""
    finding: Finding
    """The finding about all tasks of the file, including those not played."""


def read_task_set(
    registration: Registration,
    registry: Registry,
    tasks_file: Path | None,
    *,
    prompt: Path | None = None,
    limit: int,
) -> TaskSet:
    """Read the given tasks file, else the tasks that ship with the environment, else generate some.

    `prompt` is the template of rows without a prompt.

    Raises:
        TasksError: The given file does not exist.
    """
    try:
        with _tasks_file(registration, tasks_file) as (path, origin):
            options = TaskOptions(env=registration.name, prompt=prompt)
            source = TaskSource(task_inputs([path]), options, registry)
            # A given file may have rows of several environments.
            rows = [row for row in _rows(source) if row.env == registration.name]
            finding = _tasks_finding(source, registry, rows, origin)
            valid = (row for row in rows if row.first_attempt == 0 and _is_valid(row, registration))
            return TaskSet(list(islice(valid, limit)), origin, finding)
    except AttemptError as error:
        return TaskSet([], "none", failed(str(error)))


@contextmanager
def _tasks_file(registration: Registration, tasks_file: Path | None) -> Iterator[tuple[Path, str]]:
    path = tasks_file or own_tasks(registration)
    if path is not None:
        yield path, str(path)
        return
    if not generates(registration):
        name = registration.environment.__name__
        raise EpisodeError(f"{name} generates no tasks and ships none; pass --tasks FILE")
    with TemporaryDirectory() as folder:
        path = Path(folder, "generated.jsonl")
        path.write_bytes(b"".join(generated_lines(registration)))
        yield path, f"{NUM_GENERATED} generated with Random(0)"


def _rows(source: TaskSource) -> Iterator[TaskRow]:
    return (item for item in source.read() if isinstance(item, TaskRow))


def _tasks_finding(
    source: TaskSource, registry: Registry, rows: list[TaskRow], origin: str
) -> Finding:
    try:
        survey(source, registry)
    except TasksError as error:
        # Without the folder, which for generated tasks is a temporary one.
        lines = str(error).replace(f"{source.paths[0].parent}/", "").splitlines()
        more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
        return failed(lines[0] + more)
    if not rows:
        environments = sorted({row.env for row in _rows(source)})
        return failed(f"{origin}: its rows belong to {', '.join(environments)}")
    copies = [row.id for row in rows if row.first_attempt]
    if copies:
        return failed(f"{len(copies)} rows are copies of others", copies)
    return passed(f"{len(rows)} valid, each with a unique id")


def _is_valid(row: TaskRow, registration: Registration) -> bool:
    try:
        registration.environment.parse_task(row.fields)
    except ValidationError:
        return False
    return True


class CheckedEpisode(NamedTuple):
    """An episode that was played for a check."""

    row: TaskRow
    record: Rollout
    """The record so far; scored if there is no error."""
    error: str = ""
    """Why the episode could not be played or scored."""
    frames: Sequence[str] = ()
    """Where the author's code failed."""

    @property
    def reward(self) -> float:
        assert self.record.reward is not None, "an episode without an error is scored"
        return self.record.reward

    @property
    def prompt(self) -> list[Message]:
        return self.record.messages[: self.record.num_prompt_messages]

    @property
    def turns(self) -> list[Message]:
        return [message for message in self.record.responses if message.role == "assistant"]


class ScriptedPolicy:
    """A policy that sends the given messages in turn and then repeats the last one."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = list(messages)

    async def answer(self, request: Request) -> Answer:
        is_last = len(self._messages) == 1
        return Answer(message=self._messages[0] if is_last else self._messages.pop(0))


class _EchoPolicy:
    """A policy that repeats the last message of the user."""

    async def answer(self, request: Request) -> Answer:
        texts = [message.text for message in request.messages if message.role == "user"]
        return Answer(message=assistant_message(texts[-1] if texts else ""))


def assistant_message(text: str) -> Message:
    return Message(role="assistant", content=text)


_POLICIES: Mapping[PolicyName, Callable[[], Policy | None]] = {
    "oracle": lambda: None,
    "empty": lambda: ScriptedPolicy([assistant_message("")]),
    "echo": _EchoPolicy,
}


class Subject:
    """An environment under check, with some of its tasks.

    The episodes of the oracle, the empty policy and the echo are played once for all checks.
    """

    def __init__(
        self,
        registration: Registration,
        tasks: TaskSet,
        options: EnvironmentOptions,
        *,
        workers: Workers,
        watch: Watch,
    ) -> None:
        self.name = registration.name
        self.environment = registration.environment
        self.tasks = tasks
        self.rows = tasks.rows
        self.verify_seconds: list[float] = []
        """The duration of each call of `verify`."""
        self._options = options
        self._workers = workers
        self._watch = watch
        self._episodes: dict[str, list[CheckedEpisode]] = {}
        self._late_tasks: list[str] = []
        self.check_by_error: dict[str, str] = {}
        """The check that found an error of the environment, by the error's text."""

    @property
    def is_hanging(self) -> bool:
        """Whether so many episodes were over a time limit that no more are tried."""
        return len(self._late_tasks) >= _MAX_TIMEOUTS

    async def episodes(self, policy: PolicyName) -> list[CheckedEpisode]:
        if policy not in self._episodes:
            # A new one for each episode, since a scripted policy uses up its messages.
            new_policy = _POLICIES[policy]
            self._episodes[policy] = [await self.play_task(row, new_policy()) for row in self.rows]
        return self._episodes[policy]

    async def golds(self) -> list[CheckedEpisode]:
        return [episode for episode in await self.episodes("oracle") if not episode.error]

    async def play_task(self, row: TaskRow, policy: Policy | None) -> CheckedEpisode:
        """Play a task and score it; without a policy, the oracle plays."""
        plan = EpisodePlan(
            row=row,
            attempt=0,
            environment=self.environment,
            options=self._options,
            model="check",
            params={},
            run_seed=0,
            sends_seed=False,
            max_turns=None,
        )
        try:
            plan = msgspec.structs.replace(plan, roles=self._roles(row))
            record = await play(plan, policy)
        except EpisodeFailedError as error:
            self._note_failure(row, error.error)
            return CheckedEpisode(row, error.rollout, str(error), frames_of(error.error))
        except AttemptError as error:
            messages = list(row.messages)
            rollout = Rollout(messages=messages, num_prompt_messages=len(messages))
            return CheckedEpisode(row, rollout, str(error), frames_of(error))
        return await self.score_record(row, record, plan.roles)

    async def score_record(
        self, row: TaskRow, record: Rollout, roles: Mapping[str, Model] | None = None
    ) -> CheckedEpisode:
        """Score a record, with the roles of its episode or else with new stand-ins."""
        try:
            scored_rollout = await score(
                self.environment,
                record,
                verifier=_NO_VERIFIER,
                options=self._options,
                roles=self._roles(row) if roles is None else roles,
                workers=self._workers,
            )
        except AttemptError as error:
            self._note_failure(row, error)
            return CheckedEpisode(row, record, str(error), frames_of(error))
        self.verify_seconds.append(scored_rollout.timing.verify_seconds)
        self._watch(f"{self.name}: {len(self.verify_seconds):,} records scored")
        return CheckedEpisode(row, scored_rollout)

    async def score_together(self, row: TaskRow, records: Sequence[Rollout]) -> list[Rollout]:
        try:
            return await score_group(
                self.environment,
                records,
                verifier=_NO_VERIFIER,
                options=self._options,
                roles=[self._roles(row) for _ in records],
                workers=self._workers,
            )
        except AttemptError as error:
            self._note_failure(row, error, len(records))
            raise

    def _note_failure(self, row: TaskRow, error: AttemptError, num: int = 1) -> None:
        """Count a failure that is a timeout; raise that of a missing package as what it is."""
        _, name, missing_package = str(error).partition("MissingPackageError: ")
        if name:  # a worker sends no more than the text
            raise MissingPackageError(missing_package)
        if isinstance(error, _TIMEOUTS):
            self._late_tasks += [row.id] * num
            if self.is_hanging:
                tasks = " and ".join(dict.fromkeys(self._late_tasks))
                raise type(error)(f"{error} in {tasks}: no more are tried") from error

    def choices(self, row: TaskRow) -> list[str]:
        with boundary(EpisodeError):
            return list(self.environment.choices(self.environment.parse_task(row.fields)))

    def _roles(self, row: TaskRow) -> Mapping[str, Model]:
        environment = self.environment
        with boundary(SetupError):
            roles = environment.stand_ins(environment.parse_task(row.fields))
        for role in environment.required_roles:
            if role not in roles:
                raise SetupError(
                    f'{environment.__name__} needs the role "{role}", and its stand_ins returns '
                    "no scripted model for it"
                )
        for role in roles:
            if role not in declared_roles(environment):
                raise SetupError(
                    f'{environment.__name__}.stand_ins returns a model for the role "{role}", '
                    "which is not declared: name it in required_roles or optional_roles"
                )
        return roles
