"""The models that play the roles of a run, opened for its verifiers."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

from gymcli.models.endpoint import Endpoint
from gymcli.models.roles import ModelPool, RoleModels, RoleSource
from gymcli.rollout.event_loop import Watchdog
from gymcli.rollout.scoring import Workers
from gymcli.runner.attempts import Shared
from gymcli.runner.collect_options import CollectOptions
from gymcli.runner.stopping import Stopping
from gymcli.secrets import NOTHING_SECRET, Scrubber, environment_keys
from gymcli.store.verdicts import Verdicts
from gymcli.types import JSONObject, Rollout, Usage


class Judges(NamedTuple):
    """The models that play the roles of a run."""

    sources: Mapping[str, RoleSource] = {}
    params: Mapping[str, JSONObject] = {}
    """Request parameters by role; they win over those of the environment."""
    concurrency: int = 64
    """The maximum of concurrent requests to each model, and of attempts scored concurrently."""
    named_roles: Collection[str] = ()
    """Roles that options name, for a model or a parameter; a role that no environment has is an
    error."""
    missing: Mapping[str, str] = {}
    """By role, why it has no model although gym.toml or the record names one."""
    base_scrubber: Scrubber = NOTHING_SECRET
    """Removes keys in use that belong to other models."""

    def scrubber(self) -> Scrubber:
        in_use = [
            secret
            for source in self.sources.values()
            if isinstance(source, Endpoint)
            for secret in source.secrets
        ]
        return self.base_scrubber.also((*in_use, *environment_keys(os.environ)))


def scrubber_of_run(options: CollectOptions) -> Scrubber:
    secrets = [secret.get_secret_value() for secret in options.secrets]
    if options.endpoint is not None:
        secrets += options.endpoint.secrets
    sources = {**options.default_roles, **options.roles}
    return Judges(sources, base_scrubber=NOTHING_SECRET.also(secrets)).scrubber()


@asynccontextmanager
async def open_shared(
    judges: Judges,
    verdicts: Verdicts,
    *,
    save: Callable[[Rollout], None] = lambda _: None,
    save_tokens: Callable[[Sequence[bytes]], None] = lambda _: None,
    stopping: Stopping | None = None,
    watchdog: Watchdog | None = None,
    spend: Callable[[Usage, float | None], None] | None = None,
    leader: Shared | None = None,
    ignores_verdicts: bool = False,
) -> AsyncIterator[Shared]:
    """Open what attempts share for scoring: models of roles, verdicts and workers, but no policy.

    Without `stopping`, only refusals of a judge's endpoint end the run early; without `watchdog`,
    one is started. `leader` belongs to the first run of this command, which ends last: its clients
    and workers serve both.
    """
    async with AsyncExitStack() as stack:
        # Registered first, so closed last: answers may arrive until the models are closed.
        stack.callback(verdicts.close)
        if watchdog is None:
            watchdog = await stack.enter_async_context(Watchdog())
        owner = None if leader is None else leader.roles.pool
        pool = await stack.enter_async_context(ModelPool(judges.concurrency, owner))
        scrubber = judges.scrubber()
        if leader is None:
            workers = await stack.enter_async_context(Workers(scrubber=scrubber, now=watchdog.now))
        else:
            workers = leader.workers
        roles = RoleModels(
            judges.sources,
            params=judges.params,
            pool=pool,
            verdicts=verdicts,
            spend=spend,
            ignores_verdicts=ignores_verdicts,
        )
        stopping = stopping or Stopping()
        yield Shared(
            policy=None,
            roles=roles,
            workers=workers,
            save=save,
            stopping=stopping,
            watchdog=watchdog,
            scrubber=scrubber,
            save_tokens=save_tokens,
        )
