"""Calls the library reasoning-gym: makes the entry of an address, and finds its scorer."""

import ast
import asyncio
import builtins
import ctypes
import dataclasses
import decimal
import difflib
import functools
import importlib.metadata
import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from pathlib import PurePath
from types import ModuleType
from typing import Protocol, TypeAlias, cast

from gymcli import JSONObject, MissingPackageError

__all__ = [
    "UNPLAYABLE",
    "UNREPEATABLE",
    "Address",
    "Scorer",
    "check_address",
    "check_generator",
    "entry_at",
    "evaluate",
    "generator_of",
    "guarded",
    "is_installed",
    "made_entry",
    "require",
    "scorer_of",
    "silenced",
    "version",
]

# `eval` and `print` are replaced in the library's modules, so that no answer is executed and stdout
# stays clean.
#
# Some scorers of reasoning-gym evaluate the model's answer as Python: lists of a grid's rows, and
# terms through sympy's parser. bitwise_arithmetic, simple_integration and intermediate_integration
# also evaluate the row's metadata. Some generators print their progress.

NODES = (
    ast.Expression,
    ast.Constant,
    ast.List,
    ast.Tuple,
    ast.Dict,
    ast.BinOp,
    ast.UnaryOp,
    ast.operator,
    ast.unaryop,
    ast.Call,
    ast.Name,
    ast.Load,
)
"""The syntax allowed in an answer: values, lists, operators, and calls of `NAMES`."""

TERMS = "Symbol Integer Float Rational factorial factorial2 sqrt cbrt exp log ln abs Abs pi E I erf"

TERMS += " sin cos tan sec csc cot asin acos atan asec acsc acot"

TERMS += " sinh cosh tanh sech csch coth asinh acosh atanh"
NAMES = frozenset(TERMS.split())
"""Functions and constants that an answer may name."""


def guarded(more_names: frozenset[str] = frozenset()) -> AbstractContextManager[None]:
    """Let the library's modules, and sympy's parser, evaluate only terms and lists.

    Terms may use the functions of `NAMES` and `more_names`.
    """
    return _replaced("eval", functools.partial(evaluate, names=NAMES | more_names))


def silenced() -> AbstractContextManager[None]:
    """Let the library's modules print nothing.

    Redirecting `sys.stdout` would silence every other thread.
    """
    return _replaced("print", _print_nothing)


def evaluate(
    source: str,
    global_names: dict[str, object] | None = None,
    local_names: Mapping[str, object] | None = None,
    *,
    names: frozenset[str] = NAMES,
) -> object:
    """Evaluate a term or a list as `eval` does.

    Raises:
        ValueError: It contains anything else, or is nested too deeply.

    """
    local_names = local_names or {}
    try:
        tree = ast.parse(source.strip(), mode="eval")
    except (MemoryError, RecursionError) as error:
        raise ValueError("it is nested too deeply") from error
    # A list of allowed nodes, not of forbidden ones: attributes, subscripts, lambdas and
    # comprehensions all lead to arbitrary code.
    for node in ast.walk(tree):
        is_known = not isinstance(node, ast.Name) or node.id in names or node.id in local_names
        is_plain = not isinstance(node, ast.Call) or (
            isinstance(node.func, ast.Name) and not node.keywords
        )
        if not (isinstance(node, NODES) and is_known and is_plain):
            raise ValueError(f"neither a term nor a list: {source!r:.200}")
    known = {"__builtins__": {}} if global_names is None else global_names
    code = compile(tree, "<answer>", "eval")
    return builtins.eval(code, known, local_names)  # noqa: S307  # nothing else is in it


@contextmanager
def _replaced(name: str, function: Callable[..., object]) -> Iterator[None]:
    """Replace a builtin in the library's modules only."""
    modules = [module for path, module in [*sys.modules.items()] if _is_foreign(path, module)]
    for module in modules:
        vars(module)[name] = function
    try:
        yield
    finally:
        for module in modules:  # with a default: an abandoned thread may have removed it already
            vars(module).pop(name, None)


def _print_nothing(*values: object, **options: object) -> None:
    """Accept the arguments of `print`."""


def _is_foreign(path: str, module: ModuleType | None) -> bool:
    is_named = path.startswith("reasoning_gym.") or path == "sympy.parsing.sympy_parser"
    return is_named and module is not None


UNPLAYABLE = {
    "composite": "it mixes other generators; name these instead",
    "codeio": "it makes its entries by running programs without a sandbox",
}
"""Generators that no address can name, with the reason."""

UNREPEATABLE = frozenset(
    {
        "isomorphic_strings",
        "knight_swap",
        "list_functions",
        "polynomial_multiplication",
        "ransom_note",
        "word_ladder",
    }
)
"""Generators that make different entries from an address in another process."""

Scorer: TypeAlias = Callable[..., object]

NUM_INTERRUPTS = 50
SECONDS_OF_INTERRUPT = 0.1
"""The time that a thread has to end before it is interrupted again."""

_GENERATING = threading.Lock()
"""Some generators draw from numpy's global generator, so entries are made one at a time."""


@dataclasses.dataclass(frozen=True)
class Address:
    """The address of an entry: the same version of the library makes the same entry from it."""

    generator: str
    config: JSONObject
    seed: int
    index: int


class Series(Protocol):
    """The entries that a generator makes from a configuration and a seed."""

    score_answer: Scorer

    def __getitem__(self, index: int) -> JSONObject:
        """Make an entry: question, answer and metadata."""
        ...


def is_installed() -> bool:
    """Return whether the library can be imported."""
    try:
        require()
    except MissingPackageError:
        return False
    return True


def require() -> None:
    """Import the library.

    Raises:
        MissingPackageError: It, or a package that it needs, is not installed.

    """
    try:
        import reasoning_gym.factory  # noqa: F401  # late: an extra, and seconds to import
    except ImportError as error:
        raise MissingPackageError(
            f"reasoning_gym needs reasoning-gym: pip install 'gymcli[reasoning-gym]' ({error})"
        ) from error


def version() -> str:
    """Return the installed version of the library."""
    return importlib.metadata.version("reasoning-gym")


def check_generator(name: str, *, is_addressed: bool) -> None:
    """Check that the library has a generator, and with `is_addressed` that it can make entries.

    Raises:
        ValueError: It has none of this name, or one that cannot do that.

    """
    from reasoning_gym.factory import DATASETS

    if name not in DATASETS:
        hint = _hint(name, list(DATASETS))
        raise ValueError(f"reasoning-gym {version()} has no generator {name!r}{hint}")
    if name in UNPLAYABLE and (is_addressed or name == "composite"):
        raise ValueError(f"the generator {name!r} has no tasks: {UNPLAYABLE[name]}")


def check_address(address: Address) -> None:
    """Check an address without making its entry.

    Raises:
        ValueError: There is no such generator, option or entry.

    """
    _config(address)


async def made_entry(address: Address, timeout: float) -> JSONObject:  # noqa: ASYNC109  # no thread can be cancelled
    """Make the entry of an address in a thread, off the event loop.

    The timeout starts when no other entry is being made. The threads are daemons, so that an
    interrupted run ends immediately.

    Raises:
        TimeoutError: It took longer than `timeout` seconds.
        RuntimeError: The library failed.

    """
    entry, _ = _in_thread(lambda: _entry_within(address, timeout))
    return await asyncio.wrap_future(entry)


def entry_at(address: Address) -> JSONObject:
    """Make the entry of an address, as JSON.

    Raises:
        RuntimeError: The library failed.

    """
    try:
        with silenced(), decimal.localcontext(decimal.Context()):  # one generator sets precision
            return _as_json(_series(address)[address.index])
    except Exception as error:
        raise RuntimeError(f"reasoning-gym cannot make {_named(address)}: {error!r}") from error


def scorer_of(name: str, address: Address | None) -> Scorer:
    """Return the scorer of an address, else of a generator with default options."""
    from reasoning_gym import get_score_answer_fn

    if address is not None:
        return _series(address).score_answer
    return cast("Scorer", get_score_answer_fn(name))


def generator_of(entry: JSONObject) -> str:
    """Return the name of the generator that made an entry."""
    metadata = entry["metadata"]
    assert isinstance(metadata, dict)
    return str(metadata["source_dataset"])


def _entry_within(address: Address, timeout: float) -> JSONObject:
    with _GENERATING:
        entry, thread = _in_thread(lambda: entry_at(address))
        try:
            return entry.result(timeout)
        except TimeoutError as error:
            _end(thread)
            raise TimeoutError(
                f"reasoning-gym took longer than {timeout:g} seconds to make {_named(address)}; "
                "--env-arg generator_timeout=SECONDS allows more"
            ) from error


def _in_thread(function: Callable[[], JSONObject]) -> tuple[Future[JSONObject], threading.Thread]:
    """Call a function in a daemon thread, for which the interpreter does not wait at its end."""
    future: Future[JSONObject] = Future()

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001  # `result` raises it again
            future.set_exception(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return future, thread


def _end(thread: threading.Thread) -> None:
    """Interrupt a thread with SystemExit, or abandon it if it stays in C code for too long."""
    # Again and again, because an exception in a weakref callback is swallowed. It is raised only
    # when the thread executes Python code.
    ident = ctypes.c_ulong(thread.ident or 0)
    for _ in range(NUM_INTERRUPTS):
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(SystemExit))
        thread.join(SECONDS_OF_INTERRUPT)
        if not thread.is_alive():
            return


def _series(address: Address) -> Series:
    from reasoning_gym.factory import DATASETS

    config = _config(address)
    return cast("Series", DATASETS[address.generator][0](config=config))


def _config(address: Address) -> object:
    from reasoning_gym.factory import DATASETS

    check_generator(address.generator, is_addressed=True)
    config_class = DATASETS[address.generator][1]
    place = f"the config of {address.generator!r}"
    options = {field.name for field in dataclasses.fields(config_class)} - {"seed"}
    for name, value in address.config.items():
        if name not in options:
            raise ValueError(f"{place} has no option {name!r}{_hint(name, sorted(options))}")
        # The library joins the name to its data folder; a path could lead to any file.
        if name == "data_file" and PurePath(str(value)).name != value:
            raise ValueError(f"{place} names {value!r}, which is not a file of the library")
    try:
        config = config_class(**address.config, seed=address.seed)
        if hasattr(config, "validate"):
            config.validate()
        size = int(config.size)
    except Exception as error:  # its checks raise anything for values of another type
        raise ValueError(f"{place} is refused: {str(error) or type(error).__name__}") from error
    if address.index >= size:
        raise ValueError(
            f'there is no entry {address.index} of {address.generator!r}: its "size" is {size}, '
            "unless the config sets another one"
        )
    return config


def _named(address: Address) -> str:
    return f"entry {address.index} of {address.generator!r}"


def _as_json(entry: object) -> JSONObject:
    """Return an entry as a record has it, after JSON; fractions become text."""
    return cast("JSONObject", json.loads(json.dumps(entry, default=str)))


def _hint(name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, names, n=3)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
