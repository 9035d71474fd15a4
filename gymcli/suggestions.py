"""Says in words what is wrong with a name or a value, and which name may have been meant."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from gymcli.errors import UsageError

if TYPE_CHECKING:
    from pydantic import BaseModel

M = TypeVar("M", bound="BaseModel")


def did_you_mean(name: str, choices: Iterable[str], place: str = "") -> str:
    """Ask whether the choice closest to `name` was meant; empty if none is close."""
    import difflib  # late: only errors need it

    by_folded, folded = {choice.casefold(): choice for choice in choices}, name.casefold()
    close = (
        [choice for choice in by_folded if choice.endswith(f".{folded}")]
        or difflib.get_close_matches(folded, by_folded, n=1)
        or [choice for choice in by_folded if len(folded) > 2 and choice.startswith(folded)]
    )
    return f'did you mean "{by_folded[close[0]]}"{place and f" {place}"}?' if close else ""


_PYDANTIC_REASONS = {
    "int_parsing": "is not a whole number",
    "int_type": "is not a whole number",
    "int_from_float": "is not a whole number",
    "int_parsing_size": "is too large",
    "float_parsing": "is not a number",
    "float_type": "is not a number",
    "finite_number": "is not a finite number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "string_pattern_mismatch": "must match {pattern}",
    "string_too_short": "must not be empty",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "must hold keys with values",
    "model_type": "must hold keys with values",
    "missing": "is missing",
    "extra_forbidden": "is unknown",
    "literal_error": "must be {expected}",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be {ge} or more",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be {le} or less",
}
"""By pydantic's type of an error; others keep pydantic's message."""


def pydantic_reason(detail: Mapping[str, object]) -> str:
    """Return what is wrong with a value, from one of the errors that a ValidationError lists."""
    reason = _PYDANTIC_REASONS.get(str(detail["type"]))
    if reason is None:
        # pydantic prefixes the messages of validators.
        return str(detail["msg"]).removeprefix("Value error, ")
    context = detail.get("ctx")
    limits = context if isinstance(context, Mapping) else {}
    return reason.format_map(
        {
            name: f"{limit:g}" if isinstance(limit, float) else limit
            for name, limit in limits.items()
        }
    )


def argument_problems(details: Iterable[Mapping[str, object]], names: Collection[str]) -> str:
    """Say what is wrong with the arguments of a call, which has parameters of these names.

    `details` are the errors that a ValidationError lists.
    """
    problems = []
    for detail in details:
        path = detail["loc"]
        assert isinstance(path, Sequence)
        name = ".".join(map(str, path))
        if detail["type"] == "extra_forbidden" and len(path) == 1:
            hint = did_you_mean(name, names)
            problems.append(f"there is no option {name}{hint and f'; {hint}'}")
        elif detail["type"] == "missing":
            needs_model = name == "model" and "endpoint" in names
            problems.append("needs endpoint= or model=" if needs_model else f"{name}= is missing")
        else:
            problems.append(f"{name and f'{name}: '}{pydantic_reason(detail)}")
    return "; ".join(problems)


def options_from(model: type[M], function: str, arguments: Mapping[str, object]) -> M:
    """Return the options that were passed to a function of this name.

    Raises:
        UsageError: An option is unknown, is missing or has a wrong value.
    """
    from pydantic import ValidationError  # late: heavy

    try:
        return model.model_validate(arguments)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        # Without the cause, which shows values, and so keys.
        raise UsageError(f"{function}: {argument_problems(details, model.model_fields)}") from None
