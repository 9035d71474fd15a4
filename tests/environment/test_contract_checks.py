"""Hooks are checked when an environment's class is created."""

import functools
import re

import pytest

from gymcli import Environment, Score, Task, tool


def made(**members):
    """Return a class with these members, as an author would write it."""
    return type("Made", (Environment,), {"__module__": __name__, **members})


async def wait(self, *_):
    """Do nothing."""


def do(self, *_):
    """Do nothing."""


def wrapped(function):
    @functools.wraps(function)
    def call(*arguments):
        return function(*arguments)

    return call


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
        {"orcale": tool(wrapped(do))},
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
