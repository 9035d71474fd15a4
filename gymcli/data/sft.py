"""Conversations to train on: a row for every rollout, in trl's conversational format."""

from __future__ import annotations

from typing import BinaryIO

import msgspec

from gymcli.data.chat import answer_of, chat_messages, prompt_of
from gymcli.data.source import LeftOutError, Scored, Source
from gymcli.types import JSONObject

__all__ = ["identity_of", "write_completions", "write_sft"]


def write_sft(source: Source, file: BinaryIO) -> int:
    """Write `messages` and `tools` of each rollout, one JSON object a line; give how many.

    Raises:
        UsageError: A line cannot be read.

    """
    return _write(source, file, is_split=False)


def write_completions(source: Source, file: BinaryIO) -> int:
    """Write `prompt`, `completion` and `tools` of each rollout; give how many.

    Raises:
        UsageError: A line cannot be read.

    """
    return _write(source, file, is_split=True)


def _write(source: Source, file: BinaryIO, *, is_split: bool) -> int:
    num_rows = 0
    for scored in source.scored():
        try:
            row = _split(scored) if is_split else _whole(scored)
        except LeftOutError as reason:
            source.left_out[str(reason)] += 1
            continue
        file.write(msgspec.json.encode({**row, **identity_of(scored)}) + b"\n")
        num_rows += 1
    return num_rows


def _whole(scored: Scored) -> JSONObject:
    rollout = scored.rollout
    prompt = chat_messages(rollout.messages[: rollout.num_prompt_messages])
    return {"messages": prompt + answer_of(rollout)}


def _split(scored: Scored) -> JSONObject:
    return {"prompt": prompt_of(scored.rollout), "completion": answer_of(scored.rollout)}


def identity_of(scored: Scored) -> JSONObject:
    """Give the tools of a rollout, where there are any, and what names it, with its reward."""
    named: JSONObject = {"tools": scored.rollout.tools} if scored.rollout.tools else {}
    row = scored.row
    return {
        **named,
        "env": row.env,
        "task_id": row.task_id,
        "attempt": row.attempt,
        "reward": scored.reward,
    }
