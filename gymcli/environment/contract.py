"""What an environment is: one instance plays one episode, a class method scores the record.

The order of events of an episode, which `gymcli.rollout` drives:

1. the instance is made with its task, options, roles and random generator;
2. `setup` builds the state and may add opening messages to the row's prompt;
3. for every message of the model, `step` answers: by default the results of its tool calls, or
   the next user turn from `reply`; when there is neither, the episode is done;
4. `final_state` is recorded, unless something failed, and `close` is called in any case;
5. `verify` scores the record, now or any time later: in a worker process, or in the event loop
   where it waits for the model of a role or a server;
6. `verify_group`, where the class has one, scores all attempts of a task relative to each other;
7. `metrics`, where the class has one, returns numbers of its own from the scores of a run.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import logging
import os
import time
import typing
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import TYPE_CHECKING, ClassVar, Generic, Literal, NamedTuple, Protocol, TypeVar

import msgspec
from pydantic import BaseModel

from gymcli.environment.contract_checks import check_hooks, checked_json, named, wrong_return
from gymcli.environment.time_limit import LateError, gather_all, within
from gymcli.environment.tool import (
    EnvironmentOptions,
    Properties,
    Step,
    Task,
    Tool,
    ToolCallError,
    ToolFault,
    function_names,
    shortened,
    tool_of,
)
from gymcli.errors import AttemptError, RunError, described, frames_of, leave_copy
from gymcli.types import JSON, JSONObject, Message, Rollout, Score, ToolCall

if TYPE_CHECKING:
    from gymcli.metrics.scored_lines import Group

__all__ = ["Cache", "Context", "Environment", "Model", "make", "shown_tools"]


T = TypeVar("T")
TaskT = TypeVar("TaskT", bound=Task)

_LOGGER = logging.getLogger(__name__)

_SLOW_SECONDS = 0.05
"""After a tool that computed for so long, other episodes get their turn."""


OptionsT = TypeVar("OptionsT", bound=EnvironmentOptions)
OwnOptionsT = TypeVar("OwnOptionsT", bound=EnvironmentOptions, covariant=True)


class _HasOptions(Protocol[OwnOptionsT]):
    """An environment with its own nested `Options`, from which `options_of` takes its type."""

    @property
    def Options(self) -> type[OwnOptionsT]: ...  # noqa: N802  # the class of that name


class Environment(Generic[TaskT]):
    """Base of every environment; the first line of a subclass's docstring says what it tests."""

    version: ClassVar[str] = "1"
    """Raised whenever a score can move."""
    max_reward: ClassVar[float | None] = 1.0
    """The top reward; None where it is unbounded, relative or a matter of chance."""
    pass_threshold: ClassVar[float | None] = None
    """The reward from which an attempt counts as a success; None: `max_reward`."""
    max_turns: int | None = None
    """Model messages of an episode, unless the row or the command line says otherwise; `setup` may
    set it for its own."""
    executes_tools: ClassVar[bool] = True
    """False: calls of the row's tools are recorded and end the episode, and are never run."""
    setup_timeout: ClassVar[float] = 300.0
    """Seconds that `setup` may take."""
    step_timeout: ClassVar[float] = 600.0
    """Seconds that `step` may take, its tool calls and models included; so `final_state`."""
    close_timeout: ClassVar[float] = 30.0
    """Seconds that `close` may take."""
    tool_timeout: ClassVar[float] = 60.0
    """Seconds that one tool call may wait. A call that computes holds up every other episode, and
    is not late once it has returned."""
    blocking_timeout: ClassVar[float] = 60.0
    """Seconds that code in the process of the run may compute without awaiting anything. After as
    long, `gym collect` ends its process and starts it again."""
    verify_timeout: ClassVar[float] = 60.0
    """Seconds that `verify` or `verify_group` may take in a worker process."""
    scoring_timeout: ClassVar[float] = 1800.0
    """Seconds that either may take in the event loop of the run, where it waits for models or a
    server."""
    verify_memory_mb: ClassVar[int] = 2048
    """Megabytes that either may need in a worker process, beyond what the worker has after its
    imports (Linux only)."""
    verifies_in_worker: ClassVar[bool] = False
    """Has no effect any more: every verifier that waits for nothing runs in a worker process."""
    max_tool_output: ClassVar[int] = 100_000
    """Characters of a tool result; what is longer is cut, with a marker."""
    rescore: ClassVar[Literal["verify", "recorded"]] = "verify"
    """`recorded`: the score rests on a foreign world that cannot be replayed; never rescored."""
    required_roles: ClassVar[tuple[str, ...]] = ()
    """Models other than the policy, without which no episode can be played or scored."""
    optional_roles: ClassVar[tuple[str, ...]] = ()
    """Models other than the policy that are used if they are given."""
    waits_to_verify: ClassVar[bool] = False
    """`verify` waits, as for `Context.isolated`; conversations are saved before it starts. Those
    of environments with roles or `verify_group` are in any case."""
    skipped_checks: ClassVar[Mapping[str, str]] = {}
    """Checks of `gym check` that do not apply, each with the reason."""
    slice_fields: ClassVar[tuple[str, ...]] = ()
    """Fields of the task rows that `metrics` wants, dots lead into objects."""
    properties: ClassVar[Properties] = Properties()
    Task: ClassVar[type[BaseModel]] = Task
    """The typed fields of a row; set from the class's type argument."""
    _method_tools: ClassVar[dict[str, Tool]] = {}

    class Options(EnvironmentOptions):
        """No options."""

    def __init_subclass__(cls, **keywords: object) -> None:
        super().__init_subclass__(**keywords)
        check_hooks(cls, Environment)
        for base in getattr(cls, "__orig_bases__", ()):
            for argument in typing.get_args(base):
                if isinstance(argument, type) and issubclass(argument, BaseModel):
                    cls.Task = argument
        values = [value for base in reversed(cls.__mro__) for value in vars(base).values()]
        made = [found for value in values if (found := tool_of(value)) is not None]
        cls._method_tools = {found.name: found for found in made}

    def __init__(
        self,
        task: TaskT,
        *,
        options: EnvironmentOptions | None = None,
        roles: Mapping[str, Model] | None = None,
        rng: Random | int | None = None,
    ) -> None:
        self.task = task
        self.options = options if options is not None else self.Options()
        self.roles: Mapping[str, Model] = roles or {}
        self._seed = rng or 0
        self.shown_tools: list[JSONObject] | None = None
        """The tools that the model was shown, and only may call; None: all of `tools()`."""
        self.reads_arguments_laxly = False
        """For replaying records of other programs, whose servers converted what they could."""
        self.now: Callable[[], float] = time.monotonic
        """The clock of time limits; the driver sets one that stands still while the loop does."""
        self.tool_error_text: Callable[[BaseException], str] = described
        """Puts the exception of a tool into words for the model; a server leaves things out."""
        self.tool_seconds = 0.0
        self.tool_errors: Counter[ToolFault] = Counter()
        """Calls that could not be carried out, counted by what was wrong."""
        self.rollout = Rollout()
        """The record so far; the driver sets and keeps it."""

    @functools.cached_property
    def rng(self) -> Random:
        """All that is random in the episode comes from here."""
        # A generator takes 2.5 kB, in each of thousands of episodes, and most never ask for it.
        return self._seed if isinstance(self._seed, Random) else Random(self._seed)

    @classmethod
    def parse_task(cls, fields: JSONObject) -> TaskT:
        """Type a row's fields; those under `verifier_metadata` count as fields of the row.

        Raises:
            pydantic.ValidationError: A field is missing or of the wrong type.
        """
        inner = fields.get("verifier_metadata")
        merged = {**inner, **fields} if isinstance(inner, dict) else fields
        return typing.cast("TaskT", cls.Task.model_validate(merged))

    @classmethod
    def options_of(cls: type[_HasOptions[OptionsT]], context: Context) -> OptionsT:
        """Return the options of a scoring, typed as the class's own `Options`."""
        assert isinstance(context.options, cls.Options)
        return typing.cast("OptionsT", context.options)

    @classmethod
    def prepare(cls, options: EnvironmentOptions) -> None:
        """Check once, before a run starts, that episodes can be played with these options.

        Not asked where records are scored: options on record may name code.

        Raises:
            UsageError: They cannot, as where a package is missing; the message says the way out.
        """

    @classmethod
    def check_task(cls, task: TaskT, options: EnvironmentOptions) -> None:
        """Check, before a run starts, that a task can be played with these options.

        Raises:
            ValueError: It cannot; the message says the way out.
        """

    @classmethod
    def method_tools(cls) -> dict[str, Tool]:
        """Return the `@tool` methods of the class by name, in the order they are written."""
        return dict(cls._method_tools)

    async def setup(self) -> list[Message]:
        """Build the state of the episode; return opening messages, or none."""
        return []

    def tools(self) -> list[Tool]:
        """Return the tools of this episode; the row's `tools` override what the model is shown."""
        return list(self._method_tools.values())

    async def reply(self, rollout: Rollout) -> str | None:
        """Return the next user turn, or None to end the episode."""
        return None

    async def step(self, message: Message) -> Step:
        """Answer one message of the model."""
        if message.tool_calls:
            if not self.executes_tools:
                return Step([], stop_reason="done")
            return Step(await self.call_tools(message.tool_calls))
        text = await self.reply(self.rollout)
        if text is None:
            return Step([])
        if not isinstance(text, str):
            raise wrong_return(self, "reply", f"{named(text)}, neither a text nor None")
        return Step([Message(role="user", content=text)])

    async def final_state(self) -> JSON:
        """Return what the verifier may need besides the conversation, as JSON."""
        return None

    async def close(self) -> None:
        """Release what `setup` took."""

    async def oracle(self, rollout: Rollout) -> Message | None:
        """Return the gold next turn; None where there is none, for the reason in the docstring."""
        return None

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Score a record; reads nothing but the record and the context."""
        raise NotImplementedError(f"{cls.__name__} has no verify")

    @classmethod
    async def verify_group(cls, rollouts: list[Rollout], context: Context) -> list[Score]:
        """Score all attempts of a task together; they carry what `verify` said of each.

        A class that overrides this has relative rewards: no attempt of a task is scored before
        all of them are there, and `--repeats` belongs to the identity of its runs.
        """
        raise NotImplementedError(f"{cls.__name__} scores no groups")

    @classmethod
    def scores_groups(cls) -> bool:
        """Return whether the class overrides `verify_group`."""
        return cls.verify_group.__func__ is not Environment.verify_group.__func__  # type: ignore[attr-defined]

    @classmethod
    def metrics(cls, groups: Iterator[Group]) -> Mapping[str, float]:
        """Return numbers of a run by name, from the scored attempts of each task.

        The groups come one by one, in no order, and without conversations; each has what its task
        row says of `slice_fields`. What this raises is a warning of `gym metrics`.
        """
        raise NotImplementedError(f"{cls.__name__} has no metrics of its own")

    @classmethod
    def computes_metrics(cls) -> bool:
        """Return whether the class overrides `metrics`."""
        return cls.metrics.__func__ is not Environment.metrics.__func__  # type: ignore[attr-defined]

    @classmethod
    def stand_ins(cls, task: TaskT) -> Mapping[str, Model]:
        """Return a scripted model for each role, which needs no endpoint, for a task.

        They serve `gym check` and `--role NAME=oracle`: with them and the oracle an environment
        can be tried from end to end without any model.
        """
        return {}

    @classmethod
    def choices(cls, task: TaskT) -> list[str]:
        """Return the answers that a guesser would choose from, in the order of the prompt."""
        return []

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Yield `num` rows of the environment's dataset; one seed always gives the same rows."""
        raise NotImplementedError(f"{cls.__name__} generates no tasks")

    async def call_tools(self, calls: list[ToolCall]) -> list[Message]:
        """Run tool calls and return a tool message for each, in order.

        Calls run one after another, unless every one of them only reads. A call that cannot be
        carried out is answered with one sentence and counted in `tool_errors`.

        Raises:
            AttemptError: A tool says that the attempt cannot go on, as where a role failed.
        """
        usable = {t.name: t for t in self.tools()}
        if self.shown_tools is not None:
            shown = function_names(self.shown_tools)
            usable = {name: t for name, t in usable.items() if name in shown}
        used = [usable.get(call.name) for call in calls]
        started = time.perf_counter()
        try:
            if len(calls) > 1 and all(found is not None and found.reads_only for found in used):
                texts = await gather_all(_answer_call(self, usable, call) for call in calls)
            else:
                texts = []
                for call in calls:
                    began = time.perf_counter()
                    texts.append(await _answer_call(self, usable, call))
                    if time.perf_counter() - began > _SLOW_SECONDS:
                        await asyncio.sleep(0)
        finally:
            self.tool_seconds += time.perf_counter() - started
        return [
            Message(role="tool", tool_call_id=call.id, content=text)
            for call, text in zip(calls, texts, strict=True)
        ]


class Context(Protocol):
    """What `verify` may use besides the record."""

    @property
    def options(self) -> EnvironmentOptions:
        """The environment's options of this scoring."""

    @property
    def roles(self) -> Mapping[str, Model]:
        """The models that the environment asked for, by role."""

    async def replay(self, rollout: Rollout) -> Environment[Task]:
        """Play the record again in a fresh instance and return it as it stands at the end.

        Its `rollout.step_rewards` are those of the replay. A replay asks no role: the
        models of the instance raise `RoleError`, and what a user said is read from the record.

        Raises:
            ReplayDivergedError: The environment answered otherwise than on record.
            RoleError: The environment asked a role.
        """

    async def isolated(
        self,
        function: Callable[..., T],
        *args: object,
        timeout: float = 10.0,  # noqa: ASYNC109  # it kills a process, which no scope here could
        memory_mb: int = 1024,
        imports: tuple[str, ...] = (),
    ) -> T:
        """Call a module-level function in a process that is killed where it runs away.

        Arguments and result are pickled; what the function raises is raised here.

        Args:
            function: Found again by its name, in a process that may serve many calls.
            args: Its arguments.
            timeout: Seconds from the start of the function, however long it waited for a process.
            memory_mb: Megabytes that it may need on top of what the process has (Linux only).
            imports: Heavy modules that the function uses; their import does not count as its time.

        Raises:
            TypeError: It is no function at the top level of a module.
            VerifierTimeoutError: It took longer than `timeout` seconds.
            VerifierError: The process died, or needed more than `memory_mb` on top of what it had.
        """

    def search(self, pattern: str, text: str, *, flags: int = 0) -> list[str]:
        """Return every match of a row's regular expression, within a time limit.

        Of each the first group where the pattern has one, else the whole match.

        Raises:
            ValueError: The pattern is no regular expression.
            VerifierTimeoutError: The search took too long.
        """


class Model(Protocol):
    """A model other than the policy, as environments and roles see it."""

    @property
    def is_scalar(self) -> bool:
        """Whether it answers a conversation with a number, as a reward model does."""

    async def complete(
        self,
        messages: list[Message],
        *,
        schema: JSONObject | None = None,
        params: JSONObject | None = None,
        cache: Cache | str | None = None,
    ) -> Message:
        """Answer a conversation with one message.

        Args:
            messages: The conversation.
            schema: A JSON Schema that constrains the text.
            params: Sampling parameters; those that the user gave for the role win.
            cache: The version of the prompt, and the number of the vote where there are several.
                The same request under the same text is asked once in a run, and its answer kept,
                without log probabilities and reasoning. None: it is asked every time.

        Raises:
            RoleError: There is no usable answer: the call failed, or what came is cut, filtered,
                refused or empty.
            UsageError: Log probabilities of an answer that is kept are asked for.
        """


class Cache(NamedTuple):
    """Under which text an answer is kept, and whether it is."""

    text: str
    keeps: Callable[[Message], bool]
    """Whether an answer is worth keeping; one on record that is not is asked for again."""


def make(
    environment: type[Environment[Task]],
    fields: JSONObject,
    *,
    options: EnvironmentOptions,
    roles: Mapping[str, Model],
    rng: Random | int,
) -> Environment[Task]:
    """Type a row's fields and return the instance that plays them; `rng` may be a seed."""
    if isinstance(rng, int) and environment.__init__ is not Environment.__init__:
        rng = Random(rng)  # an `__init__` of its own may use it
    process = os.getpid()
    instance = environment(environment.parse_task(fields), options=options, roles=roles, rng=rng)
    leave_copy(process)
    return instance


def shown_tools(environment: Environment[Task]) -> list[JSONObject]:
    """Return the tools of an episode as the model is shown them.

    Raises:
        SetupError: The environment returned what is no tool.
    """
    tools: object = environment.tools()
    specs: list[JSONObject] = []
    for tool in tools if isinstance(tools, list | tuple) else [None]:
        if not isinstance(tool, Tool):
            raise wrong_return(environment, "tools", f"{named(tools)}, not a list of Tool")
        specs.append(tool.spec)
    if type(environment).tools is not Environment.tools:
        checked_json(environment, "tools", specs)
    return specs


async def _answer_call(
    environment: Environment[TaskT], usable: Mapping[str, Tool], call: ToolCall
) -> str:
    """Return what a tool call is answered with; one that cannot be carried out is counted."""
    try:
        text = await _run_call(environment, usable, call)
    except ToolCallError as error:
        environment.tool_errors[error.fault] += 1
        text = str(error)
    if not text.isascii():
        # Half a surrogate pair, as from a file name, can neither be sent nor written.
        text = text.encode(errors="replace").decode()
    return shortened(text, environment.max_tool_output)


async def _run_call(
    environment: Environment[TaskT], usable: Mapping[str, Tool], call: ToolCall
) -> str:
    found = usable.get(call.name)
    if found is None:
        names = ", ".join(usable) or "none"
        raise ToolCallError(
            "unknown_tool", f"There is no tool {call.name!r}. Available tools: {names}."
        )
    function = found.function
    if tool_of(function) is found:  # the tool of a method, which is called on this instance
        function = getattr(environment, function.__name__)

    async def result_of() -> object:
        # Within the limit, too: a row's schema may be slow to check.
        keywords = found.parse(call.arguments, is_lax=environment.reads_arguments_laxly)
        if found.in_thread:
            return await asyncio.to_thread(function, **keywords)
        result = function(**keywords)
        return await result if inspect.isawaitable(result) else result

    seconds = found.timeout or environment.tool_timeout
    try:
        result = await within(
            seconds, result_of(), close_timeout=environment.close_timeout, now=environment.now
        )
        if isinstance(result, str):
            return str.__str__(result)  # of a subclass the text alone: no line can hold it
        return _json_text(call.name, result)
    except (ToolCallError, AttemptError, RunError, KeyboardInterrupt, asyncio.CancelledError):
        raise
    except LateError as error:
        reason = f"{call.name} did not finish within {seconds:g} seconds."
        raise ToolCallError("timeout", reason) from error
    except BaseException as error:
        if _LOGGER.isEnabledFor(logging.INFO):
            where = " < ".join(reversed(frames_of(error)))
            _LOGGER.info("the tool %s failed: %s: %s", call.name, described(error), where)
        text = f"{call.name} failed: {environment.tool_error_text(error)}."
        raise ToolCallError("raised", text) from error


def _json_text(name: str, result: object) -> str:
    encoded = msgspec.json.encode(result)
    if b"null" in encoded:  # it may hold a number that JSON does not have
        try:
            json.dumps(msgspec.to_builtins(result), allow_nan=False)
        except ValueError as error:
            reason = (
                f"{name} failed: its result holds NaN or an infinity, which JSON does not have."
            )
            raise ToolCallError("raised", reason) from error
    return encoded.decode()
