"""`gym data render`: rows of any shape in the plain one, their prompts filled in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gymcli.commands.data.rows import OutOption, give_rows
from gymcli.commands.options import IdFieldOption, PromptOption

__all__ = ["render"]


def render(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="A JSONL file (.gz, .zst), or an environment for its own tasks."
        ),
    ],
    prompt: PromptOption = None,
    id_field: IdFieldOption = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first rows.")] = None,
    out: OutOption = None,
) -> None:
    """Write rows as `messages`, `tools`, `params` and fields, to be collected without --prompt.

    NeMo Gym's rows and rows with a plain prompt are read too. A file is written whole or not at
    all.
    """
    import msgspec

    from gymcli.data.validation import rendered_rows

    rows = rendered_rows(file, prompt=prompt, id_field=id_field, limit=limit)
    lines = (msgspec.json.encode(row) + b"\n" for row in rows)
    give_rows(lines, out, inputs=[Path(file)] if prompt is None else [Path(file), prompt])
