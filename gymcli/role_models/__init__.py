"""Models beside the policy: who plays each role, asked through the client, cached and counted."""

from gymcli.role_models.declared import check_declared, check_missing
from gymcli.role_models.models import RoleModels, declared_roles, waits_to_score
from gymcli.role_models.pool import ModelPool, ModelSource
from gymcli.role_models.sources import (
    ORACLE,
    RoleSource,
    needs_model,
    role_identity,
    role_name,
    role_sources,
    spec_of,
)

__all__ = [
    "ORACLE",
    "ModelPool",
    "ModelSource",
    "RoleModels",
    "RoleSource",
    "check_declared",
    "check_missing",
    "declared_roles",
    "needs_model",
    "role_identity",
    "role_name",
    "role_sources",
    "spec_of",
    "waits_to_score",
]
