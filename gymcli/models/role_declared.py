"""Compares the roles that have a model with those that the environments of a run declare."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from gymcli.environment.contract import Environment
from gymcli.environment.parts import Task
from gymcli.errors import UsageError
from gymcli.models.endpoint import Endpoint
from gymcli.models.local_weights import parse_local
from gymcli.models.role_models import declared_roles
from gymcli.models.role_sources import ORACLE, RoleSource

__all__ = ["check_declared", "check_missing"]


def check_declared(
    sources: Mapping[str, RoleSource],
    given: Iterable[str],
    environments: Mapping[str, type[Environment[Task]]],
) -> None:
    """Compare the roles that are there with those that environments declare.

    Args:
        sources: Every role that has a model.
        given: Those that options name; one that nobody declares is a mistake.
        environments: The environments of the run by name.

    Raises:
        UsageError: A required role has no model, an option names a role that nobody has, or a
            model is a mere name.

    """
    for name, environment in environments.items():
        for role in environment.required_roles:
            if role not in sources:
                raise UsageError(
                    f"environment {name} needs a model for the role {role}: give "
                    f"--role {role}=NAME_OR_URL, or {role} = NAME under [roles] of gym.toml"
                )
    declared = {
        role for environment in environments.values() for role in declared_roles(environment)
    }
    for role in given:
        if role not in declared:
            close = difflib.get_close_matches(role, declared, n=1)
            hint = f'; did you mean "{close[0]}"?' if close else ""
            known = ", ".join(sorted(declared)) or "none"
            raise UsageError(
                f"the role {role}: no environment of this run has it{hint} (roles: {known})"
            )
    for role, source in sources.items():
        _check_source(role, source)


def _check_source(role: str, source: RoleSource) -> None:
    """Refuse a text that names no model which can be opened.

    Raises:
        UsageError: It does.

    """
    if isinstance(source, Endpoint) or source == ORACLE or parse_local(source) is not None:
        return
    raise UsageError(
        f"the role {role}: a text alone does not say where the model is asked; give a "
        "gymcli.Endpoint, or local, local:PATH.gguf, oracle"
    )


def check_missing(
    reasons: Mapping[str, str], environments: Mapping[str, type[Environment[Task]]]
) -> list[str]:
    """Warn of the optional roles whose models were named and are not there.

    Args:
        reasons: Why there is no model, by role; of roles that nobody declares nothing is said.
        environments: The environments of the run by name.

    Raises:
        UsageError: A role that an environment requires is among them.

    """
    warnings: dict[str, str] = {}
    for name, environment in environments.items():
        for role in declared_roles(environment):
            if role not in reasons:
                continue
            if role in environment.required_roles:
                text = f"environment {name} needs a model for the role {role}: {reasons[role]}"
                raise UsageError(text)
            warnings[role] = f"no model for the role {role}: {reasons[role]}"
    return list(warnings.values())
