"""Tests of the errors: the tree in the docstring equals the classes, each with its exit code."""

import inspect
import re
import typing

from gymcli import errors
from gymcli.errors import GymError, ModelError, Phase

CLASSES = {
    name: value
    for name, value in vars(errors).items()
    if inspect.isclass(value) and issubclass(value, GymError)
}


def drawn_tree():
    """Read the tree in the module's docstring: name, parent, exit code (None: inherited)."""
    above = []
    for line in errors.__doc__.splitlines():
        match = re.match(r"([│├└─ ]*)(\w+Error) +(?:(\d|130|143) )?", line)
        if match is None:
            continue
        branch, name, code = match.groups()
        depth = len(branch) // 4
        above[depth:] = [name]
        yield name, above[depth - 1] if depth else None, int(code) if code else None


def test_tree_shows_every_class_under_its_parent():
    drawn = {name: parent for name, parent, _ in drawn_tree()}
    assert drawn == {
        name: None if cls is GymError else cls.__base__.__name__ for name, cls in CLASSES.items()
    }


def test_tree_shows_the_exit_codes():
    codes = {name: code for name, _, code in drawn_tree()}
    for name, parent, code in drawn_tree():
        expected = code if code is not None else CLASSES[parent].exit_code
        assert CLASSES[name].exit_code == expected, name
    assert {code for code in codes.values() if code is not None} == {1, 2, 4, 6, 130, 143}


def test_tree_shows_the_phases():
    phases = dict(re.findall(r"(\w+Error) +phase \"(\w+)\"", errors.__doc__))
    assert set(phases.values()) == set(typing.get_args(Phase))
    for name, phase in phases.items():
        family = [cls for cls in CLASSES.values() if issubclass(cls, CLASSES[name])]
        assert {cls.phase for cls in family} == {phase}


def test_errors_keep_their_message_and_say_in_one_sentence_when_they_are_raised():
    for name, error in CLASSES.items():
        assert str(error("tasks.jsonl:3: wrong")) == "tasks.jsonl:3: wrong", name
        first = error.__doc__.splitlines()[0]
        assert first.endswith("."), name
        assert first.startswith("Base " if name == "GymError" else "Raised when "), name


def test_model_error_carries_what_the_endpoint_said():
    error = ModelError("no", status=429, retry_after=1.5)
    assert (error.status, error.retry_after) == (429, 1.5)
    assert ModelError("no").status is None
