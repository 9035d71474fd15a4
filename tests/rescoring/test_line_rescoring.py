"""Tests of rescoring stored lines: in order, whatever a line does to its worker."""

import asyncio
import gzip
import itertools
import subprocess
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest

import gymcli
from gymcli.environment.contract import Environment
from gymcli.environment.tool import Task
from gymcli.errors import RunFileError, UnknownNameError, UsageError
from gymcli.rescoring.file_rescoring import iterate_async, rescore
from gymcli.rescoring.line_rescoring import (
    Rescored,
    RescoreJob,
    VerifierNumbers,
    compared,
    rescore_lines,
)
from gymcli.rescoring.line_rescoring import new_line as line_of
from gymcli.rollout.scoring import Workers
from gymcli.store.lines import Line
from gymcli.store.rollout_files import RolloutReading, decode_rollout
from gymcli.types import AttemptKey, Message, Rollout, Score, Timing, Verifier
from tests.builders import write_rows
from tests.rollout.isolated import is_running, wait_for

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the limit rests on /proc")

SOURCE = '''
"""An environment whose verifier counts letters, and misbehaves if the text asks for it."""
import asyncio
import os
import signal
from gymcli import Environment, EnvironmentOptions, Score, Task
from tests.rollout.isolated import write_everywhere

class Letters(Environment[Task]):
    """Say many of one letter."""

    version = "2"
    verify_timeout = 0.2

    class Options(EnvironmentOptions):
        letter: str = "a"

    @classmethod
    async def verify(cls, rollout, context):
        text = rollout.output_text
        if text == "die":
            os._exit(1)
        if text == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if text == "spin":
            while True:
                pass
        if text == "hold":
            sum(range(10**13))
        if text == "wait":
            await asyncio.get_running_loop().create_future()
        if text == "grow":
            held = []
            while True:
                held.append(bytearray(b"x" * 5_000_000))
        if text == "write":
            write_everywhere(b"garbage\\n")
        if text == "raise":
            raise ValueError("told to")
        count = text.count(context.options.letter)
        return Score(float(count), details={"reason": "some" if count else "none"})

class Fixed(Letters):
    """Keeps the recorded score."""

    rescore = "recorded"
'''


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "letters.py"
    path.write_text(textwrap.dedent(SOURCE))
    return f"{path}:Letters"


def rollout(text, number=0, **fields):
    return Rollout(
        schema_version=1,
        env="letters",
        env_version="1",
        task_id=f"t{number}",
        attempt=0,
        messages=[Message(role="user", content="Go."), Message(role="assistant", content=text)],
        num_prompt_messages=1,
        **{"reward": 1.0, "details": {"reason": "old"}, **fields},
    )


def write(tmp_path, *rollouts):
    path = tmp_path / "rollouts.jsonl"
    write_rows(path, rollouts)
    return path


def foreign(text):
    """Return a line in NeMo Gym's format."""
    answer = {"role": "assistant", "content": text}
    return {
        "responses_create_params": {"input": "Go."},
        "response": {"output": [answer]},
        "reward": 1.0,
        "agent_ref": {"name": "letters"},
        "_ng_task_index": 0,
    }


def test_rescore_says_what_changed(tmp_path, spec):
    path = write(tmp_path, rollout("aa", 0), rollout("a", 1), rollout("raise", 2), rollout("b", 3))
    same, fewer, failed, none = _in_order(rescore(path, env=spec))
    assert (same.key, same.old_reward, same.new_reward) == (
        AttemptKey("letters", "t0", 0),
        1.0,
        2.0,
    )
    assert (same.is_changed, same.old_reason, same.new_reason) == (True, "old", "some")
    assert (fewer.new_reward, fewer.is_changed) == (1.0, False)
    assert (none.new_reward, none.is_changed, none.new_reason) == (0.0, True, "none")
    assert (failed.new_reward, failed.is_changed, failed.is_rescored) == (None, True, True)
    assert (failed.error.error_class, failed.error.message) == (
        "VerifierError",
        "ValueError: told to",
    )
    assert [item.line for item in (same, failed)] == [b"", b""]  # keeps_lines is off


def _in_order(items):
    """Return the items in a list; fail unless they have the order of the lines."""
    listed = list(items)
    assert [item.key.task_id for item in listed] == [f"t{n}" for n in range(len(listed))]
    return listed


def test_rescore_takes_a_run_directory_and_is_public(tmp_path, spec):
    write(tmp_path, rollout("a"))
    (item,) = gymcli.rescore(tmp_path, env=spec)
    assert item.new_reward == 1.0


def test_rescore_takes_options_on_record_and_those_given_before_them(tmp_path, spec):
    path = write(tmp_path, rollout("abbccc", env_options={"letter": "b"}))
    (on_record,) = rescore(path, env=spec)
    (given,) = rescore(path, env=spec, env_args={"letters": {"letter": "c"}}, keeps_lines=True)
    assert (on_record.new_reward, given.new_reward) == (2.0, 3.0)
    assert msgspec.json.decode(given.line, type=Rollout).env_options == {"letter": "c"}


def test_rescore_gives_lines_that_can_be_verified_again(tmp_path, spec):
    path = write(tmp_path, rollout("aa"))
    (item,) = rescore(path, env=spec, keeps_lines=True)
    line = msgspec.json.decode(item.line, type=Rollout)
    assert (line.reward, line.details, line.env_version) == (2.0, {"reason": "some"}, "2")
    assert line.verifier.version == "2"
    assert line.verifier.source_hash.startswith("code-")
    (again,) = rescore(write(tmp_path, line), env=spec)
    assert not again.is_changed


@pytest.mark.parametrize("class_name", ["Letters", "Fixed"])
def test_rescore_gives_foreign_rollouts_in_our_shape(tmp_path, spec, class_name):
    """They have no `env_version`, so a replay knows that the messages are not gymcli's."""
    spec = spec.replace("Letters", class_name)
    (item,) = rescore(write(tmp_path, foreign("aa")), env=spec, keeps_lines=True)
    line = decode_rollout(1, item.line, RolloutReading("f"))
    assert (line.schema_version, line.env, line.env_version) == (1, "letters", "")
    assert line.output_text == "aa"
    assert line.reward == (2.0 if class_name == "Letters" else 1.0)


def test_rescore_joins_the_fields_of_task_rows(tmp_path, spec):
    path = write(tmp_path, foreign("aa"))
    (item,) = rescore(path, env=spec, row_fields={"#0": {"id": "x"}})
    assert item.key == AttemptKey("letters", "x", 0)


@pytest.mark.parametrize("keeps_lines", [False, True])
def test_rescore_keeps_scores_that_cannot_be_recomputed(tmp_path, spec, keeps_lines):
    path = write(tmp_path, rollout("aa"))
    (item,) = rescore(path, env=spec.replace("Letters", "Fixed"), keeps_lines=keeps_lines)
    assert (item.is_rescored, item.is_changed, item.new_reward) == (False, False, 1.0)
    assert item.line == (path.read_bytes().strip() if keeps_lines else b"")


def test_rescore_leaves_a_torn_last_line_out(tmp_path, spec):
    path = write(tmp_path, rollout("a"))
    path.write_bytes(path.read_bytes() + b'{"schema_version":1,')
    assert len(list(rescore(path, env=spec))) == 1


@pytest.mark.parametrize(
    ("line", "error", "words"),
    [
        (b"{}\n", RunFileError, r"rollouts\.jsonl:2: is not a rollout"),
        (msgspec.json.encode(rollout("a", env_options={"gone": 1})), UsageError, "on record gone"),
    ],
)
def test_rescore_names_a_line_that_cannot_be_scored(tmp_path, spec, line, error, words):
    path = write(tmp_path, rollout("a"))
    path.write_bytes(path.read_bytes() + line)
    with pytest.raises(error, match=words):
        list(rescore(path, env=spec))


def test_rescore_names_an_environment_that_is_not_there(tmp_path):
    with pytest.raises(UnknownNameError, match='no environment "letters"'):
        list(rescore(write(tmp_path, rollout("a"))))


def test_rescore_names_a_path_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="no such run directory or rollout file"):
        rescore(tmp_path / "gone")


async def test_rescore_works_where_a_loop_runs_already(tmp_path, spec):
    """A notebook has a running loop."""
    path = write(tmp_path, rollout("a"))
    (item,) = list(rescore(path, env=spec))
    assert item.new_reward == 1.0


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_rescore_gives_results_in_the_order_of_lines(tmp_path, spec, suffix):
    """Workers read a plain file themselves; the lines of a compressed one are sent to them."""
    texts = itertools.cycle(["a" * 300, "raise", "b", "aba"])
    rollouts = [rollout(text, number) for number, text in zip(range(800), texts, strict=False)]
    path = write(tmp_path, *rollouts)
    data = path.read_bytes().replace(b"\n", b"\n\n", 3) + b'{"schema_version":1,"task'
    path.write_bytes(data)
    if suffix:
        path = path.with_name(path.name + suffix)
        path.write_bytes(gzip.compress(data[: data.rindex(b"\n") + 1]))
    items = _in_order(rescore(path, env=spec, keeps_lines=True))
    assert [item.new_reward for item in items] == [300.0, None, 0.0, 2.0] * 200
    kept = msgspec.json.Decoder(Rollout)
    assert [kept.decode(item.line).task_id for item in items] == [f"t{n}" for n in range(800)]


def test_rescore_names_a_bad_line_by_its_number_in_the_file(tmp_path, spec):
    """The line is far behind the first block."""
    lines = [msgspec.json.encode(rollout("a" * 500, number)) for number in range(300)]
    path = tmp_path / "rollouts.jsonl"
    path.write_bytes(b"\n".join([*lines, b"", b'{"schema_version":1,"env":"letters"}', *lines]))
    with pytest.raises(RunFileError, match=r"rollouts\.jsonl:302: is not a rollout"):
        list(rescore(path, env=spec))


# Repeats 1 to 4 make none to three calls first, and repeat 5 begins again.
@pytest.mark.parametrize(("repeat", "num_before"), [(0, 0), (1, 0), (2, 1), (4, 3), (5, 0)])
def test_each_repeat_calls_the_verifier_a_different_number_of_times_first(spec, repeat, num_before):
    source = Path(spec.rpartition(":")[0])
    told = source.with_name("told")
    source.write_text(
        source.read_text().replace(
            'if text == "die":',
            f'print(text, file=open({str(told)!r}, "a"))\n        if text == "die":',
        )
    )
    job = RescoreJob(reading=RolloutReading("f"), env_specs=(spec,), repeat=repeat)
    assert [item.new_reward for item in rescored(lines_of("a", "aa"), job)] == [1.0, 2.0]
    assert told.read_text().split() == ["a"] * num_before + ["a", "aa"]


def lines_of(*texts):
    data = (msgspec.json.encode(rollout(text, n)) for n, text in enumerate(texts))
    return (Line(number, line, is_complete=True) for number, line in enumerate(data, 1))


def rescored(lines, job):
    async def batches():
        async with Workers(1) as workers:
            async for batch in rescore_lines(lines, job, workers):
                yield batch

    return (item for batch in iterate_async(batches()) for item in batch)


def test_rescore_fails_only_the_line_whose_verifier_fails(tmp_path, spec):
    """Its verifier may do anything to the process; later lines go to a new one."""
    texts = ["a", "die", "aa", "crash", "aaa", "spin", "wait", "hold", "write", "raise", "aaaa"]
    path = write(tmp_path, *(rollout(text, number) for number, text in enumerate(texts)))
    items = _in_order(rescore(path, env=spec, keeps_lines=True))
    assert [item.new_reward for item in items if item.error is None] == [1.0, 2.0, 3.0, 4.0]
    assert [
        (item.error.error_class, item.error.message) for item in items if item.error is not None
    ] == [
        ("VerifierCrashedError", "verify: its process died (exit code 1)"),
        ("VerifierCrashedError", "verify: its process died (SIGSEGV)"),
        *[("VerifierTimeoutError", "verify took longer than 0.2 seconds (verify_timeout)")] * 3,
        ("VerifierCrashedError", "verify: its process sent a reply that cannot be read"),
        ("VerifierError", "ValueError: told to"),
    ]
    assert [bool(item.line) for item in items] == [True] * len(texts)


@ON_LINUX
def test_rescore_lets_a_line_take_no_more_memory_than_it_may(tmp_path, spec):
    source = Path(spec.rpartition(":")[0])
    changed = source.read_text().replace("verify_timeout = 0.2", "verify_memory_mb = 150")
    source.write_text(changed)
    path = write(tmp_path, rollout("grow"), rollout("a", 1))
    grown, sound = rescore(path, env=spec)
    assert grown.error.error_class == "VerifierCrashedError"
    assert grown.error.message == "verify needed more than 150 MB of memory (verify_memory_mb)"
    assert sound.new_reward == 1.0


def test_rescore_leaves_no_process_where_it_is_killed(tmp_path, spec):
    """SIGKILL leaves no time to end the workers; they notice and end themselves."""
    told = tmp_path / "told"
    source = Path(spec.rpartition(":")[0])
    source.write_text(
        source.read_text().replace(
            'if text == "die":',
            f'if text == "tell":\n'
            f"            from tests.rollout.isolated import spin\n"
            f"            spin({str(told)!r})\n"
            f'        if text == "die":',
        )
    )
    path = write(tmp_path, rollout("tell"))
    code = f"import gymcli; list(gymcli.rescore({str(path)!r}, env={spec!r}))"
    with subprocess.Popen([sys.executable, "-c", code]) as parent:
        asyncio.run(wait_for(told.exists))
        worker = int(told.read_text())
        assert is_running(worker)
        parent.kill()
    asyncio.run(wait_for(lambda: not is_running(worker)))


def test_rescore_lines_names_what_is_wrong_with_a_line(spec):
    job = RescoreJob(reading=RolloutReading("f"), env_specs=(spec,))
    with pytest.raises(RunFileError, match="f:4: is not a rollout"):
        list(rescored(iter([Line(4, b"{}", is_complete=True)]), job))


def test_rescore_lines_reads_no_further_than_it_is_asked(spec):
    """Lines are read as results are taken, so that memory does not grow with the file."""
    data = msgspec.json.encode(rollout("a" * 10_000))
    taken = itertools.count()
    lines = (Line(next(taken), data, is_complete=True) for _ in range(100_000))
    job = RescoreJob(reading=RolloutReading("f"), env_specs=(spec,))
    items = rescored(lines, job)
    next(items)
    assert next(taken) < 100
    items.close()


NEW = Verifier("2", "new")


class Talk(Environment[Task]):
    """Say anything."""

    version = "2"


def record(**fields):
    return Rollout(
        **{
            "schema_version": 1,
            "task_id": "t",
            "attempt": 0,
            "env": "talk",
            "env_version": "2",
            "messages": [Message(role="assistant", content='","timing":{},"reward":1}')],
            "timing": Timing(started_at=1.0, verify_seconds=0.5),
            "retries": {"E": 1},
            "reward": 0.0,
            "verifier": NEW,
            **fields,
        }
    )


def new_line(before, score, line):
    scored = before.scored(score, NEW, 0.25)
    return line_of(line, before, scored, Talk, Talk.Options())


@pytest.mark.parametrize(
    "before",
    [
        record(),
        record(verifier=Verifier()),
        record(timing=Timing()),
        record(env_version="1"),
        record(env_options={"colour": "red"}),
        record(components={"a": 1.0}, metrics={"b": 2.0}, answer="x", details={"reason": "y"}),
    ],
    ids=["same", "no verifier", "no timing", "older version", "other options", "all fields"],
)
def test_a_new_line_is_the_record_with_its_new_score(before):
    line = msgspec.json.encode(before)

    for score in (Score(1.0), Score(0.5, {"c": 1.0}, {"d": 2.0}, "z", {"reason": "w"})):
        expected = before.scored(score, NEW, 0.25)
        expected.env_options, expected.env_version = {}, "2"
        assert msgspec.json.decode(new_line(before, score, line), type=Rollout) == expected


def test_a_line_stays_as_it_is_where_the_score_is_the_same():
    line = msgspec.json.encode(record())

    assert new_line(record(), Score(0.0), line) == line


def test_what_a_newer_version_put_before_the_score_stays():
    line = msgspec.json.encode(record()).replace(b'"task_id"', b'"colour":"red","task_id"')

    assert b'"colour":"red"' in new_line(record(), Score(1.0), line)


@pytest.mark.parametrize("line", [b"", b'{"reward": 0.0, "task_id": "t"}'])
def test_a_line_that_ends_differently_is_encoded_again(line):
    expected = record().scored(Score(1.0), NEW, 0.25)

    assert new_line(record(), Score(1.0), line) == msgspec.json.encode(expected)


def test_numbers_are_returned_once_unless_they_changed():
    pairs = [
        (record(components={"x": 1.0}), Score(0.0, {"x": 1.0})),
        (record(components={"x": 1.0}), Score(0.0, {"x": 0.5}, {"m": 2.0})),
        (record(components={"x": 1.0}), Score(0.0)),
        (record(), Score(0.0, {}, {"m": 1.0})),
        (record(), Score(0.0)),
    ]
    results = [compared(before, score) for before, score in pairs]
    assert [(result.old_numbers, result.new_numbers) for result in results] == [
        (VerifierNumbers({"x": 1.0}, {}), None),
        (VerifierNumbers({"x": 1.0}, {}), VerifierNumbers({"x": 0.5}, {"m": 2.0})),
        (VerifierNumbers({"x": 1.0}, {}), VerifierNumbers({}, {})),
        (None, VerifierNumbers({}, {"m": 1.0})),
        (None, None),
    ]


def test_a_rescored_line_survives_a_round_trip():
    found = compared(record(details={"reason": "old"}), Score(1.0, {"x": 1.0}))
    found.line = b"with bytes"
    assert msgspec.json.decode(msgspec.json.encode(found), type=Rescored) == found
    assert (found.is_changed, found.old_reason, found.new_reason) == (True, "old", "")
