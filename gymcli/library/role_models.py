"""Resolves the models of roles: those that a call names, else of a run, else of gym.toml."""

from __future__ import annotations

import os
from collections.abc import Mapping

from gymcli.errors import FatalEndpointError, UsageError
from gymcli.library.calls import CoroutineRunner, run_blocking
from gymcli.models.endpoint import Endpoint, check_parameters
from gymcli.models.roles import RoleSource, needs_model, role_sources
from gymcli.models.settings import load_settings, served_model
from gymcli.runner.judges import Judges
from gymcli.secrets import NOTHING_SECRET
from gymcli.store.manifest import Manifest
from gymcli.types import JSONObject


def named_roles(
    roles: Mapping[str, RoleSource], *, run_loop: CoroutineRunner = run_blocking
) -> dict[str, RoleSource]:
    """Return the model of each role: a text is read as `--role ROLE=MODEL` is.

    Raises:
        UsageError: A model is unknown, or an address is invalid or serves several models.
        FatalEndpointError: An address without a model cannot be asked for it.
    """
    specs = {role: source for role, source in roles.items() if isinstance(source, str)}
    for role, spec in specs.items():
        if (address := needs_model(spec)) is None:
            continue
        try:
            specs[role] = f"{spec.rstrip('#')}#{run_loop(served_model(address))}"
        except (UsageError, FatalEndpointError) as error:
            raise type(error)(f"--role {role}: {error}") from error
    return {**roles, **role_sources(specs, load_settings(), os.environ)}


def default_roles(
    recorded: Mapping[str, str] | None = None,
) -> tuple[dict[str, RoleSource], dict[str, str]]:
    """Return the models of gym.toml's `[roles]`, or those recorded in a run.

    The second dict holds, by role, the reason why it has no model.
    """
    settings = load_settings()
    sources: dict[str, RoleSource] = {}
    missing: dict[str, str] = {}
    for role, spec in (settings.roles if recorded is None else recorded).items():
        try:
            sources |= role_sources({role: spec}, settings, os.environ)
        except UsageError as error:
            missing[role] = str(error)
    return sources, missing


def judges_of(
    roles: Mapping[str, RoleSource],
    params: Mapping[str, JSONObject],
    concurrency: int,
    *,
    manifest: Manifest | None = None,
    run_loop: CoroutineRunner = run_blocking,
) -> Judges:
    """Return the models of the roles: those that are named, else of the run, else of gym.toml.

    With the `manifest` of a run, the models that it records replace those of gym.toml.
    """
    sources = named_roles(roles, run_loop=run_loop)
    named = (*sources, *params)
    recorded = None
    if manifest is not None:
        recorded = {name: spec for name, spec in manifest.roles.items() if name not in sources}
        params = {**manifest.role_params, **params}
    defaults, missing = default_roles(recorded)
    sources = {**defaults, **sources}
    missing = {name: text for name, text in missing.items() if name not in sources}
    check_role_parameters(params, sources)
    secrets = NOTHING_SECRET.also(load_settings().secrets(os.environ))
    return Judges(sources, params, concurrency, named, missing, secrets)


def check_role_parameters(
    params: Mapping[str, Mapping[str, object]], sources: Mapping[str, RoleSource]
) -> None:
    """Check the request parameters of roles as `check_parameters` checks the policy's."""
    for role, values in params.items():
        source = sources.get(role)
        endpoint = source if isinstance(source, Endpoint) else None
        prefixed = {f"{role}.{name}": value for name, value in values.items()}
        check_parameters(prefixed, endpoint, option="--role-param")
