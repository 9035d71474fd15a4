"""Environment options from the command line, assigned and typed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.environment.contract import Environment
from gymcli.environment.registry import Found, environment_options, split_env_args
from gymcli.environment.tool import EnvironmentOptions
from gymcli.errors import UsageError


class First(Environment):
    """One with many options."""

    class Options(EnvironmentOptions):
        level: int = 1
        label: str = ""
        kinds: list[str] = []
        ratio: float | None = None


class Second(Environment):
    """One that shares an option."""

    class Options(EnvironmentOptions):
        level: int = 1
        must: bool


class Third(Environment):
    """One without options."""


FOUND = [Found("one", First, ""), Found("two", Second, "")]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"one": {}, "two": {}}),
        ({"label": "x"}, {"one": {"label": "x"}, "two": {}}),
        ({"one.level": "2", "two.level": "3"}, {"one": {"level": "2"}, "two": {"level": "3"}}),
        ({"two.wrong": "2"}, {"one": {}, "two": {"wrong": "2"}}),
    ],
)
def test_split_env_args_assigns_by_name_or_to_the_only_one_that_fits(given, expected):
    assert split_env_args(given, FOUND) == expected


@pytest.mark.parametrize(
    ("key", "environments", "words"),
    [
        ("level", FOUND, "--env-arg level: one and two both have it; write one.level=..."),
        (
            "levl",
            FOUND,
            "--env-arg levl: no environment of this run has it (options: one.level, one.label, "
            "one.kinds, one.ratio, two.level, two.must)",
        ),
        ("three.level", FOUND[:1], "--env-arg three.level: no environment of this run has it"),
        ("one.", FOUND[:1], "--env-arg one.: no environment of this run has it"),
        ("level", [Found("three", Third, "")], "no environment of this run has it (options: none)"),
    ],
)
def test_split_env_args_says_why_an_option_fits_nowhere(key, environments, words):
    with pytest.raises(UsageError) as caught:
        split_env_args({key: "1"}, environments)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"level": "2"}, {"level": 2}),
        ({"label": "plain words"}, {"label": "plain words"}),
        ({"label": "7"}, {"label": "7"}),
        ({"label": "true", "kinds": '["a"]'}, {"label": "true", "kinds": ["a"]}),
        ({"ratio": "null"}, {}),
        ({"ratio": "1"}, {"ratio": 1.0}),
        ({"label": "[" * 5_000}, {"label": "[" * 5_000}),
        ({"label": "half \udcff"}, {"label": "half \udcff"}),
    ],
)
def test_environment_options_types_each_by_itself(given, expected):
    """A value that looks like JSON is text where text is wanted, whatever the others are."""
    assert environment_options(First, "one", given, {}) == First.Options(**expected)


def test_environment_options_given_go_before_those_on_record():
    options = environment_options(First, "one", {"level": "3"}, {"level": 2, "label": "x"})
    assert options == First.Options(level=3, label="x")


@pytest.mark.parametrize(
    ("environment", "given", "recorded", "words"),
    [
        (First, {"level": "high"}, {}, "--env-arg level: Input should be a valid integer"),
        (First, {"kinds": '["a", 1]'}, {}, "--env-arg kinds: Input should be a valid list"),
        (
            First,
            {"levl": "1"},
            {},
            "--env-arg levl: Extra inputs are not permitted "
            "(options of environment x: level, label, kinds, ratio)",
        ),
        (First, {}, {"gone": 1}, "the option on record gone: Extra inputs are not permitted"),
        (Third, {"a": "1"}, {}, "(options of environment x: none)"),
        (Second, {}, {}, "must: Field required"),
    ],
)
def test_environment_options_say_which_is_wrong(environment, given, recorded, words):
    with pytest.raises(UsageError) as caught:
        environment_options(environment, "x", given, recorded)
    assert words in str(caught.value)


@given(st.text())
def test_environment_options_take_any_text_as_text(text):
    assert environment_options(First, "one", {"label": text}, {}).label == text
