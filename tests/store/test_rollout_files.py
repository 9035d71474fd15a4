"""Reading rollout files, ours and NeMo Gym's, and which attempts of each task are scored."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.errors import RunFileError, UsageError
from gymcli.store.rollout_files import (
    RolloutReading,
    decode_rollout,
    environment_names,
    find_record,
    read_done,
    rollout_lines,
    rollouts_file,
)
from gymcli.types import Rollout
from tests.builders import failed, write_run

NEMO_RUN = Path(__file__).parents[3] / "shared" / "data" / "nemo_gym_run" / "rollouts.jsonl"

READING = RolloutReading("file.jsonl")


def own(task_id="a", attempt=0, env="quiz"):
    return Rollout(schema_version=1, env=env, task_id=task_id, attempt=attempt, reward=0.5)


def foreign(**fields):
    """Return a line of NeMo Gym with one message in each direction."""
    text = {"type": "output_text", "text": "B", "annotations": []}
    answer = {"type": "message", "role": "assistant", "content": [text], "id": "m"}
    return {
        "responses_create_params": {"input": [{"role": "user", "content": "A or B?"}]},
        "response": {"output": [answer], "model": "m"},
        "reward": 1.0,
        "_ng_task_index": 3,
        "_ng_rollout_index": 2,
        "agent_ref": {"name": "quiz_simple_agent"},
        **fields,
    }


def decode(line, reading=READING):
    return decode_rollout(
        7, line if isinstance(line, bytes) else msgspec.json.encode(line), reading
    )


def write(tmp_path, *lines):
    path = tmp_path / "rollouts.jsonl"
    encoded = [line if isinstance(line, bytes) else msgspec.json.encode(line) for line in lines]
    path.write_bytes(b"\n".join(encoded))
    return path


def test_rollouts_file_is_that_of_a_run_or_the_file_itself(tmp_path):
    path = write(tmp_path, own())
    assert rollouts_file(tmp_path) == path
    assert rollouts_file(path) == path
    with pytest.raises(UsageError, match="nothing: no such run directory or rollout file"):
        rollouts_file(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        UsageError, match=r"empty: holds no rollouts\.jsonl; expected a run directory"
    ):
        rollouts_file(tmp_path / "empty")


@pytest.mark.parametrize("torn", [b'{"schema_version":1,"task', b"[" * 100_000, b"\xff"])
def test_rollout_lines_leave_a_torn_last_line_out(tmp_path, torn):
    assert [line.number for line in rollout_lines(write(tmp_path, own(), own("b"), torn))] == [1, 2]


def test_rollout_lines_keep_a_whole_last_line_without_its_newline(tmp_path):
    assert [line.number for line in rollout_lines(write(tmp_path, own(), own("b")))] == [1, 2]
    assert [line.number for line in rollout_lines(write(tmp_path, b"{", own("b")))] == [1, 2]


def test_decode_rollout_reads_ours():
    assert decode(own("a", 3)) == own("a", 3)


def test_decode_rollout_reads_nemo_gym_s():
    rollout = decode(foreign(id="x", expected_answer="B"))
    assert (rollout.task_id, rollout.attempt, rollout.env) == ("x", 2, "quiz_simple_agent")
    assert (rollout.output_text, rollout.reward, rollout.env_version) == ("B", 1.0, "")
    assert rollout.task == {"id": "x", "expected_answer": "B"}


def test_decode_rollout_reads_foreign_fields_that_have_names_of_ours():
    """A row may have a field `task`, `answer` or `metrics` of another type."""
    fields = {"task": "count", "answer": 5, "metrics": [1], "env": 3}
    rollout = decode(foreign(**fields))
    assert rollout.output_text == "B"
    assert rollout.task == fields


def test_decode_rollout_takes_the_default_environment_where_the_line_names_none():
    line = foreign(agent_ref=None)
    assert decode(line, RolloutReading("f", default_env="quiz")).env == "quiz"
    assert decode(foreign(), RolloutReading("f", default_env="other")).env == "quiz_simple_agent"
    with pytest.raises(RunFileError, match=r"file\.jsonl:7: .* names no environment; use --env"):
        decode(line)


@pytest.mark.parametrize(
    ("row_fields", "own_fields", "joined"),
    [
        ({"x": {"id": "x", "answer": 1}}, {"id": "x"}, {"id": "x", "answer": 1}),
        ({"#3": {"answer": 1}}, {}, {"answer": 1}),
        ({"#3": {"answer": 1}}, {"id": "gone"}, {"id": "gone", "answer": 1}),
        ({"3": {"id": 3, "answer": 2}, "#3": {"answer": 1}}, {}, {"answer": 1}),
        ({"y": {"answer": 1}, "#0": {"answer": 2}}, {"id": "x"}, {"id": "x"}),
    ],
)
def test_decode_rollout_joins_the_fields_of_the_row(row_fields, own_fields, joined):
    """Rows are matched by the line's id, else by its index, but an id never matches an index."""
    assert decode(foreign(**own_fields), RolloutReading("f", row_fields=row_fields)).task == joined


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{", "is not a rollout: "),
        (b"\xff", "is not a rollout: "),
        (b'{"task":' + b"[" * 100_000, "is not a rollout: maximum recursion depth"),
        (b"[]", "Expected `object`, got `array`"),
        (b"3", "Expected `object`, got `int`"),
        ({"task_id": "a"}, 'has neither "schema_version" (gymcli) nor "response" (NeMo Gym)'),
        ({"reward": "x"}, 'has neither "schema_version" (gymcli) nor "response" (NeMo Gym)'),
        ({"schema_version": 1}, '"env", "task_id" or "attempt" is missing'),
        ({"schema_version": 1, "env": "quiz", "task_id": "a"}, 'or "attempt" is missing'),
        (
            {"schema_version": 1, "reward": "x"},
            "Expected `float | null`, got `str` - at `$.reward`",
        ),
        ({"schema_version": "1"}, "Expected `int`, got `str`"),
        (foreign(response=3), '"response" must be an object with the list "output"'),
        (foreign(response={"output": [3]}), '"response.output": item 0 is not an object'),
        (foreign(agent_ref=3), '"agent_ref" must be an object'),
    ],
)
def test_decode_rollout_names_file_line_and_reason(line, words):
    with pytest.raises(RunFileError) as caught:
        decode(line)
    assert str(caught.value).startswith("file.jsonl:7: is not a rollout: ")
    assert words in str(caught.value)


def test_environment_names_are_those_of_the_lines(tmp_path):
    path = write(tmp_path, own(env="one"), foreign(), own(env="two"), foreign(env=3))
    assert environment_names(path, READING) == {"one", "two", "quiz_simple_agent"}
    with pytest.raises(RunFileError, match=r"file\.jsonl:2: "):
        environment_names(write(tmp_path, own(), b'{"schema_version": 1}', own()), READING)


def test_find_record_takes_a_task_and_an_attempt(tmp_path):
    path = write(tmp_path, own("a", 1), own("b"), own("a", 0), own("b/1"), own("a", 0, "other"))

    def found(task, env=None):
        rollout = find_record(path, task, env=env)
        return rollout and (rollout.env, rollout.task_id, rollout.attempt)

    assert found("a") == ("quiz", "a", 0)
    assert found("a/1") == ("quiz", "a", 1)
    assert found("b/1") == ("quiz", "b/1", 0)
    assert found("a", "other") == ("other", "a", 0)
    assert found("a/7") is None
    assert find_record(tmp_path, "b") == own("b")


def test_find_record_takes_the_last_failure_of_what_is_not_scored(tmp_path):
    run = write_run(
        tmp_path / "run",
        rollouts=[own("a", 1)],
        failures=[failed("a", 0), failed("b"), failed("b", 1, "Last"), failed("c", env="other")],
    )
    assert find_record(run, "a") == own("a", 1)
    assert find_record(run, "a/0") == failed("a", 0)
    assert find_record(run, "b") == failed("b", 1, "Last")
    assert find_record(run, "b", env="other") is None
    assert find_record(run, "c", env="other") == failed("c", env="other")
    assert find_record(run, "d") is None
    (run / "rollouts.jsonl").unlink()
    assert find_record(run, "a") == failed("a", 0)
    assert find_record(run, "d") is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["output", "type", "role", "content", "usage"]), inner)
    ),
    max_leaves=8,
)
keys = ["schema_version", "env", "task_id", "attempt", "messages", "response", "agent_ref", "task"]
keys += ["reward", "responses_create_params", "_ng_task_index", "_ng_rollout_index", "metrics"]
likely_lines = st.fixed_dictionaries({}, optional=dict.fromkeys(keys, json_values))


@given(st.binary(max_size=60) | likely_lines | likely_lines.map(lambda line: foreign(**line)))
def test_decode_rollout_of_anything_is_a_rollout_or_our_error(line):
    data = line if isinstance(line, bytes) else json.dumps(line).encode()
    try:
        rollout = decode_rollout(1, data, RolloutReading("f", default_env="quiz"))
    except RunFileError:
        return
    assert rollout.env
    assert rollout.task_id
    assert msgspec.json.decode(msgspec.json.encode(rollout), type=Rollout) == rollout


@pytest.mark.skipif(not NEMO_RUN.is_file(), reason="the run of NeMo Gym is missing")
def test_decode_rollout_reads_every_line_of_a_real_nemo_gym_run():
    rollouts = [
        decode_rollout(line.number, line.data, RolloutReading(str(NEMO_RUN)))
        for line in rollout_lines(NEMO_RUN)
    ]
    assert sorted((r.task_id, r.attempt) for r in rollouts) == [
        (str(task), attempt) for task in range(3) for attempt in range(2)
    ]
    for rollout in rollouts:
        assert rollout.env == "example_single_tool_call_simple_agent"
        assert (rollout.reward, rollout.stop_reason, rollout.model) == (1.0, "done", "mock-model")
        assert [call.name for call in rollout.tool_calls] == ["get_weather", "get_weather"]
        assert [m.role for m in rollout.responses] == ["assistant", "tool", "tool", "assistant"]
        assert rollout.usage.prompt_tokens > 0
        assert rollout.last_text


@pytest.mark.parametrize(
    ("path", "way_out"),
    [("run/rollouts.jsonl", "; delete the line: its attempt is collected again"), ("f.jsonl", "")],
)
def test_decode_rollout_says_what_to_do_about_a_damaged_line_of_a_run(path, way_out):
    with pytest.raises(RunFileError) as caught:
        decode_rollout(7, b"{", RolloutReading(path))
    assert str(caught.value) == f"{path}:7: is not a rollout: Input data was truncated{way_out}"


ENVS = st.sampled_from(["quiz", "maths"])
IDS = st.sampled_from(["a", "b", "ä/1", "c" * 40])
HASHES = st.sampled_from(["", "h", "0" * 16, "f" * 16, "F" * 17])
ATTEMPTS = st.integers(0, 3) | st.integers(62, 66) | st.just(1_000_000)
LINES = st.lists(
    st.tuples(ENVS, IDS, ATTEMPTS, HASHES, st.sampled_from([0, 4])),
    max_size=30,
    unique_by=lambda line: line[:3],
)


@given(LINES)
def test_every_attempt_counts_and_the_first_hash_of_a_task(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("run") / "rollouts.jsonl"
    names = ("env", "task_id", "attempt", "task_hash", "group_size")
    path.write_bytes(
        b"".join(msgspec.json.encode(dict(zip(names, line, strict=True))) + b"\n" for line in lines)
    )
    found = read_done(path)
    expected: dict[tuple[str, str], tuple[str, int, set[int]]] = {}
    for env, task_id, attempt, task_hash, size in lines:
        _, _, attempts = expected.setdefault((env, task_id), (task_hash, size, set()))
        attempts.add(attempt)
    assert found.keys() == expected.keys()
    for task, done in found.items():
        task_hash, size, attempts = expected[task]
        assert (done.task_hash, done.group_size) == (task_hash, size)
        assert done.attempts.bit_count() == len(attempts)
        assert all(map(done.has, attempts))
        assert done.is_torn is (len(attempts) < size)


def test_an_attempt_that_is_there_twice_is_named(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    line = b'{"env":"quiz","task_id":"a","attempt":3}\n'
    path.write_bytes(line + line.replace(b"3", b"4") + line)
    with pytest.raises(RunFileError, match=r"jsonl:3: attempt 3 of task a \(quiz\) appears"):
        read_done(path)
