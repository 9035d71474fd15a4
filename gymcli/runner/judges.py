"""Who plays the roles of a run, and what its verifiers may ask."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping
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

__all__ = ["Judges", "open_shared", "scrubber_of_run"]


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
    others: Scrubber = NOTHING_SECRET
    """Takes out the keys in use that are not of these models."""

    def scrubber(self) -> Scrubber:
        """Return what takes out every key in use."""
        in_use = [
            secret
            for source in self.sources.values()
            if isinstance(source, Endpoint)
            for secret in source.secrets
        ]
        return self.others.also((*in_use, *environment_keys(os.environ)))


def scrubber_of_run(options: CollectOptions) -> Scrubber:
    """Return what takes out every key that the options of a run hold or name."""
    secrets = [secret.get_secret_value() for secret in options.secrets]
    if options.endpoint is not None:
        secrets += options.endpoint.secrets
    sources = {**options.default_roles, **options.roles}
    return Judges(sources, others=NOTHING_SECRET.also(secrets)).scrubber()


@asynccontextmanager
async def open_shared(
    judges: Judges,
    verdicts: Verdicts,
    *,
    save: Callable[[Rollout], None] = lambda _: None,
    stopping: Stopping | None = None,
    watchdog: Watchdog | None = None,
    spend: Callable[[Usage, float | None], None] | None = None,
    ignores_verdicts: bool = False,
) -> AsyncIterator[Shared]:
    """Open what attempts share to be scored, without a policy: models of roles, verdicts, workers.

    Args:
        judges: Who plays the roles.
        verdicts: What they said before.
        save: Writes down a conversation that waits for its score.
        stopping: Ends the run early; without it only what a judge's endpoint refuses does.
        watchdog: That of the running event loop; without it one is started.
        spend: Called with what every answer of a judge took.
        ignores_verdicts: Whether judges are asked again what they have answered.
    """
    async with AsyncExitStack() as stack:
        stack.callback(verdicts.close)
        if watchdog is None:
            watchdog = await stack.enter_async_context(Watchdog())
        pool = await stack.enter_async_context(ModelPool(judges.concurrency))
        scrubber = judges.scrubber()
        workers = await stack.enter_async_context(Workers(scrubber=scrubber, now=watchdog.now))
        roles = RoleModels(
            judges.sources,
            params=judges.params,
            pool=pool,
            verdicts=verdicts,
            spend=spend,
            ignores_verdicts=ignores_verdicts,
        )
        stopping = stopping or Stopping()
        yield Shared(None, roles, workers, save, stopping, watchdog, scrubber=scrubber)
