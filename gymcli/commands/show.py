"""`gym show`: print one rollout for a person to read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymcli.commands.console import one_line, print_json, result
from gymcli.commands.options import complete_run
from gymcli.errors import UnknownNameError

if TYPE_CHECKING:
    from gymcli.types import Message

__all__ = ["show"]


def show(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="Run directory or rollout file.", autocompletion=complete_run
        ),
    ],
    task: Annotated[str, typer.Argument(metavar="TASK[/ATTEMPT]", help="Attempt to show.")],
    env: Annotated[
        str | None,
        typer.Option(metavar="ENV", help="Its environment, if several have this task."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
) -> None:
    """Print one attempt: the conversation and its score or error."""
    import msgspec

    from gymcli.store.rollout_files import find_record
    from gymcli.types import Rollout

    found = find_record(run, task, env=env)
    if found is None:
        raise UnknownNameError(
            f"{run}: no attempt of task {task} is recorded (gym metrics --by-task lists the tasks)"
        )
    if json:
        print_json(found)
        return
    env, task_id, model = map(one_line, (found.env, found.task_id, found.model))
    result(f"{env}  task {task_id}  attempt {found.attempt}  {model}")
    num_prompt_messages = found.num_prompt_messages if isinstance(found, Rollout) else 0
    for number, message in enumerate(found.messages):
        _print_message(message, is_prompt=number < num_prompt_messages)
    result()
    if isinstance(found, Rollout):
        result("── score")
        _print_fields(
            {
                "reward": found.reward,
                "answer": found.answer,
                "components": found.components,
                "metrics": found.metrics,
                "details": found.details,
                "stop reason": found.stop_reason,
                "final state": found.final_state,
                "tool errors": found.tool_errors,
                "retries": found.retries,
                "tokens": msgspec.to_builtins(found.usage),
                "seconds": round(found.timing.total_seconds, 3),
            }
        )
    else:
        result("── not scored")
        _print_fields(
            {
                "error": found.error.error_class,
                "phase": found.error.phase,
                "message": found.error.message,
                "where": "\n".join(found.error.frames),
                "status": found.error.status,
                "retries": found.retries,
                "seconds": round(found.timing.total_seconds, 3),
            }
        )


def _print_message(message: Message, *, is_prompt: bool) -> None:
    result()
    result(f"── {message.role}{' (prompt)' if is_prompt else ''}", word=message.role)
    if message.reasoning:
        _print_text(message.reasoning, mark="~ ")
    if isinstance(message.content, list):
        for part in message.content:
            text = part.get("text")
            _print_text(text if isinstance(text, str) else f"[{part.get('type', 'part')}]")
    elif message.content:
        _print_text(message.content)
    if message.refusal:
        _print_text(f"refused: {message.refusal}")
    for call in message.tool_calls:
        _print_text(f"→ {call.name}({call.arguments})")


def _print_text(text: str, *, mark: str = "") -> None:
    """Print a model's text indented, so that it cannot pass for a line of gymcli."""
    for line in text.split("\n"):
        result(f"   {mark}{line}".rstrip())


def _print_fields(fields: dict[str, object]) -> None:
    import msgspec

    for name, value in fields.items():
        if value not in (None, {}, "", []):
            shown = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            first, *others = shown.split("\n")
            result(f"{name:14}{first}")
            for line in others:
                result(f"{'':14}{line}")
