r"""Lets the model serve a simulated customer by a policy; a judge checks every message.

Source: the resources server conversational_tool_use_simulation of NVIDIA NeMo Gym and its agent
(Apache-2.0), reimplemented independently. Models play the customer (role `user`) and the tools
(role `tool`; without one, the customer's model). The reward is 0, without asking the judge, if the
customer did not end the conversation or if a transfer does not match the scenario's
`outside_policy_scope`. Otherwise the judge sees every message of the customer and the tools, then
every message of the representative up to the first failure, then the whole conversation; the reward
is the lowest verdict on the representative. Differences from the reference:

- A call of an unknown tool, or with wrong arguments, is answered with a sentence and counted, and
  does not end the episode. The ids of calls are not checked: the endpoint assigns them.
- If the customer or a tool fails, or the judge finds fault with one of their messages, the attempt
  is unscored. They are judged at the end of the episode, so that a resume plays a faulty episode
  again, and a rescoring does not judge them twice; scoring repeats a call of the judge that failed
  there. The reference sets the reward to 0 and marks the sample to be left out.
- A judge without a verdict is asked once more. One that cannot be read then is a failure of the
  judge and leaves the attempt unscored.
- The row's own system message is shown, whether or not it words the policy as we do.
- If a message has both text and calls, the calls are run; the customer reads the text with the next
  turn.
- At most the first 32 calls of a message are run; the others are answered with a sentence.
- An empty or cut-off message ends the episode, as an invalid one does in the reference; after an
  empty one the reason is `no_answer`.
- The calls of the last allowed turn are run, although nothing follows them.
- The judge gives one verdict on a message with several calls.
- Customer and judge are always models. The reference's scripted customer, made-up tool results,
  `enable_llm_judge: false` and `enable_termination: false` do not exist here.
- The judge samples with its role's parameters, not at a temperature of 1.0.
- Rates of failures by party and of skipped transfers are left out: an attempt in which customer or
  tools failed is unscored, and its reason is recorded.
- A record of the reference does not say how it ended: the markers in its user messages tell.

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
"""The most calls of a message that are run; each costs a request to the tools and to the judge."""

NOT_RUN = "This call was not carried out: make one call at a time."


class ConversationalToolUseSimulation(Environment[SimulationTask]):
    """Serve a simulated customer by a policy, with simulated tools; a judge checks each message."""

    version = "3"
    required_roles = ("user", "judge")
    optional_roles = ("tool",)
    # The reference's limit.
    max_turns = 50
    # A slow simulator is not a failure of the call; the model's client has its own time limits.
    tool_timeout = 3600.0
    properties = Properties(
        "multi-turn", "proactive asking", "customer service", "dialogue", "staged judge"
    )

    class Options(EnvironmentOptions):
        """How strictly a conversation is judged."""

        judge_mode: JudgeMode = "message"
        """`combined`: the judge is asked once about customer, tools and representative together."""
        judge_simulators: bool = True
        """False: the messages of the customer and the tools are not judged."""
        enforce_transfer: bool = True
        """False: whether a transfer was right is left to the judge."""

    options: Options
    ended: Ending = ""

    async def setup(self) -> list[Message]:
        """Ask the customer for the first message, unless the row has one.

        Raises:
            RoleError: The customer's model returned none.

        """
        self.customer = customer(self.roles["user"], self.task)
        model = self.roles.get("tool", self.roles["user"])
        self.simulator = ToolSimulator(model, self.task)
        text = self.task.initial_user_message or (await self.customer.opening()).text
        return [Message(role="user", content=text)]

    def tools(self) -> list[Tool]:
        """Return the row's tools, whose calls the simulator answers."""
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
        """Run the calls of a message; if it has none, let the customer answer."""
        if message.tool_calls:
            return Step(await self._results(message.tool_calls))
        # The customer could not answer it; the reference, too, ends at an invalid message.
        if not message.text.strip():
            return Step([], stop_reason="env_done")
        turn = await self.customer.reply(self.rollout.messages)
        self.ended = turn.ended
        said = [Message(role="user", content=turn.text)] if turn.text else []
        return Step(said, stop_reason="env_done" if turn.ended else None)

    async def _results(self, calls: list[ToolCall]) -> list[Message]:
        """Run the first calls of a message in order, and refuse the others."""
        # As in the reference, only the first call is run if the row forbids parallel ones.
        is_single = self.rollout.sampling.get("parallel_tool_calls") is False
        run = calls[: 1 if is_single else MAX_CALLS]
        # Endpoints require an answer to every call.
        left = [Message(role="tool", tool_call_id=c.id, content=NOT_RUN) for c in calls[len(run) :]]
        return [*await self.call_tools(run), *left]

    async def final_state(self) -> JSONObject:
        """Return how the customer ended the conversation, and the verdicts on customer and tools.

        Raises:
            RoleError: The judge finds fault with the customer or a tool.

        """
        state: JSONObject = {"ended": self.ended or "none"}
        options, task = self.options, self.task
        fault = _fault(task, self.ended, enforces_transfer=options.enforce_transfer)
        # Here rather than in `verify`, so that a resume plays a faulty episode again.
        if options.judge_simulators and not fault:
            hearing = Hearing(self.roles["judge"], task, self.rollout.messages, self.ended)
            try:
                verdicts = await hearing.simulators(options.judge_mode)
            except RoleError:
                # A failed call must not cost the conversation: it is saved, and `verify` asks
                # again.
                return state
            check_simulators(verdicts)
            state["simulator_verdicts"] = [verdict.record() for verdict in verdicts]
        return state

    async def oracle(self, rollout: Rollout) -> Message | None:
        """Ask for missing facts, make the gold calls, then report the outcome.

        None for rows without gold calls, such as the reference's.
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
            RoleError: A call of the judge failed, or it finds fault with the customer or a tool.

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
            if not ended and _is_silent(rollout):
                details["reason"] = "no_answer"
            return Score(0.0, metrics=metrics, details=details)
        hearing = Hearing(context.roles["judge"], task, rollout.messages, ended)
        if options.judge_simulators and not is_judged:
            verdicts = await hearing.simulators(options.judge_mode)
            check_simulators(verdicts)
            details["simulator_verdicts"] = [verdict.record() for verdict in verdicts]
        verdicts = await hearing.representative(options.judge_mode)
        # Verdicts end at the first failure, so the last one is the lowest.
        is_right = verdicts[-1].label == "true"
        if not is_right:
            details["reason"] = "agent_failure"
        details["verdicts"] = [verdict.record() for verdict in verdicts]
        metrics["agent_failure"] = float(not is_right)
        return Score(float(is_right), metrics=metrics, details=details)

    @classmethod
    def stand_ins(cls, task: SimulationTask) -> Mapping[str, Model]:
        """Return a customer and tools that follow the gold calls, and a judge that checks them."""
        script, judge = StandIn(Script(task).answer), StandIn(ScriptedJudge(task).answer)
        return {"user": script, "tool": script, "judge": judge}

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Yield requests to five businesses: questions, changes, and matters for a colleague."""
        yield from load_generator("conversational_tool_use_simulation").generate(rng, num)


def _ended(rollout: Rollout) -> tuple[Ending, bool]:
    """Return how the customer ended the conversation, and whether the simulators were judged."""
    state = rollout.final_state
    if isinstance(state, dict):
        ended = state.get("ended")
        found = cast("Ending", ended) if ended in ("stop", "transfer") else ""
        return found, "simulator_verdicts" in state
    # A record of the reference: it has no such state, but its messages keep the markers.
    said = "".join(message.text for message in rollout.messages if message.role == "user")
    if "###TRANSFER###" in said:
        return "transfer", False
    return ("stop" if "###STOP###" in said else ""), False


def _is_silent(rollout: Rollout) -> bool:
    """Return whether the representative's last message has neither text nor calls."""
    last = rollout.responses[-1] if rollout.responses else None
    return last is None or not (last.text.strip() or last.tool_calls)


def _fault(task: SimulationTask, ended: Ending, *, enforces_transfer: bool) -> str:
    """Return the reason for a reward of 0 that no verdict can change, else an empty text."""
    if not ended:
        return "unfinished"
    is_due = task.customer_scenario.outside_policy_scope
    if not enforces_transfer or (ended == "transfer") == is_due:
        return ""
    return "missing_transfer" if is_due else "wrong_transfer"
