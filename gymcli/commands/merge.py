"""`gym merge`: make one run of several, such as all shards."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from gymcli.commands.console import print_json, result, warn
from gymcli.commands.options import JsonOption, complete_run
from gymcli.commands.summary import print_summary
from gymcli.errors import UsageError
from gymcli.secrets import scrubber_of


def merge(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="Run directories, such as all shards of a run.",
            autocompletion=complete_run,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="PATH",
            help="New run, or new .jsonl (.gz, .zst) for rollouts, and their token ids, only.",
        ),
    ],
    env: Annotated[
        str | None,
        typer.Option(
            metavar="ENV",
            help="Code of an environment that defines its own metrics, FILE.py:CLASS.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Merge runs with the same settings, such as shards.

    Runs with different settings are refused, and so is an attempt that two runs have on record.
    Missing attempts are reported; gym collect without --shard resumes the new run.
    """
    import msgspec

    from gymcli.runner.merging import Merging
    from gymcli.store.rollout_files import TOKENS
    from gymcli.store.tokens import tokens_file

    merging = Merging(runs, warn=warn, scrubber=scrubber_of((), os.environ))
    if out.name.endswith((".jsonl", ".jsonl.gz", ".jsonl.zst")):
        from gymcli.store.output import whole_file  # late: a run needs none of it

        files = [out, tokens_file(out)] if merging.has_tokens else [out]
        for path in files:
            if path.exists():
                raise UsageError(f"{path}: already exists; choose another -o")
        if merging.has_tokens:  # first, since rollouts name their token ids
            with whole_file(tokens_file(out)) as file:
                merging.write_lines(file, TOKENS)
        with whole_file(out) as file:
            num_rollouts = merging.write_lines(file)
        if json:
            tokens = {"tokens_file": str(tokens_file(out))} if merging.has_tokens else {}
            print_json({"file": str(out), **tokens, "num_rollouts": num_rollouts})
        else:
            result(f"rollouts      {num_rollouts}")
            result(f"files         {', '.join(map(str, files))}")
        return
    metrics = merging.write_run(out, env=env)
    if json:
        print_json({"run": str(out), **msgspec.to_builtins(metrics)})
        return
    print_summary(metrics, out)
    result(f"files         {out}")
