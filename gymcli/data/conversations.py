"""Conversations as chat templates read them.

Format: the conversational data sets of trl, and the messages that templates of transformers take:
`reasoning_content` beside the text, arguments of tool calls as objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple

import msgspec

from gymcli.data.export_source import NOT_SCORED, LeftOutError, Scored, Source
from gymcli.store.run_index import Row, RunIndex
from gymcli.types import JSON_ERRORS, JSONObject, Message, Rollout, ToolCall

__all__ = [
    "answer_of",
    "chat_messages",
    "identity_of",
    "prompt_of",
    "write_completions",
    "write_dpo",
    "write_sft",
]


def prompt_of(rollout: Rollout) -> list[JSONObject]:
    """Give the messages of the prompt.

    Raises:
        LeftOutError: There are none, no model is asked by the last of them, or one of them cannot
            be said.

    """
    prompt = rollout.messages[: rollout.num_prompt_messages]
    if not prompt:
        raise LeftOutError("no prompt")
    if prompt[-1].role in ("system", "developer"):
        raise LeftOutError("a prompt that nobody asks")
    return chat_messages(prompt)


def answer_of(rollout: Rollout) -> list[JSONObject]:
    """Give the messages after the prompt, up to the last one of the model.

    Raises:
        LeftOutError: The model sent no message, or one cannot be said.

    """
    said = rollout.responses
    while said and said[-1].role != "assistant":
        said.pop()
    if not said:
        raise LeftOutError("no message of the model")
    return chat_messages(said)


def chat_messages(messages: Sequence[Message]) -> list[JSONObject]:
    """Give messages as templates read them.

    Raises:
        LeftOutError: One of them cannot be said.

    """
    return [_chat_message(message) for message in messages]


def _chat_message(message: Message) -> JSONObject:
    # A template that knows "developer" is rare, and one that knows no "system" is too.
    role = "system" if message.role == "developer" else message.role
    said: JSONObject = {"role": role, "content": _text(message)}
    if message.reasoning:
        said["reasoning_content"] = message.reasoning
    if message.tool_calls:
        said["tool_calls"] = [_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        said["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        said["name"] = message.name
    return said


def _text(message: Message) -> str:
    content = message.content
    if isinstance(content, list) and any(part.get("type") != "text" for part in content):
        raise LeftOutError("pictures or other content that is no text")
    is_empty = content is None and not (message.tool_calls or message.reasoning or message.refusal)
    if is_empty and message.response_items:
        raise LeftOutError("items that chat messages have no words for")
    return message.text or message.refusal or ""


def _call(call: ToolCall) -> JSONObject:
    try:
        arguments = msgspec.json.decode(call.arguments or "{}")
    except JSON_ERRORS:
        arguments = None
    if not isinstance(arguments, dict):
        raise LeftOutError("a tool call whose arguments are no JSON object")
    function: JSONObject = {"name": call.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


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
