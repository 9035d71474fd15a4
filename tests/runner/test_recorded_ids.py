"""Tests that tokens.jsonl has exactly the ids of the engine, in whichever way it reports them."""

import asyncio
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

import gymcli
from gymcli import Context, Rollout, Score
from gymcli.mock import MockAnswer, MockServer
from gymcli.mock.behaviours import num_turns, refusal_of
from gymcli.mock.tokenizer import END, decode, encode, message_text
from gymcli.models.endpoint import Endpoint
from gymcli.store.rollout_files import read_structs
from gymcli.store.tokens import TokenFile, prompts
from gymcli.training import sequences
from gymcli.types import Failure, Request
from tests.builders import gym, lines_of
from tests.reliability.worlds import WORLDS, Walked, write_tasks
from tests.runner.environments import Judged

pytest_plugins = ["gymcli.mock.fixture"]


class Compared(Walked):
    """Walk twice with a tool; a judge compares the attempts of a task."""

    required_roles = ("judge",)

    @classmethod
    async def verify_group(cls, rollouts: list[Rollout], context: Context) -> list[Score]:
        said = "\n".join(rollout.last_text for rollout in rollouts)
        verdict = await Judged.judge.ask(context.roles["judge"], answer=said)
        return [Score(float(verdict.label == "good")) for _ in rollouts]


class Walker:
    """Walks and talks; refuses every seventh request for now, and one conversation for good."""

    def __init__(self) -> None:
        self.num_asked = 0
        self.refused = "<task-1>"
        """The conversation that is refused in its third turn."""

    def __call__(self, request: Request) -> MockAnswer:
        self.num_asked += 1
        if self.num_asked % 7 == 0:
            return refusal_of(429, "slow down", retry_after="0")
        text, turn = request.messages[0].text, num_turns(request)
        if "Is this good?" in text:
            return MockAnswer(text="[[GOOD]]")
        if self.refused and self.refused in text and turn == 2:
            return refusal_of(400, "not this one")
        if turn % 2 == 0:
            said = f"Grüße, {text}" if turn else None
            return MockAnswer(text=said, tool_calls=[("go", {"steps": turn + 1})])
        return MockAnswer(text=f"I went on {turn} times.\n\nFine: {text}")


def check_ids(run: Path, server: MockServer, source: str) -> list[Rollout]:
    """Check that every recorded call is one that the engine sampled; return the rollouts."""
    answers = {
        (*tokens.prompt, *tokens.sampled, *tokens.logprobs): tokens for tokens in server.tokens
    }
    assert len(answers) == len(server.tokens)
    rollouts = list(read_structs(run / "rollouts.jsonl", msgspec.json.Decoder(Rollout)))
    with TokenFile(run) as file:
        for rollout in rollouts:
            calls = file.calls(rollout)
            said = [message for message in rollout.responses if message.role == "assistant"]
            assert len(calls) == len(said) == 4
            for call, prompt, message in zip(calls, prompts(calls), said, strict=True):
                # Taken out: no two calls are one answer of the engine.
                tokens = answers.pop((*prompt, *call.sampled, *call.logprobs))
                assert (tokens.prompt, tokens.sampled) == (prompt, call.sampled)
                assert decode(call.sampled) == message_text(message)
                assert (call.source, call.problem, call.off_policy) == (source, "", "")
                assert call.weight_version == "v3"
            # The ids are not those of the text, so that no tokenizer could have made them.
            assert [call.sampled for call in calls] != [
                [*encode(message_text(m)), END] for m in said
            ]
    # The judge's answers have ids as well, and none are on record.
    assert len(lines_of(run / "tokens.jsonl")) == 4 * len(rollouts)
    return rollouts


def collect(tasks: Path, server: MockServer, **options: object) -> list[Rollout | Failure]:
    """Collect two attempts a task; the same endpoint is the judge, in the chat format."""

    async def run() -> list[Rollout | Failure]:
        judge = Endpoint(base_url=server.base_url, model="m", max_attempts=4)
        records = gymcli.collect(
            tasks,
            endpoint=judge.model_copy(update=options),
            roles={"judge": judge},
            env=f"{__name__}:Compared",
            repeats=2,
            record_tokens=True,
            out=Path("run"),
        )
        return [record async for record in records]

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("source", "dialect", "stream", "sends_back"),
    [
        ("vllm", "chat", False, False),
        ("vllm", "chat", True, True),
        ("token_id", "chat", True, False),
        ("llamacpp", "chat", True, False),
        ("nemo_gym", "chat", False, True),
        ("nemo_gym", "responses", False, True),
        ("nemo_gym", "responses", True, False),
    ],
)
def test_ids_are_recorded_as_they_were_sampled(
    tmp_path, working_folder, gym_mock, source, dialect, stream, sends_back
):
    """Over turns with tools, retries, groups, a judge, and plays that failed and are repeated."""
    tasks, walker = write_tasks(tmp_path / "tasks.jsonl", num=2), Walker()
    server = gym_mock(walker, tokens=source, token_drift=0.3, weight_version="v3")
    options = {"dialect": dialect, "stream": stream, "send_token_ids": sends_back}
    records = collect(tasks, server, **options)
    assert [r.task_id for r in records if isinstance(r, Failure)] == ["task-1"] * 2
    assert len(check_ids(Path("run"), server, source)) == 2
    walker.refused = None
    assert [r.task_id for r in collect(tasks, server, **options)] == ["task-1"] * 2
    rollouts = check_ids(Path("run"), server, source)
    assert len(rollouts) == 4
    assert any(rollout.retries for rollout in rollouts)
    with TokenFile(Path("run")) as file:
        for rollout in rollouts:
            calls = file.calls(rollout)
            num_trained = sum(sum(one.loss_mask) for one in sequences(rollout, calls))
            # Ids that are sent back stay; where they are rendered again, some differ.
            assert (num_trained == sum(len(call.sampled) for call in calls)) == sends_back


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="needs ray: pip install 'gymcli[ray]'")
def test_ids_come_back_from_ray(tmp_path, working_folder, monkeypatch, gym_mock, ray_address):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    tasks, walker = write_tasks(tmp_path / "tasks.jsonl", num=2), Walker()
    walker.refused = None
    server = gym_mock(walker, tokens="vllm", token_drift=0.3, weight_version="v3")
    ray = ("--engine", "ray", "--address", ray_address, "--workers", "1", "--record-tokens")
    where = ("-m", "m", "--base-url", server.base_url, "--env", WORLDS["walked"].spec, "-o", "run")
    gym("collect", tasks, *where, *ray, exit_code=0)
    assert len(check_ids(Path("run"), server, "vllm")) == 2
