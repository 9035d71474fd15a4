"""Preference pairs: of each task the best attempt against the worst, with trl's explicit prompt.

Format: trl's conversational preference data sets, with `margin`, the difference of the rewards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple

import msgspec

from gymcli.data.chat import answer_of, prompt_of
from gymcli.data.source import NOT_SCORED, LeftOutError, Source
from gymcli.index import Row, RunIndex
from gymcli.types import JSONObject

__all__ = ["write_dpo"]


class _Pair(NamedTuple):
    """Two attempts of a task."""

    run: RunIndex
    best: Row
    worst: Row


def write_dpo(source: Source, file: BinaryIO) -> int:
    """Write the pair of each task that has one, one JSON object a line; give how many.

    Tasks without one are counted as left out: ties, tasks with one attempt, and pairs of which the
    prompts differ, or of which the answers do not.

    Raises:
        UsageError: A line cannot be read.

    """
    num_rows = 0
    for pair in _pairs(source):
        try:
            row = _written(source, pair)
        except LeftOutError as reason:
            source.left_out[str(reason)] += 1
            continue
        file.write(msgspec.json.encode(row) + b"\n")
        num_rows += 1
    return num_rows


def _pairs(source: Source) -> Iterator[_Pair]:
    for run, rows in source.runs:
        for group in _groups(source, run, rows):
            best = max(group, key=_reward)  # the first of several
            worst = min(group, key=_reward)
            if len(group) == 1:
                source.left_out["tasks with one attempt"] += 1
            elif _reward(best) == _reward(worst):
                source.left_out["ties"] += 1
            else:
                yield _Pair(run, best, worst)


def _groups(source: Source, run: RunIndex, rows: Sequence[int]) -> Iterator[list[Row]]:
    """Give the scored attempts of each task, in the order of the attempts."""
    of_task: dict[tuple[str, str], list[int]] = {}
    for number in rows:
        row = run.rows[number]
        if row.status == "scored":
            of_task.setdefault((row.env, row.task_id), []).append(number)
        else:
            source.left_out[NOT_SCORED] += 1
    for numbers in of_task.values():
        yield sorted((run.rows[number] for number in numbers), key=lambda row: row.attempt)


def _reward(row: Row) -> float:
    assert row.reward is not None
    return row.reward


def _written(source: Source, pair: _Pair) -> JSONObject:
    best, worst = (source.read_scored(pair.run, row) for row in (pair.best, pair.worst))
    prompt = prompt_of(best.rollout)
    if prompt != prompt_of(worst.rollout) or best.rollout.tools != worst.rollout.tools:
        raise LeftOutError("pairs with different prompts")
    chosen, rejected = answer_of(best.rollout), answer_of(worst.rollout)
    if chosen == rejected:
        raise LeftOutError("pairs with the same answer")
    tools: JSONObject = {"tools": best.rollout.tools} if best.rollout.tools else {}
    return {
        "prompt": prompt,
        "chosen": chosen,
        "rejected": rejected,
        **tools,
        "env": best.row.env,
        "task_id": best.row.task_id,
        "chosen_reward": best.reward,
        "rejected_reward": worst.reward,
        "margin": best.reward - worst.reward,
    }
