"""Options that several commands have, and texts that they read the same way."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from gymcli.commands.console import hide, run_async
from gymcli.errors import UsageError
from gymcli.store.shards import Shard

if TYPE_CHECKING:
    from gymcli.models.endpoint import Endpoint
    from gymcli.models.roles import RoleSource

__all__ = [
    "AddressOption",
    "DefaultRoles",
    "EngineOption",
    "IdByFileOption",
    "IdFieldOption",
    "JsonOption",
    "PromptOption",
    "WorkersOption",
    "check_cluster_options",
    "check_parameters",
    "check_role_parameters",
    "key_values",
    "not_negative",
    "parameters",
    "positive",
    "resolved_roles",
    "role_params",
    "roles",
    "settings_secrets",
    "shard_of",
]

PromptOption = Annotated[
    Path | None, typer.Option(help="YAML file with a user and system template for raw rows.")
]
IdFieldOption = Annotated[str | None, typer.Option(help="The field that holds a task's id.")]
IdByFileOption = Annotated[bool, typer.Option("--id-by-file", help="Ids count within their file.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
EngineOption = Annotated[
    Literal["local", "ray"],
    typer.Option(help="Where the work is done: here, or in the workers of a Ray cluster."),
]
AddressOption = Annotated[
    str | None,
    typer.Option(help="The Ray cluster to join, HOST:PORT or auto; else one of this machine."),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(min=1, help="Processes of the Ray cluster; else one for each core."),
]

_NO_PARAMETERS = ("model", "messages", "input", "tools", "stream", "n", "store", "background")
"""What gymcli decides itself."""


def check_cluster_options(engine: str, address: str | None, num_workers: int | None) -> None:
    """Refuse options of a cluster where none is used.

    Raises:
        UsageError: They are given.

    """
    if engine == "local" and (address is not None or num_workers is not None):
        raise UsageError("--address and --workers are options of --engine ray; give that as well")


def key_values(option: str, given: Iterable[str]) -> dict[str, str]:
    """Split `key=value` texts.

    Raises:
        UsageError: A text has no `=`, or nothing before it, or is no Unicode.

    """
    pairs: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not text.isascii() and text != text.encode(errors="replace").decode():
            raise UsageError(f"{option} {key}: is not UTF-8")
        if not key or not equals:
            raise UsageError(f"{option} {text}: expected key=value")
        pairs[key] = value
    return pairs


def parameters(given: Iterable[str], *, option: str = "--param") -> dict[str, object]:
    """Read request parameters: values are JSON where they can be read so, else text.

    Raises:
        UsageError: A text is not `key=value`, or names what is no parameter, or its value is
            meant as JSON and cannot be sent.

    """
    pairs = key_values(option, given)
    for name in pairs:
        if name in _NO_PARAMETERS:
            raise UsageError(f"{option} {name}: is no sampling parameter; gymcli sets it itself")
    return {name: _value(f"{option} {name}", text) for name, text in pairs.items()}


def positive(value: float | None) -> float | None:
    """Check the number of an option that limits something.

    Raises:
        typer.BadParameter: It is not finite, or not above 0.

    """
    if value is not None and not (math.isfinite(value) and value > 0.0):
        raise typer.BadParameter(f"{value:g} is not a number above 0")
    return value


def not_negative(value: float | None) -> float | None:
    """Check the number of an option that may be 0.

    Raises:
        typer.BadParameter: It is not finite, or below 0.

    """
    if value is not None and not (math.isfinite(value) and value >= 0.0):
        raise typer.BadParameter(f"{value:g} is not a number from 0 on")
    return value


def shard_of(value: str | None) -> str | None:
    """Check which part of the tasks is asked for.

    Raises:
        typer.BadParameter: It is no `I/N`, or there is no such part.

    """
    try:
        return None if value is None else str(Shard.parse(value))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def roles(given: Iterable[str]) -> dict[str, RoleSource]:
    """Find the models that `--role ROLE=NAME_OR_URL` means.

    Raises:
        UsageError: One of them is not known, or an address is wrong or serves several models.

    """
    from gymcli.models.roles import needs_model, role_sources
    from gymcli.models.settings import load_settings, served_model

    given = list(given)
    for text in given:
        if "://" in text.partition("=")[0]:  # not shown: an address may hold a secret
            raise UsageError("--role URL: expected key=value, such as judge=http://host/v1#MODEL")
    specs = key_values("--role", given)
    for role, spec in specs.items():
        if (address := needs_model(spec)) is None:
            continue
        try:
            specs[role] = f"{spec.rstrip('#')}#{run_async(served_model(address))}"
        except UsageError as error:
            raise UsageError(f"--role {role}: {error}") from error
    return _hidden(role_sources(specs, load_settings(), os.environ))


class DefaultRoles(NamedTuple):
    """The roles that gym.toml or a run's record names."""

    sources: dict[str, RoleSource]
    missing: dict[str, str]
    """Why the others have no model."""


def resolved_roles(recorded: Mapping[str, str] | None = None) -> DefaultRoles:
    """Find the models of gym.toml's `[roles]`, or of a run's record."""
    from gymcli.models.roles import role_sources
    from gymcli.models.settings import load_settings

    settings = load_settings()
    found = DefaultRoles({}, {})
    for role, spec in (settings.roles if recorded is None else recorded).items():
        try:
            found.sources.update(_hidden(role_sources({role: spec}, settings, os.environ)))
        except UsageError as error:
            found.missing[role] = str(error)
    return found


def settings_secrets() -> tuple[str, ...]:
    """Give every secret that gym.toml holds or names; from here on, none of them is printed."""
    from gymcli.models.settings import load_settings

    secrets = load_settings().secrets(os.environ)
    hide(secrets)
    return secrets


def _hidden(sources: dict[str, RoleSource]) -> dict[str, RoleSource]:
    """Give the models of roles; from here on, none of their secrets is printed."""
    for source in sources.values():
        hide(() if isinstance(source, str) else source.secrets)
    return sources


def role_params(given: Iterable[str]) -> dict[str, dict[str, object]]:
    """Read request parameters of roles: `role.key=value`.

    Raises:
        UsageError: A text is not `role.key=value`, or names what is no parameter.

    """
    params: dict[str, dict[str, object]] = {}
    for text in given:
        role, dot, rest = text.partition(".")
        if not (role and dot) or "=" in role:
            raise UsageError(f"--role-param {text}: expected role.key=value")
        params.setdefault(role, {}).update(parameters([rest], option="--role-param"))
    return params


def check_parameters(
    params: Mapping[str, object], endpoint: Endpoint | None, *, option: str = "--param"
) -> None:
    """Refuse request parameters that cannot be sent, or must not be written to run.json.

    Raises:
        UsageError: A number is not finite, or a value holds a secret of the endpoint.

    """
    import msgspec  # late: heavy

    secrets = endpoint.secrets if endpoint is not None else ()
    hidden = [msgspec.json.encode(secret)[1:-1] for secret in secrets]
    for name, value in params.items():
        if isinstance(value, float) and not math.isfinite(value):
            place = f"{option} {name}" if option != "--param" else "--" + name.replace("_", "-")
            raise UsageError(f"{place} {value}: must be a finite number")
        encoded = msgspec.json.encode({name: value})
        if any(secret in encoded for secret in hidden):
            raise UsageError(
                f"{option} {name}: holds a secret of the endpoint, which would be written to "
                "run.json; secrets are sent with --api-key-env, or headers in gym.toml"
            )


def check_role_parameters(
    params: Mapping[str, Mapping[str, object]], sources: Mapping[str, RoleSource]
) -> None:
    """Refuse request parameters of roles as `check_parameters` does those of the policy.

    Raises:
        UsageError: A number is not finite, or a value holds a secret of the role's endpoint.

    """
    for role, own in params.items():
        source = sources.get(role)
        endpoint = None if isinstance(source, str) else source
        prefixed = {f"{role}.{name}": value for name, value in own.items()}
        check_parameters(prefixed, endpoint, option="--role-param")


def _value(place: str, text: str) -> object:
    import msgspec  # late: heavy

    try:
        value: object = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        if text.lstrip().startswith(("{", "[")):
            raise UsageError(
                f"{place}: is not JSON: {error}; text that looks like it goes in quotes"
            ) from error
        if _is_not_finite(text):
            raise UsageError(
                f"{place}: must be a finite number; as text, give it in quotes"
            ) from error
        return text
    return value


def _is_not_finite(text: str) -> bool:
    try:
        return not math.isfinite(float(text))
    except ValueError:
        return False
