"""The environment contract: one instance plays one episode, a class method scores the record.

The order of events of an episode, which `gymcli.rollout` drives:

1. the instance is made with its task, options, roles and random generator;
2. `setup` builds the state and may add opening messages to the row's prompt;
3. `step` answers every message of the model: by default with the results of its tool calls, or
   with the next user turn from `reply`; if there is neither, the episode is done;
4. `final_state` is recorded, unless something failed, and `close` is always called;
5. `verify` scores the record, immediately or any time later: in a worker process, or in the event
   loop if it waits for a role's model or a server;
6. `verify_group`, if overridden, scores all attempts of a task relative to each other;
7. `metrics`, if overridden, computes more numbers from the scores of a run.
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

from gymcli.environment.contract_checks import (
    check_hooks,
    check_tool,
    checked_json,
    named,
    wrong_return,
)
from gymcli.environment.time_limit import LateError, gather_all, leave_copy, within
from gymcli.environment.tool import (
    EnvironmentOptions,
    Properties,
    Step,
    Task,
    Tool,
    ToolCallError,
    function_names,
    shortened,
    tool_of,
)
from gymcli.errors import AttemptError, described
from gymcli.tracebacks import frames_of
from gymcli.types import JSON, JSONObject, Message, Rollout, Score, ToolCall, ToolFault

if TYPE_CHECKING:
    from gymcli.store.scored_lines import Group

T = TypeVar("T")
TaskT = TypeVar("TaskT", bound=Task)

_LOGGER = logging.getLogger(__name__)

_SLOW_SECONDS = 0.05
"""After a tool call that took longer, other episodes get their turn."""


OptionsT = TypeVar("OptionsT", bound=EnvironmentOptions)
OwnOptionsT = TypeVar("OwnOptionsT", bound=EnvironmentOptions, covariant=True)


class _HasOptions(Protocol[OwnOptionsT]):
    """An environment with its own nested `Options`, from which `options_of` takes its type."""

    @property
    def Options(self) -> type[OwnOptionsT]: ...  # noqa: N802  # the class of that name


class Environment(Generic[TaskT]):
    """Base of every environment; the first line of a subclass's docstring says what it tests."""

    version: ClassVar[str] = "1"
    """Raise it with every change that can move a score."""
    max_reward: ClassVar[float | None] = 1.0
    """The top reward; None if it is unbounded, relative or a matter of chance."""
    pass_threshold: ClassVar[float | None] = None
    """The reward from which an attempt counts as a success; None: `max_reward`."""
    max_turns: int | None = None
    """The most model messages of an episode; the row or the command line may override it, and
    `setup` may set it for its episode."""
    executes_tools: ClassVar[bool] = True
    """False: calls of the row's tools are recorded and end the episode; they are never run."""
    setup_timeout: ClassVar[float] = 300.0
    """Seconds that `setup` may take."""
    step_timeout: ClassVar[float] = 600.0
    """Seconds that `step` may take, tool calls and models included; also for `final_state`."""
    close_timeout: ClassVar[float] = 30.0
    """Seconds that `close` may take."""
    tool_timeout: ClassVar[float] = 60.0
    """Seconds that one tool call may wait. A call that computes blocks every other episode, and is
    never late once it has returned."""
    blocking_timeout: ClassVar[float] = 60.0
    """Seconds that code in the run's process may compute without an await. After that, `gym
    collect` ends its process and restarts it."""
    verify_timeout: ClassVar[float] = 60.0
    """Seconds that `verify` or `verify_group` may take in a worker process."""
    scoring_timeout: ClassVar[float] = 1800.0
    """Seconds that either may take in the run's event loop, where it waits for models or a
    server."""
    verify_memory_mb: ClassVar[int] = 2048
    """Megabytes that either may need in a worker process, on top of what the worker uses after its
    imports (Linux only)."""
    max_tool_output: ClassVar[int] = 100_000
    """The most characters of a tool result; a longer one is cut, with a marker."""
    rescore: ClassVar[Literal["verify", "recorded"]] = "verify"
    """`recorded`: the score depends on an external system that cannot be replayed, so that records
    are never rescored."""
    required_roles: ClassVar[tuple[str, ...]] = ()
    """Models other than the policy that every episode needs to be played or scored."""
    optional_roles: ClassVar[tuple[str, ...]] = ()
    """Models other than the policy that are used if the user names them."""
    waits_to_verify: ClassVar[bool] = False
    """`verify` waits, for example for `Context.isolated`, so that conversations are saved before it
    starts. Those of environments with roles or `verify_group` always are."""
    skipped_checks: ClassVar[Mapping[str, str]] = {}
    """Checks of `gym check` that do not apply, each with the reason."""
    slice_fields: ClassVar[tuple[str, ...]] = ()
    """Fields of the task rows that `metrics` needs; dots lead into objects."""
    properties: ClassVar[Properties] = Properties()
    Task: ClassVar[type[BaseModel]] = Task
    """The typed fields of a row; set from the type argument of the class."""
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
        attributes = {*dir(Environment), *vars(Environment(Task()))}
        cls._method_tools = {}
        # Base classes first, so that an overriding method replaces the tool of its base class.
        for base in reversed(cls.__mro__):
            for name, value in vars(base).items():
                if (method_tool := tool_of(value)) is not None:
                    check_tool(cls, name, value, method_tool, attributes)
                    cls._method_tools[method_tool.name] = method_tool

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
        """The tools that the model is shown and may call; None: all of `tools()`."""
        self.reads_arguments_laxly = False
        """For replaying records of other programs, whose servers converted arguments."""
        self.now: Callable[[], float] = time.monotonic
        """The clock of time limits; the driver sets one that stops while the event loop blocks."""
        self.tool_error_text: Callable[[BaseException], str] = described
        """Describes the exception of a tool to the model; a server hides some of it."""
        self.tool_seconds = 0.0
        self.tool_errors: Counter[ToolFault] = Counter()
        """The number of failed calls by kind of fault."""
        self.rollout = Rollout()
        """The record so far, which the driver updates."""

    @functools.cached_property
    def rng(self) -> Random:
        """The source of all randomness in the episode."""
        # Made on demand: a generator takes 2.5 kB, and most of a run's episodes never need one.
        return self._seed if isinstance(self._seed, Random) else Random(self._seed)

    @classmethod
    def parse_task(cls, fields: JSONObject) -> TaskT:
        """Parse a row's fields; those under `verifier_metadata` count as fields of the row.

        Raises:
            pydantic.ValidationError: A field is missing or of the wrong type.
        """
        # NeMo Gym's rows may nest the fields of the verifier.
        inner = fields.get("verifier_metadata")
        merged = {**inner, **fields} if isinstance(inner, dict) else fields
        return typing.cast("TaskT", cls.Task.model_validate(merged))

    @classmethod
    def options_of(cls: type[_HasOptions[OptionsT]], context: Context) -> OptionsT:
        """Return the options of `context`, typed as this class's `Options`."""
        assert isinstance(context.options, cls.Options)
        return typing.cast("OptionsT", context.options)

    @classmethod
    def prepare(cls, options: EnvironmentOptions) -> None:
        """Check once, before a run starts, that episodes can be played with these options.

        Not called when records are scored: recorded options may name code.

        Raises:
            UsageError: They cannot, for example because a package is missing; the message says what
                to do.
        """

    @classmethod
    def check_task(cls, task: TaskT, options: EnvironmentOptions) -> None:
        """Check, before a run starts, that a task can be played with these options.

        Raises:
            ValueError: It cannot; the message says what to do.
        """

    @classmethod
    def answer_mark(cls, task: TaskT, options: EnvironmentOptions) -> str:
        r"""Return what every answer that can be read contains, such as `\boxed`, or an empty text.

        `gym collect` warns if the prompt of `--prompt` does not mention it.
        """
        return ""

    @classmethod
    def method_tools(cls) -> dict[str, Tool]:
        """Return the `@tool` methods of the class by name, in definition order."""
        return dict(cls._method_tools)

    async def setup(self) -> list[Message]:
        """Build the state of the episode; return opening messages, or none."""
        return []

    def tools(self) -> list[Tool]:
        """Return the tools of this episode; the model is shown the row's `tools` if it has any."""
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
        """Return the JSON that the verifier needs in addition to the conversation."""
        return None

    async def close(self) -> None:
        """Release the resources that `setup` acquired."""

    async def oracle(self, rollout: Rollout) -> Message | None:
        """Return the gold next turn; None if there is none (an override's docstring says why)."""
        return None

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Score a record, from only the record and the context."""
        raise NotImplementedError(f"{cls.__name__} has no verify")

    @classmethod
    async def verify_group(cls, rollouts: list[Rollout], context: Context) -> list[Score]:
        """Score all attempts of a task together; each carries its score from `verify`.

        A class that overrides this has relative rewards: no attempt of a task is scored before all
        are complete, and `--repeats` is part of the identity of its runs.
        """
        raise NotImplementedError(f"{cls.__name__} scores no groups")

    @classmethod
    def scores_groups(cls) -> bool:
        """Return whether the class overrides `verify_group`."""
        # A class method is a new object at each access, so the functions are compared.
        return cls.verify_group.__func__ is not Environment.verify_group.__func__  # type: ignore[attr-defined]

    @classmethod
    def metrics(cls, groups: Iterator[Group]) -> Mapping[str, float]:
        """Return more numbers of a run by name, from the scored attempts of each task.

        The groups come one by one, in no particular order and without conversations; each has the
        `slice_fields` of its task row. `gym metrics` turns an exception into a warning.
        """
        raise NotImplementedError(f"{cls.__name__} has no metrics of its own")

    @classmethod
    def computes_metrics(cls) -> bool:
        """Return whether the class overrides `metrics`."""
        return cls.metrics.__func__ is not Environment.metrics.__func__  # type: ignore[attr-defined]

    @classmethod
    def stand_ins(cls, task: TaskT) -> Mapping[str, Model]:
        """Return a scripted model for each role of a task.

        `gym check` and `--role NAME=oracle` use them: together with the oracle, they play and score
        an environment without any endpoint.
        """
        return {}

    @classmethod
    def choices(cls, task: TaskT) -> list[str]:
        """Return the answers that a guesser would choose from, in the order of the prompt."""
        return []

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Yield `num` rows of the environment's dataset; a seed always yields the same rows."""
        raise NotImplementedError(f"{cls.__name__} generates no tasks")

    async def call_tools(self, calls: list[ToolCall]) -> list[Message]:
        """Run tool calls and return a tool message for each, in order.

        Calls run one after another unless all of them only read. A failed call is answered with one
        sentence and counted in `tool_errors`.

        Raises:
            AttemptError: A tool cannot continue the attempt, for example because a role failed.
        """
        usable = {t.name: t for t in self.tools()}
        # A row may show fewer tools than there are, and a model can call only what it is shown.
        if self.shown_tools is not None:
            shown_names = function_names(self.shown_tools)
            usable = {name: t for name, t in usable.items() if name in shown_names}
        called = [usable.get(call.name) for call in calls]
        started = time.perf_counter()
        try:
            # Results of tools that change something may depend on the order of the calls.
            if len(calls) > 1 and all(t is not None and t.reads_only for t in called):
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
    """What `verify` may use in addition to the record."""

    @property
    def options(self) -> EnvironmentOptions:
        """The environment's options."""

    @property
    def roles(self) -> Mapping[str, Model]:
        """The models of the environment's roles, by role."""

    async def replay(self, rollout: Rollout) -> Environment[Task]:
        """Replay the record in a new instance and return the instance in its final state.

        Its `rollout.step_rewards` are those of the replay. A replay asks no role: the models of the
        instance raise `RoleError`, and the user's messages come from the record.

        Raises:
            ReplayDivergedError: The environment answered differently from the record.
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
        """Call a module-level function in a process that is killed if it exceeds its limits.

        It is for functions of your own that may hang, grow or crash. It is no sandbox for code that
        a model wrote. Arguments and result are pickled; exceptions of the function are raised here.

        Args:
            function: Imported by its name, in a process that may serve many calls.
            args: Its arguments.
            timeout: Seconds from the start of the function. Waiting for a process, or (on Linux)
                for a CPU, does not count.
            memory_mb: Megabytes that it may need on top of the process's own (Linux only).
            imports: Heavy modules that the function uses; importing them does not count as time.

        Raises:
            TypeError: It is not a function at the top level of a module.
            VerifierTimeoutError: It took longer than `timeout` seconds.
            VerifierError: The process died or exceeded `memory_mb`.
        """

    def search(self, pattern: str, text: str, *, flags: int = 0) -> list[str]:
        """Return every match of a row's regular expression, within a time limit.

        A match is the first group if the pattern has one, else the whole match.

        Raises:
            ValueError: The pattern is not a regular expression.
            VerifierTimeoutError: The search took too long.
        """


class Model(Protocol):
    """A model other than the policy, as environments see it."""

    @property
    def is_scalar(self) -> bool:
        """Whether it answers a conversation with a number, like a reward model."""

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
            params: Sampling parameters; the user's own for the role override them.
            cache: The version of the prompt, and the number of the vote if there are several. An
                equal request with an equal `cache` is sent once per run, and its answer is stored
                without log probabilities and reasoning. None: it is sent every time.

        Raises:
            RoleError: The call failed, or the answer is cut, filtered, refused or empty.
            UsageError: Log probabilities are asked for together with `cache`.
        """


class Cache(NamedTuple):
    """The key part under which an answer is stored, and a test whether to store it."""

    text: str
    keeps: Callable[[Message], bool]
    """Returns whether to store an answer; a stored one that fails the test is asked for again."""


def make(
    environment: type[Environment[Task]],
    fields: JSONObject,
    *,
    options: EnvironmentOptions,
    roles: Mapping[str, Model],
    rng: Random | int,
) -> Environment[Task]:
    """Parse a row's fields and return the instance that plays them; `rng` may be a seed."""
    if isinstance(rng, int) and environment.__init__ is not Environment.__init__:
        rng = Random(rng)  # an overriding `__init__` may use it
    process = os.getpid()
    instance = environment(environment.parse_task(fields), options=options, roles=roles, rng=rng)
    leave_copy(process)
    return instance


def shown_tools(environment: Environment[Task]) -> list[JSONObject]:
    """Return the specs of an episode's tools, which the model is shown.

    Raises:
        SetupError: The environment returned something other than tools.
    """
    tools: object = environment.tools()
    specs: list[JSONObject] = []
    for tool in tools if isinstance(tools, list | tuple) else [None]:
        if not isinstance(tool, Tool):
            raise wrong_return(environment, "tools", f"{named(tools)}, not a list of Tool")
        specs.append(tool.spec)
    # Without an override there are only tools of methods, whose schemas are JSON.
    if type(environment).tools is not Environment.tools:
        checked_json(environment, "tools", specs)
    return specs


async def _answer_call(
    environment: Environment[TaskT], usable: Mapping[str, Tool], call: ToolCall
) -> str:
    try:
        text = await _run_call(environment, usable, call)
    except ToolCallError as error:
        environment.tool_errors[error.fault] += 1
        text = str(error)
    if not text.isascii():
        # A lone surrogate, for example from a file name, can be neither sent nor stored.
        text = text.encode(errors="replace").decode()
    return shortened(text, environment.max_tool_output)


async def _run_call(
    environment: Environment[TaskT], usable: Mapping[str, Tool], call: ToolCall
) -> str:
    called_tool = usable.get(call.name)
    if called_tool is None:
        names = ", ".join(usable) or "none"
        raise ToolCallError(
            "unknown_tool", f"There is no tool {call.name!r}. Available tools: {names}."
        )
    function = called_tool.function
    if tool_of(function) is called_tool:  # the tool of a method, which is called on this instance
        function = getattr(environment, function.__name__)

    async def result_of() -> object:
        # Also within the time limit: a row's schema may be slow to check.
        keywords = called_tool.parse(call.arguments, is_lax=environment.reads_arguments_laxly)
        if called_tool.in_thread:
            return await asyncio.to_thread(function, **keywords)
        result = function(**keywords)
        return await result if inspect.isawaitable(result) else result

    seconds = called_tool.timeout or environment.tool_timeout
    try:
        result = await within(
            seconds, result_of(), close_timeout=environment.close_timeout, now=environment.now
        )
        if isinstance(result, str):
            return str.__str__(result)  # a plain str: a subclass cannot be encoded
        return _json_text(call.name, result)
    except (ToolCallError, AttemptError, KeyboardInterrupt, asyncio.CancelledError):
        raise
    except LateError as error:
        reason = f"{call.name} did not finish within {seconds:g} seconds."
        raise ToolCallError("timeout", reason) from error
    except BaseException as error:
        # A tool may raise anything, even SystemExit: the model is told, and the episode continues.
        if _LOGGER.isEnabledFor(logging.INFO):
            where = " < ".join(reversed(frames_of(error)))
            _LOGGER.info("the tool %s failed: %s: %s", call.name, described(error), where)
        text = f"{call.name} failed: {environment.tool_error_text(error)}."
        raise ToolCallError("raised", text) from error


def _json_text(name: str, result: object) -> str:
    encoded = msgspec.json.encode(result)
    if b"null" in encoded:  # msgspec writes NaN and infinities as null
        try:
            json.dumps(msgspec.to_builtins(result), allow_nan=False)
        except ValueError as error:
            reason = (
                f"{name} failed: its result holds NaN or an infinity, which JSON does not have."
            )
            raise ToolCallError("raised", reason) from error
    return encoded.decode()
