"""`gym compare`: compare runs with a baseline task by task and reach a verdict."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymcli.commands.ci import STDOUT, CiOptions, write_comparisons
from gymcli.commands.console import (
    harmless,
    one_line,
    print_json,
    print_table,
    result,
    terminal_width,
    warn,
)
from gymcli.commands.model_options import option_of, with_model_options
from gymcli.commands.options import JsonOption, complete_run
from gymcli.errors import UsageError
from gymcli.library.call_options import CompareOptions
from gymcli.reporting.formatting import (
    ROWS_OF_RUNS,
    between,
    number,
    p_value,
    passes_with,
    rows_of_runs,
    share,
    signed,
)

if TYPE_CHECKING:
    from gymcli.comparison.comparison_results import Comparison, Difference, TaskDifference

EXIT_CODES = {"PASS": 0, "FAIL": 3, "INCONCLUSIVE": 5}
"""By verdict."""
_WIDTH = 100
_INDENT = 14
_MAX_NAME = 20
_MAX_SETTING = 36
_MAX_TASK = 40
_NUM_NAMED = 5
_TESTS = {
    "mcnemar-mid-p": "McNemar mid-p",
    "sign-flip-exact": "all sign flips",
    "sign-flip": "100,000 seeded sign flips",
}


@with_model_options
def compare(
    a: Annotated[
        Path, typer.Argument(metavar="A", help="Baseline run.", autocompletion=complete_run)
    ],
    b: Annotated[
        list[Path],
        typer.Argument(
            metavar="B", help="Run to judge (one or more).", autocompletion=complete_run
        ),
    ],
    *,
    options: CompareOptions,
    markdown: Annotated[Path | None, option_of(CiOptions, "markdown")] = None,
    json: JsonOption = False,
) -> None:
    """Compare runs on shared tasks: is B worse than A?

    PASS (exit code 0): B is not worse by the margin or more. FAIL (3): B is worse. INCONCLUSIVE
    (5): these tasks cannot tell; the number of tasks that could is printed. Runs with different
    prompts, verifiers, options or tasks are refused. With several runs B, each is compared with A,
    and the worst verdict counts: FAIL, then INCONCLUSIVE, then PASS.
    """
    from gymcli.library.baseline import compare_with

    if markdown == STDOUT and json:
        raise UsageError("--markdown -: --json already uses stdout; name a file")
    reports = compare_with(a, b, options, warn=warn)
    comparisons = reports.comparisons
    for comparison in comparisons:
        for side in (comparison.a, comparison.b):
            side.run = harmless(side.run)  # JSON cannot hold a name that is not Unicode
    if json:
        print_json(reports if len(b) > 1 else comparisons[0])
    elif markdown != STDOUT:
        if len(comparisons) == 1:
            _print_comparison(comparisons[0])
        else:
            _print_several(comparisons)
    if markdown is not None:
        write_comparisons(markdown, comparisons)
    raise typer.Exit(EXIT_CODES[reports.verdict])


def _print_several(comparisons: Sequence[Comparison]) -> None:
    first = comparisons[0]
    level = f"{100 * first.level:g} %"
    head = [level if name == "interval" else name for name in ROWS_OF_RUNS]
    rows = rows_of_runs(comparisons)
    print_table(
        [_short(first.metric, _MAX_TASK), *head], [(_short(n, _MAX_TASK), *r) for n, *r in rows]
    )
    for comparison in comparisons:
        for field, slices in comparison.slices.items():
            result()
            result(_short(comparison.b.run, _MAX_TASK))
            _print_parts(field, slices, comparison.level)
        if comparison.tasks:
            result()
            result(_short(comparison.b.run, _MAX_TASK))
            _print_tasks(comparison.tasks)
    result()
    for comparison in comparisons:
        passes = passes_with(comparison.smallest_margin)
        text = f"{comparison.verdict}: {_reason(comparison)}{f'; {passes}' if passes else ''}"
        _print_sentence(f"{_short(comparison.b.run, _MAX_TASK)}: {text}", word=comparison.verdict)


def _print_comparison(comparison: Comparison) -> None:
    _print_runs(comparison)
    result()
    environments = comparison.environments
    if len(environments) > 1:
        parts: dict[str, Difference] = {"all": comparison, **environments}
    else:
        parts = {next(iter(environments), "all"): comparison}
    _print_parts(comparison.metric, parts, comparison.level)
    for field, slices in comparison.slices.items():
        result()
        _print_parts(field, slices, comparison.level)
    result()
    _print_grounds(comparison)
    _print_counts(comparison)
    if comparison.tasks:
        result()
        _print_tasks(comparison.tasks)
    elif comparison.regressions:
        result()
        _print_regressions(comparison.regressions)
    result()
    _print_verdict(comparison)


def _print_runs(comparison: Comparison) -> None:
    sides = (comparison.a, comparison.b)
    names = zip("AB", sides, strict=True)
    columns = {
        "": [f"{letter}  {_short(side.run, _MAX_TASK)}" for letter, side in names],
        "tasks": [f"{side.num_tasks:,}" for side in sides],
        "scored": [f"{side.num_scored:,}" for side in sides],
    }
    is_whole = all(side.coverage == 1.0 for side in sides)
    if not is_whole:
        columns["coverage"] = [share(side.coverage, unknown="unknown") for side in sides]
    columns["mean reward"] = [number(side.mean_reward) for side in sides]
    if not is_whole:
        columns["strict mean"] = [number(side.strict_mean_reward) for side in sides]
    print_table([*columns], list(zip(*columns.values(), strict=True)))
    result()
    for setting in comparison.compared:
        a, b = _short(setting.a, _MAX_SETTING), _short(setting.b, _MAX_SETTING)
        values = f"{a} in both" if setting.a == setting.b else f"{a} in A, {b} in B"
        result(f"{_short(setting.name, 13):14}{values}")


def _print_parts(title: str, parts: Mapping[str, Difference], level: float) -> None:
    is_adjusted = len(parts) > 1
    head = [_short(title, _MAX_NAME), "tasks", "A", "B", "B - A", f"{100 * level:g} %", "p"]
    rows = []
    for name, part in parts.items():
        difference = part.difference
        row = [
            _short(name, _MAX_NAME),
            f"{part.num_tasks:,}",
            number(part.mean_a),
            number(part.mean_b),
            signed(None if difference is None else difference.value),
            between(None if difference is None else difference.interval, "+.3f"),
            p_value(part.p_value),
        ]
        rows.append([*row, *([p_value(part.p_adjusted)] if is_adjusted else []), part.verdict])
    head += [*(["p (Holm)"] if is_adjusted else []), "verdict"]
    print_table(head, rows, optional=("p", "tasks"))


def _print_grounds(comparison: Comparison) -> None:
    if comparison.test is not None:
        result(f"{'test':14}{_TESTS[comparison.test]}: {_p_is(comparison.p_value)}")
    if comparison.correlation is not None and comparison.variance_reduction is not None:
        text = f"correlation {comparison.correlation:.2f} of A and B"
        gained = comparison.variance_reduction
        text += f", {abs(gained):.0%} {'less' if gained >= 0.0 else 'more'} variance"
        if comparison.num_unpaired_tasks is not None:
            text += f": worth {comparison.num_unpaired_tasks:,.0f} unpaired tasks"
        result(f"{'pairing':14}{text}")
    if comparison.margin and comparison.is_equivalent is not None:
        is_equivalent = "yes" if comparison.is_equivalent else "not shown"
        p = "" if comparison.p_equivalent is None else f", {_p_is(comparison.p_equivalent)}"
        result(f"{'equivalent':14}{is_equivalent}, within ±{comparison.margin:g}{p}")


def _print_counts(comparison: Comparison) -> None:
    for name, count, part, num_strict, ids in (
        ("regressed", comparison.num_regressed, "broken", comparison.num_broken, comparison.broken),
        ("improved", comparison.num_improved, "fixed", comparison.num_fixed, comparison.fixed),
    ):
        text = f"{name:14}{_tasks(count)}"
        result(text if num_strict is None else _with_names(f"{text}, {num_strict:,} {part}", ids))
    result(f"{'unchanged':14}{_tasks(comparison.num_unchanged)}")
    if comparison.num_flaky is not None:
        in_a, in_b = comparison.num_flaky_a or 0, comparison.num_flaky_b or 0
        text = f"{'flaky':14}{_tasks(comparison.num_flaky)}"
        if comparison.num_flaky:
            in_ab = in_a + in_b - comparison.num_flaky
            text += f": {in_a - in_ab:,} only in A, {in_b - in_ab:,} only in B, {in_ab:,} in both"
        result(text)
    unmatched = comparison.unmatched
    for name, count, ids in (
        ("only in A", unmatched.num_only_a, unmatched.only_a),
        ("only in B", unmatched.num_only_b, unmatched.only_b),
        ("left out", unmatched.num_too_few_attempts, ["too few attempts, or no value"]),
    ):
        if count:
            result(_with_names(f"{name:14}{_tasks(count)}", ids))


def _tasks(count: int) -> str:
    return f"{count:,} {'task' if count == 1 else 'tasks'}"


def _with_names(text: str, names: Sequence[str]) -> str:
    """Return the start of a line with as many names as fit on it."""
    short_names = [_short(name, _MAX_TASK) for name in names[:_NUM_NAMED]]
    while len(", ".join(short_names)) > _WIDTH - len(text) - len(": , ..."):
        short_names.pop()
    more = ["..."] if len(short_names) < len(names) else []
    return f"{text}: {', '.join([*short_names, *more])}" if short_names else text


def _print_regressions(tasks: Sequence[TaskDifference]) -> None:
    rows = [
        (name, number(task.value_a), number(task.value_b), signed(task.difference))
        for name, task in zip(_names_of(tasks), tasks, strict=True)
    ]
    print_table(("largest regressions", "A", "B", "B - A"), rows)


def _names_of(tasks: Sequence[TaskDifference]) -> list[str]:
    has_several = len({task.env for task in tasks}) > 1
    return [
        _short(f"{task.env}/{task.task_id}" if has_several else task.task_id, _MAX_TASK)
        for task in tasks
    ]


def _print_tasks(tasks: Sequence[TaskDifference]) -> None:
    by_loss = sorted(tasks, key=lambda task: task.difference)
    rows = [
        (
            name,
            number(task.value_a),
            number(task.value_b),
            signed(task.difference),
            _passes(task.num_passes_a, task.num_attempts_a),
            _passes(task.num_passes_b, task.num_attempts_b),
            task.change if task.change in ("broken", "fixed") else task.direction,
            task.flaky_in or "-",
        )
        for name, task in zip(_names_of(by_loss), by_loss, strict=True)
    ]
    print_table(("task", "A", "B", "B - A", "passed in A", "in B", "change", "flaky in"), rows)


def _print_verdict(comparison: Comparison) -> None:
    margin, deciding = comparison.margin, comparison.deciding_interval
    if deciding is not None and margin is not None:
        worst = 0.0 - margin
        fails = f"{worst if comparison.is_strict else 0.0:g}"
        _print_sentence(
            f"{'decided by':14}the {100 * deciding.level:g} % interval, "
            f"{between(deciding, '+.3f')}: above {worst:g} it passes, else below {fails} it fails"
        )
    if passes := passes_with(comparison.smallest_margin):
        result(f"{'margin':14}B {passes}")
    _print_sentence(f"{comparison.verdict}: {_reason(comparison)}", word=comparison.verdict)


def _reason(comparison: Comparison) -> str:
    margin, deciding = comparison.margin, comparison.deciding_interval
    if comparison.way_out:
        return comparison.way_out
    if margin is None:
        return "each environment is judged separately"
    if comparison.verdict == "FAIL":
        return f"B is worse {f'by more than {margin:g}' if comparison.is_strict else 'than A'}"
    if deciding is not None and deciding.low > 0.0:
        return "B is better than A"
    return f"B is not worse by {margin:g} or more"


def _print_sentence(text: str, *, word: str = "") -> None:
    width = min(_WIDTH, terminal_width() or _WIDTH)
    for line in textwrap.wrap(text, width, subsequent_indent=" " * _INDENT):
        result(line, word=word)
        word = ""


def _short(text: str, max_characters: int) -> str:
    return one_line(harmless(text), max_characters)


def _passes(num_passes: int | None, num_attempts: int) -> str:
    return "-" if num_passes is None else f"{num_passes}/{num_attempts}"


def _p_is(value: float | None) -> str:
    text = p_value(value)
    return f"p {text}" if text.startswith("<") else f"p = {text}"
