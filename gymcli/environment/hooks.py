"""Checks, as a class of an environment is made, that its hooks are what their callers expect."""

from __future__ import annotations

import difflib
import inspect
from numbers import Real
from types import FunctionType

from gymcli.environment.tool import tool_of
from gymcli.errors import shown_place

__all__ = ["check_hooks"]

_HOOKS = (
    *("prepare", "setup", "tools", "reply", "step", "final_state", "close", "oracle"),
    *("verify", "verify_group", "metrics", "stand_ins", "choices", "generate"),
)
"""What a class may override."""

_LIKENESS = 0.8
"""From here `difflib` takes a name for a misspelt one: `verfiy`, `set_up`, `orcale`."""


def check_hooks(kind: type, base: type) -> None:
    """See that what a class overrides of its base is `async` and a class method where that is.

    Raises:
        TypeError: It is not; or a method seems to be a misspelt hook that the class lacks.

    """
    top = getattr(kind, "max_reward", None)
    if not (top is None or isinstance(top, Real)):
        raise TypeError(f"{kind.__name__}.max_reward is {top!r}, neither a number nor None")
    others = [one for one in reversed(kind.__mro__) if not issubclass(base, one)]
    members = {name: value for one in others for name, value in vars(one).items()}
    hooks = {name: value for name, value in vars(base).items() if not name.startswith("_")}
    for name in members.keys() & hooks.keys():
        _check_hook(kind, name, members[name], hooks[name])
    missing = {name: hooks[name] for name in _HOOKS if name not in members}
    for name, value in vars(kind).items():
        if name not in hooks and not name.startswith("_"):
            _check_name(kind, name, value, missing)


def _check_hook(kind: type, name: str, value: object, hook: object) -> None:
    """See that a method is called as it is written."""
    function, own = _function(value), _function(hook)
    if function is None or own is None:
        return
    way_out = ""
    if isinstance(hook, classmethod) and not isinstance(value, classmethod):
        way_out = "must be a class method: write @classmethod above it"
    elif _is_async(own) and not _is_async(function) and not hasattr(function, "__wrapped__"):
        way_out = f"must be async: write `async def {name}`"
    elif _is_async(function) and not _is_async(own):
        way_out = f"must not be async: write `def {name}`"
    if way_out:
        raise TypeError(f"{kind.__name__}.{name} {way_out} ({_place(function)})")


def _check_name(kind: type, name: str, value: object, missing: dict[str, object]) -> None:
    """See that a method is no hook whose name is misspelt."""
    function = _function(value)
    if function is None or tool_of(function) is not None:
        return
    for close in difflib.get_close_matches(name, missing, n=1, cutoff=_LIKENESS):
        # Only `verify` is one that every environment has.
        if close == "verify" or _is_called_alike(value, missing[close]):
            raise TypeError(
                f"{kind.__name__}.{name} is never called; is it meant to be {close}? Rename it, "
                f"or begin its name with an underscore ({_place(function)})"
            )


def _function(value: object) -> FunctionType | None:
    """Return the plain function of a method; None for what is none."""
    function = getattr(value, "__func__", value)
    return function if isinstance(function, FunctionType) else None


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _is_called_alike(value: object, hook: object) -> bool:
    is_async, is_hook_async = _is_async(_function(value)), _is_async(_function(hook))
    if is_async != is_hook_async:
        return False
    return is_async or isinstance(value, classmethod) == isinstance(hook, classmethod)


def _place(function: FunctionType) -> str:
    code = inspect.unwrap(function).__code__
    return shown_place(code.co_filename, code.co_firstlineno)
