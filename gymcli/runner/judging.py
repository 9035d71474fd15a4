"""What a run's verifiers may ask: models of roles, verdicts on record, isolated workers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

from gymcli.role_models import ModelPool, RoleModels, RoleSource
from gymcli.runner.attempts import Shared
from gymcli.scoring import Workers
from gymcli.store.verdicts import Verdicts
from gymcli.types import JSONObject, Rollout

__all__ = ["Judges", "judging"]


class Judges(NamedTuple):
    """Who plays the roles of a run."""

    sources: Mapping[str, RoleSource] = {}
    params: Mapping[str, JSONObject] = {}
    """Request parameters by role; they win over those of the environment."""
    concurrency: int = 64
    """Requests under way at once at each model, and attempts that are scored at once."""
    given: Collection[str] = ()
    """Roles that options name, for their model or a parameter; one that nobody has is a mistake."""
    missing: Mapping[str, str] = {}
    """Why a role that gym.toml or the record gives a model has none, by role."""


@asynccontextmanager
async def judging(
    judges: Judges, verdicts: Verdicts, save: Callable[[Rollout], None] = lambda _: None
) -> AsyncIterator[Shared]:
    """Give what attempts share for being scored, without a policy; at the end it is closed."""
    async with AsyncExitStack() as stack:
        stack.callback(verdicts.close)
        pool = await stack.enter_async_context(ModelPool(judges.concurrency))
        workers = Workers()
        stack.callback(workers.close)
        roles = RoleModels(judges.sources, params=judges.params, pool=pool, verdicts=verdicts)
        yield Shared(None, roles, workers, save)
