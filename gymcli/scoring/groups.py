"""Scores all attempts of a task together, where their rewards are relative to each other."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from gymcli.deadlines import NO_ALARM, Alarm
from gymcli.environment import Environment, EnvironmentOptions, Model, Task
from gymcli.errors import VerifierError
from gymcli.gathering import gather_all
from gymcli.scoring.isolation import Workers
from gymcli.scoring.verifying import Verifying, score
from gymcli.types import Rollout, Verifier

__all__ = ["score_group"]


async def score_group(
    environment: type[Environment[Task]],
    rollouts: Sequence[Rollout],
    *,
    verifier: Verifier,
    options: EnvironmentOptions,
    roles: Sequence[Mapping[str, Model]],
    workers: Workers | None = None,
    alarm: Alarm = NO_ALARM,
) -> list[Rollout]:
    """Score each record by itself, then all of them together; give them in their order.

    They are scored at once, so `verify_seconds` of each is the time of the whole group.

    Args:
        environment: The environment of all the records.
        rollouts: Every attempt of one task.
        verifier: What the scores are marked with.
        options: The environment's options.
        roles: The models that each record may ask; the group asks those of the first.
        workers: Where slow verifiers and isolated functions run.
        alarm: Ends what computes too long in this process.

    Raises:
        AttemptError: A verifier failed; none of the group is scored then.

    """
    started = time.perf_counter()
    alone = await gather_all(
        score(
            environment,
            rollout,
            verifier=verifier,
            options=options,
            roles=own,
            workers=workers,
            alarm=alarm,
        )
        for rollout, own in zip(rollouts, roles, strict=True)
    )
    together = Verifying(environment, options, roles[0], workers, alarm)
    scores = await together.checked("verify_group", alone)
    if len(scores) != len(rollouts):
        raise VerifierError(f"verify_group gave {len(scores)} scores for {len(rollouts)} attempts")
    seconds = time.perf_counter() - started
    return [
        rollout.scored(one, verifier, seconds)
        for rollout, one in zip(rollouts, scores, strict=True)
    ]
