"""`gym docs`: print a page of the documentation, which is part of the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import gymcli
from gymcli.commands.console import result
from gymcli.errors import UnknownNameError
from gymcli.suggestions import did_you_mean


def _complete_page(incomplete: str) -> list[str]:
    return [name for name in _pages() if name.startswith(incomplete)]


def docs(
    page: Annotated[
        str | None,
        typer.Argument(metavar="PAGE", help="Page to print.", autocompletion=_complete_page),
    ] = None,
) -> None:
    """Print a page of the documentation, or list the pages."""
    pages = _pages()
    if page is None:
        width = max(map(len, pages)) + 2
        for name, path in pages.items():
            with path.open(encoding="utf-8") as file:
                result(f"{name:{width}}{file.readline().lstrip('# ').rstrip()}")
        return
    name = page.removeprefix("docs/").removesuffix(".md")
    if name not in pages:
        hint = did_you_mean(name, pages)
        raise UnknownNameError(
            f'no page "{page}" of the documentation{hint and f"; {hint}"} (gym docs lists them)'
        )
    result(pages[name].read_text(encoding="utf-8").rstrip("\n"))


def _pages() -> dict[str, Path]:
    """Return the files of the pages by name: those in the wheel, else those of the checkout."""
    package = Path(gymcli.__file__).parent
    packaged = package / "_docs"
    folder = packaged if packaged.is_dir() else package.parent / "docs"
    files = {
        path.relative_to(folder).with_suffix("").as_posix(): path for path in folder.rglob("*.md")
    }
    return dict(sorted(files.items()))
