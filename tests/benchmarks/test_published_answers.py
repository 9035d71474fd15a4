"""Answers of a file, joined with a benchmark's tasks and scored as its run."""

import msgspec
import pytest
from inline_snapshot import snapshot

from gymcli.benchmarks.benchmark import find_benchmark
from gymcli.benchmarks.benchmark_files import pulled_tasks
from gymcli.benchmarks.published_answers import PublishedAnswers
from gymcli.errors import UsageError
from tests.builders import gym, lines_of, write_rows

SUMS = """name = "sums"
version = "1"
title = "Sums"
domain = "mathematics"
env = "arithmetic"
repeats = 2
margin = 0.5
citations = { margin = "none" }
[source]
env = "arithmetic"
rows = 4
licence = "Apache-2.0"
[[reference]]
model = "big"
score = 0.5
source = "nowhere"
date = "2026-01"
"""


@pytest.fixture(scope="module")
def sums(tmp_path_factory):
    """Return a benchmark with four tasks, their file, and their rows."""
    folder = tmp_path_factory.mktemp("sums")
    (folder / "benchmark.toml").write_text(SUMS)
    benchmark = find_benchmark(str(folder))
    tasks = pulled_tasks(benchmark, cache=folder)
    return benchmark, tasks, lines_of(tasks)


def joined(sums, folder, rows):
    """Return the attempts that rows answer, with the texts, and the notes."""
    benchmark, tasks, _ = sums
    path = folder / "answers.jsonl"
    write_rows(path, rows)
    answers = PublishedAnswers(path, benchmark, tasks)
    rollouts = answers.rollouts(model="big", env_options={})
    return {(one.task_id, one.attempt): one.last_text for one in rollouts}, answers


@pytest.mark.parametrize(
    ("row", "num_attempts", "way"),
    [
        (lambda n, task: {"task_id": task["id"], "response": f"{n}"}, 1, "id"),
        (lambda n, task: {"task_id": f" {task['id']} ", "response": f"{n}"}, 1, "id"),
        (lambda n, task: {"prompt": f"  {task['prompt']}\n", "completion": f"{n}"}, 1, "text"),
        (lambda n, task: {"output": [f"{n}", f"{n}"]}, 2, "position"),
        (
            lambda n, task: {"doc": {"question": task["prompt"]}, "resps": [[f"{n}", f"{n}"]]},
            2,
            "text",
        ),
        (lambda n, task: {"doc_id": n, "doc": {}, "resps": [[f"{n}"]]}, 1, "doc_id"),
        (
            lambda n, task: {
                "id": task["id"],
                "epoch": 1,
                "output": {"choices": [{"message": {"role": "assistant", "content": f"{n}"}}]},
            },
            1,
            "id",
        ),
        (lambda n, task: {"id": task["id"], "answer": n, "question": "?"}, 1, "id"),
        (
            lambda n, task: {
                "responses_create_params": {"input": task["prompt"]},
                "response": {
                    "output": [{"role": "assistant", "type": "message", "content": f"{n}"}]
                },
            },
            1,
            "text",
        ),
    ],
)
def test_rows_of_many_shapes_are_joined(sums, tmp_path, row, num_attempts, way):
    *_, tasks = sums
    found, answers = joined(sums, tmp_path, [row(n, task) for n, task in enumerate(tasks)])

    assert found == {
        (task["id"], attempt): f"{n}"
        for n, task in enumerate(tasks)
        for attempt in range(num_attempts)
    }
    assert answers.repeats == num_attempts
    assert answers.notes[0].endswith(f" {way}" if way != "text" else "the text of the question")


def test_rows_without_an_answer_keep_their_position(sums, tmp_path):
    *_, tasks = sums
    # The gold answer is not taken for the one that is missing.
    rows = [{"response": text, "answer": "gold"} for text in (None, "1", None, "3")]
    found, _ = joined(sums, tmp_path, rows)

    assert found == {(tasks[1]["id"], 0): "1", (tasks[3]["id"], 0): "3"}


def test_an_object_with_a_text_is_no_call(sums, tmp_path):
    rows = [{"doc_id": 0, "response": [{"content": '{"x": 1}'}]}]
    found, _ = joined(sums, tmp_path, rows)

    assert list(found.values()) == ['{"x": 1}']


def test_only_one_filter_of_lm_eval_is_read(sums, tmp_path):
    rows = [
        {"doc_id": 1, "filter": name, "resps": [["2"]], "filtered_resps": ["2"]}
        for name in ("strict", "flexible")
    ]
    found, _ = joined(sums, tmp_path, rows)

    assert list(found.values()) == ["2"]


@pytest.mark.parametrize(
    "answer",
    [
        {"result": [{"f": '{"a": 1}'}, {"g": {"b": 2}}]},  # BFCL
        {
            "output": {  # inspect
                "choices": [
                    {
                        "message": {
                            "tool_calls": [
                                {"id": "1", "function": "f", "arguments": '{"a": 1}'},
                                {"id": "2", "function": "g", "arguments": {"b": 2}},
                            ]
                        }
                    }
                ]
            }
        },
    ],
)
def test_calls_in_other_notations_are_one_answer(sums, tmp_path, answer):
    benchmark, tasks, rows = sums
    path = tmp_path / "answers.jsonl"
    path.write_bytes(msgspec.json.encode({"id": rows[0]["id"], **answer}))
    [rollout] = PublishedAnswers(path, benchmark, tasks).rollouts(model="", env_options={})

    made = [(call.name, call.arguments) for call in rollout.tool_calls]
    assert made == [("f", '{"a": 1}'), ("g", '{"b":2}')]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"id": "x", "response": "1"}], "no row matches a task of sums, and it has 1 for 4"),
        (
            [{"id": 0, "text": "1"}],
            "no row has an answer in one of the fields response, completion",
        ),
        (
            [{"doc_id": 0, "response": "1"}, {"doc_id": 0, "response": "2"}],
            "1 of 2 rows answer the same attempt as another row: 2 as 1;",
        ),
        ([{"doc_id": 0, "response": {"content": 5}}], "1: the answer cannot be read"),
        (
            [{"doc_id": 0, "response": {"answer": "5"}}],
            "1: the answer .* object needs content, text",
        ),
        ([{"doc_id": 0, "response": "1", "epoch": 0}], '1: "epoch" must be from 1 to 1,000,000'),
    ],
)
def test_a_file_that_cannot_be_joined_is_refused(sums, tmp_path, rows, said):
    with pytest.raises(UsageError, match=said):
        joined(sums, tmp_path, rows)


def test_verify_scores_published_answers_and_compares_them(sums, tmp_path, working_folder):
    benchmark, tasks, rows = sums
    options = ("--benchmark", benchmark.path.parent, "--cache", tasks.parents[2])
    answers = [
        {"id": rows[0]["id"], "response": str(rows[0]["answer"]), "model": "org/BIG"},
        {"id": rows[1]["id"], "response": "none"},
        {"id": rows[2]["id"], "response": None},
        {"id": "x", "response": "1"},
    ]
    path = tmp_path / "answers.jsonl"
    write_rows(path, answers)

    done = gym("verify", path, *options, "--out", "run", exit_code=0)

    assert done.stderr.replace(str(path), "answers.jsonl") == snapshot("""\
answers.jsonl: 2 rows joined with tasks: 2 by id
warning: 1 of 4 rows are left out because they match no task of sums: rows 4
warning: 1 of 4 rows are left out because they have no answer: rows 3
warning: 2 of 4 tasks have no answer and count as missing: 2+2, 7+19
the settings behind these answers are unknown: they are compared as if made with the prompt and parameters of sums
""")  # noqa: E501  # as it is written
    assert "2 of 4" in done.stdout
    assert "reference     big 0.5" in done.stdout
    assert [one["reward"] for one in lines_of(tmp_path / "run/rollouts.jsonl")] == [1.0, 0.0]

    # The settings count as the benchmark's, with fewer repeats too.
    answers = [{"id": row["id"], "response": str(row["answer"])} for row in rows]
    write_rows(path, answers)
    whole = gym("verify", path, *options, "--model", "big", "--quiet")
    assert whole.stderr == ""
    assert "(nowhere, 2026-01): cannot tell, difference +0.500 (" in whole.stdout

    lost = gym("verify", "lost.jsonl", *options[:2], "--cache", "unused")
    assert (lost.exit_code, "pulling" in lost.stderr) == (2, False)
    again = gym("verify", path, *options, "--out", "run")
    assert (again.exit_code, "already exists" in again.stderr) == (2, True)
    refused = gym("verify", path, *options, "--pending")
    assert (refused.exit_code, "leave out --pending" in refused.stderr) == (2, True)
