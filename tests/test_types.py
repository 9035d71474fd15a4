"""Tests of the data on disk and on the wire: what is written is what is read."""

import math
import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import fields

from gymcli.types import (
    JSON_ERRORS,
    AttemptKey,
    ErrorRecord,
    Failure,
    FunctionCall,
    Message,
    RecordNumbers,
    Rollout,
    Score,
    Timing,
    ToolCall,
    Usage,
    Verifier,
    canonical_json,
    digest,
    text_of,
)

texts = st.text(max_size=8)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(texts, json_values, max_size=3)
numbers = st.dictionaries(texts, st.floats(allow_nan=False, allow_infinity=False), max_size=3)
counts = st.dictionaries(texts, st.integers(0, 9), max_size=3)
tool_calls = st.builds(ToolCall, id=texts, function=st.builds(FunctionCall, texts, texts))
messages = st.builds(
    Message,
    role=st.sampled_from(["system", "developer", "user", "assistant", "tool"]),
    content=st.none() | texts | st.lists(objects, max_size=2),
    reasoning=st.none() | texts,
    refusal=st.none() | texts,
    tool_calls=st.lists(tool_calls, max_size=2),
    tool_call_id=st.none() | texts,
    response_items=st.lists(objects, max_size=2),
    logprobs=json_values,
)
rollouts = st.builds(
    Rollout,
    schema_version=st.just(1),
    task_id=texts,
    attempt=st.integers(0, 9),
    env=texts,
    env_options=objects,
    seed=st.integers(0, 2**31 - 1),
    task=objects,
    messages=st.lists(messages, max_size=4),
    tools=st.lists(objects, max_size=2),
    num_prompt_messages=st.integers(0, 4),
    sampling=objects,
    stop_reason=st.sampled_from(["done", "env_done", "max_turns", "length", "no_answer"]),
    final_state=json_values,
    step_rewards=st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False), max_size=3),
    tool_errors=counts,
    retries=counts,
    reward=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    components=numbers,
    metrics=numbers,
    answer=st.none() | texts,
    details=objects,
)


@settings(max_examples=50)
@given(rollouts)
def test_rollout_is_the_same_after_a_line(rollout):
    line = msgspec.json.encode(rollout)
    assert b"\n" not in line
    assert msgspec.json.decode(line, type=Rollout) == rollout
    assert msgspec.json.encode(msgspec.json.decode(line, type=Rollout)) == line


def test_rollout_leaves_defaults_out_and_reads_over_unknown_fields():
    line = msgspec.json.encode(Rollout(task_id="a"))
    assert line == b'{"task_id":"a","usage":{},"timing":{},"verifier":{}}'
    read = msgspec.json.decode(b'{"task_id":"a","colour":"red"}', type=Rollout)
    assert read == Rollout(task_id="a")


def test_rollout_copies_its_mutable_defaults():
    first, second = Rollout(), Rollout()
    first.messages.append(Message(role="user"))
    first.usage.prompt_tokens = 3
    assert second == Rollout()


def call(name):
    return ToolCall(id=name, function=FunctionCall(name, "{}"))


def test_rollout_gives_the_messages_after_the_prompt():
    rollout = Rollout(
        env="e",
        task_id="t",
        attempt=2,
        num_prompt_messages=2,
        messages=[
            Message(role="assistant", content="of the prompt", tool_calls=[call("zero")]),
            Message(role="user", content="Go."),
            Message(role="assistant", content="One.", tool_calls=[call("one")]),
            Message(role="tool", content="result"),
            Message(role="assistant", content=[{"type": "text", "text": "Two."}]),
            Message(role="user", content="And?"),
        ],
    )
    assert rollout.key == AttemptKey("e", "t", 2)
    assert [message.text for message in rollout.responses] == ["One.", "result", "Two.", "And?"]
    assert rollout.output_text == "One.Two."
    assert rollout.last_text == "Two."
    assert [(c.name, c.arguments) for c in rollout.tool_calls] == [("one", "{}")]


def test_rollout_without_an_answer_has_empty_texts():
    rollout = Rollout(messages=[Message(role="user", content="Go.")], num_prompt_messages=1)
    assert (rollout.output_text, rollout.last_text, rollout.tool_calls) == ("", "", [])


def test_scored_gives_a_copy_without_any_earlier_score():
    before = Rollout(
        reward=0.5, components={"a": 1.0}, details={"reason": "old"}, timing=Timing(total_seconds=2)
    )
    after = before.scored(Score(1.0, answer="B"), Verifier("2", "abc"), 0.25)
    assert (after.reward, after.answer, after.components, after.details) == (1.0, "B", {}, {})
    assert after.verifier == Verifier("2", "abc")
    assert after.timing == Timing(total_seconds=2, verify_seconds=0.25)
    assert (before.reward, before.timing.verify_seconds) == (0.5, 0.0)


def test_failure_names_its_error_class_as_it_is_written():
    error = ErrorRecord(error_class="ServerError", phase="model", status=503)
    failure = Failure(env="e", task_id="t", attempt=1, error=error)
    line = msgspec.json.encode(failure)
    assert b'"error":{"class":"ServerError","phase":"model","status":503}' in line
    assert msgspec.json.decode(line, type=Failure) == failure
    assert failure.key == AttemptKey("e", "t", 1)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("plain", "plain"),
        ([{"type": "text", "text": "a"}, {"type": "image_url"}, {"text": "b"}], "ab"),
        ([{"type": "text", "text": None}], ""),
    ],
)
def test_text_of_joins_the_text_parts(content, text):
    assert text_of(content) == text


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (Message(role="assistant", reasoning="Hm."), True),
        (Message(role="assistant", reasoning="Hm.", content=""), True),
        (Message(role="assistant", reasoning="Hm.", content="So."), False),
        (Message(role="assistant", reasoning="Hm.", tool_calls=[call("a")]), False),
        (Message(role="assistant"), False),
    ],
)
def test_is_reasoning_only(message, expected):
    assert message.is_reasoning_only is expected


def test_usage_adds_up():
    total = Usage(prompt_tokens=1)
    total.add(Usage(prompt_tokens=2, completion_tokens=3, cached_tokens=4, reasoning_tokens=5))
    assert total == Usage(prompt_tokens=3, completion_tokens=3, cached_tokens=4, reasoning_tokens=5)


def shuffled(value, rng):
    """Return an equal value whose objects have their keys in another order."""
    if isinstance(value, list):
        return [shuffled(item, rng) for item in value]
    if not isinstance(value, dict):
        return value
    keys = list(value)
    rng.shuffle(keys)
    return {key: shuffled(value[key], rng) for key in keys}


@given(json_values, st.integers())
def test_canonical_json_does_not_depend_on_the_order_of_keys(value, seed):
    other = shuffled(value, random.Random(seed))
    assert canonical_json(other) == canonical_json(value)
    assert digest(other) == digest(value)
    decoded = msgspec.json.decode(canonical_json(value))
    assert decoded == value or (isinstance(value, float) and math.isclose(decoded, value))


def test_digest_is_16_hex_digits_that_tell_values_apart():
    assert digest({"a": 1}) != digest({"a": "1"})
    assert len(digest({})) == 16
    assert int(digest({}), 16) >= 0


@pytest.mark.parametrize("text", [b"{", b'"\xed\xa0\x80"', b"[" * 100_000, b'"\\ud800"', b"1e999"])
def test_json_errors_are_all_that_decoding_raises(text):
    with pytest.raises(JSON_ERRORS):
        msgspec.json.decode(text)


@given(st.binary())
def test_json_errors_are_all_that_decoding_bytes_raises(data):
    try:
        msgspec.json.decode(data, type=Rollout)
    except JSON_ERRORS:
        return


def test_fields_of_a_line_are_in_the_json_schema():
    """Every field of a line is in the JSON Schema that ships with the documentation."""
    schema = Path(__file__).parents[1] / "docs" / "rollout.schema.json"
    if not schema.is_file():
        pytest.skip("the documentation is not here")
    described = msgspec.json.decode(schema.read_bytes())
    names = set(Rollout.__struct_encode_fields__)
    assert names <= set(described.get("properties") or described["$defs"]["Rollout"]["properties"])


def test_readings_of_a_line_have_the_fields_of_its_records():
    known = {field.name: field.type for kind in (Failure, Rollout) for field in fields(kind)}
    known["stop_reason"] = str | None
    for field in fields(RecordNumbers):
        assert field.type in (known[field.name], known[field.name] | None), field.name
    assert set(Failure.__struct_fields__) - {"error"} <= set(Rollout.__struct_fields__)


def test_keys_of_a_line_keep_their_order():
    """Readers may look up a line by its bytes, and diffs of runs stay small."""
    shared = ("schema_version", "task_id", "task_hash", "attempt", "env", "env_version")
    shared += ("env_options", "seed")
    conversation = ("group_size", "play", "task", "messages", "tools", "num_prompt_messages")
    conversation += (
        "model",
        "sampling",
        "response_model",
        "stop_reason",
        "final_state",
        "step_rewards",
    )
    spent = ("usage", "calls", "cost", "role_usage")
    score = ("reward", "components", "metrics", "answer", "details", "verifier")
    assert Rollout.__struct_encode_fields__ == (
        *(*shared, *conversation, "tool_errors", *spent, "redacted", "timing", "retries", *score),
    )
    assert Failure.__struct_encode_fields__ == (
        *(*shared, "error", "messages", "redacted", "model", *spent, "timing", "retries"),
    )


@pytest.mark.parametrize("name", Usage.__struct_fields__)
def test_impossible_usage_on_disk_is_ignored(name):
    line = msgspec.json.encode({"usage": {"prompt_tokens": 3, name: 10**308}})
    assert msgspec.json.decode(line, type=Rollout).usage == Usage()
    line = msgspec.json.encode({"usage": {name: 2**64 - 1}})
    assert getattr(msgspec.json.decode(line, type=Rollout).usage, name) == 2**64 - 1


def test_extra_fields_of_a_call_are_written_if_there_are_any():
    plain = ToolCall("a", FunctionCall("f", "{}"))
    more = ToolCall("a", FunctionCall("f", "{}"), extra={"x": 1})
    written = [msgspec.json.decode(msgspec.json.encode(call)) for call in (plain, more)]
    call = {"id": "a", "function": {"name": "f", "arguments": "{}"}, "type": "function"}
    assert written == [call, {**call, "extra": {"x": 1}}]
    assert [msgspec.convert(one, ToolCall) for one in written] == [plain, more]
