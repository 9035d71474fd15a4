"""Tests that shipped environments give a client of NeMo Gym the same rewards as in process."""

import asyncio
import math
import pkgutil

import msgspec
import pytest

import gymcli.envs
from gymcli.environment.contract import Environment
from gymcli.environment.registry import Registry, shipped_tasks
from gymcli.nemo_gym.wire import response_of, row_of
from gymcli.serving import Judges, Service
from gymcli.tasks.task_files import read_tasks
from gymcli.tasks.task_row import TaskReading
from gymcli.types import Message
from tests.envs.episodes import played, says, scored
from tests.serving.asking import Served, client_of, response, said

STATE = ("setup", "step", "reply", "tools", "final_state")
UNSEEDED = {"blackjack": "deck_seed", "sokoban": "board"}
"""The field that fixes a row's initial state; rows of the reference do not have it."""


def plays(environment):
    """Return whether episodes have a state that a server must hold."""
    calls_tools = environment.executes_tools and bool(environment.method_tools())
    return calls_tools or any(
        getattr(environment, name) is not getattr(Environment, name) for name in STATE
    )


NAMES = sorted(module.name for module in pkgutil.iter_modules(gymcli.envs.__path__))


def rows_of(name):
    """Return two shipped tasks, and one whose initial state depends on the attempt's seed."""
    first, second, *_ = read_tasks([shipped_tasks(name)], TaskReading(default_env=name))
    if name not in UNSEEDED:
        return [first, second]
    fields = {field: value for field, value in first.fields.items() if field != UNSEEDED[name]}
    return [first, second, msgspec.structs.replace(first, fields=fields)]


async def drive(client, record):
    """Repeat a recorded conversation with nothing but what the protocol asks; return the reward."""
    row = {**row_of(record), "_ng_rollout_index": 0}
    turns = [message for message in record.responses if message.role == "assistant"]
    status, text, _ = await client.ask("POST", "seed_session", row)
    if status == 404:
        assert "/reset and /step" in text
        return await play_game(client, record, row, turns)
    assert (status, text) == (200, "{}")
    output = []
    for message in turns:
        output.append(message)
        for call in message.tool_calls:
            _, text, _ = await client.ask("POST", call.name, data=call.arguments.encode())
            output.append(Message(role="tool", tool_call_id=call.id, content=text))
    answer = await client.post("verify", {**row, "response": response_of(record, row, output)})
    return answer["reward"]


async def play_game(client, record, row, turns):
    await client.post("reset", row)
    steps = []
    for message in turns:
        body = {**row, "response": response_of(record, row, [message])}
        steps.append(await client.post("step", body))
    assert steps[-1]["terminated"] or steps[-1]["truncated"]
    return math.fsum(step["reward"] for step in steps)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_client_that_sends_nothing_of_ours_gets_the_rewards_of_the_process(name):
    environment = Registry().find(name).environment
    if not plays(environment) or environment.scores_groups():
        pytest.skip("a server holds no state of its episodes")
    silence = says("I do not know.")
    records = [scored(played(row, *said)) for row in rows_of(name) for said in ((), (silence,))]
    roles = dict.fromkeys(environment.required_roles, "oracle")
    server = Served(name, service=Service(name, judges=Judges(roles)), max_body=2**24)

    async def run():
        async with server:
            rewards = []
            for record in records:
                async with client_of(server) as client:
                    rewards.append(await drive(client, record))
            return rewards

    rewards = asyncio.run(run())
    assert rewards == pytest.approx([record.reward for record in records])
    is_telling = "empty" not in environment.skipped_checks
    assert len(set(rewards)) > is_telling, "the oracle scores more than silence"


def on_blackjack(talk):
    """Deal a hand for a reference row, which does not fix the deck, and run a function."""
    row = {"responses_create_params": {"input": [{"role": "user", "content": "Deal me in."}]}}
    body = {**row, "response": response(said("<action>stand</action>"))}

    async def run():
        server = Served("blackjack", service=Service("blackjack"))
        async with server, client_of(server) as client:
            await client.post("reset", row)
            return await talk(client, body)

    return asyncio.run(run())


def test_a_hand_without_a_fixed_deck_is_scored():
    step = on_blackjack(lambda client, body: client.post("step", body))
    assert step["terminated"]
    assert step["reward"] in (-1.0, 0.0, 1.0)


def test_a_verdict_rests_on_the_steps_and_not_on_the_clients_report():
    async def talk(client, body):
        step = await client.post("step", body)
        told = {**body, "response": response(said("<action>hit</action>"))}
        return step["reward"], (await client.post("verify", told))["reward"]

    stepped, verified = on_blackjack(talk)
    assert stepped == verified


async def test_a_row_that_needs_external_tables_is_refused():
    truth = {"name": "email_delete_email", "arguments": "{}"}
    params = {"input": [{"role": "user", "content": "Delete it."}]}
    server = Served("office", service=Service("workplace_assistant"))
    async with server, client_of(server) as client:
        body = {"responses_create_params": params, "ground_truth": [truth]}
        status, text, _ = await client.ask("POST", "seed_session", body)
    assert status == 422
    assert "data_dir=FOLDER" in text
