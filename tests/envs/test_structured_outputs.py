"""The environment structured_outputs: formats, strict schemas, malicious answers, tasks."""

import asyncio
import socket
import sys
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymcli.environment.registry import shipped_tasks
from gymcli.envs import load_generator
from gymcli.envs.structured_outputs import (
    MAX_SHORT,
    MAX_SHORT_YAML,
    Paper,
    RecordTask,
    StructuredOutputs,
    examine,
    strict,
)
from gymcli.envs.structured_outputs.formats import (
    MAX_CHARACTERS,
    MAX_DEPTH,
    UnreadableError,
    read,
    typed_csv,
    typed_xml,
    write,
)
from gymcli.errors import MissingPackageError, VerifierError, VerifierTimeoutError
from gymcli.types import FunctionCall, Message, ToolCall
from tests.builders import lines_of
from tests.envs.episodes import (
    answered,
    calls,
    played,
    row_of_file,
    says,
    scored,
    task_row,
)

generator = load_generator("structured_outputs")

NAME = "structured_outputs"

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "bridges": {"type": "integer"},
        "river": {
            "type": "object",
            "properties": {"length": {"type": "number"}, "tidal": {"type": "boolean"}},
        },
        "mayors": {"type": "array", "items": {"type": "string"}},
    },
}
RECORD = {
    "city": "Tamm",
    "bridges": 7,
    "river": {"length": 31.5, "tidal": False},
    "mayors": ["Ada", "Falk"],
}
TABLE = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": ["integer", "null"]},
            "share": {"type": "number"},
            "paid": {"type": "boolean"},
        },
    },
}
FITTING = {
    "json": msgspec.json.encode(RECORD).decode(),
    "yaml": "city: Tamm\nbridges: 7\nriver: {length: 31.5, tidal: no}\nmayors:\n- Ada\n- Falk\n",
    "xml": (
        "<city_record><city>Tamm</city><bridges>7</bridges><river><length>31.5</length>"
        "<tidal>false</tidal></river><mayors>Ada</mayors><mayors>Falk</mayors></city_record>"
    ),
    "toml": (
        'city = "Tamm"\nbridges = 7\nmayors = ["Ada", "Falk"]\n[river]\nlength = 31.5\n'
        "tidal = false\n"
    ),
    "csv": "name,age,share,paid\nAda,,0.5,true\nFalk,41,3,0\n",
}
SCHEMAS = {
    "json": SCHEMA,
    "yaml": SCHEMA,
    "xml": {"type": "object", "properties": {"city_record": SCHEMA}},
    "toml": SCHEMA,
    "csv": TABLE,
}
FORMATS = list(FITTING)


def fields_of(schema, form="json", **fields):
    text = schema if isinstance(schema, str) else msgspec.json.encode(schema).decode()
    return {"schema_str": text, "schema_type": form, **fields}


def said(text, schema, form="json", **options):
    """Return the reward and the reason for a text."""
    rollout = scored(answered(NAME, fields_of(schema, form), text), **options)
    return rollout.reward, rollout.details["reason"]


def called(*named, schema=SCHEMA, **fields):
    """Return the reward and the reason for a message with tool calls."""
    row = task_row(NAME, fields_of(schema, response_mode="tool_call", **fields))
    rollout = scored(played(row, calls(*named)))
    assert rollout.stop_reason == "done"
    return rollout.reward, rollout.details["reason"]


def examined(text, schema, form="json"):
    """Return the reason for a text, examined in this process even if the schema has patterns."""
    schema_text = msgspec.json.encode(schema).decode()
    return examine(Paper(text, schema_text, form, None, types_xml=True)).reason


CORRECT = (1.0, "correct")


@pytest.mark.parametrize("form", FORMATS)
def test_verify_rewards_text_that_fits(form):
    assert said(FITTING[form], SCHEMAS[form], form) == CORRECT


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("text", ["", " \n\t"])
def test_verify_calls_no_text_empty(form, text):
    assert said(text, SCHEMAS[form], form) == (0.0, "no_answer")


@pytest.mark.parametrize("form", FORMATS)
def test_verify_reads_text_with_its_code_fence(form):
    """A fence is never stripped: CSV takes it for a column, the other formats fail to parse."""
    reason = "validation_error" if form == "csv" else "parse_error"

    assert said(f"```{form}\n{FITTING[form]}\n```", SCHEMAS[form], form) == (0.0, reason)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        pytest.param("json", '{"city": "Tamm", ', id="json cut off"),
        pytest.param("json", "It is 7.", id="json prose"),
        pytest.param("json", "NaN", id="json not a number"),
        pytest.param("json", '{"a": 1} {"a": 1}', id="json twice"),
        pytest.param("json", "\ud800", id="json half surrogate"),
        pytest.param("yaml", "a: b\n  c: d\n e", id="yaml bad indent"),
        pytest.param("yaml", "a: 1\n---\na: 2\n", id="yaml two documents"),
        pytest.param("yaml", "a: !!python/name:os.system x", id="yaml foreign tag"),
        pytest.param("yaml", '!!int ""', id="yaml integer without digits"),
        pytest.param("yaml", "!!bool maybe", id="yaml no boolean"),
        pytest.param("yaml", "!!timestamp soon", id="yaml no time"),
        pytest.param("yaml", "2024-13-45", id="yaml no date"),
        pytest.param("yaml", f"a: {'9' * 5000}", id="yaml more digits than Python reads"),
        pytest.param("xml", "<a><b>1</b>", id="xml not closed"),
        pytest.param("xml", "<a/><b/>", id="xml two roots"),
        pytest.param("xml", "\ud800", id="xml half surrogate"),
        pytest.param("toml", 'a = "x\n[b', id="toml cut off"),
        pytest.param("toml", "a = 1\na = 2", id="toml key twice"),
        pytest.param("csv", "name\rage\n1,2", id="csv lone carriage return"),
        pytest.param("json", f'"{"x" * MAX_CHARACTERS}"', id="too long"),
    ],
)
def test_verify_scores_text_that_cannot_be_read(form, text):
    assert said(text, SCHEMAS[form], form) == (0.0, "parse_error")


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"bridges": "seven"}, id="wrong type"),
        pytest.param({"bridges": True}, id="boolean is no integer"),
        pytest.param({"bridges": 7.5}, id="no whole number"),
        pytest.param({"harbour": "no"}, id="extra property"),
        pytest.param({"river": {"length": 3}}, id="property missing within"),
        pytest.param({"river": {"length": 3, "tidal": True, "deep": True}}, id="extra within"),
        pytest.param({"mayors": ["Ada", 3]}, id="wrong type in a list"),
        pytest.param({"city": None}, id="null"),
    ],
)
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_verify_scores_what_does_not_fit(form, changed):
    text = write({**RECORD, **changed}, form)

    assert said(text, SCHEMA, form) == (0.0, "validation_error")


def test_verify_requires_every_property():
    for name in RECORD:
        rest = {key: value for key, value in RECORD.items() if key != name}
        assert said(write(rest, "json"), SCHEMA) == (0.0, "validation_error")


def test_verify_never_looks_at_what_values_say():
    other = {"city": "", "bridges": -1, "river": {"length": 0, "tidal": True}, "mayors": []}

    assert said(write(other, "json"), SCHEMA) == CORRECT


def test_verify_joins_the_text_of_all_messages():
    rollout = answered(NAME, fields_of(SCHEMA), FITTING["json"][:9], FITTING["json"][9:])

    assert scored(rollout).reward == 1.0


def test_verify_says_where_and_shortens_it():
    text = write({**RECORD, "mayors": ["Ada", [0] * 400]}, "json")
    message = scored(answered(NAME, fields_of(SCHEMA), text)).details["error_message"]

    assert message.startswith("mayors: 1: [0, 0")
    assert len(message) == 200


def test_verify_takes_a_whole_float_for_an_integer():
    assert said("7.0", {"type": "integer"}) == CORRECT


@pytest.mark.parametrize("form", ["yaml", "toml"])
def test_verify_takes_a_date_for_no_text(form):
    schema = {"type": "object", "properties": {"day": {"type": "string"}}}
    text = "day: 2024-05-06" if form == "yaml" else "day = 2024-05-06"

    assert said(text, schema, form) == (0.0, "validation_error")


def test_verify_checks_no_formats():
    assert said('"soon"', {"type": "string", "format": "date"}) == CORRECT


# Schemas, made strict


def test_strict_requires_all_properties_and_no_others():
    made = strict(
        {
            "properties": {"a": {"properties": {"b": {}}, "required": [], "x": 1}},
            "required": ["z"],
            "additionalProperties": True,
        }
    )

    inner = {"properties": {"b": {}}, "required": ["b"], "x": 1, "additionalProperties": False}
    assert made == {"properties": {"a": inner}, "required": ["a"], "additionalProperties": False}


@pytest.mark.parametrize("key", ["items", "not", "additionalProperties"])
def test_strict_reaches_schemas_under_keys(key):
    made = strict({key: {"properties": {"b": {}}}})

    assert made[key]["required"] == ["b"]


@pytest.mark.parametrize("key", ["$defs", "definitions", "patternProperties"])
def test_strict_reaches_schemas_by_name(key):
    assert strict({key: {"n": {"properties": {"b": {}}}}})[key]["n"]["required"] == ["b"]


@pytest.mark.parametrize("key", ["oneOf", "anyOf", "allOf", "prefixItems"])
def test_strict_does_not_reach_into_lists(key):
    schema = {key: [{"properties": {"b": {}}}]}

    assert strict(schema) == schema


def test_strict_leaves_objects_without_properties_open():
    assert said('{"anything": 1}', {"type": "object"}) == CORRECT


def test_strict_takes_a_property_called_properties_for_one():
    schema = {"properties": {"properties": {"type": "object", "properties": {"a": {}}}, "x": {}}}
    made = strict(schema)

    assert set(made["properties"]) == {"properties", "x"}
    assert made["properties"]["properties"]["required"] == ["a"]
    assert said('{"properties": {"a": 1}, "x": 2}', schema) == CORRECT


@pytest.mark.parametrize("key", ["const", "default"])
def test_strict_leaves_data_alone(key):
    schema = {key: {"properties": {"a": 1}}}

    assert strict(schema) == schema


def test_strict_gives_what_is_no_schema_as_it_is():
    assert strict({"properties": ["a"], "items": True}) == {"properties": ["a"], "items": True}


@given(
    st.recursive(
        st.booleans() | st.none() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["properties", "items", "a", "const", "$defs"]), inner, max_size=3
            )
        ),
    )
)
def test_strict_changes_nothing_the_second_time(schema):
    assert strict(strict(schema)) == strict(schema)


# XML


@pytest.mark.parametrize(
    ("value", "schema", "typed"),
    [
        pytest.param("7", {"type": "integer"}, 7, id="integer"),
        pytest.param(" 7 ", {"type": "integer"}, 7, id="integer in spaces"),
        pytest.param("1_000", {"type": "integer"}, 1000, id="integer with underscore"),
        pytest.param("7.0", {"type": "integer"}, "7.0", id="no integer"),
        pytest.param("7", {"type": "number"}, 7.0, id="number"),
        pytest.param("x", {"type": "number"}, "x", id="no number"),
        pytest.param("TRUE", {"type": "boolean"}, True, id="true"),
        pytest.param("1", {"type": "boolean"}, True, id="one"),
        pytest.param("false", {"type": "boolean"}, False, id="false"),
        pytest.param("0", {"type": "boolean"}, False, id="zero"),
        pytest.param("yes", {"type": "boolean"}, "yes", id="no boolean"),
        pytest.param("7", {"type": "string"}, "7", id="text"),
        pytest.param(None, {"type": "string"}, "", id="empty text"),
        pytest.param(None, {"type": "integer"}, None, id="empty integer"),
        pytest.param(None, {"type": "object"}, None, id="empty object"),
        pytest.param("7", {"type": ["integer", "null"]}, "7", id="several types"),
        pytest.param("7", {"$ref": "#/x"}, "7", id="reference"),
        pytest.param("7", {}, "7", id="no type"),
        pytest.param("7", True, "7", id="schema that takes anything"),
        pytest.param(None, {"type": "array"}, [], id="empty list"),
        pytest.param("7", {"type": "array", "items": {"type": "integer"}}, [7], id="list of one"),
        pytest.param(
            {"n": ["7", "8"]}, {"type": "array", "items": {"type": "integer"}}, [7, 8], id="wrapped"
        ),
        pytest.param(
            {"n": "7"}, {"type": "array", "items": {"type": "integer"}}, [7], id="wrapped one"
        ),
        pytest.param(
            {"n": "7", "m": "8"},
            {
                "type": "array",
                "items": {"type": "object", "properties": {"n": {"type": "integer"}}},
            },
            [{"n": 7, "m": "8"}],
            id="one object of two properties",
        ),
        pytest.param("7", {"type": "array"}, ["7"], id="list of anything"),
        pytest.param("x", {"type": "object"}, "x", id="text for an object"),
    ],
)
def test_typed_xml(value, schema, typed):
    found = typed_xml(value, schema)

    assert found == typed
    assert type(found) is type(typed)


def test_verify_leaves_xml_untyped_on_request():
    xml = "<r><a>7</a></r>"
    for kind, reward in (("integer", 0.0), ("string", 1.0)):
        inner = {"type": "object", "properties": {"a": {"type": kind}}}
        schema = {"type": "object", "properties": {"r": inner}}
        assert said(xml, schema, "xml", xml_coerce_types=False)[0] == reward
        assert said(xml, schema, "xml")[0] == 1.0


def test_verify_takes_the_root_of_xml_for_a_property():
    schema = {"type": "object", "properties": {"s": {"type": "string"}}}

    assert said("<s/>", schema, "xml") == CORRECT
    assert said("<t/>", schema, "xml") == (0.0, "validation_error")


def test_verify_takes_attributes_of_xml_for_properties():
    schema = {"type": "object", "properties": {"s": {"type": "string"}}}

    assert said('<s lang="en">x</s>', schema, "xml") == (0.0, "validation_error")


# CSV


@pytest.mark.parametrize(
    ("text", "kind", "typed"),
    [
        pytest.param("7", "integer", 7, id="integer"),
        pytest.param("", "integer", "", id="empty integer"),
        pytest.param("x", "integer", "x", id="no integer"),
        pytest.param("2.5", "number", 2.5, id="number"),
        pytest.param("True", "boolean", True, id="true"),
        pytest.param("0", "boolean", False, id="zero"),
        pytest.param("yes", "boolean", "yes", id="no boolean"),
        pytest.param("7", "string", "7", id="text"),
        pytest.param("7", None, "7", id="no type"),
        pytest.param("", ["integer", "null"], None, id="null"),
        pytest.param("7", ["null", "integer"], 7, id="null before integer"),
        pytest.param("x", ["integer", "null"], "x", id="neither"),
        pytest.param("7", ["string", "integer"], "7", id="text first"),
        pytest.param("7", ["integer", "string"], 7, id="integer first"),
        pytest.param("x", ["integer", "string"], "x", id="integer first, and is none"),
        pytest.param("", ["integer", "string"], "", id="empty text"),
    ],
)
def test_typed_csv(text, kind, typed):
    schema = {"items": {"properties": {"a": {"type": kind}}}}

    [row] = typed_csv([{"a": text}], schema)
    assert row == {"a": typed}
    assert type(row["a"]) is type(typed)


def test_typed_csv_takes_the_columns_of_a_schema_without_items():
    assert typed_csv([{"a": "7"}], {"properties": {"a": {"type": "integer"}}}) == [{"a": 7}]
    assert typed_csv([{"a": "7"}], {"items": {"properties": {"a": True}}}) == [{"a": "7"}]
    assert typed_csv([{"a": "7"}], True) == [{"a": "7"}]


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        pytest.param("name,age,share,paid\n", 1.0, id="no rows fit a list that may be empty"),
        pytest.param("paid,share,age,name\n1,2,3,Ada\n", 1.0, id="other order"),
        pytest.param("name,age,share,paid\nAda,3,1,1,9\n", 0.0, id="a cell too many"),
        pytest.param("name,age,share,paid\nAda,3,1\n", 0.0, id="a cell too few"),
        pytest.param("name,age,share\nAda,3,1\n", 0.0, id="a column too few"),
        pytest.param("name,age,share,paid,x\nAda,3,1,1,9\n", 0.0, id="a column too many"),
        pytest.param("Ada,3,1,1\n", 1.0, id="one line is taken for the names"),
        pytest.param("name,age,share,paid\nAda,old,1,1\n", 0.0, id="no number"),
        pytest.param('name,age,share,paid\n"Fenn, Ada",3,1,1\n', 1.0, id="quoted comma"),
    ],
)
def test_verify_reads_csv_with_a_line_of_names(text, reward):
    assert said(text, TABLE, "csv")[0] == reward


# Tool calls


def arguments(value):
    return msgspec.json.encode(value).decode()


@pytest.mark.parametrize(
    ("named", "fields", "reason"),
    [
        pytest.param([("save", RECORD)], {"tool_name": "save"}, "correct", id="direct"),
        pytest.param([("x", RECORD)], {}, "correct", id="any tool"),
        pytest.param([("x", RECORD)], {"tool_name": ""}, "correct", id="empty name is any tool"),
        pytest.param(
            [("save", {"it": RECORD})], {"tool_payload_key": "it"}, "correct", id="wrapped"
        ),
        pytest.param(
            [("save", {"it": RECORD, "no": 1})], {"tool_payload_key": "it"}, "correct", id="beside"
        ),
        pytest.param([("save", RECORD)], {"tool_payload_key": ""}, "correct", id="empty key"),
        pytest.param(
            [("save", RECORD), ("save", RECORD)],
            {"tool_name": "save"},
            "multiple_tool_calls",
            id="twice",
        ),
        pytest.param(
            [("save", RECORD), ("x", {})],
            {"tool_name": "save"},
            "multiple_tool_calls",
            id="another",
        ),
        pytest.param([("x", RECORD)], {"tool_name": "save"}, "wrong_tool_name", id="wrong tool"),
        pytest.param(
            [("save", RECORD)], {"tool_payload_key": "it"}, "missing_tool_payload_key", id="no key"
        ),
        pytest.param(
            [("save", [RECORD])], {"tool_payload_key": "it"}, "missing_tool_payload_key", id="list"
        ),
        pytest.param([("save", {"city": 1})], {}, "validation_error", id="does not fit"),
        pytest.param([("save", {"it": RECORD})], {}, "validation_error", id="wrapped for nothing"),
    ],
)
def test_verify_looks_at_the_one_tool_call(named, fields, reason):
    found = called(*((name, arguments(value)) for name, value in named), **fields)

    assert found == (float(reason == "correct"), reason)


@pytest.mark.parametrize("text", ["", "{", "{'a': 1}", "NaN"])
def test_verify_scores_arguments_that_are_no_json(text):
    assert called(("save", text)) == (0.0, "tool_arguments_parse_error")


def test_verify_takes_arguments_encoded_twice_for_text():
    assert called(("save", arguments(arguments(RECORD)))) == (0.0, "validation_error")


def test_verify_wants_a_call_where_text_is_given():
    row = task_row(NAME, fields_of(SCHEMA, response_mode="tool_call"))
    rollout = scored(played(row, says(FITTING["json"])))

    assert (rollout.reward, rollout.details["reason"]) == (0.0, "missing_tool_call")


def test_verify_wants_text_where_a_call_is_given():
    """A row may show tools and expect text; calls are recorded but not run, and end the episode."""
    tools = [{"type": "function", "function": {"name": "save", "parameters": {}}}]
    row = task_row(NAME, fields_of(SCHEMA), tools=tools)
    call = calls(("save", FITTING["json"]))

    rollout = scored(played(row, call))
    assert (rollout.stop_reason, rollout.tool_errors, len(rollout.responses)) == ("done", {}, 1)
    assert rollout.details["reason"] == "no_answer"
    both = Message(role="assistant", content=FITTING["json"], tool_calls=call.tool_calls)
    assert scored(played(row, both)).reward == 1.0


def test_verify_reads_tool_calls_as_json_whatever_the_schema_type():
    schema_type = {"schema_type": "xml"}

    row = task_row(NAME, {**fields_of(SCHEMA, response_mode="tool_call"), **schema_type})
    assert scored(played(row, calls(("save", FITTING["json"])))).reward == 1.0


def test_task_has_the_defaults_of_older_rows():
    task = RecordTask.model_validate({"schema_str": "{}"})

    assert (task.schema_type, task.response_mode) == ("json", "text")
    assert scored(answered(NAME, {"schema_str": "{}", "response_mode": None}, "1")).reward == 1.0


def test_rows_of_others_load_and_score(tmp_path):
    extraction = {"type": "object", "properties": {"extraction": SCHEMA}}
    row = row_of_file(
        tmp_path,
        None,
        {
            "responses_create_params": {
                "input": [{"role": "user", "content": "Tamm has seven bridges."}],
                "tools": [
                    {"type": "function", "name": "t_1", "parameters": extraction, "strict": True}
                ],
                "tool_choice": "auto",
                "parallel_tool_calls": True,
            },
            "schema_str": msgspec.json.encode(SCHEMA).decode(),
            "schema_type": "json",
            "response_mode": "tool_call",
            "problem_type": "direct_tool_call",
            "tool_name": "t_1",
            "tool_schema_mode": "extraction_wrapper",
            "tool_payload_key": "extraction",
            "tool_union_mode": None,
            "num_turns": 1,
            "agent_ref": {"type": "responses_api_agents", "name": f"{NAME}_v4_simple_agent"},
        },
    )
    right = calls(("t_1", arguments({"extraction": RECORD})))

    assert scored(played(row, right)).reward == 1.0
    assert asyncio.run(StructuredOutputs(RecordTask(schema_str="{}")).oracle(None)) is None


# Schemas that are wrong or could run away


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param("{", id="no JSON"),
        pytest.param("[]", id="a list"),
        pytest.param({"type": "strng"}, id="unknown type"),
        pytest.param({"minimum": "3"}, id="text for a number"),
        pytest.param({"properties": {"a": 3}}, id="number for a schema"),
        pytest.param({"items": {"enum": 3}}, id="no list of values"),
        pytest.param({"multipleOf": 0}, id="multiple of nothing"),
        pytest.param("[" * 70 + "]" * 70, id="too deep"),
    ],
)
def test_verify_blames_a_schema_that_is_wrong(schema):
    text = '{"a": 1}' if "a" in str(schema) and isinstance(schema, dict) else "3"
    if isinstance(schema, dict) and "items" in schema:
        text = "[3]"

    assert said(text, schema) == (0.0, "schema_error")


def test_verify_takes_a_boolean_for_a_schema():
    assert said("3", "true") == CORRECT
    assert said("3", "false") == (0.0, "validation_error")


@pytest.mark.parametrize("reference", ["#/$defs/nothing", "other.json", "http://{address}/x.json"])
def test_verify_never_fetches_a_reference(reference):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        host, port = server.getsockname()
        schema = {"$ref": reference.format(address=f"{host}:{port}")}

        assert examined("3", schema) == "schema_error"
        with pytest.raises(BlockingIOError):
            server.accept()


def test_verify_follows_references_within_the_schema():
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/leaf"}, "next": {"$ref": "#/$defs/link"}},
        "$defs": {
            "leaf": {"type": "integer"},
            "link": {"anyOf": [{"type": "null"}, {"$ref": "#"}]},
        },
    }
    chain = None
    for number in range(MAX_DEPTH):
        chain = {"a": number, "next": chain}

    assert said('{"a": 1, "next": {"a": 2, "next": null}}', schema) == CORRECT
    assert examined('{"a": 1, "next": {"a": "2", "next": null}}', schema) == "validation_error"
    assert examined(arguments(chain), schema) == "correct"


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"$ref": "#"}, id="to itself"),
        pytest.param({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, id="to itself twice"),
    ],
)
def test_verify_scores_references_without_an_end(schema):
    assert examined("3", schema) == "validation_error"


def test_verify_applies_patterns():
    schema = {"type": "string", "pattern": "^[a-z]+$"}

    assert said('"tamm"', schema) == CORRECT
    assert examined('"Tamm"', schema) == "validation_error"
    assert examined('"tamm"', {"type": "string", "pattern": "("}) == "schema_error"


def test_verify_scores_keys_of_yaml_that_are_no_text():
    schema = {"type": "object", "patternProperties": {"^a": {}}}

    assert examined("1: x", schema, "yaml") == "validation_error"
    assert examined("1: x", {"type": "object"}, "yaml") == "correct"


HARMLESS = [SCHEMA, {"const": "pattern"}, {"description": 'no "pattern": here'}, True]
RISKY = [
    {"pattern": "x"},
    {"items": {"patternProperties": {}}},
    {"uniqueItems": True},
    {"anyOf": [{"$ref": "#/x"}]},
    {"$dynamicRef": "#x"},
    {"unevaluatedProperties": False},
]


def paper(schema, text=""):
    return Paper(text, arguments(schema), "json", None, types_xml=True)


@pytest.mark.parametrize("schema", HARMLESS)
def test_paper_can_run_away_no(schema):
    assert not paper(schema).can_run_away


@pytest.mark.parametrize("schema", RISKY)
def test_paper_can_run_away_yes(schema):
    assert paper(schema).can_run_away


def test_paper_can_run_away_sees_through_escapes():
    assert Paper("", r'{"p\u0061ttern": "x"}', "json", None, types_xml=True).can_run_away
    assert not Paper("", "{", "json", None, types_xml=True).can_run_away


class LateContext:
    """A context in which every function times out; it counts the calls."""

    roles = {}
    options = StructuredOutputs.Options()
    num_calls = 0

    async def isolated(self, function, *args, timeout=10.0, memory_mb=1024):
        self.num_calls += 1
        raise VerifierTimeoutError(f"{function.__name__} took longer than {timeout:g} seconds")


@pytest.mark.parametrize("schema", RISKY)
def test_verify_leaves_a_schema_that_runs_away_unscored(schema):
    rollout = answered(NAME, fields_of(schema), "3")

    with pytest.raises(VerifierTimeoutError):
        asyncio.run(StructuredOutputs.verify(rollout, LateContext()))


def test_verify_scores_an_answer_that_runs_away():
    """Otherwise a model could escape its score."""
    context = LateContext()
    found = asyncio.run(
        StructuredOutputs.verify(answered(NAME, fields_of(SCHEMA), "x" * MAX_SHORT), context)
    )

    assert (found.reward, found.details["reason"], context.num_calls) == (0.0, "parse_error", 1)


def test_verify_starts_no_process_for_a_short_answer():
    context = LateContext()
    rollout = answered(NAME, fields_of(SCHEMA), FITTING["json"])

    assert asyncio.run(StructuredOutputs.verify(rollout, context)).reward == 1.0
    assert context.num_calls == 0


@pytest.mark.parametrize(
    ("form", "length", "is_short"),
    [
        ("json", MAX_SHORT - 2, True),
        ("json", MAX_SHORT - 1, False),
        (None, MAX_SHORT, False),
        ("yaml", MAX_SHORT_YAML, True),
        ("yaml", MAX_SHORT_YAML + 1, False),
    ],
)
def test_paper_is_short(form, length, is_short):
    assert Paper("x" * length, "{}", form, None, types_xml=True).is_short == is_short


def test_verify_reads_a_long_answer_in_a_process():
    schema = {"type": "array", "items": {"type": "integer"}}

    assert said(arguments(list(range(10_000))), schema) == CORRECT


@pytest.mark.slow
def test_verify_kills_a_pattern_that_runs_away():
    rollout = answered(NAME, fields_of({"pattern": "^(a|aa)+$"}), arguments("a" * 60 + "!"))

    with pytest.raises(VerifierTimeoutError):
        scored(rollout)


# Malicious answers


DEEP = 40_000


@pytest.mark.parametrize(
    ("form", "text"),
    [
        pytest.param("json", "[" * DEEP, id="json"),
        pytest.param("json", "[" * 90 + "]" * 90, id="json that closes"),
        pytest.param("yaml", "[" * DEEP, id="yaml"),
        pytest.param("yaml", "[" * 90 + "]" * 90, id="yaml that closes"),
        pytest.param("yaml", "- " * DEEP + "x", id="yaml in blocks"),
        pytest.param("yaml", "- " * 90 + "x", id="yaml in blocks that end"),
        pytest.param("xml", "<a>" * 30_000, id="xml"),
        pytest.param("xml", "<a>" * 12_000 + "</a>" * 12_000, id="xml that closes"),
        pytest.param("toml", "a = " + "[" * DEEP, id="toml"),
        pytest.param("toml", f"{'a.' * 40_000}a = 1", id="toml dotted key"),
        pytest.param("toml", f"[{'a . ' * 20_000}a]\nb = 1", id="toml dotted table"),
        pytest.param("toml", "[" + '"a".' * 20_000 + "a]\nb = 1", id="toml quoted dotted table"),
    ],
)
def test_read_refuses_what_is_nested_too_deeply(form, text):
    with pytest.raises(UnreadableError):
        read(form, text)


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_read_takes_what_is_just_deep_enough(form):
    assert read(form, "[" * MAX_DEPTH + "1" + "]" * MAX_DEPTH)
    with pytest.raises(UnreadableError, match=f"{MAX_DEPTH}"):
        read(form, "[" * (MAX_DEPTH + 1) + "1" + "]" * (MAX_DEPTH + 1))


def test_read_refuses_what_is_too_long():
    assert read("json", f'"{"x" * (MAX_CHARACTERS - 2)}"')
    with pytest.raises(UnreadableError, match="more than 100000 characters"):
        read("json", f'"{"x" * MAX_CHARACTERS}"')


def doubling(first, line):
    return "\n".join([first, *(line.format(n, n - 1) for n in range(1, 40))])


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a: &a 1\nb: *a", id="alias"),
        pytest.param("&a [*a]", id="alias to itself"),
        pytest.param(doubling("a0: &a0 [x]", "a{0}: &a{0} [*a{1}, *a{1}]"), id="doubling"),
        pytest.param(
            doubling("a0: &a0 {x: 1}", "a{0}: &a{0} {{<<: [*a{1}, *a{1}]}}"), id="merging"
        ),
    ],
)
def test_read_refuses_aliases_of_yaml(text):
    with pytest.raises(UnreadableError, match="aliases are not read"):
        read("yaml", text)


def test_read_takes_anchors_and_merges_without_aliases():
    assert read("yaml", "a: &a 1\n<<: {b: 2}") == {"a": 1, "b": 2}


def test_read_takes_a_text_with_dots_in_toml():
    text = 'a = "Is it? No. Or is it... 1.2.3.4"\n[b.c.d]\ne.f = [1.5, 2.5]'

    assert read("toml", text)["b"] == {"c": {"d": {"e": {"f": [1.5, 2.5]}}}}


@pytest.mark.parametrize(
    "text",
    [
        '<!DOCTYPE a [<!ENTITY b "x">]><a>&b;</a>',
        '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/hostname">]><a>&b;</a>',
        '<!DOCTYPE a [<!ENTITY % b SYSTEM "http://127.0.0.1:9/x"> %b;]><a/>',
    ],
)
def test_read_refuses_entities_of_xml(text):
    with pytest.raises(UnreadableError, match="entities are disabled"):
        read("xml", text)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(FORMATS),
    st.text(max_size=60)
    | st.text(alphabet="[]{}<>/!&*?|:-#.,=\"' \n\t0a1e", max_size=80)
    | st.builds(
        "!!{} {}".format, st.sampled_from(["int", "float", "bool", "set", "omap"]), st.text()
    ),
)
def test_examine_never_raises(form, text):
    found = examine(Paper(text, arguments(SCHEMAS[form]), form, None, types_xml=True))

    assert found.reason in ("correct", "parse_error", "validation_error")
    assert len(found.message) <= 200


# The package that reads XML


def test_the_package_that_is_missing_is_named_before_a_run(monkeypatch):
    monkeypatch.setitem(sys.modules, "xmltodict", None)
    row = task_row(NAME, fields_of(SCHEMAS["xml"], "xml"))

    task = StructuredOutputs.parse_task(row.fields)
    with pytest.raises(MissingPackageError, match=r"pip install 'gymcli\[structured\]'"):
        StructuredOutputs.check_task(task, StructuredOutputs.Options())
    with pytest.raises(VerifierError, match="need the package xmltodict"):
        scored(answered(NAME, row.fields, FITTING["xml"]))


def test_the_package_is_needed_for_xml_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "xmltodict", None)

    for form in ("json", "yaml", "toml", "csv"):
        assert said(FITTING[form], SCHEMAS[form], form) == CORRECT
    assert called(("save", FITTING["json"])) == CORRECT


# The dataset


def shipped_rows():
    return lines_of(shipped_tasks(NAME))


def form_of(row):
    return row["response_mode"] if row["response_mode"] == "tool_call" else row["schema_type"]


def gold_rollout(row, other):
    """Return the record of a row that was answered by the oracle of another row."""
    environment = StructuredOutputs(StructuredOutputs.parse_task(other))
    message = asyncio.run(environment.oracle(None))
    rollout = answered(NAME, row)
    rollout.messages.append(message)
    return rollout


def test_generate_spreads_the_rows_over_the_formats_and_levels():
    rows = shipped_rows()
    kinds = [form_of(row) for row in rows]

    assert {kind: kinds.count(kind) for kind in generator.FORMS} == dict.fromkeys(
        generator.FORMS, 12
    )
    assert len({row["theme"] for row in rows}) == 24
    levels = [row["difficulty"] for row in rows]
    assert {level: levels.count(level) for level in levels} == dict.fromkeys(levels, 24)


def test_generate_gives_every_row_a_schema_of_its_own():
    names = [line.split() for line in generator.THEMES.strip().splitlines()]

    assert all(len(line) == len(set(line)) == 11 for line in names)
    assert len({row["schema_str"] for row in shipped_rows()}) == 72


@pytest.mark.slow
def test_generate_never_makes_an_answer_that_fits_another_row():
    rows = shipped_rows()

    for row in rows:
        alike = [other for other in rows if form_of(other) == form_of(row)]
        rewarded = [o["id"] for o in alike if scored(gold_rollout(row, o)).reward == 1.0]
        assert rewarded == [row["id"]]


def test_generate_shows_the_tool_among_others():
    for row in shipped_rows():
        if row["response_mode"] == "tool_call":
            shown = [tool["function"]["name"] for tool in row["tools"]]
            assert len(shown) == len(set(shown)) == row["num_tools"] >= 2
            assert row["tool_name"] in shown


def test_generate_goes_on_with_other_records():
    rows = list(StructuredOutputs.generate(Random(0), 80))

    assert rows[72]["theme"] == rows[0]["theme"]
    assert rows[72]["prompt"] != rows[0]["prompt"]


@settings(max_examples=30, deadline=None)
@given(st.integers(min_value=0))
def test_write_is_undone_by_reading(seed):
    """In every format, the oracle's text is read back as the gold record."""
    for row in StructuredOutputs.generate(Random(seed), 18):
        form, gold, schema = row["schema_type"], row["gold"], msgspec.json.decode(row["schema_str"])
        value = read(form, write(gold, form))
        value = typed_xml(value, schema) if form == "xml" else value
        value = typed_csv(value, schema) if form == "csv" else value
        assert value == gold


def test_oracle_calls_any_tool_where_the_row_names_none():
    task = RecordTask(schema_str="{}", response_mode="tool_call", gold={"a": 1})

    message = asyncio.run(StructuredOutputs(task).oracle(None))
    assert message.tool_calls == [ToolCall(id="call_0", function=FunctionCall("", '{"a":1}'))]
