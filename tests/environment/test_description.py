"""Fields of rows and options are described in words, and no built-in environment leaves one out."""

import re
from datetime import date
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

import gymcli.envs
from gymcli import Environment, Task
from gymcli.environment.description import EXTRAS, example_row, fields_of, num_tasks
from gymcli.environment.registry import Registration, Registry


class Point(BaseModel):
    x: int = 0


class Row(Task):
    """A row of every type."""

    text: str
    """Any text,
    on two lines."""
    kind: Literal["a", "b"] | None = None
    points: list[Point] = []
    pair: tuple[int, int] = (1, 2)
    levels: dict[str, list[str]] = Field(default_factory=dict, description="By name.")
    number: Annotated[float, Field(ge=0)] | str = 1.5
    many: list[list[bool]] = []
    anything: object = None
    day: date | None = None
    point: Point = Point()


def test_fields_in_words():
    fields = {one.name: one for one in fields_of(Row)}

    assert {name: one.type for name, one in fields.items()} == {
        "text": "text",
        "kind": "one of a, b",
        "points": "list of objects",
        "pair": "list of whole numbers",
        "levels": "object",
        "number": "number or text",
        "many": "list of lists of booleans",
        "anything": "any JSON",
        "day": "date",
        "point": "object",
    }
    assert fields["text"].is_required
    assert fields["text"].meaning == "Any text, on two lines."
    assert fields["levels"].meaning == "By name."
    assert fields["pair"].default == [1, 2]
    assert fields["point"].default == {"x": 0}


@pytest.mark.parametrize("name", Registry.names())
def test_every_field_and_option_of_ours_has_a_meaning(name):
    environment = Registry().find(name).environment
    for field in (*fields_of(environment.Task), *fields_of(environment.Options)):
        assert field.meaning.endswith("."), field.name
        assert field.type


def test_extras_are_those_that_environments_name():
    named = {}
    for path in Path(gymcli.envs.__path__[0]).rglob("*.py"):
        for extra in re.findall(r"pip install 'gymcli\[([a-z-]+)\]'", path.read_text()):
            named[path.stem if path.parent.name in ("envs", "_envs") else path.parent.name] = extra
    assert named == {name: extra for name, (extra, _) in EXTRAS.items()}


class Silent(Environment[Row]):
    """Ships nothing."""


class Failing(Silent):
    @classmethod
    def generate(cls, rng, num):
        raise RuntimeError("no")
        yield


def test_an_environment_may_have_no_rows():
    for environment in (Silent, Failing):
        found = Registration("silent", environment, "")
        assert (num_tasks(found), example_row(found)) == (0, None)
