"""The parts of an environment: its task, options, steps and tools.

A tool is a method that a model may call: its schema comes from the types, its description from the
docstring. Arguments must be JSON, an object, and fit the schema; each failure has an answer that
the model can act on. Pydantic's strict check comes first, as the fastest; JSON Schema decides about
what it refuses (JSON Schema accepts 3.0 as an integer, pydantic's strict mode does not).
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterable
from typing import ClassVar, Literal, NamedTuple, ParamSpec, TypeVar, overload

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo

from gymcli.types import JSON, JSON_ERRORS, JSONObject, Message, StopReason, ToolFault

P = ParamSpec("P")
R = TypeVar("R")

_VALUES = ("default", "const", "enum", "examples")
"""Keys of a JSON Schema that hold data, not schemas."""


class Task(BaseModel):
    """The typed fields of a row that an environment needs; other fields are kept unchanged."""

    model_config = ConfigDict(extra="allow")


class EnvironmentOptions(BaseModel):
    """Options of an environment, set by `--env-arg`; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command_line_only: ClassVar[frozenset[str]] = frozenset()
    """Options that name code or files, which a benchmark.toml of a folder may not set."""


class Properties(NamedTuple):
    """What kind of environment this is; shown by `gym envs`."""

    structure: Literal["single-step", "multi-step", "stateful", "multi-turn"] = "single-step"
    capability: str = ""
    domain: str = ""
    task_type: str = ""
    verification: str = ""


class Step(NamedTuple):
    """The answer of an environment to one message of the model."""

    messages: list[Message]
    """The messages that the model sees next; an empty list ends the episode."""
    reward: float | None = None
    """A reward for this turn, recorded in `step_rewards`."""
    stop_reason: StopReason | None = None
    """Ends the episode after these messages; `env_done` if the environment decides so."""


class ToolCallError(Exception):
    """Raised when a call cannot be carried out; the model is shown the text."""

    def __init__(self, fault: ToolFault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


class Tool:
    """A callable that a model may use.

    `@tool` makes one from a method. For tools that are known only at run time, make one by hand:
    `parameters` is its JSON Schema, and `function` takes the arguments by keyword.
    """

    def __init__(
        self,
        function: Callable[..., object],
        *,
        name: str = "",
        description: str = "",
        parameters: JSONObject | None = None,
        reads_only: bool = False,
        in_thread: bool = False,
        timeout: float | None = None,
    ) -> None:
        self.function = function
        self.name = name or function.__name__
        self.description = description or inspect.cleandoc(function.__doc__ or "")
        self.reads_only = reads_only
        """It changes nothing, so calls of one message may run in parallel."""
        self.in_thread = in_thread
        """It blocks, so it runs in a thread and other episodes continue meanwhile."""
        self.timeout = timeout
        """Seconds that one call may take; None: the environment's `tool_timeout`."""
        self._parameters = parameters

    @functools.cached_property
    def _arguments(self) -> type[BaseModel] | None:
        """The arguments as a pydantic model; None if only a JSON Schema is known."""
        if self._parameters is not None:
            return None
        hints = typing.get_type_hints(self.function, include_extras=True)
        fields: dict[str, typing.Any] = {}
        for name, parameter in inspect.signature(self.function).parameters.items():
            if name == "self":
                continue
            if problem := argument_problem(parameter):
                raise TypeError(f"the tool {self.name} {problem}")
            # By alias, since pydantic forbids field names such as "copy" and "_hidden".
            hint, field = hints.get(name, object), Field(alias=name)
            if isinstance(parameter.default, FieldInfo):
                hint = typing.Annotated[hint, parameter.default]
            elif parameter.default is not inspect.Parameter.empty:
                field = Field(parameter.default, alias=name)
            fields[f"argument_{len(fields)}"] = (hint, field)
        return create_model(self.name, __config__=ConfigDict(extra="forbid"), **fields)

    @functools.cached_property
    def parameters(self) -> JSONObject:
        """The JSON Schema of the arguments object."""
        if self._arguments is None:
            return self._parameters or {}
        schema = _without_titles(self._arguments.model_json_schema())
        schema.pop("description", None)
        schema.setdefault("required", [])
        return schema

    @functools.cached_property
    def spec(self) -> JSONObject:
        """The tool in the format of Chat Completions, as shown to the model."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": self.parameters,
            },
        }

    def parse(self, text: str, *, is_lax: bool = False) -> dict[str, object]:
        """Turn the argument text of a call into keyword arguments.

        An empty text means no arguments, as several endpoints write it. Lax parsing, for records of
        other programs, accepts what their servers accepted: values that can be converted ("3" for
        3), and unknown names, which are left out.

        Raises:
            ToolCallError: The text is not JSON, not an object, or does not fit the schema.
        """
        try:
            value: JSON = msgspec.json.decode(text) if text.strip() else {}
        except JSON_ERRORS as error:
            raise ToolCallError(
                "not_json", f"The arguments of {self.name} are not valid JSON: {error}."
            ) from error
        if isinstance(value, str):
            # A frequent mistake of models, which needs its own advice.
            raise ToolCallError(
                "not_an_object",
                f"The arguments of {self.name} are a JSON string; send the JSON object itself, "
                "not encoded a second time.",
            )
        if not isinstance(value, dict):
            kinds = {bool: "a boolean", int: "a number", float: "a number", list: "an array"}
            kind = kinds.get(type(value), "null")
            raise ToolCallError(
                "not_an_object", f"The arguments of {self.name} must be a JSON object, not {kind}."
            )
        if self._arguments is None:
            self._check_schema(value)
            return value
        fields = self._arguments.model_fields.items()
        names = {field.alias or name: name for name, field in fields}
        if is_lax:
            model = self._converted({key: value[key] for key in names if key in value})
        else:
            try:
                model = self._arguments.model_validate(value, strict=True)
            except ValidationError:
                # Strict pydantic refuses some arguments that fit the schema, such as 3.0 for an
                # integer.
                self._check_schema(value)
                model = self._converted(value)
        return {key: getattr(model, name) for key, name in names.items()}

    def _converted(self, value: JSONObject) -> BaseModel:
        assert self._arguments is not None
        try:
            return self._arguments.model_validate(value)
        except ValidationError as error:
            first = error.errors()[0]
            reason = _placed(first["loc"], first["msg"])
            raise ToolCallError("wrong_arguments", self._complaint(reason)) from error

    def _check_schema(self, value: JSONObject) -> None:
        import jsonschema  # late: only a call that the quick check refused comes here
        import referencing

        # With the default registry, jsonschema would download what a row's schema refers to.
        validator = jsonschema.Draft202012Validator(
            self.parameters, registry=referencing.Registry()
        )
        try:
            error = jsonschema.exceptions.best_match(validator.iter_errors(value))
        except referencing.exceptions.Unresolvable:
            return  # the schema's reference leads nowhere; the tool itself checks its arguments
        if error is not None:
            reason = _placed(error.absolute_path, error.message)
            raise ToolCallError("wrong_arguments", self._complaint(reason))

    def _complaint(self, reason: str) -> str:
        return f"The arguments of {self.name} do not fit its schema: {reason}."


@overload
def tool(function: Callable[P, R]) -> Callable[P, R]: ...
@overload
def tool(
    *, reads_only: bool = False, in_thread: bool = False, timeout: float | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def tool(
    function: Callable[P, R] | None = None,
    *,
    reads_only: bool = False,
    in_thread: bool = False,
    timeout: float | None = None,
) -> Callable[P, R] | Callable[[Callable[P, R]], Callable[P, R]]:
    """Mark a method of an environment as a tool; the model reads its docstring.

    Args:
        function: The method, if the decorator is used without parentheses.
        reads_only: The tool changes nothing; calls of one message may run in parallel.
        in_thread: The tool blocks (`requests`, `subprocess.run`, a database): it runs in a thread,
            so that other episodes continue meanwhile. A late call continues there, and its result
            is discarded.
        timeout: Seconds that a call may take, instead of the environment's `tool_timeout`.

    Raises:
        TypeError: The method has no docstring, or is both `async` and `in_thread`.
    """

    def mark(method: Callable[P, R]) -> Callable[P, R]:
        if not (method.__doc__ or "").strip():
            raise TypeError(f"the tool {method.__name__} needs a docstring: the model reads it")
        if in_thread and inspect.iscoroutinefunction(method):
            raise TypeError(f"the tool {method.__name__} is async, and so needs no thread")
        method.__tool__ = Tool(  # type: ignore[attr-defined]
            method, reads_only=reads_only, in_thread=in_thread, timeout=timeout
        )
        return method

    return mark if function is None else mark(function)


def tool_of(method: object) -> Tool | None:
    """Return the tool that `@tool` made from a method; None if it is not a tool."""
    # `@staticmethod` and `@classmethod` above `@tool` hide the mark.
    marked = getattr(method, "__tool__", None) or getattr(
        getattr(method, "__func__", None), "__tool__", None
    )
    return marked if isinstance(marked, Tool) else None


def argument_problem(parameter: inspect.Parameter) -> str:
    """Return why a model, which passes arguments by name, cannot pass this one; empty if it can."""
    name = parameter.name
    if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
        return f"takes {name} by position, but a model passes arguments by name: remove the `/`"
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return f"has *{name}, but a model passes arguments by name: write `{name}: list[str]`"
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return f"has **{name}, whose names no model knows: write `{name}: dict[str, str]`"
    return ""


def function_names(tools: list[JSONObject]) -> list[str]:
    """Return the names of the function tools among Chat Completions tools, in order."""
    functions = [tool.get("function") for tool in tools]
    names = [function.get("name") for function in functions if isinstance(function, dict)]
    return [name for name in names if isinstance(name, str)]


def shortened(text: str, max_characters: int) -> str:
    """Cut a tool result that is too long, with a marker that the model reads."""
    if len(text) <= max_characters:
        return text
    left_out = len(text) - max_characters
    return f"{text[:max_characters]}\n[{left_out} more characters left out]"


def _without_titles(schema: JSONObject) -> JSONObject:
    """Drop the titles that pydantic adds; they only cost prompt tokens."""

    # `names`: the keys are names of parameters, of which one may be "title".
    def clean(value: JSON, *, names: bool) -> JSON:
        if isinstance(value, list):
            return [clean(item, names=False) for item in value]
        if not isinstance(value, dict):
            return value
        return {
            key: item
            if not names and key in _VALUES
            else clean(item, names=not names and key in ("properties", "$defs"))
            for key, item in value.items()
            if names or key != "title"
        }

    cleaned = clean(schema, names=False)
    assert isinstance(cleaned, dict)
    return cleaned


def _placed(path: Iterable[object], reason: str) -> str:
    where = ".".join(str(step) for step in path)
    return f"{where}: {reason}" if where else reason
