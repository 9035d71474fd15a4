"""Hooks are checked when an environment's class is created."""

import functools
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from gymcli import Environment, Score, Task, tool
from gymcli.environment.contract_checks import check_schema


def made(**members):
    """Return a class with these members, as an author would write it."""
    return type("Made", (Environment,), {"__module__": __name__, **members})


async def wait(self, *_):
    """Do nothing."""


async def stream(self, *_):
    """Yield, which no hook may."""
    yield


def do(self, *_):
    """Do nothing."""


@tool
def orcale(self):
    """Ask the orcale, a tool with the name of a hook."""


def wrapped(function):
    @functools.wraps(function)
    def call(*arguments):
        return function(*arguments)

    return call


MADE = """from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypedDict

from gymcli import Environment, Task, tool


last = classmethod


def renamed(function):
    def call(self):
        "Call it."
        return function(self)

    return call


class Own:
    pass


class Record(TypedDict):
    name: str


class Made(Environment[Task]):
    {source}


class Later(TypedDict):
    name: str
"""


def written(source):
    """Return the class `Made` of a module with this source in it."""
    module = ModuleType("made")
    sys.modules["made"] = module
    code = compile(MADE.format(source=source), str(Path.cwd() / "made.py"), "exec")
    exec(code, vars(module))
    return module.Made


HERE = r"\(tests/environment/test_contract_checks\.py:\d+\)"


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"verify": wait}, "Made.verify must be a class method: write @classmethod above it"),
        ({"verify": staticmethod(wait)}, "Made.verify must be a class method"),
        ({"verify": classmethod(do)}, "Made.verify must be async: write `async def verify`"),
        ({"verify_group": wait}, "Made.verify_group must be a class method"),
        ({"setup": do}, "Made.setup must be async"),
        ({"reply": do}, "Made.reply must be async"),
        ({"close": do}, "Made.close must be async"),
        ({"reply": stream}, "Made.reply yields: return its value"),
        ({"verify": classmethod(stream)}, "Made.verify yields: return its value"),
        ({"tools": wait}, "Made.tools must not be async: write `def tools`"),
        ({"generate": do}, "Made.generate must be a class method"),
        ({"generate": classmethod(wait)}, "Made.generate must not be async"),
        ({"verfiy": classmethod(wait)}, "Made.verfiy is never called; is it meant to be verify?"),
        ({"verfiy": do}, "Made.verfiy is never called; is it meant to be verify?"),
        ({"set_up": wait}, "is it meant to be setup?"),
        ({"setpu": wait}, "is it meant to be setup?"),
        ({"orcale": wait}, "is it meant to be oracle?"),
        ({"verify_gruop": classmethod(wait)}, "is it meant to be verify_group?"),
        ({"stand_in": classmethod(do)}, "is it meant to be stand_ins?"),
    ],
)
def test_a_class_whose_hook_is_never_called_right_is_refused(members, words):
    with pytest.raises(TypeError) as caught:
        made(**members)
    assert words in str(caught.value)
    assert re.search(HERE, str(caught.value))


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"max_reward": "one"}, "Made.max_reward is 'one', neither a number nor None"),
        ({"max_turns": "5"}, "Made.max_turns is '5', neither a whole number nor None"),
        ({"max_turns": 2.5}, "Made.max_turns is 2.5, neither a whole number nor None"),
        ({"pass_threshold": "0.5"}, "Made.pass_threshold is '0.5', neither a number nor None"),
        ({"version": 3}, "Made.version is 3, not a text"),
        ({"step_timeout": None}, "Made.step_timeout is None, not a number"),
        ({"executes_tools": "no"}, "Made.executes_tools is 'no', not True or False"),
        ({"required_roles": "judge"}, "Made.required_roles is 'judge', not a tuple"),
    ],
)
def test_a_class_whose_attribute_has_a_wrong_type_is_refused(members, words):
    with pytest.raises(TypeError, match=f"^{re.escape(words)}$"):
        made(**members)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            "async def reply(self): ...",
            "reply has the parameters (self): write `async def reply(self, rollout)`",
        ),
        ("async def step(self, message, rollout): ...", "write `async def step(self, message)`"),
        ("def __init__(self): ...", "write `def __init__(self, task, *, options=None, roles="),
        ("def __init__(self, task, options, roles, rng, world): ...", "Made.__init__ has the"),
        (
            "@classmethod\n    async def verify(cls, rollout): ...",
            "write `async def verify(cls, rollout, context)`",
        ),
        ("@classmethod\n    async def verify(rollout, context): ...", "Made.verify has the"),
        ("@staticmethod\n    async def reply(self, rollout): ...", "Made.reply has the"),
    ],
)
def test_a_hook_must_take_what_it_is_given(source, words):
    with pytest.raises(TypeError) as caught:
        written(source)
    assert words in str(caught.value)
    assert re.search(r"\(made\.py:\d+\)$", str(caught.value))


@pytest.mark.parametrize(
    "source",
    [
        "def __init__(self, task, **keywords): ...",
        "def __init__(self, *arguments, **keywords): ...",
        "def __init__(self, task, options=None, roles=None, rng=None): ...",
        "async def reply(self, rollout, words=3): ...",
        "async def reply(self, record): ...",
        "async def reply(self, rollout: Later) -> Later: ...",
        "@staticmethod\n    async def reply(rollout): ...",
        "@tool\n    def add(self, item: Later) -> Later:\n        'Add it.'",
        "@tool\n    @staticmethod\n    def add(item: str):\n        'Add it.'",
        "@staticmethod\n    @tool\n    def add(item: str):\n        'Add it.'",
        "@tool\n    def add(self, *, item: str):\n        'Add it.'\n    put = add",
    ],
)
def test_a_hook_or_a_tool_that_can_be_called_is_accepted(source):
    assert list(written(source).method_tools()) == (["add"] if "'Add it.'" in source else [])


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def add(self, *items: str):", "Made.add has *items, but a model passes arguments by"),
        ("def add(self, **items: int):", "has **items, whose names no model knows: write `items"),
        ("def add(self, item: str, /):", "takes item by position, but a model passes arguments"),
        ("def add(this, item: str):", "must have `self` as its first parameter"),
        ("def add():", "must have `self` as its first parameter"),
        ("@classmethod\n    def add(cls):", "is a class method, but a tool acts on its episode"),
        (
            "@last\n    @tool\n    def add(cls):",
            "is a class method, but a tool acts on its episode",
        ),
        ("def version(self):", "Made.version hides the environment's own `version`: give the tool"),
        ("def tools(self):", "Made.tools hides the environment's own `tools`"),
        ("def rollout(self):", "Made.rollout hides the environment's own `rollout`"),
        ("def task(self):", "Made.task hides the environment's own `task`"),
        ("async def verify(self, text: str):", "Made.verify hides the environment's own"),
        (
            "@renamed\n    def add(self):",
            "Made.add became a tool named `call`, which is not its name: use functools.wraps",
        ),
    ],
)
def test_a_tool_that_no_model_can_call_is_refused_when_its_class_is_made(source, words):
    with pytest.raises(TypeError) as caught:
        written(f"@tool\n    {source}\n        'Add it.'".replace("@tool\n    @last", "@last"))
    assert words in str(caught.value)
    assert re.search(r"\(made\.py:\d+\)$", str(caught.value))


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        ("Missing", "Made.add has the unknown name `Missing` in an annotation: import or define"),
        ("'Missing'", "has the unknown name `Missing`"),
        ("list['Missing']", "has the unknown name `Missing`"),
        ("'list['", "has an annotation that cannot be read: SyntaxError"),
        ("'re.nosuch'", "has an annotation that cannot be read: AttributeError"),
        (
            "Callable[[int], str]",
            "`item: collections.abc.Callable[[int], str]`, a type without a JSON Schema",
        ),
        ("Own", "has the argument `item: Own`, a type without a JSON Schema: use str, int"),
        ("list[Own]", "has the argument `item: list[Own]`, a type"),
    ],
)
def test_a_tool_whose_argument_has_no_schema_is_refused_when_its_class_is_loaded(annotation, words):
    source = f"@tool\n    def add(self, item: {annotation}):\n        'Add it.'"
    environment = written(source)
    with pytest.raises(TypeError) as caught:
        check_schema(environment, environment.method_tools()["add"])
    assert words in str(caught.value)
    assert re.search(r"\(made\.py:\d+\)$", str(caught.value))


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="pydantic takes both from Python 3.12 on")
def test_a_tool_with_a_typed_dict_that_pydantic_cannot_read_says_which_it_needs():
    environment = written("@tool\n    def add(self, item: Record):\n        'Add it.'")
    with pytest.raises(TypeError, match="a TypedDict in `item`: import it from typing_extensions"):
        check_schema(environment, environment.method_tools()["add"])


def test_a_hook_of_a_mixin_is_checked():
    class Mixin:
        @classmethod
        def verify(cls, rollout, context):
            return Score(1.0)

    with pytest.raises(TypeError, match=r"Mixed\.verify must be async"):
        type("Mixed", (Mixin, Environment), {})


@pytest.mark.parametrize(
    "members",
    [
        {"verify": classmethod(wait), "setup": wait, "tools": do, "generate": classmethod(do)},
        {"setup": wrapped(wait)},
        {"steps": do, "choice": do, "metric": do, "is_closed": do, "closed": property(do)},
        {"_verfiy": classmethod(wait)},
        {"set_up": wait, "setup": wait},
        {"verify_answer": do, "verifier": do},
        {"orcale": orcale},
        {"max_reward": None},
        {"max_reward": 2, "max_turns": None, "verify_timeout": 5, "slice_fields": ["level"]},
        {"max_turns": property(do)},
    ],
)
def test_a_class_that_is_right_is_made(members):
    assert issubclass(made(**members), Environment)


def test_a_subclass_may_have_what_its_base_overrides():
    class Base(Environment[Task]):
        async def setup(self):
            return []

    type("Derived", (Base,), {"set_up": wait})
