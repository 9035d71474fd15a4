"""Verifiers that neither wait nor compute for long, called for many records under one alarm.

To call one takes a microsecond or two; a limit of its own, a boundary and a context for each call
take several times that. So those are shared by the calls, and whatever is not plain sailing ends
the row. That record is scored by itself, which finds out, and says, what is the matter with it: its
verifier is called once more, as it may be, since it reads nothing but the record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Literal, NamedTuple, cast

import msgspec

from gymcli.boundary import boundary
from gymcli.deadlines import Alarm
from gymcli.environment import Context, Environment, EnvironmentOptions, Task
from gymcli.errors import AttemptError, VerifierError
from gymcli.scoring.context import VerifyContext, checked_score, is_plain
from gymcli.types import Rollout, Score

__all__ = ["RowEnd", "Take", "Verifiers", "score_at_once"]

_SECONDS = 0.2
"""After so many a row ends; and a verifier that took so many itself may have met its limit."""

RowEnd = Literal["all", "late", "odd"]
"""All lines are scored; the time of the row is over; or the next line is odd."""

Take = Callable[[bytes, Rollout, Score, float], None]
"""Takes a line, its record, the new score, and the seconds that this took; whole or not at all:
the alarm may ring in the middle of it."""

_DECODER = msgspec.json.Decoder(Rollout)


class Verifiers(NamedTuple):
    """What the calls of a row share."""

    environment: type[Environment[Task]]
    options: EnvironmentOptions
    alarm: Alarm


async def score_at_once(
    like: Rollout, lines: Iterator[bytes], verifiers: Verifiers, take: Take
) -> RowEnd:
    """Score the first lines, as far as there is nothing odd about one.

    An odd line is none of ours, lacks a reward, or has another environment or other options than
    the record `like`; or its verifier waits, takes long, fails, replays, or gives no score. How
    far `lines` was read is not known then, since an alarm may come in the middle of that.

    Raises:
        RunError, UsageError: A verifier raised it, or the lines cannot be read.

    """
    environment, options, alarm = verifiers
    if environment.waits_to_verify:
        return "odd"
    with suppress(AttemptError), boundary(VerifierError):
        async with VerifyContext(environment, options=options, alarm=alarm) as context:
            seconds = min(_SECONDS, environment.verify_timeout)
            verify = environment.verify
            row = _row(like, lines, verify, context, take, seconds)
            return alarm.interrupt(seconds, _to_first_wait, row)
    return "odd"


def _to_first_wait(row: Coroutine[object, object, RowEnd]) -> RowEnd:
    """Run a row, which waits for nobody, unless a verifier does."""
    try:
        row.send(None)
    except StopIteration as end:
        return cast("RowEnd", end.value)
    row.close()
    return "odd"


async def _row(
    like: Rollout,
    lines: Iterator[bytes],
    verify: Callable[[Rollout, Context], Coroutine[object, object, Score]],
    context: VerifyContext,
    take: Take,
    seconds: float,
) -> RowEnd:
    """Read record after record, and call the verifier, until one does not simply give a score.

    Each is gone before the next one is read: to read on into the same memory is a fifth faster.
    To await a verifier takes a third of the time of sending its coroutine on, which makes an
    exception of the result.
    """
    decode, clock = _DECODER.decode, time.perf_counter
    began = clock()
    ends = began + _SECONDS
    env, env_options = like.env, like.env_options
    for line in lines:
        rollout = decode(line)
        if rollout.env != env or rollout.env_options != env_options:
            return "odd"
        is_own = rollout.schema_version and rollout.task_id and rollout.attempt >= 0
        if not is_own or rollout.reward is None:
            return "odd"
        score = await verify(rollout, context)
        if not is_plain(score):
            score = checked_score(score)
        ended = clock()
        if context.is_used or ended - began > seconds:
            return "odd"
        take(line, rollout, score, ended - began)
        if ended > ends:
            return "late"
        began = ended
        del rollout, line
    return "all"
