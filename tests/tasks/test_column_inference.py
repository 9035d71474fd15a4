"""Tables become tasks by the names of their columns, exactly as the same rows in JSON Lines."""

import shlex
from pathlib import Path

import msgspec
import pytest

from gymcli.benchmarks.resolution import task_inputs
from gymcli.data.validation import rendered_rows
from gymcli.environment.registry import Registry
from gymcli.envs.string_match import StringMatch
from gymcli.errors import TasksError, UsageError
from gymcli.tasks.task_options import TaskOptions
from gymcli.tasks.task_source import TaskSource, survey
from tests.builders import gym, lines_of, write_rows
from tests.tasks.workbooks import write_workbook

CHOICES = """\
id,topic,question,A,B,C,D,answer
q1,birds,"Which, of these, swims?",wren,puffin,emu,,B
q2,trees,Which keeps its needles?,larch,pine,oak,elm,b

"""
UNCLEAR = (
    "quiz.csv: has no columns with a question and its answer (columns: one two, b); say what "
    "the columns are with --map FILE: `gym docs data` has an example of a map"
)
BOXED = "Put the letter in \\boxed{}."


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def source_of(name, text="", **options):
    if text:
        Path(name).write_text(text, encoding="utf-8")
    env = options.get("env")
    registry = Registry((env,) if env else ())
    source = TaskSource(task_inputs([name]), TaskOptions(**options), registry)
    survey(source, registry)
    return source


def read(text, name="quiz.csv", **options):
    return list(source_of(name, text, **options).rows())


def refused(text, **options):
    with pytest.raises((UsageError, TasksError)) as raised:
        read(text, **options)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_multiple_choice_table_is_rows_of_mcqa():
    source = source_of("quiz.csv", "\ufeff" + CHOICES)
    first, second = source.rows()

    assert source.notes == [
        "quiz.csv: question → prompt, A-D → options, answer (letters) → expected_answer "
        "(environment mcqa)"
    ]
    assert (first.env, first.id, first.place) == ("mcqa", "q1", "quiz.csv:2")
    assert first.messages[0].text == (
        f"Which, of these, swims?\n\nA: wren\nB: puffin\nC: emu\n\n{BOXED}"
    )
    assert first.fields["options"] == [{"A": "wren"}, {"B": "puffin"}, {"C": "emu"}]
    assert first.fields["expected_answer"] == second.fields["expected_answer"] == "B"
    assert first.fields["topic"] == "birds"
    assert first.fields["grading_mode"] == second.fields["grading_mode"] == "letter"


def test_a_table_or_map_that_says_how_answers_are_read_keeps_its_mode():
    first, second = read("question,A,B,answer,grading_mode\nq,x,y,A,lenient_boxed\np,x,y,B,\n")
    assert [row.fields["grading_mode"] for row in (first, second)] == ["lenient_boxed", "letter"]

    Path("map.yaml").write_text("constants: {grading_mode: last_answer_colon}\n")
    row = {"prompt": "q", "options": [{"A": "x"}], "expected_answer": "A"}
    Path("rows.jsonl").write_bytes(msgspec.json.encode(row))
    [with_map] = read("", "rows.jsonl", env="mcqa", map_file=Path("map.yaml"))
    assert with_map.fields["grading_mode"] == "last_answer_colon"


@pytest.mark.parametrize(
    ("fields", "map_file", "mode"),
    [
        ({"prompt": "q", "env": "mcqa"}, True, "letter"),
        ({"prompt": "q"}, True, "letter"),
        ({"prompt": "q", "env": "mcqa"}, False, None),
        ({"responses_create_params": {"input": "q"}, "env": "mcqa"}, True, None),
        ({"responses_create_params": {"input": "q"}, "agent_ref": {"name": "mcqa"}}, True, None),
    ],
)
def test_only_rows_that_a_map_makes_are_read_by_a_bare_letter(fields, map_file, mode):
    row = fields | {"options": [{"A": "x"}], "expected_answer": "A"}
    Path("rows.jsonl").write_bytes(msgspec.json.encode(row))
    Path("map.yaml").write_text("drop_empty: true\n")
    options = {"map_file": Path("map.yaml")} if map_file else {}
    [task] = read("", "rows.jsonl", env="mcqa", **options)

    assert task.fields.get("grading_mode") == mode


def test_a_note_names_only_columns_whose_name_differs():
    source = source_of("quiz.csv", 'prompt,options,answer\nq,"[""x"", ""y""]",A\n')
    assert source.notes == [
        "quiz.csv: answer (letters) → expected_answer (environment mcqa)",
    ]


def test_rows_of_a_table_are_those_of_the_same_json_lines():
    rows = read(CHOICES)
    own = [dict(row.fields, messages=msgspec.to_builtins(row.messages)) for row in rows]
    write_rows("same.jsonl", own)
    same = read("", "same.jsonl", env="mcqa")

    assert [(row.id, row.hash, row.fields) for row in same] == [
        (row.id, row.hash, row.fields) for row in rows
    ]
    assert [row["env"] for row in rendered_rows("quiz.csv")] == ["mcqa", "mcqa"]


@pytest.mark.parametrize(
    ("columns", "cells", "letter"),
    [
        ("Question,option_a,option_b,Answer", "q,x,y,b", "B"),
        ("prompt,Option 1,Option 2,correct_answer", "q,x,y,y", "B"),
        ("input,choice_a,choice_b,target", "q,x,y,(A)", "A"),
        ("question,a,b,c,answer", "q,x,y,z,0", "A"),
        ("question,a,b,c,answer", "q,x,y,z,3", "C"),
        ("question,choices,answer", 'q,"[""x"", ""y""]",1', None),
        ("question,choices,answer", 'q,"[""x"", ""y""]",2', "B"),
        ("question,options,label", 'q,"[""x"", ""y""]",x', "A"),
        ("question,A,B,C,answer", "q,3,2,1,5\nq,1,3,2,3", None),
        ("question,A,B,answer", "q,x,y,no", None),
    ],
)
def test_answers_are_letters_positions_or_texts_where_only_one_of_these_fits(
    columns, cells, letter
):
    text = f"{columns}\n{cells}\n"
    if letter is None:
        assert "--map FILE" in refused(text)
    else:
        assert read(text)[0].fields["expected_answer"] == letter


def test_an_answer_unlike_the_others_is_named_with_its_line():
    rows = "".join(f"q{number},x,y,{'AB'[number % 2]}\n" for number in range(6))
    error = refused(f"question,A,B,answer\n{rows}q,x,y,C\n")

    assert error == "quiz.csv:8: column \"answer\": letter_of: 'C' is not a letter from A to B"


def test_ambiguous_positions_name_the_way_out():
    error = refused("question,A,B,C,answer\nq,x,y,z,1\np,x,y,z,2\n")

    assert '"answer" may hold positions from 0 or positions from 1 (columns: ' in error
    assert "; write letters, or say which with --map FILE.py:FUNCTION: `gym docs data`" in error
    assert error.count("--map") == 1


def test_parquet_has_lists_and_numbers():
    pa = pytest.importorskip("pyarrow", reason="needs the package pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the package pyarrow")
    table = {"question": ["q", "p"], "choices": [["x", "y"], ["z", "w"]], "answer": [0, 1]}
    parquet.write_table(pa.table(table), "quiz.parquet")
    first, second = read("", "quiz.parquet")

    assert (first.place, first.fields["expected_answer"]) == ("quiz.parquet:1", "A")
    assert second.fields["options"] == [{"A": "z"}, {"B": "w"}]


def test_rows_of_mcqa_in_parquet_stay_as_they_are():
    pa = pytest.importorskip("pyarrow", reason="needs the package pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the package pyarrow")
    row = {"prompt": "q", "options": [{"A": "x"}], "expected_answer": "A"}
    parquet.write_table(pa.Table.from_pylist([row]), "rows.parquet")
    [found] = read("", "rows.parquet", env="mcqa")

    assert found.messages[0].text == "q"
    assert found.fields == {"options": [{"A": "x"}], "expected_answer": "A"}


@pytest.mark.parametrize(
    ("env", "fields"),
    [
        ("arithmetic", {"answer": 4}),
        ("equivalence_llm_judge", {"expected_answer": "4"}),
    ],
)
def test_question_and_answer_become_what_the_environment_needs(env, fields):
    [row] = read("Question,Answer,level\n2 + 2?,4,easy\n", env=env)

    assert row.messages[0].text == "2 + 2?"
    assert row.fields == {**fields, "level": "easy"}


@pytest.mark.parametrize(
    ("env", "asks"),
    [("string_match", '"Final answer:" and the answer.'), ("math_with_judge", r"in \boxed{}.")],
)
def test_the_prompt_asks_for_the_mark_by_which_the_answer_is_found(env, asks):
    [row] = read("Question,Answer,level\n2 + 2?,4,easy\n", env=env)

    assert row.messages[0].text.startswith("2 + 2?\n\n")
    assert row.messages[0].text.endswith(asks)
    defaults = {"near": False} if env == "string_match" else {}
    fields = {"question": "2 + 2?", "expected_answer": "4", "level": "easy"}
    assert row.fields == fields | defaults


def test_numbers_that_are_near_are_wrong_in_tables_that_do_not_say_otherwise():
    rows = read("question,answer,near\nq,4,true\np,5,false\nr,6,\n", env="string_match")
    parsed = [StringMatch.parse_task(row.fields).near for row in rows]
    assert parsed == [True, False, False]

    Path("map.yaml").write_text("fields: {prompt: ask, expected_answer: sum, env: env}\n")
    text = '{"ask": "1 + 1?", "sum": "2", "env": "string_match"}\n'
    [row] = read(text, "a.jsonl", env="mcqa", map_file=Path("map.yaml"))
    assert row.fields["near"] is False
    [row] = read('{"prompt": "q", "expected_answer": "2"}\n', "b.jsonl", env="string_match")
    assert "near" not in row.fields


@pytest.mark.parametrize("env", ["string_match", "math_with_judge", "equivalence_llm_judge"])
@pytest.mark.parametrize(("answers", "texts"), [([4, 5], ["4", "5"]), ([4.5, 5.0], ["4.5", "5.0"])])
def test_numbers_of_parquet_become_texts_where_a_field_is_text(env, answers, texts):
    pa = pytest.importorskip("pyarrow", reason="needs the package pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the package pyarrow")
    parquet.write_table(pa.table({"question": ["q", "p"], "answer": answers}), "sums.parquet")
    assert [row.fields["expected_answer"] for row in read("", "sums.parquet", env=env)] == texts


def test_a_table_that_says_how_answers_are_read_has_its_own_prompts():
    header = "question,answer,extraction_mode"
    [row] = read(f"{header}\nSay 4.,4,full_response\n", env="string_match")

    assert row.messages[0].text == "Say 4."


def test_columns_that_are_named_as_fields_are_converted_to_their_types():
    names = ["expected_synonyms", "expected_synonym_values", "minefield_label"]
    header = ",".join(["prompt", *names, "minefield_label_value", "max_turns"])
    [row] = read(f'{header}\nq,"[""a""]",[1],m,7,3\n', env="example_multi_step")

    assert row.max_turns == 3
    assert row.fields["expected_synonym_values"] == [1]
    assert row.fields["minefield_label_value"] == 7


def test_another_environment_takes_the_options_as_fields():
    first, _ = read(CHOICES, env="string_match")

    question = "Which, of these, swims?"
    assert first.env == "string_match"
    assert first.messages[0].text.startswith(question)
    fields = {"id": "q1", "topic": "birds", "question": question, "expected_answer": "B"}
    assert first.fields == {**fields, "A": "wren", "B": "puffin", "C": "emu", "near": False}


def test_an_environment_that_every_row_names_decides():
    [row] = read("env,question,answer\nstring_match,q,x\n")
    assert (row.env, row.fields["expected_answer"]) == ("string_match", "x")


def test_a_template_replaces_the_prompt():
    Path("ask.yaml").write_text("user: '{question} {choices}'\n")
    first, _ = read(CHOICES, prompt=Path("ask.yaml"))

    assert first.messages[0].text == "Which, of these, swims? A: wren\nB: puffin\nC: emu"


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        ("question,answer\nq,x\n", {}, "name it, as in --env string_match"),
        ("question,options,answer\nq,x|y,x\n", {}, '"options" holds no JSON list of options'),
        ("prompt,question,A,B,answer\nq,p,x,y,A\n", {}, "prompt and question may both be the"),
        ("frage,antwort\nq,x\n", {}, "has no columns with a question and its answer"),
        ("frage,antwort\nq,x\n", {"env": "string_match"}, "has no column with the prompt"),
        ("query,problem,answer\nq,p,x\n", {"env": "string_match"}, "query and problem may both be"),
        ("question,x\nq,x\n", {"env": "string_match"}, "has no column for expected_answer"),
        ("question,gold,label,A,B\nq,A,A,x,y\n", {}, "gold and label may both be the answer"),
    ],
)
def test_unclear_columns_are_named_with_the_way_out(text, options, reason):
    error = refused(text, **options)

    assert reason in error
    assert f"(columns: {', '.join(text.partition(chr(10))[0].split(','))})" in error
    assert error.endswith("--map FILE: `gym docs data` has an example of a map")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('"one\ntwo",b\n1,2\n', UNCLEAR),
        ("question,A,A,answer\nq,x,y,A\n", 'quiz.csv:1: has the column "A" 2 times; rename them'),
        (f"{CHOICES}q3,x\n", "quiz.csv:5: has 2 cells, but the header has 8"),
        ("question,A,B,answer\n", "quiz.csv: no tasks"),
        (
            "Answer,answer\nx,y\n",
            "quiz.csv: the columns Answer and answer differ too little; rename one",
        ),
    ],
)
def test_broken_tables_are_refused_in_one_line(text, error):
    assert refused(text) == error


def test_a_table_may_have_tabs_between_its_cells():
    text = "question,A,B,answer\nq,x,y,A\n"
    [row] = read(text.replace(",", "\t"), "quiz.tsv")
    assert row.fields == read(text)[0].fields


@pytest.mark.parametrize("encoding", ["utf-8-sig", "cp1252", "utf-16"])
def test_a_table_of_excel_may_have_semicolons_and_another_encoding(encoding):
    text = "ID;Question;A;B;Answer\r\n1;Größe kurz?;1,5;2,5;B\r\n"
    Path("quiz.csv").write_bytes(text.encode(encoding))
    source = source_of("quiz.csv")
    [row] = source.rows()

    assert (row.id, row.fields["expected_answer"], row.place) == ("1", "B", "quiz.csv:2")
    assert row.messages[0].text.startswith("Größe kurz?\n\nA: 1,5\nB: 2,5\n")
    assert source.notes[:-1] == [
        "quiz.csv: is not UTF-8 and is read as Windows-1252; if letters are wrong, save it as "
        '"CSV UTF-8"'
    ] * (encoding == "cp1252")


def test_that_a_table_is_read_as_windows_1252_is_said_with_a_map_too():
    Path("quiz.csv").write_bytes("frage,antwort\nGröße?,ä\n".encode("cp1252"))
    Path("map.yaml").write_text("fields: {prompt: frage, expected_answer: antwort}\n")
    args = ["--map", "map.yaml", "--env", "string_match"]
    done = gym("collect", "quiz.csv", *args, "-m", "oracle", "-o", "run", exit_code=0)

    assert done.stderr.count("quiz.csv: is not UTF-8 and is read as Windows-1252") == 1
    assert [row["reward"] for row in lines_of(Path("run/rollouts.jsonl"))] == [1.0]


def test_ids_are_stripped_as_answers_are():
    first, second = read("id ,question,A,B,answer\n q01,q,x,y, b \n\u00a0q02\t,q,x,y,A\n")
    assert (first.id, second.id) == ("q01", "q02")
    assert first.fields["id"] == "q01"
    assert first.fields["expected_answer"] == "B"

    text = "env,uuid, topic,prompt,expected_answer\n string_match , a ,t,q, Paris \n"
    [row] = read(text)
    assert (row.env, row.id, row.fields["topic"]) == ("string_match", "a", "t")
    assert StringMatch.parse_task(row.fields).expected_answer.strip() == "Paris"

    [row] = read("key,question,answer\n a ,q,x\n", env="string_match", id_field="key")
    assert row.id == row.fields["key"] == "a"


def test_ids_that_are_equal_without_blanks_are_refused():
    error = refused("id,question,A,B,answer\nq01,q,x,y,A\n q01,p,x,y,B\n")
    assert error == (
        'quiz.csv:3: another row, quiz.csv:2, has the same id "q01"; use --id-field F, or '
        "--id-by-file if each file has its own ids"
    )


def write_parquet(name, **columns):
    pa = pytest.importorskip("pyarrow", reason="needs the package pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the package pyarrow")
    parquet.write_table(pa.table(columns), name)


ARC = [
    {"text": ["wren", "puffin", "emu"], "label": ["A", "B", "C"]},
    {"text": ["larch", "pine"], "label": ["1", "2"]},
]


@pytest.mark.parametrize("shape", ["lists", "objects"])
def test_options_may_have_their_texts_and_labels_in_one_column(shape):
    choices = ARC
    if shape == "objects":
        choices = [
            [
                {"text": text, "label": label}
                for text, label in zip(lists["text"], lists["label"], strict=True)
            ]
            for lists in ARC
        ]
    write_parquet(
        "arc.parquet", id=["a", "b"], question=["q", "p"], choices=choices, answerKey=["B", "2"]
    )
    source = source_of("arc.parquet")
    first, second = source.rows()

    assert source.notes == [
        "arc.parquet: question → prompt, choices.text → options, answerKey (labels) → "
        "expected_answer (environment mcqa)"
    ]
    assert first.messages[0].text == f"q\n\nA: wren\nB: puffin\nC: emu\n\n{BOXED}"
    assert first.fields["options"] == [{"A": "wren"}, {"B": "puffin"}, {"C": "emu"}]
    assert first.fields["expected_answer"] == second.fields["expected_answer"] == "B"
    assert first.fields["choices"] == "A: wren\nB: puffin\nC: emu"

    cells = zip("qp", choices, ["B", "2"], strict=True)
    rows = [
        f'{q},"{msgspec.json.encode(c).decode().replace(chr(34), chr(34) * 2)}",{a}'
        for q, c, a in cells
    ]
    same = read("question,choices,answerKey\n" + "\n".join(rows))
    assert [row.messages for row in same] == [first.messages, second.messages]
    assert [row.fields["expected_answer"] for row in same] == ["B", "B"]


def test_options_may_be_an_object_with_their_letters():
    options = [{"A": "x", "B": "y", "C": "z"}, {"A": "v", "B": "w", "C": None}]
    write_parquet("quiz.parquet", question=["q", "p"], options=options, answer=["C", "B"])
    first, second = read("", "quiz.parquet")

    assert first.fields["options"] == [{"A": "x"}, {"B": "y"}, {"C": "z"}]
    assert second.fields["options"] == [{"A": "v"}, {"B": "w"}]


@pytest.mark.parametrize(
    "columns",
    [
        {"choices": [[3, 4], [6, 7]], "answer": [4, 6]},
        {"choices": [[3, 4], [6, 7]], "answer": ["4", "6"]},
        {"A": [3, 6], "B": [4, 7], "answer": ["B", "A"]},
        {"A": [3, 6], "B": [4, 7], "answer": [4, 6]},
    ],
)
def test_numbers_of_parquet_may_be_options(columns):
    write_parquet("quiz.parquet", question=["q", "p"], **columns)
    first, second = read("", "quiz.parquet")

    assert first.fields["options"] == [{"A": "3"}, {"B": "4"}]
    assert [row.fields["expected_answer"] for row in (first, second)] == ["B", "A"]


def test_the_first_row_of_a_multiple_choice_table_may_lack_its_options():
    text = 'question,options,answer\np,,A\nq,"[""x"", ""y""]",B\n'
    assert refused(text).startswith('quiz.csv:2: column "answer": letter_of: ')


def test_numbers_in_lists_of_csv_may_be_options():
    [row] = read('question,choices,answer\nq,"[3, 14]",14\n')
    assert (row.fields["options"], row.fields["expected_answer"]) == (
        [{"A": "3"}, {"B": "14"}],
        "B",
    )


def test_a_workbook_is_collected_as_its_csv_file():
    pytest.importorskip("python_calamine", reason="needs the package python-calamine")
    rows = [["id", "question", "answer", None], [" s1", "9 + 9?", 18], ["s2", "q?", " Paris "]]
    write_workbook("quiz.xlsx", {"Quiz": rows, "Notes": [["x"]]})
    text = "id,question,answer\n s1,9 + 9?,18\ns2,q?, Paris \n"
    same = [row.hash for row in read(text, env="string_match")]
    assert [row.hash for row in read("", "quiz.xlsx", env="string_match")] == same

    done = gym(
        "collect", "quiz.xlsx", "--env", "string_match", "-m", "oracle", "-o", "run", exit_code=0
    )
    assert done.stderr.startswith('quiz.xlsx: only the sheet "Quiz" is read, not "Notes"\n')
    scored = lines_of(Path("run/rollouts.jsonl"))
    assert [(row["task_id"], row["reward"]) for row in scored] == [("s1", 1.0), ("s2", 1.0)]


RAW = {
    "answers": [
        {"id": "a", "question": "2 + 2?", "answer": "4", "topic": "it's"},
        {"id": "b", "question": "Capital?", "answer": "Paris", "topic": "x"},
    ],
    "choices": [
        {"question": "2 + 2?", "choices": ["3", "4"], "answer": 1},
        {"question": "Capital?", "choices": ["Paris", "Rome"], "answer": 0},
    ],
}


def test_raw_rows_of_choices_are_refused_with_the_way_out():
    Path("raw.jsonl").write_bytes(
        b"".join(msgspec.json.encode(row) + b"\n" for row in RAW["choices"])
    )
    with pytest.raises(UsageError) as raised:
        source_of("raw.jsonl")
    assert str(raised.value) == (
        "raw.jsonl:1: has no prompt; use --prompt FILE, or --map FILE.py:FUNCTION: `gym docs data` "
        "has an example"
    )


def test_the_map_that_raw_rows_are_refused_with_collects_them():
    Path("raw.jsonl").write_bytes(
        b"".join(msgspec.json.encode(row) + b"\n" for row in RAW["answers"])
    )
    args = ("collect", "raw.jsonl", "-m", "oracle", "-o", "run", "--env", "string_match")
    done = gym(*args)
    start = (
        "error: raw.jsonl:1: has no prompt; use --prompt FILE, or --map FILE with this map in it: "
    )

    assert done.exit_code == 2
    assert done.stderr.startswith(start)
    Path("map.yaml").write_text(done.stderr.removeprefix(start))
    gym(*args, "--map", "map.yaml", exit_code=0)
    assert [row["reward"] for row in lines_of(Path("run/rollouts.jsonl"))] == [1.0, 1.0]


def test_raw_rows_without_an_environment_are_told_to_name_one():
    Path("raw.jsonl").write_bytes(msgspec.json.encode(RAW["answers"][0]))
    with pytest.raises(UsageError, match="has questions and answers, but no environment"):
        source_of("raw.jsonl")


@pytest.mark.parametrize("first", [{"env": "string_match"}, {"": "x", " ": "y"}, {"env": 3}])
def test_raw_rows_of_any_names_are_refused_with_words(first):
    rows = ({"question": "q", "answer": "a", **fields} for fields in (first, {}))
    write_rows("raw.jsonl", rows)
    with pytest.raises(UsageError, match="has questions and answers, but no environment"):
        source_of("raw.jsonl")


@pytest.mark.parametrize("extra", [{"messages": []}, {"prompt": "q"}, {"resolved_row": {}}])
def test_only_rows_without_a_prompt_are_refused_with_a_map(extra):
    Path("raw.jsonl").write_bytes(
        msgspec.json.encode({"question": "q", "expected_answer": "x"} | extra)
    )
    [row] = read("", "raw.jsonl", env="string_match")
    assert row.fields["question"] == "q"


@pytest.mark.parametrize(
    ("row", "env"), [({"question": "q", "prompt": None}, "string_match"), ({"question": "q"}, None)]
)
def test_rows_that_no_map_makes_tasks_are_told_what_a_row_needs(row, env):
    Path("raw.jsonl").write_bytes(msgspec.json.encode(row) + b'\n{"prompt": "q"}\n')
    with pytest.raises(TasksError, match=r"^raw.jsonl:1: no prompt: .*--prompt FILE or --map FILE"):
        read("", "raw.jsonl", env=env)


@pytest.mark.parametrize("name", ["tasks.json", "tasks.jsonl", "my tasks.json"])
def test_the_command_that_a_json_array_is_refused_with_converts_it(name):
    tasks = [{"prompt": "q", "expected_answer": "x"}, {"prompt": "p", "expected_answer": "y"}]
    Path(name).write_bytes(msgspec.json.format(msgspec.json.encode(tasks)))
    args = ("--env", "string_match", "-m", "oracle", "-o", "run")
    done = gym("collect", name, *args)
    start = f"error: {name}:1: is a JSON array, not one object a line; convert it: gym "

    assert done.exit_code == 2
    assert done.stderr.startswith(start)
    gym(*shlex.split(done.stderr.removeprefix(start)), exit_code=0)
    gym("collect", f"{Path(name).stem}-rows.jsonl", *args, exit_code=0)


def test_map_of_a_table():
    Path("map.py").write_text(
        "def task(row):\n"
        "    options = [{'A': row['eins']}, {'B': row['zwei']}]\n"
        "    fields = {'options': options, 'expected_answer': row['richtig'].upper()}\n"
        "    return {'id': row['nr'], 'prompt': row['frage'], 'env': 'mcqa', **fields}\n"
    )
    text = "nr,frage,eins,zwei,richtig\n7,q,x,y,b\n"
    [row] = read(text, map_file=Path("map.py:task"))

    assert (row.id, row.env, row.fields["expected_answer"]) == ("7", "mcqa", "B")
    assert row.fields["grading_mode"] == "letter"
    assert row.fields["options"] == [{"A": "x"}, {"B": "y"}]


def test_a_map_is_for_json_lines_too():
    Path("map.yaml").write_text("fields: {prompt: ask, answer: sum}\n")
    [row] = read('{"ask": "1 + 1?", "sum": 2}\n', "a.jsonl", env="arithmetic", map_file="map.yaml")
    assert (row.messages[0].text, row.fields) == ("1 + 1?", {"answer": 2})


@pytest.mark.parametrize(
    ("prompt", "mode", "warning"),
    [
        ("Give the letter.", None, False),
        ("Give the letter.", "lenient_boxed", True),
        ("Give the letter.", "last_answer_colon", False),
        ("Put it in \\boxed{{}}.", "lenient_boxed", False),
    ],
)
def test_a_prompt_without_a_box_is_warned_of_where_only_boxes_are_read(prompt, mode, warning):
    Path("quiz.csv").write_text(CHOICES)
    Path("ask.yaml").write_text(f"user: '{{question}} {prompt}'\n")
    args = ("--env-arg", f"grading_mode={mode}") if mode else ()
    done = gym("collect", "quiz.csv", "--prompt", "ask.yaml", "-m", "oracle", "-o", "run", *args)

    text = "--prompt ask.yaml: does not mention \\boxed, without which mcqa reads no answer"
    assert done.exit_code == 0
    assert (text in done.stderr) == warning


def test_collecting_a_table_resumes_and_is_checked():
    Path("quiz.csv").write_text(CHOICES)
    done = gym(
        "collect", "quiz.csv", "--model", "oracle", "--out", "run", "--limit", "1", exit_code=0
    )
    assert done.stderr.startswith("quiz.csv: question → prompt")
    done = gym("collect", "quiz.csv", "--model", "oracle", "--out", "run", "--quiet")
    assert (done.exit_code, done.stderr) == (0, "")
    assert [row["task_id"] for row in lines_of(Path("run/rollouts.jsonl"))] == ["q1", "q2"]
    assert gym("data", "validate", "quiz.csv").stdout.startswith("2 rows, 2 tasks, 0 wrong")
    gym("data", "stats", "quiz.csv", exit_code=0)
    gym("check", "mcqa", "--tasks", "quiz.csv", exit_code=0)

    Path("quiz.csv").write_text(CHOICES.replace("emu", "auk"))
    done = gym("collect", "quiz.csv", "--model", "oracle", "--out", "run", exit_code=2)
    assert 'quiz.csv:2: the content of task "q1" has changed' in done.stderr


def test_a_map_of_an_older_version_is_refused_with_the_way_out():
    Path("quiz.csv").write_text("frage,antwort\nq,4\n")
    Path("map.yaml").write_text("fields: {prompt: frage, answer: {from: antwort, apply: number}}\n")
    args = ("--map", "map.yaml", "--env", "arithmetic", "-m", "oracle", "-o", "run")
    done = gym("collect", "quiz.csv", *args, exit_code=2)

    assert done.stderr == (
        "error: map.yaml: fields.answer: must be the name of a column: a YAML map only selects and "
        "renames; convert values with a function, FILE.py:FUNCTION (`gym docs data` has an "
        "example)\n"
    )
    code = (
        "def task(row):\n"
        "    return {'id': 'a', 'prompt': row['frage'], 'answer': int(row['antwort'])}\n"
    )
    Path("map.py").write_text(code)
    args = ("--map", "map.py:task", *args[2:])
    gym("collect", "quiz.csv", *args, exit_code=0)
    # The task is what it was, so the run is complete; another function makes another task.
    Path("map.py").write_text(f"{code}\n")
    gym("collect", "quiz.csv", *args, exit_code=0)
    Path("map.py").write_text(code.replace("])}", "]) + 1}"))
    done = gym("collect", "quiz.csv", *args, exit_code=2)
    assert 'quiz.csv:2: the content of task "a" has changed' in done.stderr


def test_a_long_table_is_inferred_from_all_of_its_rows():
    rows = "".join(f"q{number},x,y,,A\n" for number in range(1_500))
    tasks = read(f"question,A,B,max_turns,answer\n{rows}last,x,y,3,B\n")
    assert (len(tasks), tasks[-1].max_turns) == (1_501, 3)
    assert tasks[-1].fields["expected_answer"] == "B"
