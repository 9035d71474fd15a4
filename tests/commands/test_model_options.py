"""Tests of options that are declared by the fields of pydantic models."""

import inspect
from typing import Annotated

import pytest
import typer
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from typer.testing import CliRunner

from gymcli.command_line import CommandOption, Heading, not_negative, positive
from gymcli.commands.help import HelpCommand
from gymcli.commands.model_options import option_of, with_model_options
from gymcli.runner.collect_options import CollectOptions, RunOptions
from gymcli.tasks.task_options import TaskOptions


class Colours(BaseModel):
    """A set of options for this test."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    red: Annotated[int, Field(ge=1, le=9), CommandOption("Red.", Heading.WHAT, "-r")] = 1
    tone: Annotated[str | None, CommandOption("Tone.", Heading.WHAT, metavar="NAME")] = None
    gloss: Annotated[
        float, AfterValidator(positive), CommandOption("Gloss.", Heading.WHAT, metavar="SHARE")
    ] = 0.5
    brush_ids: Annotated[
        tuple[int, ...], CommandOption("Brush.", Heading.WHAT, name="brush", show_default="any")
    ] = ()
    mix: Annotated[dict[str, str], CommandOption("Mix.", Heading.WHAT)] = {}
    is_wet: Annotated[bool, CommandOption("Wet.", Heading.WHAT, name="wet")] = False
    dries: Annotated[bool, CommandOption("Dries.", Heading.WHAT)] = True
    recipe: str = ""
    """Has no option."""


PAINTED = []
app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(cls=HelpCommand)
@with_model_options
def paint(
    wall: Annotated[str, typer.Argument(metavar="WALL")],
    *,
    colours: Colours,
    quiet: Annotated[bool, typer.Option("--quiet")] = False,
) -> None:
    """Paint."""
    PAINTED.append((wall, colours, quiet))


def painted(*arguments):
    """Return what the command was called with."""
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return PAINTED.pop()


def refusal(*arguments):
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert done.exit_code == 2
    return done.stderr


def test_options_take_the_place_of_the_parameter():
    fields = ["red", "tone", "gloss", "brush_ids", "mix", "is_wet", "dries"]
    assert list(inspect.signature(paint).parameters) == ["wall", *fields, "quiet"]
    assert paint.__doc__ == "Paint."


def test_the_model_has_the_values_of_the_options():
    assert painted("hall") == ("hall", Colours(), False)
    line = "hall -r 3 --tone blue --gloss 1 --brush 1 --brush 2 --mix a=b --mix c=d --wet"
    options = Colours(
        red=3, tone="blue", gloss=1, brush_ids=(1, 2), mix={"a": "b", "c": "d"}, is_wet=True
    )
    assert painted(*line.split(), "--quiet") == ("hall", options, True)
    assert painted("hall", "--no-dries") == ("hall", Colours(dries=False), False)


def test_the_command_line_refuses_what_the_model_refuses():
    for field, value in (("red", "0"), ("red", "10"), ("gloss", "0"), ("gloss", "nan")):
        with pytest.raises(ValidationError):
            Colours(**{field: float(value)})
        assert f"--{field}" in refusal("hall", f"--{field}", value)
    assert "0 is not a number above 0" in refusal("hall", "--gloss", "0")


def test_the_help_has_names_placeholders_and_defaults():
    text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).stdout
    for line in (
        "-r, --red N    Red (default: 1).",
        "--tone NAME    Tone.",
        "--gloss SHARE  Gloss (default: 0.5).",
        "--brush N      Brush (default: any; repeatable).",
        "--wet          Wet.",
    ):
        assert line in text


def test_an_option_of_a_single_field():
    option = option_of(Colours, "brush_ids")
    assert (option.default, option.help) == ("--brush", "Brush.")
    with pytest.raises(AssertionError, match=r"Colours\.recipe"):
        option_of(Colours, "recipe")


def test_the_command_line_and_python_have_the_same_options_of_tasks_and_runs():
    for model in (TaskOptions, RunOptions):
        for name, info in model.model_fields.items():
            assert any(isinstance(item, CommandOption) for item in info.metadata), name
            assert CollectOptions.model_fields[name].default == info.default


def test_positive_and_not_negative():
    assert (positive(None), positive(0.5), not_negative(0.0)) == (None, 0.5, 0.0)
    for check, value in ((positive, 0.0), (positive, float("inf")), (not_negative, -0.1)):
        with pytest.raises(ValueError, match="is not a number"):
            check(value)
