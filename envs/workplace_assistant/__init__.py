r"""Asks for changes to e-mails, calendar, tasks and customers, and compares the tables at the end.

Source: the resources server workplace_assistant of NVIDIA NeMo Gym (Apache-2.0), reimplemented
independently. The calls of the model are played on fresh tables and the gold calls on others; the
reward is 1 where calendar, e-mails, plots, tasks and customers are then equal. Case counts in
`status`, `list_name` and `board` only. A call that cannot be carried out changes nothing; reading
changes nothing either, so it is not played. Kept from the reference: what the model says does not
count, nor what it undoes again; a row that is added to a table gets the next id, so the order of
additions counts; and rows have the labels of a data frame, so it counts whether an e-mail, a task
or a customer is deleted before or after another is added. Differences from the reference:

- Arguments must fit the schema: a number for a text is refused, and the model may try again. Null
  counts as left out, when the episode is played as when it is scored.
- Calls of tools that the row did not show are not played.
- Searches look for the text itself, not for a pattern; e-mails of one second keep their order.
- A day must be written as YYYY-MM-DD, a time as YYYY-MM-DD HH:MM:SS, a length in plain digits;
  status and product of a new customer must be known ones. All else is refused with a sentence: the
  reference stores it, and the tables are never equal. The id of a row can never be changed.
- An episode has ten turns, the reference's six. A query has at most 100 different words.
- The ids of new e-mails have eight digits, like all others; tools answer in words of their own.
- What is left out of a new customer is empty, and equal to an empty text. Tools show it as null,
  as they do an empty cell.

The tables are made up by `company.py`, for rows with `"tables": "made_up"`. Other rows need the
tables that they were written for: the option `data_dir` takes a folder of CSV files, as the folder
`csv_data` of the reference, or its `processed` or `raw`. Without it they are neither played nor
scored. Where a gold call is refused, or the gold calls that may change something change nothing,
the attempt is unscored, where the reference rewards doing nothing. A row without any such call asks
for nothing to be changed.

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
    """One of the calls that bring the tables to where they must stand."""

    name: str
    arguments: str
    """Their JSON text."""


class WorkplaceTask(Task):
    """The calls that fulfil the request."""

    ground_truth: list[GoldCall]
    tables: Literal["made_up"] | None = None
    """The tables it was written for; None: those of the option `data_dir`."""

    @property
    def gold_calls(self) -> list[ToolCall]:
        """The calls as a model would make them."""
        return [
            ToolCall(id=f"call_{number}", function=FunctionCall(gold.name, gold.arguments))
            for number, gold in enumerate(self.ground_truth)
        ]


# The tools are shown from the last base to the first.
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
        """Where the tables come from."""

        data_dir: Path | None = None
        """A folder of CSV files; None: the company that the environment makes up."""

        @field_validator("data_dir")
        @classmethod
        def _can_be_read(cls, folder: Path | None) -> Path | None:
            if folder is not None:
                read_csv(folder)
            return folder

        @property
        def source(self) -> Source:
            """The tables that episodes start with."""
            return made_up() if self.data_dir is None else read_csv(self.data_dir)

        def has_tables(self, task: WorkplaceTask) -> bool:
            """Return whether the tables are here that a task was written for."""
            return task.tables is not None or self.data_dir is not None

    options: Options

    @classmethod
    def check_task(cls, task: WorkplaceTask, options: EnvironmentOptions) -> None:
        """Refuse a row that was written for tables which are not there."""
        assert isinstance(options, cls.Options)
        if not options.has_tables(task):
            raise ValueError(NO_TABLES)

    async def setup(self) -> list[Message]:
        """Put fresh tables into the office."""
        self.office = Office(self.options.source)
        return []

    async def call_tools(self, calls: list[ToolCall]) -> list[Message]:
        """Run tool calls; an argument that is null counts as left out."""
        return await super().call_tools([_without_nulls(call) for call in calls])

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if the calls of the record leave the tables as the gold calls do.

        Raises:
            VerifierError: The gold calls cannot be carried out, or change nothing, or their tables
                are not there.

        """
        task, options = cls.parse_task(rollout.task), cls.options_of(context)
        # What was played here was checked before.
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
        """Play the calls that may change something, and give the tables after them."""
        environment = cls(task, options=options)
        environment.shown_tools = shown
        await environment.setup()
        await environment.call_tools(cls._changing(calls))
        return environment.office

    @classmethod
    async def _expected(cls, task: WorkplaceTask, options: Options, start: Office) -> Office:
        """Play the gold calls one by one, and see that each is carried out."""
        environment = cls(task, options=options)
        await environment.setup()
        office = environment.office
        changing = cls._changing(task.gold_calls)
        for call in changing:
            num_before = office.num_changes
            [answer] = await environment.call_tools([call])
            if office.num_changes == num_before:
                raise VerifierError(
                    f"a gold call was refused; {OTHER_TABLES} ({call.name}: {answer.text:.200})"
                )
        if changing and not office.differences(start):
            raise VerifierError(f"the gold calls change nothing; {OTHER_TABLES}")
        return office

    @classmethod
    def _changing(cls, calls: list[ToolCall]) -> list[ToolCall]:
        """Leave out the calls that only read."""
        only_read = {name for name, tool in cls.method_tools().items() if tool.reads_only}
        return [call for call in calls if call.name not in only_read]

    async def oracle(self, rollout: Rollout) -> Message:
        """Make one gold call a turn, then say that all is done."""
        calls = self.task.gold_calls
        num_calls = len(rollout.tool_calls)
        if num_calls < len(calls):
            return Message(role="assistant", tool_calls=[calls[num_calls]])
        return Message(role="assistant", content="All of that is done.")

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Write requests to the made-up company, whose gold calls are computed from its tables."""
        yield from load_generator("workplace_assistant").generate(rng, num)


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


OTHER_TABLES = "were they written for other tables? give --env-arg data_dir=FOLDER"

NO_TABLES = (
    'the row was written for tables of others, as it has no "tables": "made_up"; give --env-arg '
    "data_dir=FOLDER with their CSV files (of NeMo Gym: its folder "
    "resources_servers/workplace_assistant/csv_data)"
)
