"""Plays and scores episodes on a server of the tests."""

import asyncio

from gymcli.rollout.episode import EpisodeFailedError, EpisodePlan, play
from gymcli.rollout.scoring import score
from gymcli.types import Answer, Message, TaskRow, Usage, Verifier
from tests.envs.episodes import Scripted, calls, says

COUNT = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
TOOLS = [
    {"type": "function", "function": {"name": "increment_counter", "parameters": COUNT}},
    {"type": "function", "function": {"name": "get_counter_value", "parameters": {}}},
]
ADD_AND_SAY = (
    calls(("increment_counter", '{"count": 4}'), ("get_counter_value", "{}")),
    says("The counter is 7."),
)


def counter_row(*, initial=3, expected=7, tools=TOOLS, task_id="t"):
    return TaskRow(
        id=task_id,
        env="counter",
        hash="0",
        messages=[Message(role="user", content="Add 4, then read the counter.")],
        tools=tools,
        fields={"id": task_id, "initial_count": initial, "expected_count": expected},
    )


def game_row(number=5):
    prompt = [Message(role="user", content="Let us play.")]
    return TaskRow(id="g", env="game", hash="0", messages=prompt, fields={"number": number})


def plan_of(environment, row, *, attempt=0, max_turns=None, params=None, **options):
    return EpisodePlan(
        row=row,
        attempt=attempt,
        environment=environment,
        options=environment.Options(**options),
        model="scripted",
        params=params or {},
        run_seed=0,
        sends_seed=False,
        max_turns=max_turns,
    )


async def played(environment, row, *messages, **plan):
    """Play one episode; the last message is repeated."""
    return await play(plan_of(environment, row, **plan), Scripted(*messages))


async def scored(environment, rollout):
    return await score(
        environment, rollout, verifier=Verifier(environment.version), options=environment.Options()
    )


async def failure(environment, row, *messages, **plan):
    """Return the error with which an episode fails."""
    try:
        await played(environment, row, *messages, **plan)
    except EpisodeFailedError as failed:
        return failed.error
    raise AssertionError("the episode did not fail")


def on_server(server, episode):
    """Run an async function with a running server, and return its result."""

    async def run():
        async with server:
            return await episode(server)

    return asyncio.run(run())


class Counting:
    """A policy that adds the number in its prompt to the counter, reads it and reports it."""

    async def answer(self, request):
        num_answers = sum(message.role == "assistant" for message in request.messages)
        match num_answers:
            case 0:
                count = request.messages[0].text.split()[-1]
                message = calls(("increment_counter", f'{{"count": {count}}}'))
            case 1:
                message = calls(("get_counter_value", "{}"))
            case _:
                message = says(request.messages[-1].text)
        # Yield, so that other episodes run between two calls of this one.
        await asyncio.sleep(0)
        return Answer(message=message, usage=Usage(prompt_tokens=10, completion_tokens=2))
