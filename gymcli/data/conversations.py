"""The formats that models are trained on: conversations (sft), and pairs of answers (dpo).

Their messages are those that chat templates of transformers read, and the conversational data
sets of trl hold: `reasoning_content` beside the text, arguments of tool calls as objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO, TypeVar

import msgspec

from gymcli.data.export_source import ExportedAttempt, ExportSource, LeftOutError
from gymcli.store.run_index import Row, RunIndex
from gymcli.types import JSON_ERRORS, JSONObject, Message, Rollout, ToolCall

__all__ = ["write_completions", "write_dpo", "write_sft"]

_Item = TypeVar("_Item")


def write_sft(source: ExportSource, file: BinaryIO) -> int:
    """Write `messages` and `tools` of each rollout, a JSON object a line; return how many.

    Raises:
        UsageError: A line of the source cannot be read.

    """

    def row(attempt: ExportedAttempt) -> JSONObject:
        rollout = attempt.rollout
        prompt = _chat_messages(rollout.messages[: rollout.num_prompt_messages])
        return {"messages": prompt + _answer(rollout), **_tools_and_identity(attempt)}

    return _write_rows(source, file, source.scored(), row)


def write_completions(source: ExportSource, file: BinaryIO) -> int:
    """Write `prompt`, `completion` and `tools` of each rollout; return how many.

    Raises:
        UsageError: A line of the source cannot be read.

    """

    def row(attempt: ExportedAttempt) -> JSONObject:
        prompt, completion = _prompt(attempt.rollout), _answer(attempt.rollout)
        return {"prompt": prompt, "completion": completion, **_tools_and_identity(attempt)}

    return _write_rows(source, file, source.scored(), row)


def write_dpo(source: ExportSource, file: BinaryIO) -> int:
    """Write the best and the worst attempt of each task as a pair; return how many.

    Tasks are counted as left out where they have one attempt or a tie, where the prompts of the
    pair differ, and where its answers do not.

    Raises:
        UsageError: A line of the source cannot be read.

    """
    return _write_rows(source, file, _pairs(source), lambda pair: _preference(source, *pair))


def _write_rows(
    source: ExportSource,
    file: BinaryIO,
    items: Iterable[_Item],
    row_of: Callable[[_Item], JSONObject],
) -> int:
    num_rows = 0
    for item in items:
        try:
            row = row_of(item)
        except LeftOutError as reason:
            source.left_out[str(reason)] += 1
            continue
        file.write(msgspec.json.encode(row) + b"\n")
        num_rows += 1
    return num_rows


def _tools_and_identity(attempt: ExportedAttempt) -> JSONObject:
    tools = attempt.rollout.tools
    return {
        **({"tools": tools} if tools else {}),
        "env": attempt.row.env,
        "task_id": attempt.row.task_id,
        "attempt": attempt.row.attempt,
        "reward": attempt.reward,
    }


def _pairs(source: ExportSource) -> Iterator[tuple[RunIndex, Row, Row]]:
    """Yield the best and the worst attempt of each task of a run, the first of several equals."""
    for run, numbers in source.runs:
        # Numbers rather than rows, which would hold all of a large run in memory.
        numbers_by_task: dict[tuple[str, str], list[int]] = {}
        for row in source.scored_rows(run, numbers):
            numbers_by_task.setdefault((row.env, row.task_id), []).append(row.number)
        for group in numbers_by_task.values():
            rows = sorted((run.rows[number] for number in group), key=lambda row: row.attempt)
            best, worst = max(rows, key=_reward), min(rows, key=_reward)
            if len(rows) == 1:
                source.left_out["tasks with one attempt"] += 1
            elif _reward(best) == _reward(worst):
                source.left_out["ties"] += 1
            else:
                yield run, best, worst


def _reward(row: Row) -> float:
    assert row.reward is not None
    return row.reward


def _preference(source: ExportSource, run: RunIndex, best: Row, worst: Row) -> JSONObject:
    """Return the row of a pair.

    Raises:
        LeftOutError: The pair says nothing, or one of its conversations cannot be written.

    """
    chosen, rejected = source.read(run, best), source.read(run, worst)
    prompt, tools = _prompt(chosen.rollout), chosen.rollout.tools
    if prompt != _prompt(rejected.rollout) or tools != rejected.rollout.tools:
        raise LeftOutError("pairs with different prompts")
    answers = _answer(chosen.rollout), _answer(rejected.rollout)
    if answers[0] == answers[1]:
        raise LeftOutError("pairs with the same answer")
    return {
        "prompt": prompt,
        "chosen": answers[0],
        "rejected": answers[1],
        **({"tools": tools} if tools else {}),
        "env": best.env,
        "task_id": best.task_id,
        "chosen_reward": chosen.reward,
        "rejected_reward": rejected.reward,
        "margin": chosen.reward - rejected.reward,
    }


def _prompt(rollout: Rollout) -> list[JSONObject]:
    """Return the messages of the prompt.

    Raises:
        LeftOutError: There are none, the last one asks nothing, or one cannot be written.

    """
    prompt = rollout.messages[: rollout.num_prompt_messages]
    if not prompt:
        raise LeftOutError("no prompt")
    if prompt[-1].role in ("system", "developer"):
        raise LeftOutError("a prompt that nobody asks")
    return _chat_messages(prompt)


def _answer(rollout: Rollout) -> list[JSONObject]:
    """Return the messages after the prompt, up to the model's last one.

    Raises:
        LeftOutError: The model sent no message, or one cannot be written.

    """
    messages = rollout.responses
    while messages and messages[-1].role != "assistant":
        messages.pop()
    if not messages:
        raise LeftOutError("no message of the model")
    return _chat_messages(messages)


def _chat_messages(messages: Sequence[Message]) -> list[JSONObject]:
    return [_chat_message(message) for message in messages]


def _chat_message(message: Message) -> JSONObject:
    # A template that knows "developer" is rare, and one that knows no "system" is too.
    role = "system" if message.role == "developer" else message.role
    row: JSONObject = {"role": role, "content": _text(message)}
    if message.reasoning:
        row["reasoning_content"] = message.reasoning
    if message.tool_calls:
        row["tool_calls"] = [_tool_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        row["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        row["name"] = message.name
    return row


def _text(message: Message) -> str:
    content = message.content
    if isinstance(content, list) and any(part.get("type") != "text" for part in content):
        raise LeftOutError("pictures or other content that is no text")
    is_empty = content is None and not (message.tool_calls or message.reasoning or message.refusal)
    if is_empty and message.response_items:
        raise LeftOutError("items that chat messages have no words for")
    return message.text or message.refusal or ""


def _tool_call(call: ToolCall) -> JSONObject:
    try:
        arguments = msgspec.json.decode(call.arguments or "{}")
    except JSON_ERRORS:
        arguments = None
    if not isinstance(arguments, dict):
        raise LeftOutError("a tool call whose arguments are no JSON object")
    function: JSONObject = {"name": call.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}
