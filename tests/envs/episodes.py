"""Play and score single episodes with scripted messages, through gymcli's own loop."""

import asyncio

import msgspec

from gymcli.environment.judge import StandIn
from gymcli.environment.registry import Registry
from gymcli.errors import VerifierError, boundary
from gymcli.rollout.episode import EpisodePlan, play
from gymcli.rollout.scoring import score
from gymcli.rollout.verify_context import VerifyContext, scores_of
from gymcli.tasks.task_files import read_tasks
from gymcli.tasks.task_row import TaskReading
from gymcli.types import Answer, FunctionCall, Message, Rollout, TaskRow, ToolCall, Verifier
from tests.pooled import pooled_workers, run_pooled


class Scripted:
    """A policy that answers with the given messages in order, and then repeats the last one."""

    def __init__(self, *messages):
        self.messages = list(messages)

    async def answer(self, request):
        message = self.messages.pop(0) if len(self.messages) > 1 else self.messages[0]
        if isinstance(message, Answer):
            return message
        is_refusal = message.refusal is not None
        return Answer(message=message, finish_reason="refusal" if is_refusal else "stop")


def says(text):
    return Message(role="assistant", content=text)


def calls(*named):
    """Return a message with tool calls; each call is a name and the text of its arguments."""
    return Message(
        role="assistant",
        tool_calls=[
            ToolCall(id=f"call_{number}", function=FunctionCall(name, text))
            for number, (name, text) in enumerate(named)
        ],
    )


def cut(message):
    """Return an answer that the endpoint cut off at its token limit."""
    return Answer(message=message, finish_reason="length")


def row_of_file(folder, env, row):
    """Write a row to a task file and return it as it is read back."""
    path = folder / "tasks.jsonl"
    path.write_bytes(msgspec.json.encode(row) + b"\n")
    [found] = read_tasks([path], TaskReading(default_env=env))
    assert isinstance(found, TaskRow), found
    return found


def task_row(env, fields, *, tools=None):
    prompt = [Message(role="user", content="Please do.")]
    return TaskRow(id="t", env=env, hash="0", messages=prompt, fields=fields, tools=tools)


def required_stand_ins(environment, fields):
    """Return the scripted models of the roles that an environment requires."""
    if not environment.required_roles:
        return {}
    found = environment.stand_ins(environment.parse_task(fields))
    return {role: found[role] for role in environment.required_roles if role in found}


def played(row, *messages, roles=None, max_turns=None, **options):
    """Play one episode: without messages the oracle plays, without roles the stand-ins do."""
    environment = Registry().find(row.env).environment
    plan = EpisodePlan(
        row=row,
        attempt=0,
        environment=environment,
        options=environment.Options(**options),
        model="scripted",
        params={},
        run_seed=0,
        sends_seed=False,
        max_turns=max_turns,
        roles=required_stand_ins(environment, row.fields) if roles is None else roles,
    )
    return asyncio.run(play(plan, Scripted(*messages) if messages else None))


def answered(env, fields, *texts):
    """Return a record in which the model answered with these texts, one message each."""
    prompt = [Message(role="user", content="Please do.")]
    messages = [*prompt, *(says(text) for text in texts)]
    return Rollout(env=env, task=fields, messages=messages, num_prompt_messages=1)


def scored(rollout, *, roles=None, **options):
    """Score a record; without roles the stand-ins play those that are required."""
    environment = Registry().find(rollout.env).environment
    found = score(
        environment,
        rollout,
        verifier=Verifier(),
        options=environment.Options(**options),
        roles=required_stand_ins(environment, rollout.task) if roles is None else roles,
        workers=pooled_workers(),
    )
    return run_pooled(found)


def scored_here(rollout):
    """Score a record in this process, so that what a test has patched is in effect."""
    environment = Registry().find(rollout.env).environment
    context = VerifyContext(environment, options=environment.Options())
    with boundary(VerifierError):
        [score] = asyncio.run(scores_of(environment, rollout, context))
    return score


def judged(rollout, *said, **options):
    """Score a record with a judge that gives these verdicts; return the record and its prompts."""
    prompts, left = [], list(said)

    def judge(messages):
        prompts.append(messages[-1].text)
        return left.pop(0)

    rollout = scored(rollout, roles={"judge": StandIn(judge)}, **options)
    assert not left, "the judge was asked fewer times than scripted"
    return rollout, prompts
