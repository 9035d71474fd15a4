"""Environment options from `--env-arg [ENV.]key=value`, assigned and typed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from pydantic import ValidationError

from gymcli.environment.find import EnvironmentClass, Found
from gymcli.environment.parts import EnvironmentOptions
from gymcli.errors import UsageError
from gymcli.types import JSON_ERRORS, JSONObject

__all__ = ["environment_options", "own_options", "split_env_args"]


def split_env_args(
    given: Mapping[str, str], environments: Iterable[Found]
) -> dict[str, dict[str, str]]:
    """Assign options to environments: by the name before the dot, else to the one that has it.

    Raises:
        UsageError: No environment of the run has the option, or several have.

    """
    found = {item.name: item.environment for item in environments}
    assigned: dict[str, dict[str, str]] = {name: {} for name in found}
    for key, value in given.items():
        prefix, _, option = key.partition(".")
        if option and prefix in found:
            assigned[prefix][option] = value
            continue
        fitting = [name for name, cls in found.items() if key in cls.Options.model_fields]
        if len(fitting) != 1:
            raise UsageError(_misfit(key, fitting, found))
        assigned[fitting[0]][key] = value
    return assigned


def _misfit(key: str, fitting: list[str], found: Mapping[str, EnvironmentClass]) -> str:
    if fitting:
        return (
            f"--env-arg {key}: {' and '.join(fitting)} both have it; write {fitting[0]}.{key}=..."
        )
    known = [f"{name}.{option}" for name in found for option in found[name].Options.model_fields]
    there_are = ", ".join(known) or "none"
    return f"--env-arg {key}: no environment of this run has it (options: {there_are})"


def own_options(given: Mapping[str, str], found: Found) -> EnvironmentOptions:
    """Type those of the given options that one environment has, whichever others a run has.

    Raises:
        UsageError: As `environment_options`.

    """
    own = {}
    for key, value in given.items():
        prefix, _, option = key.partition(".")
        if option and prefix == found.name:
            own[option] = value
        elif key in found.environment.Options.model_fields:
            own[key] = value
    return environment_options(found.environment, found.name, own, {})


def environment_options(
    environment: EnvironmentClass, name: str, given: Mapping[str, str], recorded: JSONObject
) -> EnvironmentOptions:
    """Type an environment's options: those on record, overridden by those given.

    Raises:
        UsageError: An option is unknown or has a value of the wrong type.

    """
    values = {**recorded, **{key: _option_value(text) for key, text in given.items()}}
    try:
        return environment.Options.model_validate(values)
    except ValidationError as error:
        wrong = {detail["loc"][0] for detail in error.errors() if detail["loc"]}
    try:
        # A value such as 1 may be meant as text: take the wrong ones as they were written.
        as_written = {key: text for key, text in given.items() if key in wrong}
        return environment.Options.model_validate({**values, **as_written})
    except ValidationError as error:
        first = error.errors()[0]
        option = ".".join(str(step) for step in first["loc"])
        is_recorded = option.partition(".")[0] in recorded.keys() - given.keys()
        source = "the option on record" if is_recorded else "--env-arg"
        known = ", ".join(environment.Options.model_fields) or "none"
        reason = first["msg"].removeprefix("Value error, ")
        raise UsageError(
            f"{source} {option}: {reason} (options of environment {name}: {known})"
        ) from error


def _option_value(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except JSON_ERRORS:
        return text
