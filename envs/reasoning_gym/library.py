"""Calls the library reasoning-gym: an address becomes an entry, an answer a score."""

import dataclasses
import difflib
import importlib.metadata
import importlib.util
import json
import math
import threading
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Protocol, TypeAlias, cast

from gymcli import JSONObject, MissingPackageError, VerifierError

from .guard import guarded

__all__ = [
    "UNPLAYABLE",
    "Address",
    "check_address",
    "check_generator",
    "entry_at",
    "gold_in",
    "is_installed",
    "require",
    "scored",
    "version",
]

UNPLAYABLE = {"composite": "it mixes other generators; name these instead"}
"""Generators that no row can name, each with the reason."""

_EXAMPLES = ("example_answer", "example_correct_answer", "possible_answer")
"""Where the metadata of entries without an answer has one."""

Scorer: TypeAlias = Callable[..., object]

_GENERATING = threading.Lock()
"""Some generators draw from numpy's one global generator: no two of them at a time."""


@dataclasses.dataclass(frozen=True)
class Address:
    """Where an entry stands: the same library makes the same one of it."""

    generator: str
    config: JSONObject
    seed: int
    index: int


class Series(Protocol):
    """The entries that a generator makes of a configuration and a seed."""

    score_answer: Scorer

    def __getitem__(self, index: int) -> JSONObject:
        """Make an entry: its question, its answer and its metadata."""
        ...


def is_installed() -> bool:
    """Say whether the library is there, without importing it."""
    return importlib.util.find_spec("reasoning_gym") is not None


def require() -> None:
    """See that the library is there.

    Raises:
        MissingPackageError: It is not.

    """
    if not is_installed():
        raise MissingPackageError(
            "reasoning_gym needs reasoning-gym: pip install 'gymcli[reasoning-gym]'"
        )


def version() -> str:
    """Give the version of the library that is installed."""
    return importlib.metadata.version("reasoning-gym")


def check_generator(name: str) -> None:
    """See that the library has a generator.

    Raises:
        ValueError: It has none of this name, or one that no row can name.

    """
    from reasoning_gym.factory import DATASETS  # late: an extra, and seconds to import

    if name not in DATASETS:
        hint = _hint(name, list(DATASETS))
        raise ValueError(f"reasoning-gym {version()} has no generator {name!r}{hint}")
    if name in UNPLAYABLE:
        raise ValueError(f"the generator {name!r} has no tasks: {UNPLAYABLE[name]}")


def check_address(address: Address) -> None:
    """See that an entry can be made of an address, without making it.

    Raises:
        ValueError: There is no such generator, option or entry.

    """
    _config(address)


def entry_at(address: Address) -> JSONObject:
    """Make the entry of an address, as JSON."""
    with _GENERATING:
        return _as_json(_series(address)[address.index])


def scored(answer: str, entry: JSONObject, address: Address | None) -> float | None:
    """Score an answer with the library; None where its scorer fails at this answer alone.

    Runs in a worker. JSON has made lists of tuples and texts of fractions, which a few scorers tell
    apart: where the library still makes the same entry of the address, that one is used.

    Raises:
        VerifierError: The scorer fails at the gold answer too.

    """
    if address is None:
        from reasoning_gym import get_score_answer_fn

        scorer: Scorer = get_score_answer_fn(_generator_of(entry))
    else:
        series = _series(address)
        scorer, made = series.score_answer, series[address.index]
        entry = made if _as_json(made) == entry else entry
    with guarded():
        score, _ = _tried(scorer, answer, entry)
        if score is not None:
            return score
        gold_score, reason = _tried(scorer, gold_in(entry), entry)
    if gold_score is None:
        raise VerifierError(f"reasoning-gym cannot score the gold answer of this task: {reason}")
    return None


def _series(address: Address) -> Series:
    from reasoning_gym.factory import DATASETS

    config = _config(address)
    return cast("Series", DATASETS[address.generator][0](config=config))


def _config(address: Address) -> object:
    from reasoning_gym.factory import DATASETS

    check_generator(address.generator)
    config_class = DATASETS[address.generator][1]
    place = f"the config of {address.generator!r}"
    options = {field.name for field in dataclasses.fields(config_class)} - {"seed"}
    for name, value in address.config.items():
        if name not in options:
            raise ValueError(f"{place} has no option {name!r}{_hint(name, sorted(options))}")
        if name == "data_file" and PurePath(str(value)).name != value:
            raise ValueError(f"{place} names {value!r}, which is no file of the library")
    try:
        config = config_class(**address.config, seed=address.seed)
        if hasattr(config, "validate"):
            config.validate()
        size = int(config.size)
    except Exception as error:  # what it asserts may not fit what the row gives
        raise ValueError(f"{place} is refused: {str(error) or type(error).__name__}") from error
    if address.index >= size:
        raise ValueError(
            f'there is no entry {address.index} of {address.generator!r}: its "size" is {size}, '
            "unless the config says otherwise"
        )
    return config


def gold_in(entry: JSONObject) -> str | None:
    """Give the gold answer, else the example that the metadata has; None where there is neither."""
    metadata = entry["metadata"]
    assert isinstance(metadata, dict)
    examples = [metadata[key] for key in _EXAMPLES if key in metadata]
    gold = next((value for value in (entry["answer"], *examples) if value is not None), None)
    return gold if gold is None or isinstance(gold, str) else json.dumps(gold)


def _tried(scorer: Scorer, answer: object, entry: JSONObject) -> tuple[float | None, str]:
    """Score one answer; None, with the reason, where that raises or gives no finite number."""
    try:
        score = float(cast("float", scorer(answer=answer, entry=entry)))
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001  # scorers raise whatever an answer leads them to
        return None, f"{type(error).__name__}: {error}"[:300]
    return (score, "") if math.isfinite(score) else (None, f"it gave {score}")


def _generator_of(entry: JSONObject) -> str:
    metadata = entry["metadata"]
    assert isinstance(metadata, dict)
    return str(metadata["source_dataset"])


def _as_json(entry: object) -> JSONObject:
    """Write an entry and read it back, as it is found in a record; fractions become text."""
    return cast("JSONObject", json.loads(json.dumps(entry, default=str)))


def _hint(name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, names, n=3)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
