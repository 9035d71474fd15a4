"""Workers read the file themselves: the same results in the same order, whatever lines do."""

import textwrap
from pathlib import Path

import msgspec
import pytest

from gymcli.errors import RunFileError, UnknownNameError
from gymcli.scoring import (
    RescoredLines,
    RescoreJob,
    rescore,
    rescore_batches,
    score_lines,
)
from gymcli.scoring.parts import score_part
from gymcli.store.blocks import Part, iterate_parts
from gymcli.store.rollouts import RolloutReading, rollout_lines
from gymcli.types import Message, Rollout

SOURCE = '''
"""An environment whose verifier counts letters, and does otherwise where it is told to."""
import asyncio
import os
import time
from gymcli import Environment, EnvironmentOptions, Score, Task

class Letters(Environment[Task]):
    """Say many of one letter."""

    class Options(EnvironmentOptions):
        letter: str = "a"
        calls: str = ""

    verify_timeout = 0.2

    @classmethod
    async def verify(cls, rollout, context):
        text = rollout.output_text
        if context.options.calls:
            with open(context.options.calls, "a") as file:
                file.write(rollout.task_id + " ")
        began = time.perf_counter()
        while text == "spin" or (text == "slow" and time.perf_counter() - began < 0.3):
            pass
        if text == "die":
            os._exit(1)
        if text == "wait":
            await asyncio.sleep(0)
        if text == "replay":
            await context.replay(rollout)
        if text == "raise":
            raise ValueError("told to")
        if text == "nothing":
            return None
        return Score(float(text.count(context.options.letter)))
'''


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "letters.py"
    path.write_text(textwrap.dedent(SOURCE))
    return f"{path}:Letters"


def line(text, number=0, **fields):
    messages = [Message(role="user", content="Go."), Message(role="assistant", content=text)]
    rollout = Rollout(
        schema_version=1,
        env="letters",
        task_id=f"t{number}",
        attempt=0,
        messages=messages,
        num_prompt_messages=1,
        **{"reward": 1.0, **fields},
    )
    return msgspec.json.encode(rollout) + b"\n"


def write(tmp_path, *lines):
    path = tmp_path / "rollouts.jsonl"
    path.write_bytes(b"".join(lines))
    return path


def job_of(path, spec, **fields):
    reading = RolloutReading(str(path))
    return RescoreJob(reading, (spec,), env_names=frozenset({"letters"}), **fields)


def scored(path, spec, **fields):
    size = path.stat().st_size
    return score_part(Part(str(path), 0, size), job_of(path, spec, **fields))


def in_parts(path, spec, **fields):
    """Rescore in workers that read the file; the first 64 lines are sent to one."""
    job = job_of(path, spec, **fields)
    for batch in rescore_batches(rollout_lines(path), job, size=10**12, file=path):
        yield from batch


def test_lines_without_trouble_are_scored_in_one_row(tmp_path, spec):
    path = write(tmp_path, *(line("a" * number, number) for number in range(5)))

    results = scored(path, spec)

    [row] = results.batches
    assert isinstance(row, RescoredLines)
    assert [item.new_reward for item in row] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert (results.num_lines, results.ends) == (5, "all")


@pytest.mark.parametrize("text", ["wait", "replay", "raise", "nothing"])
@pytest.mark.parametrize("keeps_lines", [False, True])
def test_a_line_with_trouble_is_scored_by_itself(tmp_path, spec, text, keeps_lines):
    texts = ["a", text, "aa", "b", *[text] * 9, "a"]
    path = write(tmp_path, *(line(text, number) for number, text in enumerate(texts)))

    results = scored(path, spec, keeps_lines=keeps_lines)

    items = [item for batch in results.batches for item in batch]
    assert [item.key.task_id for item in items] == [f"t{number}" for number in range(14)]
    assert [(item.new_reward is None) for item in items] == [
        told in ("raise", "nothing") for told in texts
    ]
    alone = list(rescore(rollout_lines(path), job_of(path, spec), size=0))
    assert [item.new_reward for item in items] == [item.new_reward for item in alone]
    assert [item.error for item in items] == [item.error for item in alone]
    assert all(bool(item.line) == keeps_lines for item in items)


def test_a_line_that_computes_for_too_long_costs_no_other_its_score(tmp_path, spec):
    path = write(tmp_path, *(line(text, n) for n, text in enumerate(["a", "spin", "aa"])))

    results = scored(path, spec)

    items = [item for batch in results.batches for item in batch]
    assert (results.num_lines, results.ends) == (3, "all")
    assert [item.new_reward for item in items] == [1.0, None, 2.0]
    assert items[1].error is not None
    assert items[1].error.error_class == "VerifierTimeoutError"


@pytest.mark.parametrize("keeps_lines", [False, True])
def test_only_the_verifier_of_an_odd_line_is_called_again(tmp_path, spec, keeps_lines):
    calls = tmp_path / "calls"
    texts = ["a", "raise", "a", "slow", "wait", *["raise"] * 5, "a"]
    path = write(tmp_path, *(line(text, number) for number, text in enumerate(texts)))

    results = scored(
        path, spec, keeps_lines=keeps_lines, env_args={"letters": {"calls": str(calls)}}
    )

    items = [item for batch in results.batches for item in batch]
    assert [item.key.task_id for item in items] == [f"t{number}" for number in range(11)]
    called = calls.read_text().split()
    assert sorted(set(called)) == sorted(item.key.task_id for item in items)
    again = [task_id for task_id in dict.fromkeys(called) if called.count(task_id) == 2]
    assert again == ["t1", "t3", "t4", "t5", "t6"]  # then lines are scored one by one
    assert len(called) == len(items) + len(again)


def test_options_on_record_count_line_by_line(tmp_path, spec):
    others = {"env_options": {"letter": "b"}}
    path = write(tmp_path, line("ab", 0), line("abb", 1, **others), line("abb", 2))

    items = [item for batch in scored(path, spec).batches for item in batch]

    assert [item.new_reward for item in items] == [1.0, 2.0, 1.0]


def test_a_line_without_a_reward_is_scored_like_any_other(tmp_path, spec):
    path = write(tmp_path, line("a", 0), line("a", 1, reward=None))

    items = [item for batch in scored(path, spec).batches for item in batch]

    assert [(item.old_reward, item.new_reward) for item in items] == [(1.0, 1.0), (None, 1.0)]


@pytest.mark.parametrize(
    "odd", [b"{\n", b"\n", line("a").replace(b'"letters"', b'"counter"')], ids=str
)
def test_a_part_ends_before_a_line_that_its_worker_cannot_score(tmp_path, spec, odd):
    path = write(tmp_path, line("a"), line("a"), odd, line("a"))

    results = scored(path, spec)

    assert (results.num_lines, results.ends) == (2, "odd")


def test_parts_give_the_results_of_lines_in_order(tmp_path, spec):
    texts = ["a", "raise", "aa", "b"] * 50
    lines = [line(text, number) for number, text in enumerate(texts)]
    lines[100:100] = [b"\n", b" \n"]
    path = write(tmp_path, *lines, line("torn")[:-30])

    items = list(in_parts(path, spec, keeps_lines=True))

    assert [item.key.task_id for item in items] == [f"t{number}" for number in range(200)]
    assert [item.new_reward for item in items] == [1.0, None, 2.0, 0.0] * 50
    kept = msgspec.json.Decoder(Rollout)
    assert [kept.decode(item.line).task_id for item in items] == [f"t{n}" for n in range(200)]


def test_a_line_that_kills_its_worker_costs_only_itself(tmp_path, spec):
    texts = ["a"] * 70 + ["die"] + ["aa"] * 5
    path = write(tmp_path, *(line(text, number) for number, text in enumerate(texts)))

    items = list(in_parts(path, spec))

    assert [item.new_reward for item in items] == [1.0] * 70 + [None] + [2.0] * 5
    assert items[70].error is not None
    assert items[70].error.error_class == "VerifierError"


def test_a_bad_line_is_named_by_its_number_in_the_file(tmp_path, spec):
    lines = [line("a", number) for number in range(80)]
    path = write(tmp_path, *lines, b"\n", b"{}\n", *lines)

    with pytest.raises(RunFileError, match=r"rollouts\.jsonl:82: is not a rollout"):
        list(in_parts(path, spec))


def test_an_environment_that_is_not_there_is_named(tmp_path, spec):
    lines = [line("a", number) for number in range(80)]
    path = write(tmp_path, *lines, line("a").replace(b'"letters"', b'"nowhere"'))

    with pytest.raises(UnknownNameError, match="nowhere"):
        list(in_parts(path, spec))


def test_parts_are_of_bounded_size(tmp_path):
    path = Path(write(tmp_path, *(line("a" * 1000) for _ in range(20))))

    parts = list(iterate_parts(path, start=0, size=lambda _: 5000))

    assert [part.start for part in parts[1:]] == [part.end for part in parts[:-1]]
    assert (parts[0].start, parts[-1].end) == (0, path.stat().st_size)
    assert len(parts) == 4


@pytest.mark.parametrize(("repeat", "num_before"), [(0, 0), (1, 0), (2, 1), (4, 3), (5, 0)])
def test_a_repeat_calls_the_verifier_another_number_of_times_before(
    tmp_path, spec, repeat, num_before
):
    """What comes of it is dropped; a line by itself is called for once."""
    calls = tmp_path / "calls"
    told = {"env_args": {"letters": {"calls": str(calls)}}, "repeat": repeat}
    path = write(tmp_path, line("a", 0), line("aa", 1))
    results = scored(path, spec, **told)
    assert [item.new_reward for batch in results.batches for item in batch] == [1.0, 2.0]
    assert calls.read_text().split() == ["t0"] * num_before + ["t0", "t1"]
    calls.unlink()
    lines = list(rollout_lines(path))
    for some in (lines, lines[:1]):
        score_lines(some, job_of(path, spec, **told))
    assert calls.read_text().split() == ["t0"] * num_before + ["t0", "t1", "t0"]


def test_an_empty_part_has_nothing_to_repeat(tmp_path, spec):
    path = write(tmp_path, b"\n")
    assert scored(path, spec, repeat=2).batches == []
