"""Who plays a role: a name of gym.toml, an address, the embedded model, or a stand-in."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeAlias
from urllib.parse import urldefrag

from gymcli.client import SCALAR_DIALECTS, Endpoint, Settings, resolve_endpoint
from gymcli.environment import Environment, Task
from gymcli.errors import UsageError
from gymcli.local import model_name, parse_local

__all__ = [
    "ORACLE",
    "RoleSource",
    "check_declared",
    "needs_model",
    "role_name",
    "role_sources",
    "spec_of",
]

ORACLE = "oracle"
"""The scripted model of `Environment.stand_ins`."""

RoleSource: TypeAlias = Endpoint | str
"""An endpoint; or `local`, `local:PATH.gguf`, `oracle`."""


def role_sources(
    given: Mapping[str, str], settings: Settings, environ: Mapping[str, str]
) -> dict[str, RoleSource]:
    """Find the models that `ROLE=NAME_OR_URL` means.

    An address may name its model behind a `#`, and is one of a reward model where its path ends
    in /score, /pooling or /classify. No key is sent to it but where gym.toml says so.

    Raises:
        UsageError: A model or an address is not known or not complete.

    """
    return {role: _source(role, spec, settings, environ) for role, spec in given.items()}


def needs_model(spec: str) -> str | None:
    """Give the base URL of an address that names no model; None for any other text."""
    address, model = urldefrag(spec)
    if not _is_address(spec) or model:
        return None
    return _base_and_dialect(address)[0]


def _is_address(spec: str) -> bool:
    return spec.startswith(("http://", "https://"))


def _base_and_dialect(address: str) -> tuple[str, str | None]:
    """Split an address into its base and the wire format that its last segment names."""
    address = address.rstrip("/")
    head, _, last = address.rpartition("/")
    return (head, last) if last in SCALAR_DIALECTS else (address, None)


def _source(role: str, spec: str, settings: Settings, environ: Mapping[str, str]) -> RoleSource:
    if spec == ORACLE or (spec not in settings.models and parse_local(spec) is not None):
        return spec
    address, dialect, model = None, None, spec
    if _is_address(spec):
        address, model = urldefrag(spec)
        address, dialect = _base_and_dialect(address)
        if not model:
            raise UsageError(f"--role {role}={spec}: name the model behind a #: {spec}#MODEL")
    try:
        return resolve_endpoint(
            model,
            base_url=address,
            api_key_env=None,
            dialect=dialect,
            settings=settings,
            environ=environ,
        )
    except UsageError as error:
        raise UsageError(f"--role {role}={spec}: {error}") from error


def spec_of(source: RoleSource) -> str:
    """Give the text that means a model again, without any secret."""
    if isinstance(source, str):
        return source
    if source.name is not None:
        return source.name
    path = f"/{source.dialect}" if source.dialect in SCALAR_DIALECTS else ""
    return f"{source.base_url}{path}#{source.model}"


def role_name(source: RoleSource) -> str:
    """Give the model's name, for records and comparisons."""
    if isinstance(source, Endpoint):
        return source.model
    weights = None if source == ORACLE else parse_local(source)
    return source if weights is None else model_name(weights)


def check_declared(
    sources: Mapping[str, RoleSource],
    given: Iterable[str],
    environments: Mapping[str, type[Environment[Task]]],
) -> None:
    """Compare the roles that are there with those that environments declare.

    Args:
        sources: Every role that has a model.
        given: Those that were asked for by option; one that nobody declares is a mistake.
        environments: The environments of the run by name.

    Raises:
        UsageError: A required role has no model, or an option names a role that nobody has.

    """
    for name, environment in environments.items():
        for role in environment.required_roles:
            if role not in sources:
                raise UsageError(
                    f"environment {name} needs a model for the role {role}: give "
                    f"--role {role}=NAME_OR_URL, or {role} = NAME under [roles] of gym.toml"
                )
    declared = {
        role
        for environment in environments.values()
        for role in (*environment.required_roles, *environment.optional_roles)
    }
    for role in given:
        if role not in declared:
            close = difflib.get_close_matches(role, declared, n=1)
            hint = f'; did you mean "{close[0]}"?' if close else ""
            known = ", ".join(sorted(declared)) or "none"
            raise UsageError(
                f"--role {role}: no environment of this run has such a role{hint} (roles: {known})"
            )
