"""Task rows in their four shapes, good and bad; every problem names its place and a way out."""

import gzip
import re
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.errors import UnknownNameError, UsageError
from gymcli.tasks.task_files import (
    IgnoredParameter,
    RowFields,
    RowProblem,
    SharedIdsError,
    TaskReader,
    read_row_fields,
    read_tasks,
)
from gymcli.tasks.task_row import PromptTemplate, TaskReading
from gymcli.types import FunctionCall, Message, TaskRow, ToolCall

DATA = Path(__file__).parents[3] / "shared" / "data" / "nemo_gym"

READING = TaskReading(default_env="quiz")
USER = Message(role="user", content="Hi")
CHAT_TOOL = {"type": "function", "function": {"name": "look", "parameters": {}}}
FLAT_TOOL = {"type": "function", "name": "look", "parameters": {}}


def write(path, *rows):
    """Write rows, each given as a line of text or a value."""
    lines = [row if isinstance(row, str | bytes) else msgspec.json.encode(row) for row in rows]
    path.write_bytes(b"\n".join(x.encode() if isinstance(x, str) else x for x in lines))
    return path


def read(tmp_path, *rows, **reading):
    path = write(tmp_path / "tasks.jsonl", *rows)
    return list(read_tasks([path], READING._replace(**reading)))


def read_one(tmp_path, row, **reading):
    (task,) = read(tmp_path, row, **reading)
    assert isinstance(task, TaskRow), task
    return task


def problem(tmp_path, row, **reading):
    (found,) = read(tmp_path, row, **reading)
    assert isinstance(found, RowProblem), found
    assert found.place == f"{tmp_path / 'tasks.jsonl'}:1"
    assert "\n" not in found.reason
    return found.reason


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "Hi"},
        {"prompt": [{"role": "user", "content": "Hi"}]},
        {"messages": [{"role": "user", "content": "Hi"}]},
        {"messages": [{"role": "user", "content": "Hi", "tool_calls": None, "name": None}]},
        {"responses_create_params": {"input": "Hi"}},
        {"responses_create_params": {"input": [{"role": "user", "content": "Hi"}]}},
        {"responses_create_params": {"input": "Hi"}, "messages": [], "prompt": 3},
        {"messages": [{"role": "user", "content": "Hi"}], "prompt": 3},
        {"responses_create_params": None, "messages": None, "prompt": "Hi"},
    ],
)
def test_prompt_is_found_in_each_shape(tmp_path, row):
    """`responses_create_params` takes precedence over `messages`, and that over `prompt`."""
    task = read_one(tmp_path, {**row, "answer": 7})
    assert task.messages == [USER]
    assert task.tools is None
    assert task.fields["answer"] == 7
    assert task.env == "quiz"
    assert task.place == f"{tmp_path / 'tasks.jsonl'}:1"


def test_fields_are_what_is_neither_prompt_nor_control(tmp_path):
    row = {
        "id": "a",
        "prompt": "Hi",
        "tools": [CHAT_TOOL],
        "params": {"temperature": 0},
        "env": "maths",
        "agent_ref": {"name": "other"},
        "max_turns": 3,
        "_ng_task_index": 5,
        "answer": 7,
        "verifier_metadata": {"x": 1},
    }
    task = read_one(tmp_path, row)
    assert task.fields == {"id": "a", "answer": 7, "verifier_metadata": {"x": 1}}
    assert (task.id, task.env, task.max_turns) == ("a", "maths", 3)
    assert (task.tools, task.params) == ([CHAT_TOOL], {"temperature": 0})


def test_messages_may_hold_calls_reasoning_and_images(tmp_path):
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    image = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]
    row = {
        "messages": [
            {"role": "user", "content": image},
            {"role": "assistant", "tool_calls": [call], "reasoning_content": "Hm."},
            {"role": "tool", "tool_call_id": "c", "content": "seen"},
        ]
    }
    assert read_one(tmp_path, row).messages == [
        Message(role="user", content=image),
        Message(
            role="assistant",
            reasoning="Hm.",
            tool_calls=[ToolCall(id="c", function=FunctionCall("look", "{}"))],
        ),
        Message(role="tool", tool_call_id="c", content="seen"),
    ]


@pytest.mark.parametrize("tool", [CHAT_TOOL, FLAT_TOOL])
def test_tools_are_read_in_either_shape(tmp_path, tool):
    assert read_one(tmp_path, {"prompt": "Hi", "tools": [tool]}).tools == [CHAT_TOOL]
    row = {"responses_create_params": {"input": "Hi", "tools": [tool]}}
    assert read_one(tmp_path, row).tools == [CHAT_TOOL]


def test_tools_of_an_empty_list_show_none(tmp_path):
    """A row with an empty list of tools differs from one without the field."""
    assert read_one(tmp_path, {"prompt": "Hi", "tools": []}).tools == []
    row = {"responses_create_params": {"input": "Hi", "tools": []}}
    assert read_one(tmp_path, row).tools == []


def test_params_come_from_two_places_only_and_some_are_ignored(tmp_path):
    create = {"input": "Hi", "max_output_tokens": 9, "model": "m", "store": None, "n": 2}
    row = {
        "responses_create_params": create,
        "params": {"top_p": 0.5, "stream": True, "seed": None},
        "temperature": 2,
    }
    *ignored, task = read(tmp_path, row)
    assert task.params == {"max_tokens": 9, "top_p": 0.5}
    assert task.fields == {"temperature": 2}
    place = f"{tmp_path / 'tasks.jsonl'}:1"
    assert ignored == [IgnoredParameter(place, name) for name in ("model", "n", "stream")]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"task_id": "t", "id": "i", "uuid": "u"}, "t"),
        ({"id": 3, "uuid": "u"}, "3"),
        ({"id": 0}, "0"),
        ({"uuid": "u"}, "u"),
        ({"id": "", "uuid": "u"}, "u"),
        ({"id": True, "uuid": "u"}, "u"),
        ({"id": 1.5, "uuid": "u"}, "u"),
    ],
)
def test_id_is_the_first_that_the_row_has(tmp_path, row, expected):
    assert read_one(tmp_path, {"prompt": "Hi", **row}).id == expected


def test_id_of_a_row_without_one_is_the_hash_of_its_content(tmp_path):
    first, second, third = read(
        tmp_path,
        '{"prompt": "Hi", "answer": 1}',
        '{"answer":1,"prompt":"Hi","_ng_task_index":4}',
        '{"prompt": "Hi", "answer": 2}',
    )
    assert first.id == first.hash == second.id == second.hash
    assert third.id == third.hash != first.id
    assert (first.first_attempt, second.first_attempt) == (0, 1)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"answer": 7, "prompt": "Hi", "id": "a"}, "e6072145ac1f4c56"),
        ({"b": 1, "prompt": "Hi", "a": {"_ng_x": 1}, "_ng_task_index": 5}, "4b6ce8e4b7621928"),
        ({"prompt": 'say "_ng_"', "ä": [1.5, None]}, "17eea4f70fc19c16"),
    ],
    ids=["plain", "stamped", "stamps as content"],
)
def test_hash_of_a_row_is_the_one_that_older_runs_have(tmp_path, row, expected):
    """The order of fields and the fields that a collector adds make no difference."""
    assert read_one(tmp_path, row).hash == expected


def test_id_field_names_another_one(tmp_path):
    assert read_one(tmp_path, {"prompt": "Hi", "id": 1, "key": 5}, id_field="key").id == "5"
    assert read_one(tmp_path, {"prompt": "Hi", "key": 0}, id_field="key").id == "0"
    for row in ({"id": 1}, {"key": None}, {"key": 1.5}, {"key": ""}, {"key": True}):
        words = '"key" must be a whole number or text that is not empty (--id-field)'
        assert problem(tmp_path, {"prompt": "Hi", **row}, id_field="key") == words


def test_id_by_file_keeps_the_ids_of_files_apart(tmp_path):
    one = write(tmp_path / "one.jsonl", {"id": 1, "prompt": "Hi"})
    two = write(tmp_path / "two.jsonl", {"id": 1, "prompt": "Ho"})
    apart = list(read_tasks([one, two], READING._replace(id_by_file=True)))
    assert [task.id for task in apart] == ["one.jsonl/1", "two.jsonl/1"]
    first, second = read_tasks([one, two], READING)
    assert first.id == "1"
    assert second == RowProblem(
        f"{two}:1",
        f'another row, {one}:1, has the same id "1"; use --id-field F, or --id-by-file '
        "if each file has its own ids",
    )


def test_id_by_file_tells_files_of_one_name_apart(tmp_path):
    """By as many of the last folders as it takes; a file that is named twice is one file."""
    paths = [tmp_path / "x" / "a" / "t.jsonl", tmp_path / "x" / "b" / "t.jsonl"]
    paths += [tmp_path / "y" / "b" / "t.jsonl", tmp_path / "u.jsonl"]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, {"id": 1, "prompt": str(path)})
    tasks = list(read_tasks([*paths, paths[0]], READING._replace(id_by_file=True)))
    names = ["a/t.jsonl/1", "x/b/t.jsonl/1", "y/b/t.jsonl/1", "u.jsonl/1", "a/t.jsonl/1"]
    assert [task.id for task in tasks] == names
    assert [task.first_attempt for task in tasks] == [0, 0, 0, 0, 1]


def test_id_by_file_is_not_advised_where_it_is_on(tmp_path):
    path = write(tmp_path / "t.jsonl", {"id": 1, "prompt": "a"}, {"id": "1", "prompt": "b"})
    _, second = read_tasks([path], READING._replace(id_by_file=True))
    assert second.reason == f'another row, {path}:1, has the same id "t.jsonl/1"; use --id-field F'


def test_problems_with_an_id_are_one_line(tmp_path):
    row = {"id": "a\nerror: b", "prompt": "a"}
    _, second = read(tmp_path, row, {**row, "prompt": "b"})
    assert "\n" not in second.reason


def test_identical_rows_are_one_task_and_one_id_in_two_environments_are_two(tmp_path):
    row = {"id": 1, "prompt": "Hi"}
    tasks = read(tmp_path, row, row, {**row, "env": "other"}, row)
    assert [(t.env, t.first_attempt) for t in tasks] == [
        ("quiz", 0),
        ("quiz", 1),
        ("other", 0),
        ("quiz", 2),
    ]


@pytest.mark.parametrize(
    ("row", "env"),
    [
        ({"env": "maths", "agent_ref": {"name": "agent"}}, "maths"),
        ({"agent_ref": {"type": "x", "name": "agent"}}, "agent"),
        ({"agent_ref": None, "env": None}, "quiz"),
    ],
)
def test_env_is_the_row_s_else_the_default(tmp_path, row, env):
    assert read_one(tmp_path, {"prompt": "Hi", **row}).env == env


def test_env_is_recorded_under_its_own_name(tmp_path):
    def canonical(name):
        if name == "quizz":
            raise UnknownNameError('no environment "quizz"; did you mean "quiz"?')
        return name.upper()

    assert read_one(tmp_path, {"prompt": "Hi"}, canonical_env=canonical).env == "QUIZ"
    words = problem(tmp_path, {"prompt": "Hi", "env": "quizz"}, canonical_env=canonical)
    assert words == 'no environment "quizz"; did you mean "quiz"?'


def test_env_may_be_given_by_file(tmp_path):
    one = write(tmp_path / "one.jsonl", {"prompt": "Hi"})
    two = write(tmp_path / "two.jsonl", {"prompt": "Hi"}, {"prompt": "Hi", "env": "own"})
    reading = READING._replace(default_envs={two: "shipped"})
    assert [task.env for task in read_tasks([one, two], reading)] == ["quiz", "shipped", "own"]


def test_template_makes_the_prompt_of_a_raw_row(tmp_path):
    template = PromptTemplate("What is {question}?", "Answer.")
    task = read_one(tmp_path, {"question": "1+1", "env": "maths"}, template=template)
    assert [message.text for message in task.messages] == ["Answer.", "What is 1+1?"]
    assert task.fields == {"question": "1+1"}


@pytest.mark.parametrize("tools", [None, [FLAT_TOOL]])
def test_template_goes_with_parameters_that_have_no_input(tmp_path, tools):
    create = {"input": [], "temperature": 0.5, "tools": tools}
    row = {"responses_create_params": create, "question": "1+1"}
    task = read_one(tmp_path, row, template=PromptTemplate("{question}"))
    assert [message.text for message in task.messages] == ["1+1"]
    assert task.params == {"temperature": 0.5}
    assert task.tools == (tools and [CHAT_TOOL])


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "Hi"},
        {"messages": [{"role": "user", "content": "Hi"}]},
        {"responses_create_params": {"input": "Hi"}},
    ],
)
def test_template_and_a_prompt_in_the_row_exclude_each_other(tmp_path, row):
    words = problem(tmp_path, {**row, "question": "?"}, template=PromptTemplate("{question}"))
    assert words == "the row already has a prompt; leave out --prompt"


def test_template_names_the_field_that_the_row_lacks(tmp_path):
    words = problem(tmp_path, {"text": "?"}, template=PromptTemplate("{question}"))
    assert words == '"question" is missing (the prompt needs it; the row has: text)'


NO_PROMPT = 'no prompt: expected "responses_create_params", "messages" or "prompt"'


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("{", "is not JSON: "),
        ("nonsense", "is not JSON: "),
        (b'{"prompt": "\xff"}', "is not JSON: "),
        ('{"prompt": "\\ud800"}', "is not JSON: "),
        ('{"prompt": NaN}', "is not JSON: "),
        ('{"prompt": 1e999}', "is not JSON: "),
        ('{"prompt": "Hi"} {}', "is not JSON: "),
        ("[" * 100_000, "is not JSON: it is nested too deeply"),
        (
            '{"prompt": ' + "[" * 100_000 + "]" * 100_000 + "}",
            "is not JSON: it is nested too deeply",
        ),
        (b"BZh91AY&SY\x93", "is binary data, not text; name it by its format, such as .gz"),
        (b"\x1f\x8b\x08", "is binary data, not text"),
        (b"x\0", "is binary data, not text"),
        (
            '[{"prompt": "Hi"}]',
            "is a JSON array, not one object a line; convert it: gym data pull ",
        ),
        ('[\n {\n"prompt": "Hi"}]', "tasks.jsonl -o tasks-rows.jsonl"),
        (
            '\ufeff{\n  "prompt": "Hi"\n}',
            "is JSON over several lines, not one object a line; jq -c",
        ),
        ("null", "must be a JSON object"),
        ("[]", "must be a JSON object"),
        ('"text"', "must be a JSON object"),
        ({}, NO_PROMPT),
        ({"prompt": None}, NO_PROMPT),
        ({"prompt": ""}, NO_PROMPT),
        ({"responses_create_params": {}}, NO_PROMPT),
        ({"responses_create_params": {"input": ""}}, NO_PROMPT),
        ({"prompt": 3}, '"prompt" must be text, or a list of chat messages'),
        ({"prompt": []}, NO_PROMPT),
        ({"messages": "Hi"}, '"messages" must be a list of chat messages'),
        ({"messages": ["Hi"]}, '"messages": Expected `object`, got `str` - at `$[0]`'),
        ({"messages": [{"content": "Hi"}]}, "missing required field `role` - at `$[0]`"),
        ({"messages": [{"role": "wizard"}]}, "Invalid enum value 'wizard' - at `$[0].role`"),
        ({"messages": [{"role": "user", "content": 3}]}, "- at `$[0].content`"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "c"}]}]}, "`function`"),
        ({"responses_create_params": 3}, '"responses_create_params" must be an object'),
        ({"responses_create_params": {"input": 3}}, '"responses_create_params.input" must be'),
        (
            {"responses_create_params": {"input": ["Hi"]}},
            '"responses_create_params.input": item 0 is not an object',
        ),
        (
            {"responses_create_params": {"input": [{"role": "wizard", "content": "x"}]}},
            "item 0 has the role 'wizard'",
        ),
        (
            {"responses_create_params": {"input": "Hi", "tools": 3}},
            '"responses_create_params.tools" must be a list',
        ),
        ({"responses_create_params": {"input": "Hi", "tools": ["a"]}}, "tools[0]"),
        (
            {"prompt": [{"role": "user", "content": [{"type": "image", "image": "cat.png"}]}]},
            '"prompt": endpoints take no content part of the type "image", which is one of chat '
            'templates; write {"type": "image_url", ',
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "audio", "audio": "a.wav"}]}]},
            'write {"type": "input_audio", ',
        ),
        ({"prompt": "Hi", "tools": {}}, '"tools" must be a list of objects'),
        ({"prompt": "Hi", "tools": [3]}, "tools[0] is not an object"),
        ({"prompt": "Hi", "params": []}, '"params" must be an object'),
        ({"prompt": "Hi", "env": 3}, '"env" must be the name of an environment'),
        ({"prompt": "Hi", "agent_ref": "x"}, '"agent_ref" must be an object with the text "name"'),
        ({"prompt": "Hi", "agent_ref": {}}, '"agent_ref" must be an object with the text "name"'),
        ({"prompt": "Hi", "max_turns": 0}, '"max_turns" must be a whole number above 0'),
        ({"prompt": "Hi", "max_turns": True}, '"max_turns" must be a whole number above 0'),
        ({"prompt": "Hi", "max_turns": "3"}, '"max_turns" must be a whole number above 0'),
    ],
)
def test_bad_row_says_field_and_what_was_expected(tmp_path, row, words):
    assert words in problem(tmp_path, row)


def test_blank_lines_after_a_brace_take_no_time(tmp_path):
    """They took seven seconds."""
    begin = time.process_time()
    problems = read(tmp_path, "{" + "\n" * 32_000 + "x")
    assert time.process_time() - begin < 2
    assert [item.place.rpartition(":")[2] for item in problems] == ["1", "32001"]


def test_bad_row_that_names_no_environment_says_what_to_give(tmp_path):
    words = problem(tmp_path, {"prompt": "Hi"}, default_env=None)
    assert words == 'no environment: the row has no "env"; use --env NAME'


def test_bad_rows_are_given_in_their_places_and_the_good_ones_too(tmp_path):
    found = read(tmp_path, {"prompt": "a"}, "", "{", {"prompt": "b"}, {}, "  ", {"prompt": "c"})
    kinds = [type(item).__name__ for item in found]
    assert kinds == ["TaskRow", "RowProblem", "TaskRow", "RowProblem", "TaskRow"]
    places = [int(item.place.rpartition(":")[2]) for item in found]
    assert places == [1, 3, 4, 5, 7]


def test_rows_with_huge_numbers_and_deep_fields_are_kept_as_they_are(tmp_path):
    deep = "[" * 200 + "]" * 200
    task = read_one(tmp_path, f'{{"prompt": "Hi", "big": 1{"0" * 40}, "deep": {deep}}}')
    assert task.fields["big"] == 10**40
    assert msgspec.json.encode(task.fields["deep"]).decode() == deep


def test_rows_nested_as_deep_as_can_be_decoded_are_rows_or_problems(tmp_path):
    """Near the limit, a row may be decoded and not hashed, which must not be a traceback."""
    for depth in range(600, 1_000, 10):
        (found,) = read(tmp_path, '{"prompt": "Hi", "x": ' + "[" * depth + "]" * depth + "}")
        assert isinstance(found, TaskRow | RowProblem)


@pytest.mark.parametrize("separator", [b"\n", b"\r\n", b"\n\n", b"\r\n  \r\n"])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_rows_are_found_whatever_ends_the_lines(tmp_path, separator, start, end):
    path = tmp_path / "tasks.jsonl.gz"
    rows = separator.join([b'{"prompt": "a"}', b'{"prompt": "b"}'])
    path.write_bytes(gzip.compress(start + rows + end))
    assert [task.messages[0].text for task in read_tasks([path], READING)] == ["a", "b"]


def test_an_array_in_a_file_of_another_name_must_be_renamed_before_it_is_converted(tmp_path):
    path = write(tmp_path / "tasks.txt", '[{"prompt": "Hi"}]')
    [found] = read_tasks([path], READING)
    assert "convert it: name it .json, then gym data pull " in found.reason


def test_an_archive_that_is_not_read_is_refused_with_those_that_are(tmp_path):
    path = write(tmp_path / "tasks.jsonl.bz2", "{}")
    with pytest.raises(UsageError, match=r"tasks.jsonl.bz2: .bz2 is not read; unpack it, or pack"):
        list(read_tasks([path], READING))


def test_read_tasks_is_lazy_and_names_a_missing_file(tmp_path):
    path = write(tmp_path / "one.jsonl", {"prompt": "a"})
    rows = read_tasks([path, tmp_path / "two.jsonl"], READING)
    assert next(rows).messages[0].text == "a"
    with pytest.raises(UsageError, match=re.escape("two.jsonl: cannot be read")):
        next(rows)


def test_read_row_fields_needs_no_prompt_and_honours_the_index_of_a_row(tmp_path):
    """Without an index, the position over all files counts, without identical copies."""
    one = write(tmp_path / "one.jsonl", {"id": "a", "x": 1}, {"id": "a", "x": 1}, {"id": 2, "x": 2})
    two = write(
        tmp_path / "two.jsonl",
        {"id": "c", "prompt": "Hi", "x": 3},
        {"id": "d", "x": 4, "_ng_task_index": 9},
        {"id": "e", "x": 5, "_ng_task_index": "9"},
        {"id": "d", "x": 4, "_ng_task_index": 10},
        {"id": "f", "x": 6, "_ng_task_index": True},
    )
    assert list(read_row_fields([one, two])) == [
        RowFields("a", 0, {"id": "a", "x": 1}),
        RowFields("2", 1, {"id": 2, "x": 2}),
        RowFields("c", 2, {"id": "c", "x": 3}),
        RowFields("d", 9, {"id": "d", "x": 4}),
        RowFields("e", 4, {"id": "e", "x": 5}),
        RowFields("d", 10, {"id": "d", "x": 4}),
        RowFields("f", 5, {"id": "f", "x": 6}),
    ]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("[]", "must be a JSON object"),
        ({"prompt": 3}, '"prompt" must be text'),
        ({"id": "a", "x": 2}, 'another row, in one of these files, has the same id "a"'),
    ],
)
def test_read_row_fields_gives_problems_in_their_places(tmp_path, row, words):
    path = write(tmp_path / "one.jsonl", {"id": "a", "x": 1}, row)
    _, found = read_row_fields([path])
    assert found.place == f"{path}:2"
    assert words in found.reason


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "role",
                    "content",
                    "type",
                    "name",
                    "input",
                    "tools",
                    "tool_calls",
                    "function",
                    "id",
                ]
            )
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)
keys = ["responses_create_params", "messages", "prompt", "tools", "params", "env", "agent_ref"]
keys += ["id", "max_turns", "verifier_metadata"]
likely_rows = st.fixed_dictionaries({}, optional=dict.fromkeys(keys, json_values))


@given(st.binary(max_size=60) | likely_rows | json_values, st.booleans())
def test_read_tasks_of_anything_gives_rows_or_problems(tmp_path_factory, row, is_templated):
    template = PromptTemplate("{id}") if is_templated else None
    path = write(tmp_path_factory.getbasetemp() / "any.jsonl", row)
    for item in read_tasks([path], READING._replace(template=template)):
        assert isinstance(item, TaskRow | RowProblem | IgnoredParameter)
        if isinstance(item, TaskRow):
            assert item.messages or b"[]" in path.read_bytes(), (
                "only a row may leave its prompt out"
            )
            assert item.id
            msgspec.json.encode(item)


FILES = sorted(DATA.glob("*.jsonl"))


@pytest.mark.skipif(not FILES, reason="the example rows of NeMo Gym are missing")
def test_read_tasks_loads_rows_of_nemo_gym_unchanged():
    for path in FILES:
        rows = [msgspec.json.decode(line) for line in path.read_bytes().splitlines() if line]
        tasks = list(read_tasks([path], READING))
        assert [type(task) for task in tasks] == [TaskRow] * len(rows)
        for task, row in zip(tasks, rows, strict=True):
            assert task.fields == {
                name: value
                for name, value in row.items()
                if name not in ("responses_create_params", "agent_ref")
            }


@pytest.mark.parametrize(
    "row",
    [
        {"messages": []},
        {"responses_create_params": {"input": []}},
        # NeMo Gym 0.7's nemo_user_sim.
        {"task_id": "a", "resolved_row": {"persona": {}}},
        {"task_data": {"resolved_row": {"persona": {}}}},
    ],
)
def test_row_may_leave_the_prompt_to_its_environment(tmp_path, row):
    (found,) = read(tmp_path, row)
    assert isinstance(found, TaskRow)
    assert found.messages == []


def test_lines_are_counted_however_many_there_are(tmp_path):
    """Also after a bad line, where lines are decoded one by one."""
    rows = [{"id": f"{number}", "prompt": "x" * 300} for number in range(2000)]
    places = [number for number in range(2001) if number != 1200]
    items = read(tmp_path, *rows[:1200], "{", *rows[1200:])
    wrong = items.pop(1200)
    assert isinstance(wrong, RowProblem)
    assert wrong.place == f"{tmp_path / 'tasks.jsonl'}:1201"
    expected = [f"{tmp_path / 'tasks.jsonl'}:{place + 1}" for place in places]
    assert [item.place for item in items] == expected
    assert [item.id for item in items] == [row["id"] for row in rows]


def nemo_row(task_id, text):
    return {"id": task_id, "responses_create_params": {"input": text}}


@pytest.mark.parametrize(
    ("row", "fields"),
    [
        ({"resolved_row": {"x": 1}, "id": 1}, {"resolved_row": {"x": 1}, "id": 1}),
        ({"task_data": {"resolved_row": {"x": 1}}, "id": 1}, {"resolved_row": {"x": 1}, "id": 1}),
        ({**nemo_row(1, "a"), "task_data": {"answer": 2}}, {"id": 1, "answer": 2}),
        ({**nemo_row(1, "a"), "task_data": {"id": 1, "answer": 2}}, {"id": 1, "answer": 2}),
        ({**nemo_row(1, "a"), "task_data": "text"}, {"id": 1, "task_data": "text"}),
        # A field of other rows may have this name.
        ({"prompt": "a", "task_data": {"answer": 2}}, {"task_data": {"answer": 2}}),
    ],
)
def test_fields_of_task_data_count_as_fields_of_the_row(tmp_path, row, fields):
    assert read_one(tmp_path, row).fields == fields


def test_a_field_with_two_values_is_a_problem(tmp_path):
    row = {**nemo_row(1, "a"), "answer": 1, "task_data": {"answer": 2}}
    assert problem(tmp_path, row) == '"answer" has different values in the row and in "task_data"'


def test_rows_of_nemo_gym_with_one_id_are_told_apart_by_their_content(tmp_path):
    """In any order; copies stay copies, and other rows keep their id."""
    rows = [nemo_row(7, "a"), nemo_row(7, "b"), nemo_row(8, "c"), nemo_row(7, "b")]
    names = []
    for ordered in (rows, rows[::-1]):
        with pytest.raises(SharedIdsError) as raised:
            read(tmp_path, *ordered)
        assert raised.value.ids == {("quiz", "7")}
        found = read(tmp_path, *ordered, shared_ids=raised.value.ids)
        assert sorted(task.first_attempt for task in found) == [0, 0, 0, 1]
        names.append({task.messages[0].text: task.id for task in found})
    assert names[0] == names[1]
    assert names[0]["c"] == "8"
    assert re.fullmatch("7-[0-9a-f]{8}", names[0]["a"])
    assert names[0]["b"] == f"7-{found[0].hash[:8]}"
    assert names[0]["a"] != names[0]["b"]


def test_an_id_field_and_other_shapes_must_name_rows_once(tmp_path):
    rows = [nemo_row(7, "a"), nemo_row(7, "b")]
    assert isinstance(read(tmp_path, *rows, id_field="id")[1], RowProblem)
    plain = [{"id": 7, "prompt": "a"}, {"id": 7, "prompt": "b"}]
    assert isinstance(read(tmp_path, *plain)[1], RowProblem)
    mixed = read(tmp_path, rows[0], plain[0], shared_ids=frozenset({("quiz", "7")}))
    assert [task.id for task in mixed] == [f"7-{mixed[0].hash[:8]}", "7"]


def test_another_row_with_the_same_id_is_told_where_the_first_stands():
    """Also for a file name with a colon, one that begins with a copy, and files read in turns."""
    reader = TaskReader()
    places = [("x:1", 3), ("x:1", 4), ("y", 1), ("z", 1), ("z", 2), ("y", 9)]
    for name, (source, line) in zip("abacde", places, strict=True):
        (task,) = reader.read({"id": name, "prompt": "Hi"}, READING, source=source, line=line)
        assert isinstance(task, TaskRow)
    found = {}
    for name in "abcde":
        row = {"id": name, "prompt": "Ho"}
        (problem,) = reader.read(row, READING, source="w", line=1)
        found[name] = problem.reason.removeprefix("another row, ").split(", has ")[0]
    assert found == {"a": "x:1:3", "b": "x:1:4", "c": "z:1", "d": "z:2", "e": "y:9"}
