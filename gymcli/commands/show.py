"""`gym show`: list the attempts of a run, or print one for a person to read."""

from __future__ import annotations

import random as random_numbers
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymcli.commands.console import harmless, one_line, print_json, print_table, result
from gymcli.commands.options import complete_env, complete_run
from gymcli.errors import FilterError, UnknownNameError, UsageError
from gymcli.suggestions import did_you_mean

if TYPE_CHECKING:
    from gymcli.store.run_index import Row, RunIndex
    from gymcli.types import Failure, Message, Rollout

_MAX_ROWS = 30
"""Attempts in the list, unless `--limit` asks for another number."""
_MAX_ID = 40


def show(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="Run directory or rollout file.", autocompletion=complete_run
        ),
    ],
    task: Annotated[
        str | None, typer.Argument(metavar="TASK[/ATTEMPT]", help="Attempt to show.")
    ] = None,
    first: Annotated[bool, typer.Option("--first", help="Show the first attempt.")] = False,
    worst: Annotated[
        bool, typer.Option("--worst", help="Show the attempt with the lowest reward.")
    ] = False,
    random: Annotated[bool, typer.Option("--random", help="Show an attempt at random.")] = False,
    where: Annotated[
        str | None,
        typer.Option(metavar="EXPR", help='Only attempts that match, such as "not passed".'),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-n",
            min=1,
            help="List at most N attempts.",
            show_default=f"{_MAX_ROWS}, and all with --json",
        ),
    ] = None,
    env: Annotated[
        str | None,
        typer.Option(
            metavar="ENV",
            help="Only attempts of this environment.",
            autocompletion=complete_env,
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the list or the record as JSON.")
    ] = False,
) -> None:
    """List the attempts of a run, or print one: the conversation and its score or error.

    An attempt is printed if it is named, if --first, --worst or --random picks it, or if it is the
    only one. `gym docs filters` explains --where.
    """
    choices = {"--first": first, "--worst": worst, "--random": random}
    picks = [option for option, is_given in choices.items() if is_given]
    if len(picks) > 1:
        raise UsageError(f"{' and '.join(picks)}: give only one of them")
    if task is not None:
        if picks or where is not None:
            raise UsageError(f"{(*picks, '--where')[0]}: leave out {task}, or leave out the option")
        _print_record(_named(run, task, env), run, is_json=json)
        return
    from gymcli.metrics.measure import index_run

    with index_run(run, env=None if run.is_dir() else env) as index:
        numbers = _selected(index, where, env, sort="reward" if worst else "")
        if random:
            numbers = [random_numbers.choice(numbers)]
        # As JSON, the list is a list even of one attempt: a program must know what it reads.
        if picks or (len(numbers) == 1 and not json):
            _print_record(_recorded(index, index.rows[numbers[0]]), run, is_json=json)
        elif json:
            _print_json_list(index, numbers[:limit], len(numbers))
        else:
            _print_list(index, numbers[: limit or _MAX_ROWS], len(numbers))


def _named(run: Path, task: str, env: str | None) -> Rollout | Failure:
    from gymcli.store.rollout_files import find_record

    record = find_record(run, task, env=env)
    if record is None:
        raise UnknownNameError(
            f"{run}: no attempt of task {task} is recorded (gym show {run} lists the attempts)"
        )
    return record


def _selected(index: RunIndex, where: str | None, env: str | None, *, sort: str) -> list[int]:
    """Return the rows of the attempts that match, at least one."""
    from gymcli.store.filters import parse_filter

    try:
        numbers = index.select(None if where is None else parse_filter(where), sort=sort)
    except FilterError as error:
        raise FilterError(f"{index.path}: {error}") from error
    if not index.rows:
        raise UsageError(f"{index.path}: no attempt is recorded yet")
    if env is not None:
        names = index.values("env")
        if env not in names:
            envs = dict.fromkeys(map(str, names))
            hint = did_you_mean(env, envs) or f"there are {', '.join(map(one_line, envs))}"
            raise UnknownNameError(f'{index.path}: no attempt is of environment "{env}"; {hint}')
        numbers = [number for number in numbers if names[number] == env]
    if not numbers:
        suffix = "" if env is None else f" of environment {env}"
        raise UsageError(f"{index.path}: no attempt{suffix} matches the filter {where!r}")
    return numbers


def _recorded(index: RunIndex, row: Row) -> Rollout | Failure:
    from gymcli.store.rollout_files import find_record

    if row.status == "waiting" and row.error is not None:  # the failure has the reason
        failure = find_record(index.path, f"{row.task_id}/{row.attempt}", env=row.env)
        if failure is not None:
            return failure
    return index.read(row)


def _print_json_list(index: RunIndex, numbers: Sequence[int], num_attempts: int) -> None:
    from gymcli.store.run_index import ROW_NAMES

    names = (*ROW_NAMES, "components", "metrics")
    rows = (index.rows[number] for number in numbers)
    attempts = [{name: getattr(row, name) for name in names} for row in rows]
    run = harmless(str(index.path))
    print_json({"run": run, "num_attempts": num_attempts, "attempts": attempts})


def _print_list(index: RunIndex, numbers: Sequence[int], num_attempts: int) -> None:
    rows = [index.rows[number] for number in numbers]
    table: list[tuple[str, ...]] = [("attempt", "environment", "reward", "ended", "answer")]
    for row in rows:
        name = f"{one_line(row.task_id, _MAX_ID)}/{row.attempt}"
        reward = "-" if row.reward is None else f"{row.reward:g}"
        ended = row.error or row.stop_reason or row.status
        table.append((name, one_line(row.env), reward, one_line(ended), _answer(index, row)))
    envs = index.values("env")
    if len(set(envs)) == 1:
        table = [(attempt, *columns) for attempt, _, *columns in table]
    head, *cells = table
    print_table(head, cells, left=("environment", "ended", "answer"), is_last_cut=True)
    result()
    if len(rows) < num_attempts:
        result(f"{len(rows)} of {num_attempts:,} attempts; --limit {num_attempts} lists all")
    first = rows[0]
    words = ["gym", "show", str(index.path), f"{first.task_id}/{first.attempt}"]
    task_ids = index.values("task_id")
    if len({env for env, id_ in zip(envs, task_ids, strict=True) if id_ == first.task_id}) > 1:
        words += ["--env", first.env]
    result(f"one of them: {one_line(shlex.join(words))}, or --first, --worst, --random")


def _answer(index: RunIndex, row: Row) -> str:
    """Return the extracted answer, else what the model did last; of a failure, its message."""
    from gymcli.types import Rollout

    if row.answer is not None:
        return one_line(row.answer)
    record = _recorded(index, row)
    if not isinstance(record, Rollout):
        return one_line(record.error.message)
    calls = (f"→ {call.name}({call.arguments})" for call in record.tool_calls[-1:])
    return one_line(record.last_text or "".join(calls))


def _print_record(record: Rollout | Failure, run: Path, *, is_json: bool) -> None:
    import msgspec

    from gymcli.types import Rollout

    if is_json:
        print_json(record)
        return
    env, task_id, model = map(one_line, (record.env, record.task_id, record.model))
    result(f"{env}  task {task_id}  attempt {record.attempt}  {model}")
    num_prompt_messages = record.num_prompt_messages if isinstance(record, Rollout) else 0
    for number, message in enumerate(record.messages):
        _print_message(message, is_prompt=number < num_prompt_messages)
    result()
    if isinstance(record, Rollout):
        is_scored = record.reward is not None
        result("── score" if is_scored else "── not scored yet (gym verify --pending scores it)")
        _print_fields(
            {
                "reward": record.reward,
                "answer": record.answer,
                "components": record.components,
                "metrics": record.metrics,
                "details": record.details,
                "step rewards": record.step_rewards,
                "stop reason": record.stop_reason,
                "final state": record.final_state,
                "tool errors": record.tool_errors,
                "retries": record.retries,
                "tokens": msgspec.to_builtins(record.usage),
                "seconds": round(record.timing.total_seconds, 3),
            }
        )
        if record.play:
            result()
            result("── token ids")
            _print_fields(_token_fields(record, run))
    else:
        result("── not scored")
        _print_fields(
            {
                "error": record.error.error_class,
                "phase": record.error.phase,
                "message": record.error.message,
                "where": "\n".join(record.error.frames),
                "status": record.error.status,
                "retries": record.retries,
                "seconds": round(record.timing.total_seconds, 3),
            }
        )


def _token_fields(rollout: Rollout, run: Path) -> dict[str, object]:
    """Return what the token ids of an attempt are, and what of them can be trained."""
    from gymcli.metrics.estimators import mean
    from gymcli.store.sequences import sequences
    from gymcli.store.tokens import TokenFile, tokens_file

    if not tokens_file(run).is_file():  # as where only the rollouts were copied
        return {"missing": f"{tokens_file(run)} does not exist"}
    with TokenFile(run) as file:
        calls = file.calls(rollout)
    token_sequences = sequences(rollout, calls)
    usable = [call for call in calls if not call.problem]
    logprobs = [value for call in usable for value in call.logprobs]
    trained = [
        f"{len(part.input_ids):,} ids, {sum(part.loss_mask):,} of them trained; "
        + (f"{len(part.calls)} calls, {part.calls[0]} to " if part.calls[1:] else "call ")
        + f"{part.calls[-1]}"
        for part in token_sequences
    ]
    sources = dict.fromkeys(
        f"{call.source}, {call.logprob_mode} log-probabilities" for call in usable
    )
    return {
        "calls": f"{len(calls)}" + (f" ({'; '.join(sources)})" if sources else ""),
        "sampled": f"{len(logprobs):,} ids, mean log-probability {mean(logprobs):.4f}"
        if logprobs
        else "",
        "sequences": "\n".join(trained) or "none",
        "off-policy": "\n".join(
            dict.fromkeys(call.off_policy for call in usable if call.off_policy)
        ),
        "unusable": "\n".join(
            f"call {call.call}: {call.problem}" for call in calls if call.problem
        ),
    }


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
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            first, *lines = text.split("\n")
            result(f"{name:14}{first}")
            for line in lines:
                result(f"{'':14}{line}")
