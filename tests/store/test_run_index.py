"""The index of a run has a row for every attempt, and finds each record in its file."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.errors import FilterError, RunFileError, UsageError
from gymcli.store.filters import parse_filter
from gymcli.store.lines import MAX_LINE_BYTES
from gymcli.store.run_index import Refreshed, RunIndex
from gymcli.store.scored_lines import EnvironmentFacts
from gymcli.types import Failure, Rollout
from tests.builders import append, failed, lines, scored, waiting, with_tools, write_run


def select(index, text, **options):
    """Return the attempts that match an expression, as `TASK/ATTEMPT`."""
    return names(index, index.select(parse_filter(text), **options))


def names(index, numbers):
    rows = index.rows
    return [f"{rows[number].task_id}/{rows[number].attempt}" for number in numbers]


def test_rows_say_what_the_lines_do(tmp_path):
    rollout = with_tools(
        reward=0.25, components={"form": 1.0}, metrics={"length": 3.0}, answer="Rom", cost=0.5
    )
    run = write_run(tmp_path / "run", rollouts=[rollout])
    with RunIndex(run) as index:
        [row] = index.rows
        assert index.read(row) == rollout
        assert index.line(row) == msgspec.json.encode(rollout)
    assert row.place.file == str(run / "rollouts.jsonl")
    assert (row.number, row.env, row.task_id, row.attempt) == (0, "quiz", "t", 0)
    assert (row.status, row.reward, row.passed) == ("scored", 0.25, False)
    assert (row.stop_reason, row.error, row.phase, row.model) == ("done", None, None, "m")
    assert (row.num_turns, row.num_tool_calls) == (2, 2)
    assert (row.prompt_tokens, row.completion_tokens, row.reasoning_tokens) == (7, 3, 1)
    assert (row.cost, row.seconds, row.answer) == (0.5, 2.5, "Rom")
    assert (row.components, row.metrics) == ({"form": 1.0}, {"length": 3.0})
    assert (row.avg, row.best, row.worst) == (0.25, 0.25, 0.25)
    assert (row.num_attempts, row.num_passed) == (1, 0)


def test_rows_are_the_attempts_with_what_became_of_each(tmp_path):
    """A score replaces any other record, a conversation replaces failures, a failure older ones."""
    run = write_run(
        tmp_path / "run",
        rollouts=[scored("a", 0, 1.0), scored("a", 1, 0.0), scored("b", 0, 1.0)],
        generations=[waiting("a", 1), waiting("b", 1), waiting("c", 0)],
        failures=[
            failed("a", 0),
            failed("b", 1, "ServerError"),
            failed("c", 0, "VerifierError", "verify"),
            failed("d", 0, "ServerError"),
            failed("d", 0, "RateLimitError"),
        ],
    )
    with RunIndex(run) as index:
        rows = {f"{row.task_id}/{row.attempt}": row for row in index.rows}
        records = {name: index.read(row) for name, row in rows.items()}
    assert list(rows) == ["a/0", "a/1", "b/0", "b/1", "c/0", "d/0"]
    assert [row.status for row in rows.values()] == [
        *["scored"] * 3,
        "waiting",
        "waiting",
        "failed",
    ]
    assert (rows["b/1"].error, rows["b/1"].reward) == (None, None)
    assert (rows["c/0"].error, rows["c/0"].phase) == ("VerifierError", "verify")
    assert (rows["d/0"].error, rows["d/0"].num_turns) == ("RateLimitError", 0)
    assert (rows["a/0"].avg, rows["a/0"].best, rows["a/0"].worst) == (0.5, 1.0, 0.0)
    assert (rows["a/0"].num_attempts, rows["a/0"].num_passed) == (2, 1)
    assert (rows["b/1"].num_attempts, rows["b/1"].num_passed, rows["b/1"].avg) == (2, 1, 1.0)
    assert (rows["d/0"].avg, rows["d/0"].num_passed) == (None, None)
    assert isinstance(records["d/0"], Failure)
    assert records["d/0"].error.error_class == "RateLimitError"
    assert isinstance(records["c/0"], Rollout)
    assert records["c/0"].reward is None


def test_find_and_attempts_give_the_rows_of_a_task(tmp_path):
    rollouts = [scored("a", 2), scored("b", 0), scored("a", 0), scored("a", 1, env="other")]
    run = write_run(tmp_path / "run", rollouts=rollouts)
    with RunIndex(run) as index:
        found = index.find("quiz", "a", 0)
        assert found is not None
        assert names(index, index.attempts_of(found.env, found.task_id)) == ["a/0", "a/2"]
        assert names(index, index.attempts_of("quiz", "a")) == ["a/0", "a/2"]
        assert index.attempts_of("quiz", "z") == index.attempts_of("nobody", "a") == []
        assert index.find("quiz", "a", 1) is None
        assert index.find("quiz", "z", 0) is None
        assert index.find("nobody", "a", 0) is None


def test_rows_can_be_sliced(tmp_path):
    run = write_run(tmp_path / "run", rollouts=[scored(str(n)) for n in range(5)])
    with RunIndex(run) as index:
        assert len(index.rows) == 5
        assert index.rows[-1].task_id == "4"
        assert [row.task_id for row in index.rows[1:3]] == ["1", "2"]
        assert list(index.values("task_id")) == list("01234")
        with pytest.raises(IndexError):
            index.rows[5]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("reward < 1", ["a/1", "b/0"]),
        ("0 < avg < 1", ["a/0", "a/1"]),
        ("status == 'failed'", ["c/0"]),
        ("error == 'ServerError' and phase == 'model'", ["c/0"]),
        ("error is None and passed", ["a/0"]),
        ("num_attempts == 2 and num_passed == 1", ["a/0", "a/1"]),
        ("env == 'quiz' and task_id in ('b', 'c')", ["b/0", "c/0"]),
        ("stop_reason != 'done'", ["b/0"]),
        ("components.form > 0.5", ["a/0"]),
        ("metrics.length is not None", ["b/0"]),
        ("answer == 'B'", ["a/0"]),
        ("endswith(answer, 'end')", ["a/1"]),
        ("len(answer) > 1000", ["a/1"]),
        ("task.category == 'letters'", ["a/0", "b/0"]),
        ("task.inner.list.1 == 'two'", ["a/1"]),
        ("task['dotted.key'] == 5", ["a/1"]),
        ("task.inner.list.9 is not None or task.inner.x.y is not None", []),
        ("details.reason == 'short'", ["b/0"]),
        ("contains(text, 'say C')", ["a/1"]),
        ("contains(lower(text), 'SAY')", []),
        ("contains(lower(text), 'i say c')", ["a/1"]),
        ("'Köln \"now\"' in text", ["b/0"]),
        ("text == 'A or B?\\nI say C'", ["a/1"]),
        ("text in 'A or B?\\nI say C.'", ["a/1", "c/0"]),
        ("text in text and contains(text, lower(text))", ["c/0"]),
        ("model == 'm' and cost is None and seconds > 2 and completion_tokens == 3", ["*"]),
        ("num_turns == 1 and num_tool_calls == 0 and reasoning_tokens == 1", ["*"]),
    ],
)
def test_select_knows_the_names_of_rows(tmp_path, text, expected):
    run = write_run(
        tmp_path / "run",
        rollouts=[
            scored("a", 0, 1.0, answer="B", components={"form": 1.0}),
            scored(
                "a",
                1,
                0.5,
                said="I say C",
                answer="x" * 2000 + "end",
                components={"form": 0.5},
                task={"inner": {"list": ["one", "two"], "x": 1}, "dotted.key": 5},
            ),
            scored(
                *("b", 0, 0.0),
                said='In Köln "now"',
                stop_reason="length",
                metrics={"length": 4.0},
                details={"reason": "short"},
            ),
        ],
        failures=[failed("c", 0)],
    )
    with RunIndex(run) as index:
        found = select(index, text)
    assert found == (["a/0", "a/1", "b/0"] if expected == ["*"] else expected)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rewrad > 0", 'did you mean "reward"'),
        ("components.fork > 0", r'did you mean "components\.form"'),
        ("metrics.x > 0", r'no name "metrics\.x"'),
        ("task > 0", r"write task\.FIELD"),
        ("reward > 'a'", r"cannot compare a number and text \(task a, attempt 0\)"),
    ],
)
def test_select_refuses_what_no_rollout_has(tmp_path, text, words):
    run = write_run(tmp_path / "run", rollouts=[scored(components={"form": 1.0})])
    with RunIndex(run) as index, pytest.raises(FilterError, match=words):
        select(index, text)


def test_select_of_nothing_knows_no_names_yet(tmp_path):
    with RunIndex(write_run(tmp_path / "run")) as index:
        assert index.select(parse_filter("components.form > 0.5")) == []
        assert len(index.rows) == 0


def test_select_sorts_and_puts_what_lacks_the_value_last(tmp_path):
    run = write_run(
        tmp_path / "run",
        rollouts=[
            scored("a", 0, 0.5),
            scored("b", 0, 1.0),
            scored("c", 0, 0.0),
            scored("d", 0, 0.5),
        ],
        failures=[failed("e", 0)],
    )
    with RunIndex(run) as index:
        assert names(index, index.select(sort="reward")) == ["c/0", "a/0", "d/0", "b/0", "e/0"]
        assert names(index, index.select(sort="-reward")) == ["b/0", "a/0", "d/0", "c/0", "e/0"]
        assert select(index, "reward > 0", sort="-task_id") == ["d/0", "b/0", "a/0"]
        for wrong in ("rewrad", "text", "-", "task.category"):
            with pytest.raises(FilterError, match="cannot be sorted by"):
                index.select(sort=wrong)


def test_select_finds_named_numbers_beyond_those_in_memory(tmp_path):
    numbers = {f"n{number}": float(number) for number in range(100)}
    run = write_run(tmp_path / "run", rollouts=[scored(), scored("b", metrics=numbers)])
    with RunIndex(run) as index:
        assert select(index, "metrics.n99 == 99") == ["b/0"]
        assert select(index, "metrics.n1 == 1") == ["b/0"]
        assert select(index, "metrics.nowhere is None") == ["a/0", "b/0"]


def test_refresh_takes_what_was_written_since(tmp_path):
    run = write_run(tmp_path / "run", rollouts=[scored("a", 0)], failures=[failed("b", 0)])
    with RunIndex(run) as index:
        assert index.refresh() == Refreshed()
        append(run / "failures.jsonl", failed("c", 0), failed("a", 0), failed("b", 0, "Other"))
        append(run / "generations.jsonl", waiting("b", 0))
        append(run / "rollouts.jsonl", scored("a", 1, 0.0))
        assert index.refresh() == Refreshed(num_new=2, num_changed=1)
        assert [row.status for row in index.rows] == ["scored", "waiting", "scored", "failed"]
        assert (index.rows[0].avg, index.rows[0].num_attempts) == (0.5, 2)
        append(run / "rollouts.jsonl", scored("b", 0, 0.5), scored("c", 0, 0.5))
        assert index.refresh() == Refreshed(num_new=0, num_changed=2)
        assert {row.status for row in index.rows} == {"scored"}
        assert names(index, range(4)) == ["a/0", "b/0", "a/1", "c/0"]
        assert index.read(index.rows[1]).reward == 0.5
        assert (index.rows[1].error, index.rows[1].phase) == (None, None)


def test_refresh_waits_for_a_line_to_be_whole(tmp_path):
    run = write_run(tmp_path / "run", rollouts=[scored("a", 0)])
    path, line = run / "rollouts.jsonl", lines(scored("a", 1))
    with RunIndex(run) as index:
        for part in (line[:50], line[50:100]):
            with path.open("ab") as file:
                file.write(part)
            assert index.refresh() == Refreshed()
        with path.open("ab") as file:
            file.write(line[100:-1])
        assert index.refresh() == Refreshed(num_new=1)
        with path.open("ab") as file:
            file.write(b"\n" + lines(scored("a", 2)))
        assert index.refresh() == Refreshed(num_new=1)
        assert [index.read(row).attempt for row in index.rows] == [0, 1, 2]
        with path.open("ab") as file:
            file.write(b"{damaged\n")
        with pytest.raises(RunFileError, match=r"rollouts\.jsonl:4: "):
            index.refresh()


def test_refresh_names_a_damaged_line_time_and_again(tmp_path):
    run = write_run(tmp_path / "run", rollouts=[scored("a", 0)])
    path = run / "rollouts.jsonl"
    with RunIndex(run) as index:
        append(path, scored("a", 1))
        size = path.stat().st_size
        with path.open("ab") as file:
            file.write(b"{damaged\n")
        for _ in range(2):
            with pytest.raises(RunFileError, match=r"rollouts\.jsonl:3: is not a rollout"):
                index.refresh()
        assert len(index.rows) == 2
        with path.open("r+b") as file:
            file.truncate(size)
        append(path, scored("a", 2))
        assert index.refresh() == Refreshed(num_new=1)


@pytest.mark.parametrize("is_shorter", [True, False])
def test_refresh_begins_again_where_a_file_was_replaced(tmp_path, is_shorter):
    run = write_run(tmp_path / "run", rollouts=[scored("a", 0), scored("a", 1)])
    path = run / "rollouts.jsonl"
    with RunIndex(run) as index:
        first = index.rows[0]
        if is_shorter:
            path.write_bytes(lines(scored("z", 0)))
        else:
            other = tmp_path / "other.jsonl"
            other.write_bytes(
                lines(scored("y", 0, said="longer" * 40), scored("z", 0), scored("z", 1))
            )
            other.replace(path)
        assert index.refresh().is_rebuilt
        assert "a" not in {row.task_id for row in index.rows}
        with pytest.raises(RunFileError, match=r"was changed.*open the run again"):
            index.read(first)


def test_refresh_begins_again_where_a_file_was_written_over_in_place(tmp_path):
    """The file is the same, and its length up to the last line that was read is unchanged."""
    run = write_run(tmp_path / "run", rollouts=[scored("a", 0, 1.0), scored("a", 1, 0.0)])
    with RunIndex(run) as index:
        with (run / "rollouts.jsonl").open("r+b") as file:
            file.write(lines(scored("z", 0, 0.0), scored("z", 1, 1.0), scored("z", 2)))
        assert index.refresh() == Refreshed(num_new=3, is_rebuilt=True)
        assert [row.reward for row in index.rows] == [0.0, 1.0, 1.0]
        assert index.refresh() == Refreshed()


def test_refresh_keeps_what_it_has_until_all_of_another_file_can_be_read(tmp_path):
    run = write_run(tmp_path / "run", rollouts=[scored("a", 0), scored("a", 1)])
    path, other = run / "rollouts.jsonl", tmp_path / "other.jsonl"
    with RunIndex(run) as index:
        other.write_bytes(lines(scored("y")) + b"{damaged\n" + lines(scored("z")))
        other.replace(path)
        for _ in range(2):
            with pytest.raises(RunFileError, match=r"rollouts\.jsonl:2: is not a rollout"):
                index.refresh()
            assert names(index, range(2)) == ["a/0", "a/1"]
        path.write_bytes(lines(scored("y"), scored("z")))
        assert index.refresh() == Refreshed(num_new=2, is_rebuilt=True)
        assert [index.read(row).task_id for row in index.rows] == ["y", "z"]


def test_refresh_begins_again_where_a_file_is_gone(tmp_path):
    run = write_run(tmp_path / "run", rollouts=[scored()], failures=[failed("b")])
    with RunIndex(run) as index:
        (run / "failures.jsonl").unlink()
        assert index.refresh() == Refreshed(num_new=1, is_rebuilt=True)


def test_read_refuses_a_line_that_is_no_longer_there(tmp_path):
    run = write_run(tmp_path / "run", rollouts=[scored("a"), scored("b")])
    with RunIndex(run) as index:
        first, last = index.rows
        (run / "rollouts.jsonl").write_bytes(lines(scored("z"))[:-20])
        for row in (first, last):
            with pytest.raises(RunFileError, match="was changed"):
                index.read(row)
        with pytest.raises(RunFileError, match="was changed"):
            index.line(last)
        with pytest.raises(RunFileError, match="was changed"):
            index.select(parse_filter("contains(text, 'x')"))


@pytest.mark.parametrize("filler", [b"{}", b"{", b'{"error": 1, "response": 2}'])
def test_read_refuses_what_stands_in_the_place_of_a_line(tmp_path, filler):
    run = write_run(tmp_path / "run", rollouts=[scored("a")])
    path = run / "rollouts.jsonl"
    with RunIndex(run) as index:
        [row] = index.rows
        path.write_bytes(filler.ljust(row.place.size) + b"\n")
        with pytest.raises(RunFileError, match="was changed"):
            index.read(row)
        for text in ("task.category == 'x'", "text == 'x'"):
            with pytest.raises(RunFileError, match="was changed"):
                index.select(parse_filter(text))


def test_read_says_what_is_damaged_in_a_line_whose_row_is_whole(tmp_path):
    run = write_run(tmp_path / "run", rollouts=[scored("a")])
    path = run / "rollouts.jsonl"
    path.write_bytes(path.read_bytes().replace(b'{"category":"letters"}', b"5"))
    with (
        RunIndex(run) as index,
        pytest.raises(RunFileError, match=r"at byte 0 is damaged.* got `int` - at `\$\.task`"),
    ):
        index.read(index.rows[0])


def test_select_knows_failures_by_their_words_and_not_by_their_task(tmp_path):
    messages = scored().messages
    run = write_run(tmp_path / "run", failures=[failed(messages=messages)])
    with RunIndex(run) as index:
        assert select(index, "contains(text, 'say B')") == ["a/0"]
        assert select(index, "task.category is None and details.x is None") == ["a/0"]


def test_rows_take_failures_that_say_no_version(tmp_path):
    run = write_run(tmp_path / "run")
    line = b'{"task_id": "a", "env": "quiz", "error": {"class": "X", "phase": "model"}}\n'
    (run / "failures.jsonl").write_bytes(line)
    with RunIndex(run) as index:
        [row] = index.rows
        assert (row.task_id, row.attempt, row.error) == ("a", 0, "X")


def test_rows_hold_many_different_answers(tmp_path):
    run = write_run(
        tmp_path / "run", rollouts=[scored(str(n), answer=f"a{n}") for n in range(3000)]
    )
    with RunIndex(run) as index:
        assert [row.answer for row in index.rows] == [f"a{n}" for n in range(3000)]
        assert select(index, "answer in ('a7', 'a2999')") == ["7/0", "2999/0"]


def test_index_refuses_a_line_that_is_too_long(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    with path.open("wb") as file:
        file.truncate(MAX_LINE_BYTES + 10)
    with pytest.raises(UsageError, match=r"rollouts\.jsonl:1: is longer than the limit of 128 MB"):
        RunIndex(path)


def test_index_leaves_out_a_torn_last_line(tmp_path):
    run = write_run(tmp_path / "run", rollouts=[scored("a", 0), scored("a", 1)])
    path = run / "rollouts.jsonl"
    path.write_bytes(b"\xef\xbb\xbf\n  " + path.read_bytes()[:-30])
    with RunIndex(run) as index:
        [row] = index.rows
        assert index.read(row) == scored("a", 0)
        assert row.place.offset == 6


@pytest.mark.parametrize(
    ("name", "line", "words"),
    [
        ("rollouts", b"{broken", r"rollouts\.jsonl:2: is not a rollout.*delete the line"),
        ("rollouts", b'{"schema_version": 1, "env": "e"}', r"rollouts\.jsonl:2.*is missing"),
        ("rollouts", b'{"schema_version": 1, "attempt": 9e9}', r"rollouts\.jsonl:2: is not a"),
        ("failures", b"{broken", r"failures\.jsonl:2: is damaged.*delete the line"),
        ("failures", b'{"error": 3}', r"failures\.jsonl:2: is damaged"),
        ("generations", b"[]", r"generations\.jsonl:2: is damaged"),
    ],
)
def test_index_names_a_damaged_line(tmp_path, name, line, words):
    run = write_run(
        tmp_path / "run", rollouts=[scored()], failures=[failed("f")], generations=[waiting("w")]
    )
    with (run / f"{name}.jsonl").open("ab") as file:
        file.write(line + b"\n")
    append(run / f"{name}.jsonl", scored("later"))
    with pytest.raises(RunFileError, match=words):
        RunIndex(run)


def test_index_refuses_an_attempt_that_is_scored_twice(tmp_path):
    run = write_run(tmp_path / "run", rollouts=[scored(), scored()])
    with pytest.raises(RunFileError, match=r"rollouts\.jsonl:2: attempt 0 of task a .*twice"):
        RunIndex(run)


def test_index_refuses_what_is_no_run(tmp_path):
    with pytest.raises(UsageError, match="no such run"):
        RunIndex(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="holds no"):
        RunIndex(tmp_path)
    path = tmp_path / "rollouts.jsonl.gz"
    path.write_bytes(b"")
    with pytest.raises(UsageError, match=r"compressed.*gunzip"):
        RunIndex(path)
    with pytest.raises(UsageError, match="/dev/null: is not a regular file"):
        RunIndex(Path("/dev/null"))


def test_index_reads_a_bare_file(tmp_path):
    """Without a manifest, `facts_of` returns an environment's facts and its local name."""
    path = tmp_path / "some.jsonl"
    path.write_bytes(lines(scored("a", 0, 0.5), waiting("b", 0), failed("c", 0)))
    with RunIndex(path) as index:
        assert [row.status for row in index.rows] == ["scored", "waiting", "failed"]
        assert index.rows[0].passed is None
        assert index.manifest is None
    asked = []

    def facts_of(name):
        asked.append(name)
        return f"{name}-here", EnvironmentFacts(max_reward=0.5)

    with RunIndex(path, facts_of=facts_of) as index:
        assert index.rows[0].passed
        assert index.rows[0].env == "quiz-here"
    assert asked == ["quiz"]


def nemo_line(task, attempt, reward, text="In Rom.", **fields):
    """Return a rollout of NeMo Gym that calls a tool, escaped as its writer does."""
    said = [{"type": "output_text", "text": text}]
    output = [
        {"type": "function_call", "name": "weather", "arguments": "{}", "call_id": "1"},
        {"type": "function_call_output", "call_id": "1", "output": "warm"},
        {"type": "message", "role": "assistant", "content": said},
    ]
    line = {
        "responses_create_params": {"input": [{"role": "user", "content": "Where?"}]},
        "response": {"output": output, "model": "m", "usage": {"output_tokens": 9}},
        "reward": reward,
        "category": "cities",
        "_ng_task_index": task,
        "_ng_rollout_index": attempt,
        "agent_ref": {"name": "quiz"},
        **fields,
    }
    return json.dumps(line).encode() + b"\n"


def test_index_reads_rollouts_of_nemo_gym(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    path.write_bytes(
        nemo_line(0, 0, 1.0, "Köln is warm", extracted_answer="Köln", reward_components={"c": 1})
        + nemo_line(0, 1, 0.0, error={"class": "none", "phase": "model"})
        + nemo_line(1, 0, 0.0, _ng_failure_class="judge_failed")
    )
    with RunIndex(path) as index:
        first, second, last = index.rows
        assert (second.status, index.read(second).reward) == ("scored", 0.0)
        assert (first.task_id, first.num_turns, first.num_tool_calls) == ("0", 2, 1)
        assert (first.answer, first.components, first.completion_tokens) == ("Köln", {"c": 1.0}, 9)
        assert (first.avg, first.seconds) == (0.5, None)
        assert (last.status, last.error, last.phase) == ("failed", "judge_failed", "verify")
        assert index.read(first).last_text == "Köln is warm"
        assert select(index, "contains(text, 'Köln is')") == ["0/0"]
        assert select(index, "task.category == 'cities' and avg is not None") == ["0/0", "0/1"]
        assert select(index, "contains(lower(text), 'in rom')") == ["0/1", "1/0"]
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(nemo_line(0, 10**7, 1.0))
    with pytest.raises(RunFileError, match="attempt 10000000 exceeds"):
        RunIndex(bad)
    bare = tmp_path / "bare.jsonl"
    bare.write_bytes(nemo_line(0, 0, 1.0, agent_ref=None))
    with pytest.raises(RunFileError, match="use --env NAME"):
        RunIndex(bare)
    with RunIndex(bare, "mine") as index:
        assert index.rows[0].env == "mine"
        assert index.read(index.rows[0]).env == "mine"


def test_rows_hold_counts_that_are_damaged(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    tokens = b'"prompt_tokens":%d'
    path.write_bytes(lines(scored()).replace(tokens % 7, tokens % (2**64 - 1)))
    with RunIndex(path) as index:
        assert index.rows[0].prompt_tokens == 2**63 - 1


def test_groups_take_the_largest_rewards(tmp_path):
    run = write_run(tmp_path / "run", rollouts=[scored("a", n, 1.5e308) for n in range(3)])
    with RunIndex(run) as index:
        assert index.rows[0].avg == pytest.approx(1.5e308)


rewards = st.dictionaries(
    st.tuples(st.sampled_from("abc"), st.integers(0, 3)),
    st.none() | st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    max_size=10,
)


@given(rewards)
def test_groups_are_those_of_their_attempts(tmp_path_factory, rewards):
    """The fields of a group agree with the scores of its attempts."""
    path = tmp_path_factory.mktemp("run")
    run = write_run(
        path,
        rollouts=[scored(*key, reward) for key, reward in rewards.items() if reward is not None],
        failures=[failed(*key) for key, reward in rewards.items() if reward is None],
    )
    with RunIndex(run) as index:
        for row in index.rows:
            own = [r for (task, _), r in rewards.items() if task == row.task_id]
            known = [r for r in own if r is not None]
            assert row.num_attempts == len(own)
            assert row.num_passed == (known.count(1.0) if known else None)
            assert row.avg == (sum(known) / len(known) if known else None)
            assert (row.best, row.worst) == (max(known, default=None), min(known, default=None))
        mixed = index.select(parse_filter("worst < best"))
        assert {index.rows[n].task_id for n in mixed} == {
            row.task_id for row in index.rows if row.worst is not None and row.worst != row.best
        }
