"""Who plays a role: a name of gym.toml, an address, the embedded model, or a stand-in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from gymcli.errors import UsageError
from gymcli.models.endpoint import SCALAR_DIALECTS, Endpoint
from gymcli.models.local_weights import model_name, parse_local
from gymcli.models.settings import Settings, resolve_endpoint
from gymcli.types import JSONObject

__all__ = [
    "ORACLE",
    "RoleSource",
    "needs_model",
    "role_identity",
    "role_name",
    "role_sources",
    "spec_of",
]

ORACLE = "oracle"
"""The scripted model of `Environment.stand_ins`."""

RoleSource: TypeAlias = Endpoint | str
"""An endpoint; or `local`, `local:PATH.gguf`, `oracle`."""

_WAYS_OUT = (
    "give a name of [models] in gym.toml, URL#MODEL, local, or oracle; or set OPENAI_API_KEY for "
    "the models of the OpenAI API"
)


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
    address, model = _address_and_model(spec)
    if not _is_address(spec) or model:
        return None
    return _base_and_dialect(address)[0]


def _is_address(spec: str) -> bool:
    """Say whether a text is meant as an address, also as a wrong one: it may hold a secret."""
    return "://" in spec


def _address_and_model(spec: str) -> tuple[str, str]:
    address, _, model = spec.partition("#")
    return address, model


def _base_and_dialect(address: str) -> tuple[str, str | None]:
    """Split an address into its base and the wire format that its last segment names."""
    address = address.rstrip("/")
    head, _, last = address.rpartition("/")
    return (head, last) if last in SCALAR_DIALECTS else (address, None)


def _source(role: str, spec: str, settings: Settings, environ: Mapping[str, str]) -> RoleSource:
    if _is_address(spec):
        return _addressed(role, spec, settings, environ)
    try:
        if spec == ORACLE or (spec not in settings.models and parse_local(spec) is not None):
            return spec
        return resolve_endpoint(
            spec,
            base_url=None,
            api_key_env=None,
            dialect=None,
            settings=settings,
            environ=environ,
            ways_out=_WAYS_OUT,
        )
    except UsageError as error:
        raise UsageError(f"--role {role}={spec}: {error}") from error


def _addressed(role: str, spec: str, settings: Settings, environ: Mapping[str, str]) -> Endpoint:
    """Give the endpoint of an address, which no message shows: it may hold a secret."""
    address, model = _address_and_model(spec)
    address, dialect = _base_and_dialect(address)
    try:
        if not model:
            raise UsageError("name the model behind the address: URL#MODEL")
        return resolve_endpoint(
            model,
            base_url=address,
            api_key_env=None,
            dialect=dialect,
            settings=settings,
            environ=environ,
        )
    except UsageError as error:
        raise UsageError(f"--role {role}: {error}") from error


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


def role_identity(source: RoleSource, params: JSONObject) -> JSONObject:
    """Give what the identity of a run says of a role; a dialect only where it is not `chat`."""
    told: JSONObject = {"model": role_name(source), "params": params}
    if isinstance(source, Endpoint) and source.dialect != "chat":
        told["dialect"] = source.dialect
    return told
