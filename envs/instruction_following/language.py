"""Says whether an answer is in a language, by the package langdetect."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

from gymcli import MissingPackageError

from .answer import Answer
from .arguments import Arguments

__all__ = ["is_in_language", "require_language"]

MAX_CHARACTERS = 10_000
"""How much of an answer is looked at; langdetect takes as much, once it has left out addresses."""


def require_language(given: Arguments) -> None:
    """See that the language can be told from others.

    Raises:
        MissingPackageError: langdetect is not installed.
        ValueError: It does not know the language.

    """
    known = sorted(path.name for path in Path(_langdetect().PROFILES_DIRECTORY).iterdir())
    if given.language not in known:
        raise ValueError(
            f"langdetect knows no language {given.language!r}, only {', '.join(known)}"
        )


def is_in_language(answer: Answer, given: Arguments) -> bool:
    """Say whether the answer is in the language; a text that is in none, as of digits, counts."""
    langdetect = _langdetect()
    langdetect.DetectorFactory.seed = 0  # else it draws, and may say another language each time
    try:
        return bool(langdetect.detect(answer.text[:MAX_CHARACTERS]) == given.language)
    except langdetect.LangDetectException as error:
        # All others say that the package is damaged.
        if error.get_code() != langdetect.lang_detect_exception.ErrorCode.CantDetectError:
            raise
        return True


def _langdetect() -> ModuleType:
    try:
        return importlib.import_module("langdetect")  # late: an extra
    except ImportError as error:
        raise MissingPackageError(
            "language:response_language needs the package langdetect: "
            "pip install 'gymcli[langdetect]'"
        ) from error
