r"""Serves a simulated customer by a policy, with simulated tools; a judge looks at every message.

Source: the resources server conversational_tool_use_simulation of NVIDIA NeMo Gym and its agent
(Apache-2.0), reimplemented independently. Models play the customer (role `user`) and the tools
(role `tool`, else the customer's). The reward is 0 where the customer did not end the conversation,
and where a transfer is not what the scenario's `outside_policy_scope` says, without the judge.
Otherwise the judge sees every message of customer and tools, then every message of the
representative up to the first failure, then the whole; the reward is the least of what it says of
the representative. Differences from the reference:

- A call of an unknown tool, or with wrong arguments, is answered in a sentence and counted, and
  does not end the episode. Ids of calls are not looked at: the endpoint gives them.
- What customer or tools cannot say, or should not have said, leaves the attempt unscored. They are
  judged at the end of the episode, so that a resume plays it anew, and not again by other judges; a
  call that failed there is made up for by scoring. The reference's reward is 0, with a mark to be
  left out.
- A verdict that cannot be read is a failure of the judge, which leaves the attempt unscored.
- The row's own system message is shown, whether or not it is its policy in our words.
- A message with text and calls has its calls run; the customer reads the text with the next turn.
- Of the calls of one message the first 32 are run at most; the others are answered with a sentence.
- An empty message ends the episode, as an invalid one does there. So does a cut-off one.
- The calls of the last turn that is allowed are run, though nothing comes of them.
- Of a message with several calls the judge says one verdict.
- Customer and judge are always models, where the reference can do without: there is no scripted
  customer, no made-up tool result, no `enable_llm_judge: false` and no `enable_termination: false`.
- The judge samples as its role is told to, not at a temperature of 1.0.
- Rates of failures by party and of skipped transfers are left out: an attempt in which customer or
  tools failed is unscored, with the reason on record.
- A rollout of the reference ended as the markers in its user messages say.

One row (its policy, tools and scenario shortened):
{"id": "simulation-0", "difficulty": "easy", "domain_name": "public library", "profile": "general",
"responses_create_params": {"input": [{"role": "system", "content": "You are a customer ..."}]},
"policy": "# Public library ...", "tools": [{"name": "find_loan", "parameters": {...}, ...}, ...],
"customer_scenario": {"reason_for_contact": "Hello. ...", "outside_policy_scope": false, ...},
"gold_calls": [{"name": "find_loan", "arguments": {"card_number": "PU-1234", ...}, ...}],
"facts": {"card number": "PU-1234", ...}, "report": "2031-01-20"}
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from random import Random
from typing import cast

import msgspec

from gymcli import (
    Context,
    Environment,
    EnvironmentOptions,
    FunctionCall,
    JSONObject,
    Message,
    Model,
    Properties,
    RoleError,
    Rollout,
    Score,
    StandIn,
    Step,
    Tool,
    ToolCall,
)
from gymcli.envs import load_generator

from .judging import Hearing, JudgeMode, check_simulators
from .simulation import Ending, SimulationTask, ToolSimulator, ToolSpec, customer
from .stand_ins import Script, ScriptedJudge

__all__ = ["ConversationalToolUseSimulation"]

MAX_CALLS = 32
"""Calls of one message that are run: each costs a call of the tools and one of the judge."""

NOT_RUN = "This call was not carried out: make one call at a time."


class ConversationalToolUseSimulation(Environment[SimulationTask]):
    """Serve a simulated customer by a policy, with simulated tools, before a judge."""

    version = "2"
    required_roles = ("user", "judge")
    optional_roles = ("tool",)
    max_turns = 50
    # A simulator that is slow is no failure of the call; its client has time limits of its own.
    tool_timeout = 3600.0
    properties = Properties(
        "multi-turn", "proactive asking", "customer service", "dialogue", "staged judge"
    )

    class Options(EnvironmentOptions):
        """How strictly it is judged."""

        judge_mode: JudgeMode = "message"
        """`combined`: the judge is asked once, of customer, tools and representative together."""
        judge_simulators: bool = True
        """False: customer and tools are taken at their word."""
        enforce_transfer: bool = True
        """False: whether the customer had to be transferred is left to the judge."""

    options: Options
    ended: Ending = ""

    async def setup(self) -> list[Message]:
        """Ask the customer for the first message, where the row has none.

        Raises:
            RoleError: The customer gives none.

        """
        self.customer = customer(self.roles["user"], self.task)
        model = self.roles.get("tool", self.roles["user"])
        self.simulator = ToolSimulator(model, self.task)
        text = self.task.initial_user_message or (await self.customer.opening()).text
        return [Message(role="user", content=text)]

    def tools(self) -> list[Tool]:
        """Return the row's tools, each of which the simulator answers for."""
        return [
            Tool(
                self._function(tool),
                name=tool.name,
                description=tool.description,
                parameters=tool.parameters or {"type": "object", "properties": {}},
            )
            for tool in self.task.tools
        ]

    def _function(self, tool: ToolSpec) -> Callable[..., Awaitable[str]]:
        async def simulated(**arguments: object) -> str:
            return await self.simulator.result(tool, arguments, self.rollout.messages)

        return simulated

    async def step(self, message: Message) -> Step:
        """Run the calls of a message, else let the customer answer it."""
        if message.tool_calls:
            return Step(await self._results(message.tool_calls))
        if not message.text.strip():
            return Step([], stop_reason="env_done")
        turn = await self.customer.reply(self.rollout.messages)
        self.ended = turn.ended
        said = [Message(role="user", content=turn.text)] if turn.text else []
        return Step(said, stop_reason="env_done" if turn.ended else None)

    async def _results(self, calls: list[ToolCall]) -> list[Message]:
        """Run the first calls in order, and only one where the row wants one at a time."""
        is_single = self.rollout.sampling.get("parallel_tool_calls") is False
        run = calls[: 1 if is_single else MAX_CALLS]
        left = [Message(role="tool", tool_call_id=c.id, content=NOT_RUN) for c in calls[len(run) :]]
        return [*await self.call_tools(run), *left]

    async def final_state(self) -> JSONObject:
        """Return how the customer ended, and what the judge says of customer and tools.

        Raises:
            RoleError: Customer or tools fell out of their parts.

        """
        state: JSONObject = {"ended": self.ended or "none"}
        options, task = self.options, self.task
        fault = _fault(task, self.ended, enforces_transfer=options.enforce_transfer)
        if options.judge_simulators and not fault:
            hearing = Hearing(self.roles["judge"], task, self.rollout.messages, self.ended)
            try:
                verdicts = await hearing.simulators(options.judge_mode)
            except RoleError:
                # A failed call must not cost the conversation: it is saved, and `verify` asks.
                return state
            check_simulators(verdicts)
            state["simulator_verdicts"] = [verdict.record() for verdict in verdicts]
        return state

    async def oracle(self, rollout: Rollout) -> Message | None:
        """Ask for what was not told, make the gold calls, tell what came of them.

        None for the rows of others, which have no gold.
        """
        task, num_calls = self.task, len(rollout.tool_calls)
        if not task.gold_calls:
            return None
        if task.profile == "proactive" and not rollout.responses:
            wanted = ", ".join(task.facts)
            text = f"Before I can help you, I need to know this, please: {wanted}."
            return Message(role="assistant", content=text)
        if num_calls < len(task.gold_calls):
            gold = task.gold_calls[num_calls]
            text = msgspec.json.encode(gold.arguments).decode()
            call = ToolCall(id=f"call_{num_calls}", function=FunctionCall(gold.name, text))
            return Message(role="assistant", tool_calls=[call])
        if task.customer_scenario.outside_policy_scope:
            text = f"I am transferring you to a colleague. Your ticket is {task.report}."
        else:
            text = f"I have looked after it. What you need to know: {task.report}."
        return Message(role="assistant", content=text)

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if the customer was served to the end and the judge finds no failure.

        Raises:
            RoleError: A call of the judge failed, or customer or tools fell out of their parts.

        """
        options, task = cls.options_of(context), cls.parse_task(rollout.task)
        ended, is_judged = _ended(rollout)
        fault = _fault(task, ended, enforces_transfer=options.enforce_transfer)
        details: JSONObject = {"reason": fault or "correct"}
        metrics = {
            "transfer": float(ended == "transfer"),
            "transfer_mismatch": float(fault in ("wrong_transfer", "missing_transfer")),
            "tool_schema_failure": float(bool(rollout.tool_errors)),
            "agent_failure": 0.0,
        }
        if fault:
            return Score(0.0, metrics=metrics, details=details)
        hearing = Hearing(context.roles["judge"], task, rollout.messages, ended)
        if options.judge_simulators and not is_judged:
            verdicts = await hearing.simulators(options.judge_mode)
            check_simulators(verdicts)
            details["simulator_verdicts"] = [verdict.record() for verdict in verdicts]
        verdicts = await hearing.representative(options.judge_mode)
        is_right = verdicts[-1].label == "true"
        if not is_right:
            details["reason"] = "agent_failure"
        details["verdicts"] = [verdict.record() for verdict in verdicts]
        metrics["agent_failure"] = float(not is_right)
        return Score(float(is_right), metrics=metrics, details=details)

    @classmethod
    def stand_ins(cls, task: SimulationTask) -> Mapping[str, Model]:
        """Return a customer and tools that follow the gold, and a judge that compares with it."""
        script, judge = StandIn(Script(task).answer), StandIn(ScriptedJudge(task).answer)
        return {"user": script, "tool": script, "judge": judge}

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Write requests to five businesses: questions, changes, and what only a colleague can."""
        yield from load_generator("conversational_tool_use_simulation").generate(rng, num)


def _ended(rollout: Rollout) -> tuple[Ending, bool]:
    """Return how the customer ended, and whether customer and tools were judged."""
    state = rollout.final_state
    if isinstance(state, dict):
        ended = state.get("ended")
        found = cast("Ending", ended) if ended in ("stop", "transfer") else ""
        return found, "simulator_verdicts" in state
    said = "".join(message.text for message in rollout.messages if message.role == "user")
    if "###TRANSFER###" in said:
        return "transfer", False
    return ("stop" if "###STOP###" in said else ""), False


def _fault(task: SimulationTask, ended: Ending, *, enforces_transfer: bool) -> str:
    """Return why the reward is 0 whatever a judge would say."""
    if not ended:
        return "unfinished"
    is_due = task.customer_scenario.outside_policy_scope
    if not enforces_transfer or (ended == "transfer") == is_due:
        return ""
    return "missing_transfer" if is_due else "wrong_transfer"
