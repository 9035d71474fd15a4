"""A filter: an expression that was read, and asked of one record after another."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Collection, Mapping

from simpleeval import EvalWithCompoundTypes, NameNotDefined

from gymcli.errors import FilterError
from gymcli.filters.operations import FUNCTIONS, OPERATORS, UnfitError
from gymcli.filters.syntax import parse
from gymcli.filters.tokens import refused

__all__ = ["Filter", "parse_filter"]


def parse_filter(text: str) -> Filter:
    """Read an expression: comparisons, `and`, `or`, `not`, `in`, arithmetic and a few functions.

    Raises:
        FilterError: It is none; the message names the place in it.

    """
    return Filter(text)


class Filter:
    """An expression over named values, which holds of a record or does not.

    It never changes, and may be used by several threads.

    Raises:
        FilterError: The text is no expression.

    """

    def __init__(self, text: str) -> None:
        self.text = text
        """As it was written."""
        self._expression = parse(text)
        self.names = frozenset(self._expression.names)
        """The names that it reads; those of fields are dotted."""
        self._evaluators = threading.local()

    def __repr__(self) -> str:
        """Give what makes an equal one."""
        return f"Filter({self.text!r})"

    def check(self, known: Collection[str], open_names: Collection[str] = ()) -> None:
        """Check that there is every name.

        Args:
            known: Names that there are.
            open_names: First parts of dotted names, such as `task`, after which any other follows.

        Raises:
            FilterError: There is none of a name; the message has the one that is most like it.

        """
        for name, place in self._expression.names.items():
            first, _, rest = name.partition(".")
            if name not in known and not (rest and first in open_names):
                raise self._unknown(name, place, known, open_names)

    def matches(self, names: Mapping[str, object]) -> bool:
        """Say whether it holds of the record whose values these are; None: the record has none.

        Raises:
            FilterError: A name is not there, or a value does not fit what is done with it.

        """
        evaluator = getattr(self._evaluators, "evaluator", None)
        if evaluator is None:
            evaluator = self._evaluators.evaluator = _evaluator()
        evaluator.names = names
        try:
            return bool(evaluator.eval(self.text, previously_parsed=self._expression.tree))
        except UnfitError as error:
            raise refused(self.text, None, str(error)) from error
        except NameNotDefined as error:
            raise self._unknown(error.name, self._expression.names[error.name], names) from error
        except RecursionError as error:
            raise refused(self.text, None, "compares values that are nested too deeply") from error
        finally:
            evaluator.names = {}

    def _unknown(
        self, name: str, place: int, known: Collection[str], open_names: Collection[str] = ()
    ) -> FilterError:
        close = difflib.get_close_matches(name, list(known), n=1)
        if name in open_names:
            hint = f"write {name}.FIELD"
        elif close:
            hint = f'did you mean "{close[0]}"?'
        else:
            names = [*sorted(known), *(f"{first}.FIELD" for first in sorted(open_names))]
            hint = f"there are {', '.join(names)}"
        return refused(self.text, place, f'there is no name "{name}"; {hint}')


def _evaluator() -> EvalWithCompoundTypes:
    """Give what evaluates a tree that was checked: with our operators and functions alone."""
    functions = {name: function.call for name, function in FUNCTIONS.items()}
    evaluator = EvalWithCompoundTypes(operators=dict(OPERATORS), names={})
    evaluator.functions = functions
    return evaluator
