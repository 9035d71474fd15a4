"""Tests of token ids in the life of a run: recorded, resumed, merged, rescored, redacted."""

import signal
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from gymcli.errors import RunMismatchError, UsageError
from gymcli.mock import MockAnswer, MockServer
from gymcli.mock.behaviours import num_turns, refusal_of
from gymcli.mock.process import serving
from gymcli.rescoring.run_rescoring import Rescoring
from gymcli.store.rollout_files import read_structs
from gymcli.store.tokens import TOKEN_SOURCES, PlayTokens, TokenFile, neutral_params, prompts
from gymcli.types import Failure, Rollout, Tokens
from tests.builders import collect_all, gym, lines_of
from tests.reliability.commands import Selection, collect_arguments, write_settings
from tests.reliability.processes import CHECKOUT, run_stopped
from tests.reliability.worlds import WORLDS, Model, write_tasks
from tests.runner.token_engine import TokenEngine

pytest_plugins = ["gymcli.mock.fixture"]

WALKED, RANKED = WORLDS["walked"].spec, WORLDS["ranked"].spec
NEUTRAL = neutral_params("vllm")


def recorded(run: Path) -> list[Rollout]:
    """Return the scored rollouts of a run or of a file."""
    file = run / "rollouts.jsonl" if run.is_dir() else run
    return list(read_structs(file, msgspec.json.Decoder(Rollout))) if file.is_file() else []


def check_ids(run: Path, engine: TokenEngine) -> None:
    """Check that every rollout has exactly the ids that the engine saw and sampled."""
    with TokenFile(run) as file:
        for rollout in recorded(run):
            calls = file.calls(rollout)
            texts = [m.text for m in rollout.responses if m.role == "assistant"]
            assert len(calls) == len(rollout.calls) == len(texts) > 0
            for call, prompt, text in zip(calls, prompts(calls), texts, strict=True):
                answer = engine.answers[text]
                assert (prompt, call.sampled) == (answer.prompt, answer.sampled)
                assert call.logprobs == pytest.approx(answer.logprobs, abs=0)
                assert (call.problem, call.off_policy, call.source) == ("", "", "vllm")
                assert call.sampling.items() >= NEUTRAL.items()


def collect(tasks, behaviour, run, env=WALKED, **options):
    options = {"repeats": 2, "seed": 1, "record_tokens": True, "out": run, **options}
    return collect_all(tasks, behaviour, env=env, **options)


@pytest.fixture
def tasks(tmp_path) -> Path:
    return write_tasks(tmp_path / "tasks.jsonl")


def test_ids_are_those_of_the_engine(working_folder, tasks):
    """Over several turns with tools and a retry, and in all that is made of the run."""
    model, overloaded = Model(), [2, 9]

    def behave(request):
        answer = model(request)
        if len(model.asked) in overloaded:
            return refusal_of(429, "slow down", retry_after="0")
        return answer

    engine = TokenEngine(behave)
    records, server = collect(tasks, engine, Path("run"), max_attempts=2)
    assert [one.error for one in records if isinstance(one, Failure)] == []
    check_ids(Path("run"), engine)
    [first, *_] = records
    assert first.sampling == NEUTRAL
    assert not any(message.logprobs for message in first.messages)
    with TokenFile(Path("run")) as file:
        one, two, *_ = file.calls(first)
    assert two.num_shared == one.num_shared + len(one.added) + len(one.sampled)
    # Each conversation has one line a call, before that of the rollout.
    assert len(lines_of(Path("run/tokens.jsonl"))) == sum(len(one.calls) for one in records)
    manifest = msgspec.json.decode(Path("run/run.json").read_bytes())
    assert manifest["identity"]["record_tokens"] is True
    assert manifest["identity"]["params"] == {}
    # A finished run asks nothing, not even for a probe.
    assert collect(tasks, engine, Path("run"))[1].num_requests == 0
    with pytest.raises(RunMismatchError, match=r"record_tokens true there, unset here"):
        collect(tasks, engine, Path("run"), record_tokens=False)
    plain, server = collect(tasks, behave, Path("plain"), record_tokens=False)
    assert not any(record.play or record.sampling for record in plain)
    assert not Path("plain/tokens.jsonl").exists()
    assert not any("logprobs" in one.body for one in server.requests)
    with pytest.raises(RunMismatchError, match=r"record_tokens unset there, true here"):
        collect(tasks, engine, Path("plain"))
    # A torn last line belongs to no rollout; resuming cuts it off.
    with Path("run/tokens.jsonl").open("ab") as file:
        file.write(b'{"env":"walked","task_id":"task-0","attempt":0,"pl')
    check_ids(Path("run"), engine)
    Rescoring(Path("run"), out=Path("again"), env=WALKED).run()
    check_ids(Path("again"), engine)
    assert collect(tasks, engine, Path("run"))[1].num_requests == 0
    assert len(lines_of(Path("run/tokens.jsonl"))) == sum(len(one.calls) for one in records)


def test_what_is_sent_by_default_cuts_off_nothing():
    tokens = Tokens(prompt=[1], sampled=[2], logprobs=[-0.5], source="vllm", logprob_mode="raw")
    for source in TOKEN_SOURCES:
        play = PlayTokens()
        play.add(Rollout(), tokens, finish_reason="stop", sampling=neutral_params(source))
        assert play.calls[0].off_policy == ""


def test_merged_runs_have_the_ids_of_all(working_folder, tasks):
    engine = TokenEngine(Model())
    for shard in ("1", "2"):
        collect(tasks, engine, Path(shard), RANKED, shard=f"{shard}/2", limit=2)
    gym("merge", "1", "2", "-o", "whole", "--env", RANKED, exit_code=0)
    check_ids(Path("whole"), engine)
    assert len(recorded(Path("whole"))) == 4
    for out in ("only.jsonl", "packed.jsonl.gz"):
        said = gym("merge", "1", "2", "-o", out, "--json")
        stem = out.partition(".")[0]
        assert msgspec.json.decode(said.stdout)["tokens_file"] == f"{stem}.tokens.jsonl"
    check_ids(Path("only.jsonl"), engine)
    assert lines_of(Path("only.tokens.jsonl")) == lines_of(Path("packed.tokens.jsonl"))
    again = gym("merge", "1", "2", "-o", "packed.jsonl")
    assert (again.exit_code, "packed.tokens.jsonl: already exists" in again.stderr) == (2, True)


@pytest.mark.slow
def test_a_play_that_failed_leaves_no_ids(tmp_path, tasks):
    """Attempts of a group wait for the others; each keeps the ids of the play that counts."""
    model, last_turn = Model(), 0

    def behave(request):
        is_failing = num_turns(request) >= last_turn and "task-1" in request.messages[0].text
        return refusal_of(400, "not this one") if is_failing else model(request)

    engine = TokenEngine(behave)
    for env, num_attempts, turn in ((RANKED, 9, 0), (WALKED, 6, 2)):
        run, repeats, last_turn = tmp_path / str(turn), num_attempts // 3, turn
        records, _ = collect(tasks, engine, run, env, repeats=repeats, limit=3)
        assert sum(isinstance(record, Failure) for record in records) == repeats
        named = {record.play for record in records if isinstance(record, Rollout)}
        assert {line["play"] for line in lines_of(run / "tokens.jsonl")} == named
        last_turn = 9
        collect(tasks, engine, run, env, repeats=repeats, limit=3)
        assert len(recorded(run)) == num_attempts
        check_ids(run, engine)


def test_a_conversation_with_a_key_has_no_ids(tmp_path, tasks):
    """They would decode to the key."""
    key = "sk-live-0123456789abcdef"

    def behave(request):
        return MockAnswer(text=key if "task-1" in request.messages[0].text else "fine")

    run = tmp_path / "run"
    collect(tasks, TokenEngine(behave), run, RANKED, secrets=(key,))
    redacted = [rollout for rollout in recorded(run) if rollout.redacted]
    assert [(one.task_id, one.play) for one in redacted] == [("task-1", "")] * 2
    assert {line["task_id"] for line in lines_of(run / "tokens.jsonl")} == {
        f"task-{number}" for number in (0, 2, 3, 4, 5)
    }
    with TokenFile(run) as file:
        assert [file.calls(rollout) for rollout in redacted] == [[], []]


def test_without_a_source_nothing_starts(working_folder, tasks, mock_server):
    where = ("--record-tokens", "--env", RANKED, "-o", "run")
    base_url = mock_server.base_url
    said = gym("collect", tasks, "-m", "m", "--base-url", base_url, *where)
    assert (said.exit_code, "token ids" in said.stderr) == (2, True)
    assert "Traceback" not in said.stderr
    said = gym("collect", tasks, "-m", "oracle", *where)
    assert (said.exit_code, "the oracle has no token ids" in said.stderr) == (2, True)
    assert not Path("run/run.json").exists()
    assert not Path("run/rollouts.jsonl").exists()
    with pytest.raises(UsageError, match="record_tokens needs out"):
        collect(tasks, TokenEngine(Model()), None)


@pytest.mark.slow
def test_a_kill_leaves_no_rollout_without_its_ids(tmp_path, working_folder, tasks):
    model = Model()
    engine = TokenEngine(model)
    world = WORLDS["walked"]
    arguments = (*collect_arguments(world, Selection()), "--record-tokens")
    with serving(MockServer(engine)) as server:
        write_settings(tmp_path, server.base_url)
        for num in (20, 12):
            stopped = run_stopped(arguments, model, num=num, number=signal.SIGKILL)
            assert stopped.exit_code == -signal.SIGKILL
            check_ids(Path("run"), engine)
        assert len(recorded(Path("run"))) < 12
        before = lines_of(Path("run/tokens.jsonl"))
        model.begin()
        gym(*arguments, exit_code=0)
    assert len(recorded(Path("run"))) == 12
    check_ids(Path("run"), engine)
    assert lines_of(Path("run/tokens.jsonl"))[: len(before)] == before


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="needs ray: pip install 'gymcli[ray]'")
def test_ids_of_ray_workers_are_written_here(tmp_path, tasks, ray_address, monkeypatch):
    """Those of groups, whose conversations wait for their score, too."""
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    engine = TokenEngine(Model())
    cluster = {"engine": "ray", "address": ray_address, "num_workers": 1}
    records, server = collect(tasks, engine, tmp_path / "run", RANKED, limit=4, **cluster)
    assert [one.error for one in records if isinstance(one, Failure)] == []
    assert len(recorded(tmp_path / "run")) == 8
    check_ids(tmp_path / "run", engine)
    assert sum("seed" not in one.body for one in server.requests) == 1
