r"""Asks for changes to e-mails, calendar, tasks and customers, and compares the tables at the end.

Source: the resources server workplace_assistant of NVIDIA NeMo Gym 0.7 (Apache-2.0), reimplemented
independently. The model's calls are replayed on fresh tables and the gold calls on others; the
reward is 1 if calendar, e-mails, plots, tasks and customers are then equal. Case counts only in
`status`, `list_name` and `board`. A refused call changes nothing, and calls that only read are not
replayed. Kept from the reference: the model's text does not count, nor do changes that it undoes; a
new row gets the next id, so the order of additions counts; and rows have the labels of a data
frame, so it counts whether an e-mail, a task or a customer is deleted before or after another is
added. Differences from the reference:

- Arguments must fit the schema: a number for a text is refused, and the model may try again. A null
  counts as left out, in the episode and in its score.
- Calls of tools that the row did not show are not replayed.
- Searches look for the literal text, not for a pattern; e-mails of the same second keep their
  order.
- A day must be written as YYYY-MM-DD, a time as YYYY-MM-DD HH:MM:SS, a length in plain digits;
  status and product of a new customer must be known ones. Anything else is refused with a sentence.
  The reference stores it, and the tables are never equal. The id of a row can never be changed.
- An episode has ten turns, the reference's six. A query has at most 100 different words.
- The ids of new e-mails have eight digits, like all others; the tools' answers are worded
  differently.
- Fields left out of a new customer are empty, and equal to an empty text. Tools show them as null,
  like any empty cell.

Rows with `"tables": "made_up"` use the tables that `company.py` makes up. Other rows need the
tables that they were written for: the option `data_dir` names a folder of CSV files, such as the
reference's folder `csv_data`, or its `processed` or `raw`. Without it they are neither played nor
scored. If a gold call is refused, or the gold calls that may change something change nothing, the
attempt is unscored; the reference rewards doing nothing. A row without such calls asks for no
change.

One row (its system message shortened):
{"id": "workplace-0", "difficulty": "easy", "category": "email", "capability": "tool use",
"tables": "made_up", "messages": [{"role": "system", "content": "It is ..."}, {"role": "user",
"content": "Delete the e-mail with the id 00000041."}], "ground_truth": [{"name":
"email_delete_email", "arguments": "{\"email_id\":\"00000041\"}"}]}
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Literal

import msgspec
from pydantic import BaseModel, field_validator

from gymcli import (
    Context,
    Environment,
    EnvironmentOptions,
    FunctionCall,
    JSONObject,
    Message,
    Properties,
    Rollout,
    Score,
    Task,
    ToolCall,
    VerifierError,
)
from gymcli.envs import load_generator

from .analytics import AnalyticsTools
from .company import made_up
from .customers import CustomerTools
from .emails import EmailTools
from .events import CalendarTools
from .projects import ProjectTools
from .tables import Office, Source, read_csv

__all__ = ["GoldCall", "WorkplaceAssistant", "WorkplaceTask"]


class GoldCall(BaseModel):
    """A call that leads to the expected tables."""

    name: str
    arguments: str
    """The arguments, as JSON text."""


class WorkplaceTask(Task):
    """The calls that fulfil the request."""

    ground_truth: list[GoldCall]
    """The calls that lead to the right end state."""
    tables: Literal["made_up"] | None = None
    """The tables that the row was written for; without it, those of the option `data_dir`."""

    @property
    def gold_calls(self) -> list[ToolCall]:
        """The calls as a model would make them."""
        return [
            ToolCall(id=f"call_{number}", function=FunctionCall(gold.name, gold.arguments))
            for number, gold in enumerate(self.ground_truth)
        ]


# The order of the bases is the order of the tools, from the last base to the first.
class WorkplaceAssistant(
    CustomerTools,
    ProjectTools,
    AnalyticsTools,
    CalendarTools,
    EmailTools,
    Environment[WorkplaceTask],
):
    """Find and change e-mails, events, tasks and customers with 27 tools."""

    version = "2"
    max_turns = 10
    properties = Properties(
        "stateful", "multiple intents", "agent", "office work", "end-state equality"
    )

    class Options(EnvironmentOptions):
        """The source of the tables."""

        command_line_only = frozenset({"data_dir"})

        data_dir: Path | None = None
        """A folder of CSV files; without it, the tables of the made-up company."""

        @field_validator("data_dir")
        @classmethod
        def _can_be_read(cls, folder: Path | None) -> Path | None:
            if folder is not None:
                read_csv(folder)
            return folder

        @property
        def source(self) -> Source:
            """The tables at the start of every episode."""
            return made_up() if self.data_dir is None else read_csv(self.data_dir)

        def has_tables(self, task: WorkplaceTask) -> bool:
            """Return whether the tables that a task was written for are available."""
            return task.tables is not None or self.data_dir is not None

    options: Options

    @classmethod
    def check_task(cls, task: WorkplaceTask, options: EnvironmentOptions) -> None:
        """Refuse a row whose tables are not available."""
        assert isinstance(options, cls.Options)
        if not options.has_tables(task):
            raise ValueError(NO_TABLES)

    async def setup(self) -> list[Message]:
        """Load fresh tables."""
        self.office = Office(self.options.source)
        return []

    async def call_tools(self, calls: list[ToolCall]) -> list[Message]:
        """Run tool calls; a null argument counts as left out."""
        return await super().call_tools([_without_nulls(call) for call in calls])

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if the recorded calls change the tables as the gold calls do.

        Raises:
            VerifierError: The gold calls are refused or change nothing, or their tables are not
                available.

        """
        task, options = cls.parse_task(rollout.task), cls.options_of(context)
        # `check_task` has checked our own rollouts, which have a version, before they were played.
        if not (rollout.env_version or options.has_tables(task)):
            raise VerifierError(NO_TABLES)
        start = Office(options.source)
        shown = rollout.tools or None
        reached = await cls._played(task, options, rollout.tool_calls, shown)
        expected = await cls._expected(task, options, start)
        different = reached.differences(expected)
        changed = reached.differences(start)
        reason = "wrong_state" if changed else "nothing_changed"
        details: JSONObject = {"changed_tables": changed, "different_tables": different}
        return Score(
            float(not different), details={"reason": reason if different else "correct", **details}
        )

    @classmethod
    async def _played(
        cls,
        task: WorkplaceTask,
        options: Options,
        calls: list[ToolCall],
        shown: list[JSONObject] | None,
    ) -> Office:
        """Play the calls that may change something, and return the tables."""
        environment = cls(task, options=options)
        environment.shown_tools = shown
        await environment.setup()
        await environment.call_tools(cls._changing(calls))
        return environment.office

    @classmethod
    async def _expected(cls, task: WorkplaceTask, options: Options, start: Office) -> Office:
        """Play the gold calls one by one, and check that none is refused."""
        environment = cls(task, options=options)
        await environment.setup()
        office = environment.office
        changing = cls._changing(task.gold_calls)
        for call in changing:
            num_before = office.num_changes
            [answer] = await environment.call_tools([call])
            # A refusal is a sentence like any other answer; only the count shows it.
            if office.num_changes == num_before:
                raise VerifierError(
                    f"a gold call was refused; {OTHER_TABLES} ({call.name}: {answer.text:.200})"
                )
        if changing and not office.differences(start):
            raise VerifierError(f"the gold calls change nothing; {OTHER_TABLES}")
        return office

    @classmethod
    def _changing(cls, calls: list[ToolCall]) -> list[ToolCall]:
        """Leave out the calls that only read: they cost time and cannot change the score."""
        only_read = {name for name, tool in cls.method_tools().items() if tool.reads_only}
        return [call for call in calls if call.name not in only_read]

    async def oracle(self, rollout: Rollout) -> Message:
        """Make one gold call per turn, then report that all is done."""
        calls = self.task.gold_calls
        num_calls = len(rollout.tool_calls)
        if num_calls < len(calls):
            return Message(role="assistant", tool_calls=[calls[num_calls]])
        return Message(role="assistant", content="All of that is done.")

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Write requests about the made-up company; gold calls are computed from its tables."""
        yield from load_generator("workplace_assistant").generate(rng, num)


# Models send null for optional arguments that they mean to leave out; no schema here allows it.
def _without_nulls(call: ToolCall) -> ToolCall:
    try:
        arguments = msgspec.json.decode(call.arguments)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return call
    if not isinstance(arguments, dict) or None not in arguments.values():
        return call
    given = {name: value for name, value in arguments.items() if value is not None}
    text = msgspec.json.encode(given).decode()
    return ToolCall(id=call.id, function=FunctionCall(call.name, text))


OTHER_TABLES = "were they written for other tables? pass --env-arg data_dir=FOLDER"

NO_TABLES = (
    'the row was written for other tables, because it has no "tables": "made_up"; pass --env-arg '
    "data_dir=FOLDER with their CSV files (NeMo Gym's are in "
    "resources_servers/workplace_assistant/csv_data)"
)
