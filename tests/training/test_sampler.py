"""Tests of sampling rollouts in a training loop, from an engine in the process and an endpoint."""

import asyncio
import json
from contextlib import AsyncExitStack

import pytest

import gymcli
from gymcli.errors import FatalEndpointError
from gymcli.mock import MockAnswer, MockServer, TokenSampler
from gymcli.mock.process import serving
from gymcli.training import SampledMessage, Sampler, TokenFile, Tokens
from gymcli.types import Failure, Rollout
from tests.docs.pages import blocks, page
from tests.training.engine import TRAINED, Adding, Engine, Ranked

NOWHERE = gymcli.Endpoint(base_url="http://127.0.0.1:1/v1", model="m")


def sample(work, *arguments, **options):
    """Return what `work` returns for an open sampler."""

    async def run():
        async with Sampler(*arguments, **options) as sampler:
            return await work(sampler)

    return asyncio.run(run())


async def test_a_group_has_rewards_and_the_ids_of_the_engine():
    engine = Engine(fails=[3])
    async with Sampler(
        Adding, tasks=TRAINED, policy=engine, params={"max_tokens": 9}, concurrency=1
    ) as sampler:
        first = await sampler.group("a", attempts=3, version=7)
        group = first
        other = await sampler.group({"prompt": "Add up."}, attempts=1)
    # One attempt after the other: calls 1 and 2 are the turns of the first one.
    assert [one.reward for one in group] == [1.0, None, 4.0]
    assert isinstance(group[1].rollout, Failure)
    assert group[1].sequences == []
    assert group[0].messages[-1].text == "Done."
    assert type(group[0].messages[-1]) is gymcli.Message
    [sequence] = group[0].sequences
    first, second = engine.calls[0], engine.calls[1]
    assert sequence.input_ids == second.prompt + second.sampled
    assert sequence.prompt_length == len(first.prompt)
    assert [i for i, m in zip(sequence.input_ids, sequence.loss_mask, strict=True) if m] == (
        first.sampled + second.sampled
    )
    assert sequence.logprobs[-1] == second.logprobs[-1]
    assert (sequence.weight_version, sequence.off_policy) == ("7", "")
    assert other[0].reward == 6.0
    assert engine.params[0] == {"temperature": 1, "top_p": 1, "max_tokens": 9}


def test_an_answer_that_cannot_be_trained_on_is_explained(caplog):
    """Types that the records cannot hold fail the attempt; wrong ids leave it its reward."""
    answers = iter(
        [
            _sampled(sampled=[1.5]),
            gymcli.Message(role="assistant", content="7"),
            _sampled(logprobs=[0.5]),
        ]
    )

    class Wrong:
        async def complete(self, messages, *, tools, schema):
            return next(answers)

    group = sample(
        lambda sampler: sampler.group("a", attempts=3),
        Adding,
        tasks=TRAINED,
        policy=Wrong(),
        concurrency=1,
    )
    assert [one.reward for one in group] == [None, 0.0, 0.0]
    assert [one.sequences for one in group] == [[]] * 3
    assert "Expected `int`, got `float` - at `$.sampled[0]`" in group[0].rollout.error.message
    [warning] = [one.getMessage() for one in caplog.records]
    assert "engine a: call 0 cannot be trained on: the answer has no token ids" in warning


def _sampled(**fields):
    given = {"prompt": [1], "sampled": [2], "logprobs": [-0.5], "source": "model", **fields}
    return SampledMessage(role="assistant", content="7", tokens=Tokens(**given))


async def test_many_groups_share_one_limit_and_their_attempts_are_numbered():
    engine = Engine()
    async with Sampler(Ranked, tasks=TRAINED, policy=engine, concurrency=3) as sampler:
        tasks = [TRAINED[0]["id"], "b", "a", "c"]
        groups = await asyncio.gather(*(sampler.group(task, attempts=4) for task in tasks))
    assert [[one.reward for one in group] for group in groups] == [[0.0, 1.0, 2.0, 3.0]] * 4
    numbers = [[one.rollout.attempt for one in group] for group in groups]
    assert numbers == [[0, 1, 2, 3], [0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 3]]
    assert len({one.rollout.seed for group in groups for one in group}) == 16
    assert engine.most_at_once <= 3


def test_a_later_sampler_continues_the_numbers_of_an_earlier_one():
    async def work(sampler):
        before = sampler.next_attempt
        groups = [await sampler.group(task, attempts=3) for task in ("a", "a", "b")]
        attempts = [one.rollout for group in groups for one in group]
        return before, sampler.next_attempt, [(one.attempt, one.seed) for one in attempts]

    options = {"tasks": TRAINED, "seed": 5}
    before, after, first = sample(work, Adding, policy=Engine(), **options)
    assert (before, after) == (0, 6)
    restored = json.loads(json.dumps(after))
    before, after, later = sample(work, Adding, policy=Engine(), first_attempt=restored, **options)
    assert (before, after) == (6, 12)
    assert [number for number, _ in later] == [6, 7, 8, 9, 10, 11, 6, 7, 8]
    assert not {seed for _, seed in first} & {seed for _, seed in later}


async def test_a_sampler_outlives_an_outage():
    """A call during the outage raises an error; one after it works, and the numbers go on."""
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(MockServer(lambda _: MockAnswer(text="7")))
        endpoint = gymcli.Endpoint(base_url=first.base_url, model="m")
        made = Sampler(Adding, tasks=TRAINED, endpoint=endpoint, outage_deadline=0.5)
        sampler = await stack.enter_async_context(made)
        await sampler.group("a", attempts=10)
        await first.__aexit__(None, None, None)
        for _ in range(2):  # the second call raises the error of the outage soon
            with pytest.raises(FatalEndpointError, match="no success for"):
                await sampler.group("a", attempts=10)
        port = int(first.base_url.split(":")[2].split("/")[0])
        await stack.enter_async_context(MockServer(lambda _: MockAnswer(text="7"), port=port))
        groups = [await sampler.group("a", attempts=10) for _ in range(2)]
    numbers = [one.rollout.attempt for group in groups for one in group]
    assert numbers == [*range(30, 50)]
    assert all(isinstance(one.rollout, Rollout) for group in groups for one in group)


def test_an_endpoint_is_probed_and_its_ids_are_returned():
    async def run(sampler):
        async with MockServer(lambda request: MockAnswer(text="7"), sampler=sampler) as server:
            endpoint = gymcli.Endpoint(base_url=server.base_url, model="m")
            async with Sampler(Adding, tasks=TRAINED, endpoint=endpoint) as sampler:
                return await sampler.group("a", attempts=2), server.tokens

    group, reported = asyncio.run(run(TokenSampler("vllm")))
    assert [isinstance(one.rollout, Rollout) for one in group] == [True, True]
    whole = [one.prompt + one.sampled for one in reported[-2:]]
    assert [one.sequences[0].input_ids for one in group] == whole
    group, _ = asyncio.run(run(None))
    assert [(one.reward is None, one.sequences) for one in group] == [(False, [])] * 2


def test_what_ends_every_attempt_is_raised():
    async def run():
        async with MockServer(api_key="right") as server:
            endpoint = gymcli.Endpoint(base_url=server.base_url, model="m", api_key="wrong")
            async with Sampler("arithmetic", endpoint=endpoint) as sampler:
                await sampler.group({"prompt": "?", "answer": 7})

    with pytest.raises(FatalEndpointError, match="401"):
        asyncio.run(run())

    async def refused(sampler):
        return await sampler.group("a", attempts=2)

    model = _Refusing()
    with pytest.raises(FatalEndpointError, match="the key is refused"):
        sample(refused, Adding, tasks=TRAINED, policy=model)


class _Refusing:
    async def complete(self, messages, *, tools, schema):
        raise gymcli.errors.AuthenticationError("the key is refused", status=401)


async def test_a_policy_that_returns_no_message_is_named():
    async with Sampler(Adding, tasks=TRAINED, policy=_Texting()) as sampler:
        (attempt,) = await sampler.group("a", attempts=1)
    assert "_Texting.complete must return a Message, not str" in attempt.rollout.error.message


class _Texting:
    async def complete(self, messages, *, tools, schema):
        return "3"


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("aa", "no task has the id 'aa'; did you mean"),
        ({"prompt": 3}, 'the task: "prompt" must be text'),
        ({"prompt": "?", "env": "mcqa"}, "the task: its environment mcqa is not one of: engine"),
    ],
)
def test_a_wrong_task_is_refused(task, message):
    with pytest.raises(gymcli.UsageError, match=message):
        sample(lambda sampler: sampler.group(task), Adding, tasks=TRAINED, policy=Engine())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs an endpoint= or a policy="),
        ({"policy": Engine(), "out": "run"}, "a Sampler has no option out"),
        ({"policy": Engine(), "temperature": 1}, "request parameters go into params="),
        ({"policy": object()}, "has no method complete"),
        ({"policy": Engine(), "first_attempt": -1}, "first_attempt=-1: is negative"),
        ({"policy": Engine(), "endpoint": NOWHERE}, "endpoint= or a policy=, not both"),
        ({"policy": Engine(), "env_args": {"size": "3"}}, "size"),
        ({"policy": Engine(), "tasks": [{"id": "a"}]}, "row 1 of tasks: no prompt"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_sent(options, message):
    with pytest.raises(gymcli.UsageError, match=message):
        Sampler(Adding, **options)


async def test_a_collection_takes_an_engine(tmp_path):
    engine = Engine()
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"id": "a", "prompt": "Add up."}\n')
    records = gymcli.collect(
        tasks,
        env="tests.training.engine:Adding",
        model=engine,
        out=tmp_path / "run",
        record_tokens=True,
    )
    [rollout] = [record async for record in records]
    assert (rollout.model, rollout.reward) == ("tiny", 1.0)
    with TokenFile(tmp_path / "run") as tokens:
        calls = tokens.calls(rollout)
    assert [call.sampled for call in calls] == [one.sampled for one in engine.calls]
    assert rollout.usage.completion_tokens == sum(len(one.sampled) for one in engine.calls)


@pytest.mark.slow
def test_the_examples_of_the_page_run(capsys):
    loop = page("training.md").partition("## In the loop")[2].partition("### TRL")[0]
    first, second = (block[1] for block in blocks("python", loop))
    answering = MockServer(lambda _: MockAnswer(text="19"), sampler=TokenSampler("vllm"))
    with serving(answering) as server:
        exec(first.replace("http://127.0.0.1:8000/v1", server.base_url), {})
    assert [line[:3] for line in capsys.readouterr().out.splitlines()] == ["1.0"] * 8
    exec(second, {})
    assert capsys.readouterr().out == f"1.0 {[0] * len('user: What is 3 + 4?') + [0, 1]}\n"
