"""What an attempt would ask first, found out without asking anybody."""

from __future__ import annotations

from gymcli.errors import ModelError, RunError
from gymcli.rollout.episode import EpisodeFailedError, EpisodePlan, play
from gymcli.types import Answer, Request

__all__ = ["first_request"]


class _Bystander:
    """A policy that keeps the first request and answers nothing."""

    request: Request | None = None

    async def answer(self, request: Request) -> Answer:
        self.request = request
        raise ModelError("a dry run asks nobody")


async def first_request(plan: EpisodePlan) -> Request:
    """Give the first request of an attempt, after its environment was really set up.

    Raises:
        RunError: The environment cannot be set up.

    """
    bystander = _Bystander()
    try:
        await play(plan, bystander)
    except EpisodeFailedError as failed:
        if bystander.request is None:
            raise RunError(f"the first attempt cannot start: {failed}") from failed.error
    assert bystander.request is not None, "an episode starts with a request"
    return bystander.request
