"""Tools: the schema that a model sees, and the validation of arguments."""

import socket
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Literal, Optional, Union

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from gymcli.environment.tool import Tool, ToolCallError, function_names, shortened, tool, tool_of


class Point(BaseModel):
    """A place on the map."""

    title: str
    x: int = 0


@dataclass
class Box:
    size: int
    corner: Point


def schema_of(function):
    return Tool(function, description="Does it.").parameters


def one_argument(hint, default=...):
    """Return the schema of a tool with the single argument `value`."""

    def function(value):
        """Do it."""

    function.__annotations__ = {"value": hint}
    if default is not ...:
        function.__defaults__ = (default,)
    return schema_of(function)["properties"]["value"]


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (str, {"type": "string"}),
        (bool, {"type": "boolean"}),
        (list[str], {"type": "array", "items": {"type": "string"}}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045  # as old code writes it
        (Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}),  # noqa: UP007  # as old code writes it
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (
            Annotated[int, Field(description="How many.", ge=1)],
            {"type": "integer", "description": "How many.", "minimum": 1},
        ),
        (object, {}),
    ],
)
def test_parameters_say_the_type(hint, schema):
    assert one_argument(hint) == schema


def test_parameters_say_the_default():
    assert one_argument(int, 5) == {"type": "integer", "default": 5}


def test_parameters_take_a_default_given_as_field():
    schema = one_argument(int, Field(default=3, description="How many."))
    assert schema == {"type": "integer", "default": 3, "description": "How many."}


def test_parameters_keep_titles_that_are_data_and_names():
    """Only the titles that pydantic generates are removed."""

    def function(title: str, where: Point, extra: dict[str, str] = {"title": "x"}):  # noqa: B006  # a default to show
        """Do it."""

    schema = schema_of(function)
    assert schema["properties"]["title"] == {"type": "string"}
    assert schema["properties"]["extra"]["default"] == {"title": "x"}
    assert "title" in schema["$defs"]["Point"]["properties"]
    assert "title" not in schema["$defs"]["Point"]
    assert "title" not in schema


def test_parameters_of_no_arguments_are_an_empty_object():
    def function():
        """Do it."""

    schema = schema_of(function)
    assert schema == {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }


def test_parameters_are_a_valid_schema_that_takes_what_parse_takes():
    def function(box: Box, names: list[str], mode: Literal["a"] = "a"):
        """Do it."""

    made = Tool(function)
    jsonschema.Draft202012Validator.check_schema(made.parameters)
    text = '{"box": {"size": 2, "corner": {"title": "here"}}, "names": ["n"]}'
    assert made.parse(text) == {"box": Box(2, Point(title="here")), "names": ["n"], "mode": "a"}
    assert made.parameters["required"] == ["box", "names"]


def test_parameters_by_hand_are_shown_and_checked_as_they_are():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    made = Tool(dict, name="make", description="Make it.", parameters=schema)
    assert made.spec == {
        "type": "function",
        "function": {"name": "make", "description": "Make it.", "parameters": schema},
    }
    assert made.parse('{"n": 1, "more": 2}') == {"n": 1, "more": 2}
    with pytest.raises(ToolCallError, match="n: 'x' is not of type 'integer'"):
        made.parse('{"n": "x"}')


@pytest.mark.parametrize("name", ["copy", "json", "schema", "_hidden", "model_config", "validate"])
def test_parse_takes_arguments_with_any_name(name):
    """Names that a pydantic model reserves or refuses are valid names of arguments."""
    scope = {}
    exec(f"def function({name}: int):\n    'Do it.'", scope)
    made = Tool(scope["function"])
    assert made.parameters["required"] == [name]
    assert made.parse(f'{{"{name}": 1}}') == {name: 1}


def test_parameters_of_a_function_that_takes_anything_are_refused():
    def function(*values: int):
        """Do it."""

    with pytest.raises(TypeError, match=r"the tool function has \*values"):
        schema_of(function)


def add(number: int, ratio: float = 0.5, note: str | None = None):
    """Add."""


@pytest.mark.parametrize(
    ("text", "fault", "words"),
    [
        ("{", "not_json", "not valid JSON"),
        ("number=1", "not_json", "not valid JSON"),
        ("\ud800", "not_json", "not valid JSON"),
        ("[" * 100_000, "not_json", "not valid JSON"),
        ('"{\\"number\\": 1}"', "not_an_object", "send the JSON object itself"),
        ("[1]", "not_an_object", "not an array"),
        ("1", "not_an_object", "not a number"),
        ("1.5", "not_an_object", "not a number"),
        ("true", "not_an_object", "not a boolean"),
        ("null", "not_an_object", "not null"),
        ("{}", "wrong_arguments", "'number' is a required property"),
        ("  ", "wrong_arguments", "'number' is a required property"),
        ('{"number": "1"}', "wrong_arguments", "number: '1' is not of type 'integer'"),
        ('{"number": true}', "wrong_arguments", "number: True is not of type 'integer'"),
        ('{"number": 1.5}', "wrong_arguments", "number: 1.5 is not of type 'integer'"),
        ('{"number": 1, "nummer": 2}', "wrong_arguments", "'nummer' was unexpected"),
        ('{"number": 1, "note": 3}', "wrong_arguments", "note: 3 is not valid"),
    ],
)
def test_parse_refuses_with_one_precise_sentence(text, fault, words):
    with pytest.raises(ToolCallError) as caught:
        Tool(add).parse(text)
    assert caught.value.fault == fault
    assert words in str(caught.value)
    assert str(caught.value).startswith("The arguments of add ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"number": 1}', {"number": 1, "ratio": 0.5, "note": None}),
        ('{"number": 3.0, "ratio": 1}', {"number": 3, "ratio": 1.0, "note": None}),
        ('{"number": 1, "note": "x"}', {"number": 1, "ratio": 0.5, "note": "x"}),
        (f'{{"number": 1{"0" * 30}}}', {"number": 10**30, "ratio": 0.5, "note": None}),
    ],
)
def test_parse_gives_keyword_arguments(text, expected):
    parsed = Tool(add).parse(text)
    assert parsed == expected
    assert type(parsed["number"]) is int


def test_parse_of_no_text_is_no_arguments():
    def function():
        """Do it."""

    assert Tool(function).parse(" ") == {}


def test_parse_complains_in_one_line_of_what_only_the_type_knows():
    """The type checks a format that JSON Schema does not check."""

    def function(day: date):
        """Do it."""

    assert Tool(function).parse('{"day": "2024-02-29"}') == {"day": date(2024, 2, 29)}
    with pytest.raises(ToolCallError, match="day: Input should be a valid date") as caught:
        Tool(function).parse('{"day": "yesterday"}')
    assert "\n" not in str(caught.value)
    assert caught.value.fault == "wrong_arguments"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(st.text() | json_values.map(lambda value: msgspec.json.encode(value).decode()))
def test_parse_of_any_text_gives_arguments_or_the_one_error(text):
    try:
        parsed = Tool(add).parse(text)
    except ToolCallError:
        return
    assert set(parsed) == {"number", "ratio", "note"}


def test_tool_takes_its_name_description_and_marks():
    class Holder:
        @tool
        def bare(self):
            """First line.

            Indented as written.
            """

        @tool(reads_only=True, timeout=2.5)
        def marked(self, city: str):
            """Look it up."""

        def plain(self):
            """Not a tool."""

    bare, marked = tool_of(Holder.bare), tool_of(Holder.marked)
    assert (bare.name, bare.reads_only, bare.timeout) == ("bare", False, None)
    assert bare.description == "First line.\n\nIndented as written."
    assert (marked.name, marked.reads_only, marked.timeout) == ("marked", True, 2.5)
    assert list(marked.parameters["properties"]) == ["city"]
    assert tool_of(Holder.plain) is None
    assert tool_of(3) is None


@pytest.mark.parametrize("documentation", [None, "", "  \n "])
def test_tool_without_a_docstring_is_refused(documentation):
    def function():
        pass

    function.__doc__ = documentation
    with pytest.raises(TypeError, match="the tool function needs a docstring"):
        tool(function)


def test_function_names_reads_over_hosted_and_odd_tools():
    specs = [
        {"type": "function", "function": {"name": "a"}},
        {"type": "web_search"},
        {"type": "function", "function": {"name": 3}},
        {"type": "function", "function": "b"},
    ]
    assert function_names(specs) == ["a"]


@given(st.text(), st.integers(1, 20))
def test_shortened_keeps_the_beginning_and_says_what_is_left_out(text, limit):
    cut = shortened(text, limit)
    if len(text) <= limit:
        assert cut == text
    else:
        assert cut == f"{text[:limit]}\n[{len(text) - limit} more characters left out]"


def test_parse_lax_converts_and_leaves_out_what_the_tool_has_not():
    def add_up(count: int, label: str = "") -> int:
        """Add."""
        return count

    add = Tool(add_up)
    assert add.parse('{"count": "3", "other": 1}', is_lax=True) == {"count": 3, "label": ""}
    with pytest.raises(ToolCallError, match="count"):
        add.parse('{"count": "three"}', is_lax=True)


def test_parse_fetches_nothing_that_a_schema_refers_to():
    """A row's schema may come from anybody, so external references are not resolved."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json"
        parameters = {"type": "object", "properties": {"value": {"$ref": address}}}
        made = Tool(lambda value: value, name="take", description="Take.", parameters=parameters)
        assert made.parse('{"value": 3}') == {"value": 3}
        with pytest.raises(BlockingIOError):
            listener.accept()
