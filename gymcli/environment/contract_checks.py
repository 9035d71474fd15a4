"""Checks an environment: its methods when the class is made, and what these return.

Without the second, an invalid value would be written to the run and could never be read again.
Annotations of tools are read only when the environment is loaded, since a class may name what its
module defines later.
"""

from __future__ import annotations

import difflib
import inspect
import math
import reprlib
import typing
from collections.abc import Collection, Mapping
from numbers import Integral, Real
from types import FunctionType

import msgspec
from pydantic import TypeAdapter

from gymcli.environment.tool import Step, Tool, argument_problem, tool_of
from gymcli.errors import AttemptError, EpisodeError, SetupError, VerifierError, described
from gymcli.tracebacks import shown_place
from gymcli.types import JSON, Message, StopReason

UNENCODABLE = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)
"""The exceptions for a value that cannot be written as JSON or read back."""


class ContractError(TypeError):
    """Raised for a method that cannot be called as it must be; the message ends with its place."""


_HOOKS = (
    *("prepare", "setup", "tools", "reply", "step", "final_state", "close", "oracle"),
    *("verify", "verify_group", "metrics", "stand_ins", "choices", "generate"),
)
"""The methods that a class may override."""


def check_hooks(kind: type, base: type) -> None:
    """Check that overriding methods can be called as the base class's are.

    Raises:
        ContractError: One has other parameters, or is not `async` or a class method where it must
            be; or a method looks like a misspelt hook.
        TypeError: An attribute such as `max_reward` has a value of the wrong type.
    """
    hooks = {k: v for k, v in vars(base).items() if not k.startswith("_") or k == "__init__"}
    members = {
        name: value
        for name, hook in hooks.items()
        if (value := inspect.getattr_static(kind, name)) is not hook
    }
    for name, value in members.items():
        _check_value(kind, name, value, hooks[name])
    for name, value in members.items():
        # A tool of a hook's name is refused for its name.
        if tool_of(value) is None:
            _check_hook(kind, name, value, hooks[name])
    # A method that resembles a hook is no mistake if the class, or a base of it, has the hook.
    missing = {name: hooks[name] for name in _HOOKS if name not in members}
    for name, value in vars(kind).items():
        if name not in hooks and not name.startswith("_"):
            _check_name(kind, name, value, missing)


def check_tool(
    kind: type, name: str, value: object, method_tool: Tool, attributes: Collection[str]
) -> None:
    """Check that a model can call a method with `@tool`.

    `attributes` are the names that an environment has without it.

    Raises:
        ContractError: It cannot.
    """
    function = _function(inspect.unwrap(method_tool.function))
    if function is None:
        return
    parameters = list(_signature(function).parameters.values())
    is_static = isinstance(value, staticmethod)
    if isinstance(value, classmethod):
        problem = "is a class method, but a tool acts on its episode: remove @classmethod"
    elif name in attributes:
        problem = f"hides the environment's own `{name}`: give the tool another name"
    elif not hasattr(kind, method_tool.name):
        problem = (
            f"became a tool named `{method_tool.name}`, which is not its name: use functools.wraps "
            "in its decorator"
        )
    elif not is_static and (not parameters or parameters[0].name != "self"):
        problem = "must have `self` as its first parameter"
    else:
        problems = [argument_problem(parameter) for parameter in parameters[not is_static :]]
        problem = next(filter(None, problems), "")
    if problem:
        raise ContractError(f"{kind.__name__}.{name} {problem} ({_place(function)})")


def check_schema(kind: type, method_tool: Tool) -> None:
    """Check that the arguments of a method with `@tool` have a JSON Schema.

    Raises:
        ContractError: One has none, or an annotation cannot be read.
    """
    try:
        method_tool.spec  # noqa: B018  # it is computed here
    except Exception as error:
        function = _function(inspect.unwrap(method_tool.function))
        place = "" if function is None else f" ({_place(function)})"
        problem = _schema_problem(method_tool, error)
        raise ContractError(f"{kind.__name__}.{method_tool.name} {problem}{place}") from error


def _schema_problem(method_tool: Tool, error: Exception) -> str:
    if isinstance(error, NameError):
        return (
            f"has the unknown name `{error.name}` in an annotation: import or define it in its "
            "module, not only under `if TYPE_CHECKING`"
        )
    try:
        hints = typing.get_type_hints(method_tool.function, include_extras=True)
    except Exception as unread:  # noqa: BLE001  # an annotation may be any expression
        return f"has an annotation that cannot be read: {described(unread)}"
    home = method_tool.function.__module__
    for name, hint in hints.items():
        try:
            TypeAdapter(hint).json_schema()
        except Exception as unknown:  # noqa: BLE001  # a type may build its own schema
            if getattr(unknown, "code", "") == "typed-dict-version":
                return f"has a TypedDict in `{name}`: import it from typing_extensions"
            annotation = inspect.formatannotation(hint, home).replace(f"{home}.", "")
            return (
                f"has the argument `{name}: {annotation}`, a type without a JSON Schema: use str, "
                "int, float, bool, list, dict, Literal, an Enum, a TypedDict or a pydantic model"
            )
    return f"has arguments without a JSON Schema: {described(error)}"


_VALUE_TYPES: Mapping[type, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "True or False"),
    str: ((str,), "a text"),
    int: ((Integral,), "a whole number"),
    float: ((Real,), "a number"),
    tuple: ((tuple, list), "a tuple"),
}
"""What an attribute may be, by the type of its default."""

_MAY_BE_NONE: Mapping[str, type] = {"max_reward": float, "pass_threshold": float, "max_turns": int}


def _check_value(kind: type, name: str, value: object, default: object) -> None:
    value_type = _MAY_BE_NONE.get(name, type(default))
    if value_type not in _VALUE_TYPES or hasattr(value, "__get__"):  # such as a property
        return
    types, words = _VALUE_TYPES[value_type]
    if isinstance(value, types) or (value is None and name in _MAY_BE_NONE):
        return
    expected = f"neither {words} nor None" if name in _MAY_BE_NONE else f"not {words}"
    raise TypeError(f"{kind.__name__}.{name} is {reprlib.repr(value)}, {expected}")


def _check_hook(kind: type, name: str, value: object, hook: object) -> None:
    function, hook_function = _function(value), _function(hook)
    if function is None or hook_function is None:
        return
    problem = ""
    if isinstance(hook, classmethod) and not isinstance(value, classmethod):
        problem = "must be a class method: write @classmethod above it"
    elif _is_async(hook_function) and inspect.isasyncgenfunction(function):
        problem = "yields: return its value"
    # A decorated function need not be a coroutine function to return a coroutine.
    elif (
        _is_async(hook_function)
        and not _is_async(function)
        and not hasattr(function, "__wrapped__")
    ):
        problem = f"must be async: write `async def {name}`"
    elif _is_async(function) and not _is_async(hook_function):
        problem = f"must not be async: write `def {name}`"
    elif not _can_be_called(value, function, hook_function):
        head = f"async def {name}" if _is_async(hook_function) else f"def {name}"
        problem = (
            f"has the parameters {_signature(function)}: write `{head}{_signature(hook_function)}`"
        )
    if problem:
        raise ContractError(f"{kind.__name__}.{name} {problem} ({_place(function)})")


def _can_be_called(value: object, function: FunctionType, hook: FunctionType) -> bool:
    """Return whether an overriding method takes the arguments of its hook."""
    positional: list[str] = []
    keywords: dict[str, None] = {}
    for parameter in _signature(hook).parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            keywords[parameter.name] = None
        else:
            positional.append(parameter.name)
    try:
        _signature(function).bind(*positional[isinstance(value, staticmethod) :], **keywords)
    except TypeError:
        return False
    return True


def _signature(function: FunctionType) -> inspect.Signature:
    """Return a signature without annotations, which may name what is defined later."""
    bare = FunctionType(
        function.__code__, {}, argdefs=function.__defaults__, closure=function.__closure__
    )
    bare.__kwdefaults__ = function.__kwdefaults__
    return inspect.signature(bare)


_LIKENESS = 0.8
"""The `difflib` ratio from which a name counts as misspelt: `verfiy`, `set_up`, `orcale`."""


def _check_name(kind: type, name: str, value: object, missing: dict[str, object]) -> None:
    function = _function(value)
    if function is None or tool_of(function) is not None:
        return
    for close in difflib.get_close_matches(name, missing, n=1, cutoff=_LIKENESS):
        hook = missing[close]
        is_called_alike = _is_async(function) == _is_async(_function(hook)) and (
            _is_async(function) or isinstance(value, classmethod) == isinstance(hook, classmethod)
        )
        # Every environment has a `verify`; for the others, the kind of method must fit too.
        if close == "verify" or is_called_alike:
            raise ContractError(
                f"{kind.__name__}.{name} is never called; is it meant to be {close}? Rename it, "
                f"or begin its name with an underscore ({_place(function)})"
            )


def _function(value: object) -> FunctionType | None:
    function = getattr(value, "__func__", value)
    return function if isinstance(function, FunctionType) else None


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _place(function: FunctionType) -> str:
    code = inspect.unwrap(function).__code__
    return shown_place(code.co_filename, code.co_firstlineno)


def checked_messages(environment: object, method: str, messages: object) -> list[Message]:
    """Return messages as they will be read back from the run; an unchanged one is not copied."""
    if not isinstance(messages, list | tuple):
        raise wrong_return(environment, method, f"{named(messages)}, not a list of Message")
    stored_messages = []
    for message in messages:
        if not isinstance(message, Message):
            raise wrong_return(environment, method, f"the message {named(message)}, not a Message")
        try:
            stored = msgspec.json.decode(msgspec.json.encode(message), type=Message)
        except UNENCODABLE as error:
            text = f"a Message that cannot be read again: {error}"
            raise wrong_return(environment, method, text) from error
        stored_messages.append(message if message == stored else stored)
    return stored_messages


_STOP_REASONS: tuple[str, ...] = typing.get_args(StopReason)


def checked_step(environment: object, step: object) -> Step:
    """Check what `step` returned; its messages are as they will be read back from the run."""
    if not isinstance(step, Step):
        raise wrong_return(environment, "step", f"{named(step)}, not a Step")
    messages, reward, stop_reason = step
    stored_messages = checked_messages(environment, "step", messages)
    if reward is not None and not _is_finite(reward):
        text = f"the step reward {reprlib.repr(reward)}, not a finite number"
        raise wrong_return(environment, "step", text)
    if stop_reason is not None and stop_reason not in _STOP_REASONS:
        text = f"the stop reason {reprlib.repr(stop_reason)}, not one of {', '.join(_STOP_REASONS)}"
        raise wrong_return(environment, "step", text)
    return step._replace(messages=stored_messages)


def checked_turn(environment: object, message: object) -> Message | None:
    if message is None:
        return None
    if isinstance(message, Message) and message.role != "assistant":
        text = f"a Message with the role {reprlib.repr(message.role)}, not assistant"
        raise wrong_return(environment, "oracle", text)
    return checked_messages(environment, "oracle", [message])[0]


def checked_json(environment: object, method: str, value: object) -> JSON:
    """Return a value as it will be read back from the run; an unchanged one is not copied."""
    try:
        stored = msgspec.json.decode(msgspec.json.encode(value))
    except UNENCODABLE as error:
        raise wrong_return(environment, method, f"a value that is not JSON: {error}") from error
    return value if value == stored else stored


_ERRORS: dict[str, type[AttemptError]] = {
    "setup": SetupError,
    "tools": SetupError,
    "verify": VerifierError,
    "verify_group": VerifierError,
}
"""The error class by method; for all others it is `EpisodeError`."""


def wrong_return(environment: object, method: str, description: str) -> AttemptError:
    """Return an error that names class, method, file and line of a wrong return value.

    `description` says what the value is and what was expected instead.
    """
    kind = environment if isinstance(environment, type) else type(environment)
    function = inspect.unwrap(getattr(kind, method))
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    place = "" if code is None else shown_place(code.co_filename, code.co_firstlineno)
    where = f" ({place})" if place else ""
    error = _ERRORS.get(method, EpisodeError)(
        f"{kind.__name__}.{method} returned {description}{where}"
    )
    if code is not None:
        error.frames = (f"{place} in {code.co_qualname}",)
    return error


def named(value: object) -> str:
    return f"{reprlib.repr(value)} ({type(value).__name__})"


def _is_finite(reward: object) -> bool:
    try:
        return math.isfinite(reward)  # type: ignore[arg-type]  # this is what is found out
    except (TypeError, ValueError, OverflowError):
        return False
