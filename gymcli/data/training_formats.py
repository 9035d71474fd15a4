"""The formats of `gym export` for training.

`sft`, `dpo` and `kto` write messages in the form that transformers' chat templates and trl's
conversational data sets use: `reasoning_content` next to the text, tool arguments as objects.
`tokens` and `openenv` write the token ids that `--record-tokens` recorded.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO, TypeVar

import msgspec

from gymcli.data.export_source import ExportedAttempt, ExportSource, LeftOutError
from gymcli.store.run_index import Row, RunIndex
from gymcli.store.sequences import sequences
from gymcli.store.tokens import TokenCall, prompts
from gymcli.types import JSON_ERRORS, JSONObject, Message, Rollout, ToolCall

_Item = TypeVar("_Item")


def _write_rows(
    source: ExportSource,
    file: BinaryIO,
    items: Iterable[_Item],
    rows_of: Callable[[_Item], list[JSONObject]],
) -> int:
    num_rows = 0
    for item in items:
        try:
            rows = rows_of(item)
        except LeftOutError as reason:
            source.left_out[str(reason)] += 1
            continue
        file.writelines(msgspec.json.encode(row) + b"\n" for row in rows)
        num_rows += len(rows)
    return num_rows


def write_sft(source: ExportSource, file: BinaryIO, *, loss: str = "conversation") -> int:
    """Write a conversation for each scored rollout, or a row for each message of the model."""
    num_bad = num_attempts = 0

    def rows_of(attempt: ExportedAttempt) -> list[JSONObject]:
        nonlocal num_bad, num_attempts
        rows = LOSSES[loss](attempt)
        num_attempts += 1
        num_bad += attempt.reward <= 0
        return rows

    num_rows = _write_rows(source, file, source.scored_attempts(), rows_of)
    if num_bad:
        source.warnings.append(
            f"{num_bad} of {num_attempts} rollouts have a reward of 0 or less, and training would "
            "imitate them; leave them out by --where passed or --where 'reward > 0'"
        )
    return num_rows


def _conversation_rows(attempt: ExportedAttempt) -> list[JSONObject]:
    rollout = attempt.rollout
    prompt = list(map(_chat_message, rollout.messages[: rollout.num_prompt_messages]))
    return [{"messages": prompt + _answer(rollout), **_tools_and_identity(attempt)}]


def _completion_rows(attempt: ExportedAttempt) -> list[JSONObject]:
    prompt, completion = _prompt(attempt.rollout), _answer(attempt.rollout)
    return [{"prompt": prompt, "completion": completion, **_tools_and_identity(attempt)}]


def _assistant_rows(attempt: ExportedAttempt) -> list[JSONObject]:
    # A row for each message of the model: trl trains on all of a completion, including what the
    # environment said in it, unless the chat template marks the model's messages, and few do.
    prompt, answer = _prompt(attempt.rollout), _answer(attempt.rollout)
    common_fields = _tools_and_identity(attempt)
    positions = [
        position for position, message in enumerate(answer) if message["role"] == "assistant"
    ]
    return [
        {
            "prompt": prompt + answer[:position],
            "completion": [answer[position]],
            **common_fields,
            "turn": turn,
        }
        for turn, position in enumerate(positions)
    ]


LOSSES: Mapping[str, Callable[[ExportedAttempt], list[JSONObject]]] = {
    "conversation": _conversation_rows,
    "completion": _completion_rows,
    "assistant": _assistant_rows,
}
"""The forms of `sft`, by what trl trains on."""


def write_dpo(source: ExportSource, file: BinaryIO) -> int:
    """Write the best and the worst scored attempt of each task."""
    return _write_rows(source, file, _pairs(source), lambda pair: [_preference(source, *pair)])


def write_kto(source: ExportSource, file: BinaryIO) -> int:
    """Write every scored attempt, labelled by whether it passed."""
    return _write_rows(source, file, source.scored_attempts(), _kto_rows)


def _kto_rows(attempt: ExportedAttempt) -> list[JSONObject]:
    if attempt.row.passed is None:
        raise LeftOutError("an environment without a pass threshold")
    return [{**_completion_rows(attempt)[0], "label": attempt.row.passed}]


def _tools_and_identity(attempt: ExportedAttempt) -> JSONObject:
    tools = attempt.rollout.tools
    return {
        **({"tools": tools} if tools else {}),
        **_identity(attempt),
        "reward": attempt.reward,
    }


def _identity(attempt: ExportedAttempt) -> JSONObject:
    return {name: getattr(attempt.row, name) for name in ("env", "task_id", "attempt")}


def _pairs(source: ExportSource) -> Iterator[tuple[RunIndex, Row, Row]]:
    for run, numbers in source.runs:
        # Numbers instead of rows, which would hold all of a large run in memory.
        numbers_by_task: dict[tuple[str, str], list[int]] = {}
        for row in source.scored_rows(run, numbers):
            numbers_by_task.setdefault((row.env, row.task_id), []).append(row.number)
        for group in numbers_by_task.values():
            # Sorted, since the order of the lines differs from one collection to the next.
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
    chosen, rejected = source.read(run, best), source.read(run, worst)
    prompt, tools = _prompt(chosen.rollout), chosen.rollout.tools
    # trl's format has one prompt and one set of tools for both answers.
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
    prompt = rollout.messages[: rollout.num_prompt_messages]
    if not prompt:
        raise LeftOutError("no prompt")
    if prompt[-1].role in ("system", "developer"):
        raise LeftOutError("a prompt that nobody asks")
    return list(map(_chat_message, prompt))


def _answer(rollout: Rollout) -> list[JSONObject]:
    # After the model's last message there is nothing to learn.
    messages = rollout.responses
    while messages and messages[-1].role != "assistant":
        messages.pop()
    if not messages:
        raise LeftOutError("no message of the model")
    return list(map(_chat_message, messages))


def _chat_message(message: Message) -> JSONObject:
    # Few chat templates know "developer", and nearly all know "system".
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


def write_tokens(source: ExportSource, file: BinaryIO, *, advantage: str = "") -> int:
    """Write the sequences of token ids of every scored attempt."""
    source.require_tokens()

    def rows_of(attempt: ExportedAttempt) -> list[JSONObject]:
        numbers = {"reward": attempt.reward}
        if advantage:
            numbers["advantage"] = _advantage(attempt, ADVANTAGES[advantage])
        return [
            {**_identity(attempt), **msgspec.structs.asdict(sequence), **numbers}
            for sequence in sequences(attempt.rollout, source.token_calls(attempt))
        ]

    return _write_rows(source, file, source.scored_attempts(), rows_of)


ADVANTAGES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": lambda _: 1.0,
    "zscore": lambda rewards: statistics.stdev(rewards) + 1e-4,
    # The baseline is the mean of the other rewards, not of all.
    "loo": lambda rewards: (len(rewards) - 1) / len(rewards),
}
"""By what the difference of a reward and its group's mean is divided: as in Dr. GRPO
(https://arxiv.org/abs/2503.20783), TRL's GRPO and RLOO (https://arxiv.org/abs/2402.14740)."""


def _advantage(attempt: ExportedAttempt, scale: Callable[[Sequence[float]], float]) -> float:
    """Return the advantage over all scored attempts of the task, selected or not."""
    run, row = attempt.run, attempt.row
    group = (run.rows[number].reward for number in run.attempts_of(row.env, row.task_id))
    rewards = [reward for reward in group if reward is not None]
    if len(rewards) == 1:
        return 0.0  # nothing to compare with; trl has 0, too
    return (attempt.reward - math.fsum(rewards) / len(rewards)) / scale(rewards)


def write_openenv(source: ExportSource, file: BinaryIO) -> int:
    """Write every scored attempt as OpenEnv's training trace."""
    source.require_tokens()
    return _write_rows(
        source, file, source.scored_attempts(), lambda attempt: [_openenv_row(source, attempt)]
    )


def _openenv_row(source: ExportSource, attempt: ExportedAttempt) -> JSONObject:
    """Return an attempt as a `TrainingTrace` of OpenEnv 0.10, core/harness/training.py."""
    rollout, calls = attempt.rollout, source.token_calls(attempt)
    messages = list(map(_request_message, rollout.messages))
    turns = []
    places = places_of_calls(rollout, calls)
    for call, prompt, place in zip(calls, prompts(calls), places, strict=True):
        if call.problem:
            continue
        choice = {"message": messages[place], "finish_reason": call.finish_reason}
        turns.append(
            {
                "node_id": f"{call.play}-{call.call}",
                "prompt_token_ids": prompt,
                "completion_token_ids": call.sampled,
                "per_token_logps": call.logprobs,
                "loss_mask": [0] * len(prompt) + [1] * len(call.sampled),
                "request": {"messages": messages[:place], "tools": rollout.tools},
                "response": {"choices": [choice]},
                "metadata": {
                    "index": call.call,
                    "model": rollout.model,
                    "sampling_params": call.sampling,
                    "weight_version": call.weight_version,
                    "off_policy": call.off_policy,
                },
            }
        )
    trace = {"schema_version": 1, "turns": turns}
    return {"trace": trace, **_identity(attempt), "reward": attempt.reward}


def places_of_calls(rollout: Rollout, calls: Sequence[TokenCall]) -> list[int]:
    """Return the position of each call's message in a rollout's `messages`."""
    first = rollout.num_prompt_messages
    positions = [first + n for n, m in enumerate(rollout.responses) if m.role == "assistant"]
    if len(positions) != len(calls):
        raise LeftOutError("more or fewer messages of the model than calls")
    return positions


def _request_message(message: Message) -> JSONObject:
    """Return a message as Chat Completions has it, with arguments as text."""
    bare_message = msgspec.structs.replace(
        message, reasoning=None, response_items=[], logprobs=None, extra={}
    )
    row: JSONObject = msgspec.to_builtins(bare_message)
    row.setdefault("content", None)
    if message.reasoning:
        row["reasoning_content"] = message.reasoning
    return row
