"""`gym bench`: list the benchmarks, describe one, pull their tasks, and pin their rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
import typer.core

from gymcli.commands.console import (
    folded,
    message,
    one_line,
    print_json,
    print_table,
    result,
    scrubbed,
)
from gymcli.commands.help import HelpGroup
from gymcli.commands.options import CacheOption, JsonOption, complete_benchmark
from gymcli.errors import RunError, UsageError

if TYPE_CHECKING:
    from gymcli.benchmarks.benchmark import Benchmark, Fact
    from gymcli.comparison.reproduction import Reference
    from gymcli.tasks.task_row import PromptTemplate
    from gymcli.types import JSONObject

_HEAD = (
    "name",
    "domain",
    "tasks",
    "environment",
    "roles",
    "gated",
    "cached",
    "testable",
    "licence",
)
_INDENT = 14
_MAX_ARGS = 300
"""Characters of the arguments of generated tasks."""


class _BenchGroup(HelpGroup):
    """Shows benchmarks where no command is named: `gym bench NAME` is `gym bench show NAME`."""

    def parse_args(self, ctx: object, args: list[str]) -> list[str]:
        context = cast("typer.Context", ctx)
        is_completing = context.resilient_parsing and not args
        if not is_completing and not {*args[:1]} & {*self.commands, "-h", "--help"}:
            args = ["show", *args]
        return super().parse_args(context, args)

    # Any, since Typer does not export the type of a completion.
    def shell_complete(self, ctx: object, incomplete: str) -> list[Any]:
        """Complete the name of a command or a benchmark."""
        context = cast("typer.Context", ctx)
        [name, *_] = self.commands["show"].params
        return [
            *super().shell_complete(context, incomplete),
            *name.shell_complete(context, incomplete),
        ]


def show(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Benchmark to describe: a name, or the path of a benchmark.toml or its folder.",
            autocompletion=complete_benchmark,
        ),
    ] = None,
    cache: CacheOption = None,
    json: JsonOption = False,
) -> None:
    """List the benchmarks, or describe one; the word show may be left out."""
    from gymcli.benchmarks.benchmark import (
        benchmark_names,
        find_benchmark,
        shadowed_names,
        with_variants,
    )

    if name is not None:
        _describe(find_benchmark(name), cache, is_json=json)
        return
    listed: list[JSONObject] = []
    shadowed = shadowed_names()
    for benchmark_name in benchmark_names():
        if benchmark_name in shadowed:
            error = "another benchmark has this name, and comes first"
            listed.append({"name": benchmark_name, "error": error})
            continue
        try:
            listed += [_summary(benchmark, cache) for benchmark in with_variants(benchmark_name)]
        except UsageError as error:  # the others are still listed
            text = scrubbed(str(error)).removeprefix(f"{benchmark_name}: ")
            listed.append({"name": benchmark_name, "error": text})
    if json:
        print_json(listed)
        return
    print_table(
        _HEAD,
        [_row(summary) for summary in listed if "error" not in summary],
        left=("domain", "environment", "roles", "gated", "cached", "licence"),
        optional=("licence", "testable", "cached", "roles"),
    )
    for summary in listed:
        if "error" in summary:
            result(folded(f"{summary['name']}: {one_line(str(summary['error']), 1000)}", 2))


def _summary(benchmark: Benchmark, cache: Path | None) -> JSONObject:
    from gymcli.benchmarks.benchmark_files import tasks_path, unpinned_hub

    source, path = benchmark.source, tasks_path(benchmark, cache)
    packages = ", ".join(dict.fromkeys(file.partition("#")[0] for file in source.pypi))
    return {
        "name": benchmark.name,
        "version": benchmark.version,
        "title": benchmark.title,
        "domain": benchmark.domain,
        "num_tasks": source.rows,
        "env": benchmark.env,
        "roles": {role: setting.model_dump() for role, setting in benchmark.roles.items()},
        "gated": source.gated,
        "licence": source.licence,
        "is_cached": path.is_file(),
        "unpinned_hub": unpinned_hub(benchmark, path) if path.is_file() else None,
        "num_references": len(benchmark.reference),
        "num_testable": len(benchmark.testable),
        "pin": source.revision or packages or ", ".join(source.sha256) or f"seed {source.seed}",
        "pin_from": benchmark.citations.get("revision"),
    }


def _row(summary: JSONObject) -> tuple[str, ...]:
    roles = summary["roles"]
    assert isinstance(roles, dict)
    return (
        str(summary["name"]),
        one_line(str(summary["domain"])),
        f"{summary['num_tasks']:,}",
        one_line(str(summary["env"])),
        ", ".join(roles) or "-",
        "yes" if summary["gated"] else "-",
        str(summary["unpinned_hub"] or "yes") if summary["is_cached"] else "-",
        f"{summary['num_testable']}/{summary['num_references']}",
        one_line(str(summary["licence"])),
    )


def _describe(benchmark: Benchmark, cache: Path | None, *, is_json: bool) -> None:
    from gymcli.benchmarks.benchmark import siblings
    from gymcli.benchmarks.benchmark_files import tasks_path, unpinned_hub

    template = _template(benchmark)
    path = tasks_path(benchmark, cache)
    if is_json:
        texts = None if template is None else {"user": template.user, "system": template.system}
        print_json(
            {
                **_summary(benchmark, cache),
                **benchmark.model_dump(mode="json"),
                "path": str(benchmark.path),
                "tasks": str(path),
                "prompt_texts": texts,
            }
        )
        return
    for name, value, fact in _facts(benchmark):
        if value:
            _print_value(name, value)
            if fact and fact in benchmark.citations:
                _print_value("", f"({benchmark.citations[fact]})")
    is_cached = path.is_file()
    _print_value("cached", str(path) if is_cached else f"no: gym bench pull {benchmark.spec}")
    if is_cached and (hub := unpinned_hub(benchmark, path)):
        _print_value("hub", f"{hub}, whose rows no hash pins")
    _print_value("file", str(benchmark.path))
    if template is not None:
        for role, text in (("system", template.system), ("user", template.user)):
            if text is not None:
                result()
                result(f"prompt, {role}")
                for line in text.splitlines():
                    result(f"  {line}")
    result()
    if benchmark.reference:
        _print_references(benchmark.reference)
        return
    scored = [f"gym bench {sibling.spec}" for sibling in siblings(benchmark) if sibling.reference]
    result(
        f"no references: {'see ' + ', '.join(scored) if scored else 'no published score is known'}"
    )


def _facts(benchmark: Benchmark) -> Iterator[tuple[str, str, Fact | None]]:
    """Yield the name and the text of each fact, and the key of its citation."""
    source = benchmark.source
    yield "benchmark", f"{benchmark.name} {benchmark.version}", None
    yield "title", benchmark.title, None
    yield "domain", benchmark.domain, None
    yield "environment", f"{benchmark.env} {_pairs(benchmark.env_args)}".rstrip(), "scoring"
    for role, setting in benchmark.roles.items():
        yield f"role {role}", f"{setting.model} {_pairs(setting.params)}".rstrip(), None
    yield "tasks", f"{source.rows:,}", "rows"
    folder = min((name.rpartition("/")[0] for name in source.names), key=len)
    if len(source.names) > 1 and all(name.startswith(f"{folder}/") for name in source.names):
        yield "source", f"{len(source.names)} files of {folder}", None
        yield "files", ", ".join(name.removeprefix(f"{folder}/") for name in source.names), None
    elif source.env is None:
        yield "source", "\n".join(source.names), None
    if source.env:
        args = one_line(_pairs(source.args), _MAX_ARGS)
        text = f"generated by {source.env} with the seed {source.seed} {args}"
        yield "source", text.rstrip(), None
    yield "config", ", ".join(source.config), None
    yield "split", source.split or "", None
    yield "sha256", "\n".join(source.sha256), None if source.revision else "revision"
    yield "revision", source.revision or "", "revision"
    yield "gated", "yes: accept its terms and set HF_TOKEN" if source.gated else "no", None
    yield "licence", source.licence, "licence"
    yield "map", source.map or "", None
    yield "repeats", str(benchmark.repeats), "repeats"
    yield "parameters", _pairs(benchmark.params) or "those of the model", "params"
    yield "metric", benchmark.metric_text, None
    if benchmark.margin is not None:
        yield "margin", f"{benchmark.margin:g}", "margin"
    yield "prompt", benchmark.prompt or "in the rows", "prompt"
    if (examples := benchmark.examples) is not None:
        place = examples.file or f"the split {examples.split}"
        same = examples.by and f", those of the same {examples.by}"
        yield "examples", f"{place}{same or ''}", None
    yield "variants", ", ".join(variant.name for variant in benchmark.variant), None


def _pairs(values: JSONObject) -> str:
    import msgspec

    return " ".join(f"{key}={msgspec.json.encode(value).decode()}" for key, value in values.items())


def _print_value(name: str, value: str) -> None:
    for line in value.splitlines():
        result(folded(f"{name:{_INDENT - 1}} {line}", _INDENT))
        name = ""


def _template(benchmark: Benchmark) -> PromptTemplate | None:
    from gymcli.tasks.row_map import read_row_map
    from gymcli.tasks.task_row import PromptTemplate

    if benchmark.template_path is not None:
        return PromptTemplate.read(benchmark.template_path)
    map_file = benchmark.source.map or ""
    if map_file.endswith((".yaml", ".yml")):
        return read_row_map(benchmark.path.parent / map_file).template
    return None


def _print_references(references: tuple[Reference, ...]) -> None:
    """Print a table, and below it who measured each row, which may be long."""
    result("references")
    head = ("#", "model", "score", "stderr", "over", "repeats", "tasks", "date")
    rows, numbers = [], dict[str, list[int]]()
    for number, item in enumerate(references, 1):
        error = ("-", "-") if item.stderr is None else (f"{item.stderr:g}", item.stderr_over)
        num_tasks = "all" if item.tasks is None else f"{item.tasks:,}"
        cells = (str(number), item.model, f"{item.score:g}", *error, str(item.repeats))
        rows.append((*cells, num_tasks, item.date))
        text = ", ".join(filter(None, [item.harness, item.source]))
        text += f"\nother settings, so not tested: {item.settings}" if item.settings else ""
        numbers.setdefault(text, []).append(number)
    columns = zip(head, *rows, strict=True)
    full_columns = [column for column in columns if {*column[1:]} not in ({"-"}, {"all"})]
    table = list(zip(*full_columns, strict=True))
    print_table(table[0], table[1:], left=("model", "over", "date"))
    for text, those in numbers.items():
        _print_value(_ranges(those), text)


def _ranges(numbers: Iterable[int]) -> str:
    """Return ascending numbers as in 1-3, 5."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    return ", ".join("-".join(map(str, ends)) for ends in ranges)


def pull(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME",
            help="Benchmarks to fetch.",
            autocompletion=complete_benchmark,
        ),
    ],
    cache: CacheOption = None,
) -> None:
    """Fetch the tasks of benchmarks at their revision, and check their number and hashes.

    Tasks that are in the cache are not fetched again. A set that is gated needs HF_TOKEN.
    """
    from gymcli.benchmarks.benchmark import find_benchmark
    from gymcli.benchmarks.benchmark_files import pulled_tasks, unpinned_hub

    errors: list[UsageError | RunError] = []
    for benchmark in [find_benchmark(name) for name in names]:
        try:
            path = pulled_tasks(benchmark, cache=cache, notify=message)
        except (UsageError, RunError) as error:  # the others are still fetched
            errors.append(error)
            continue
        hub = unpinned_hub(benchmark, path)
        named = f" (rows of {hub}, which no hash pins)" if hub else ""
        result(f"{benchmark.name}: {benchmark.source.rows:,} tasks in {path}{named}")
    if errors:
        kind = RunError if any(isinstance(error, RunError) for error in errors) else UsageError
        raise kind("\n".join(map(str, errors)))


def pin(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Benchmark: a name, or the path of a benchmark.toml or its folder.",
            autocompletion=complete_benchmark,
        ),
    ],
) -> None:
    """Read the rows of a benchmark's source, and print the sha256 that pins them.

    Put the line under [source] in its benchmark.toml. The hash is that of each file, of the rows
    of a data set of the Hub as they are before the map, or of the tasks that an environment
    generates. A hash that is already there is not compared.
    """
    from gymcli.benchmarks.benchmark import find_benchmark
    from gymcli.benchmarks.benchmark_files import source_hashes
    from gymcli.tasks.pulling import hub_address

    benchmark = find_benchmark(name, is_pinning=True)
    hub = f" at {hub_address()}" if benchmark.source.hf else ""
    message(f"reading {benchmark.source.text}{hub}")
    hashes = source_hashes(benchmark)
    lines = "".join(f'  "{sha256}",\n' for sha256 in hashes.source)
    several = len(hashes.source) > 1
    result(f"sha256 = [\n{lines}]" if several else f'sha256 = "{hashes.source[0]}"')
    if hashes.examples is not None:
        result(f'examples.sha256 = "{hashes.examples}"')


app = typer.Typer(
    name="bench",
    help="List the benchmarks, describe one (gym bench NAME), pull their tasks, or pin their rows.",
    cls=_BenchGroup,
    rich_markup_mode=None,
)
for command in (show, pull, pin):
    app.command()(command)
