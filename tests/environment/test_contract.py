"""The contract's defaults: typed tasks, tool calls that cannot break an episode, the next turn."""

import asyncio
import logging
import threading
from random import Random

import pytest
from pydantic import ValidationError

from gymcli.environment.contract import Environment
from gymcli.environment.tool import EnvironmentOptions, Step, Task, Tool, tool
from gymcli.errors import RoleError
from gymcli.types import FunctionCall, Message, Rollout, ToolCall


class Shelf(Task):
    size: int
    label: str = ""


class Tools(Environment[Shelf]):
    """Tools of every temper."""

    max_tool_output = 200

    class Options(EnvironmentOptions):
        loud: bool = False

    def __init__(self, *positional, **named):
        super().__init__(*positional, **named)
        self.log = []
        self.all_started = asyncio.Event()
        self.num_started = 0

    @tool
    def put(self, item: str) -> dict[str, object]:
        """Put an item down."""
        self.log.append(item)
        return {"on_shelf": len(self.log)}

    @tool(reads_only=True)
    async def look(self, at: str) -> str:
        """Look at an item; goes on once two looks are under way."""
        self.num_started += 1
        if self.num_started == 2:
            self.all_started.set()
        await self.all_started.wait()
        return f"saw {at}"

    @tool(timeout=0.01)
    async def wait(self) -> str:
        """Wait for what never comes."""
        await asyncio.Event().wait()

    @tool
    def fail(self, how: str) -> str:
        """Fail in one of many ways."""
        errors = {
            "error": ValueError("two\nlines"),
            "bare": KeyError(),
            "timeout": TimeoutError("of the tool's own"),
            "role": RoleError("the judge is gone"),
        }
        raise errors[how]

    @tool
    def odd(self, kind: str) -> object:
        """Give something odd."""
        results = {
            "nothing": None,
            "object": object(),
            "surrogate": "half \ud800",
            "long": "x" * 1_000,
            "list": [1, {"a": 2.5}],
            "nan": {"ratio": [1.0, float("nan")]},
            "infinity": float("-inf"),
            "null": {"ratio": None, "of": [1.5]},
            "kind_of_text": type("Name", (str,), {})("a name"),
            "long_error": ValueError("y" * 1_000),
        }
        result = results[kind]
        if isinstance(result, Exception):
            raise result
        return result


def calls(*named):
    return [
        ToolCall(id=f"c{number}", function=FunctionCall(name, arguments))
        for number, (name, arguments) in enumerate(named)
    ]


def made(environment=Tools, **fields):
    return environment(environment.parse_task({"size": 3, **fields}))


def run_calls(environment, *named):
    return asyncio.run(environment.call_tools(calls(*named)))


def answer(name, arguments, environment=None):
    """Return the environment and its answer to one call."""
    environment = environment or made()
    (message,) = run_calls(environment, (name, arguments))
    assert (message.role, message.tool_call_id) == ("tool", "c0")
    return environment, message.text


def test_parse_task_types_the_fields_and_keeps_the_others():
    task = Tools.parse_task({"size": 2, "colour": "red"})
    assert isinstance(task, Shelf)
    assert task.model_extra == {"colour": "red"}


def test_parse_task_reads_fields_under_verifier_metadata_and_prefers_the_row_s():
    task = Tools.parse_task({"verifier_metadata": {"size": 2, "label": "in"}, "label": "out"})
    assert (task.size, task.label) == (2, "out")
    assert Tools.parse_task({"size": 1, "verifier_metadata": "text"}).size == 1


def test_parse_task_refuses_a_missing_field():
    with pytest.raises(ValidationError, match="size"):
        Tools.parse_task({})


def test_environment_has_defaults():
    environment = made()
    assert environment.options == Tools.Options()
    assert environment.roles == {}
    assert environment.rng.random() == Random(0).random()
    assert environment.rng is environment.rng
    assert type(environment)(environment.task, rng=7).rng.random() == Random(7).random()
    own = Random(3)
    assert type(environment)(environment.task, rng=own).rng is own
    assert asyncio.run(environment.final_state()) is None
    assert asyncio.run(environment.setup()) == []
    assert asyncio.run(environment.close()) is None
    assert asyncio.run(environment.oracle(Rollout())) is None


def test_environment_without_verify_or_generate_says_so():
    with pytest.raises(NotImplementedError, match="Tools has no verify"):
        asyncio.run(Tools.verify(Rollout(), None))
    with pytest.raises(NotImplementedError, match="Tools generates no tasks"):
        Tools.generate(Random(0), 1)


def test_options_refuse_unknown_ones_and_are_frozen():
    with pytest.raises(ValidationError):
        Tools.Options(quiet=True)
    with pytest.raises(ValidationError):
        Tools.Options().loud = True


def test_environment_without_a_type_argument_takes_any_row():
    class Plain(Environment):
        """Nothing typed."""

    assert Plain.parse_task({"a": 1}).model_extra == {"a": 1}


def test_method_tools_are_in_order_and_may_be_overridden():
    class Child(Tools):
        """Overrides one tool and adds one."""

        def put(self, item):
            return f"child put {item}"

        @tool
        def more(self) -> str:
            """Do more."""
            return "more"

    assert list(Child.method_tools()) == ["put", "look", "wait", "fail", "odd", "more"]
    assert list(Tools.method_tools()) == ["put", "look", "wait", "fail", "odd"]
    assert answer("put", '{"item": "a"}', made(Child))[1] == "child put a"


def test_call_tools_knows_what_the_model_is_shown_now():
    environment = made()
    names = list(environment.method_tools())
    for shown in (names[:1], names[1:2], None):
        tools = environment.tools() if shown is None else [environment.method_tools()[shown[0]]]
        environment.shown_tools = None if shown is None else [tool.spec for tool in tools]
        [message] = run_calls(environment, ("no_such_tool", "{}"))
        known = ", ".join(tool.name for tool in tools)
        assert message.text == f"There is no tool 'no_such_tool'. Available tools: {known}."


def test_call_tools_gives_text_as_it_is_and_the_rest_as_json():
    environment, text = answer("put", '{"item": "book"}')
    assert text == '{"on_shelf":1}'
    assert environment.log == ["book"]
    assert answer("odd", '{"kind": "nothing"}')[1] == "null"
    assert answer("odd", '{"kind": "list"}')[1] == '[1,{"a":2.5}]'
    assert environment.tool_seconds > 0
    assert not environment.tool_errors


def test_call_tools_runs_writing_calls_one_after_another_in_order():
    environment = made()
    answers = run_calls(environment, *(("put", f'{{"item": "{name}"}}') for name in "abc"))
    assert environment.log == ["a", "b", "c"]
    assert [message.tool_call_id for message in answers] == ["c0", "c1", "c2"]


def test_call_tools_runs_reading_calls_at_the_same_time():
    """Each call waits for the other, so both must run at the same time."""
    answers = run_calls(made(), ("look", '{"at": "a"}'), ("look", '{"at": "b"}'))
    assert [message.text for message in answers] == ["saw a", "saw b"]


def test_call_tools_runs_one_after_another_as_soon_as_one_writes():
    environment = made()
    environment.all_started.set()
    environment.log = Log(environment)
    run_calls(environment, ("look", '{"at": "a"}'), ("put", '{"item": "b"}'))
    assert environment.log.num_started_before == [1]


class Log(list):
    """Notes how many looks had started when something was put down."""

    def __init__(self, environment):
        super().__init__()
        self.environment = environment
        self.num_started_before = []

    def append(self, item):
        self.num_started_before.append(self.environment.num_started)
        super().append(item)


def test_call_tools_raises_errors_that_end_the_attempt():
    """A role that fails within a tool ends the attempt, instead of becoming a tool result."""
    with pytest.raises(RoleError, match="the judge is gone"):
        answer("fail", '{"how": "role"}')


def test_call_tools_waits_for_every_reading_call_before_one_fails_the_attempt():
    ended = []

    async def ask(which: str) -> str:
        if which == "first":
            raise RoleError("gone")
        ended.append(which)
        return which

    class Asking(Environment[Task]):
        """Asks a role in its tools."""

        def tools(self):
            return [Tool(ask, name="ask", description="Ask.", reads_only=True)]

    environment = Asking(Task())
    with pytest.raises(RoleError):
        run_calls(environment, ("ask", '{"which": "first"}'), ("ask", '{"which": "second"}'))
    assert ended == ["second"]
    assert environment.tool_seconds > 0


def test_call_tools_stops_a_call_that_takes_too_long():
    environment, text = answer("wait", "{}")
    assert text == "wait did not finish within 0.01 seconds."
    assert environment.tool_errors == {"timeout": 1}


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("error", "fail failed: ValueError: two lines."),
        ("bare", "fail failed: KeyError."),
        ("timeout", "fail failed: TimeoutError: of the tool's own."),
    ],
)
def test_call_tools_tells_the_model_what_a_tool_raised(how, text):
    environment, said = answer("fail", f'{{"how": "{how}"}}')
    assert said == text
    assert environment.tool_errors == {"raised": 1}


def test_call_tools_answers_what_is_no_json_as_a_failed_call():
    environment, said = answer("odd", '{"kind": "object"}')
    assert said.startswith("odd failed: TypeError: Encoding objects of type object")
    assert environment.tool_errors == {"raised": 1}


@pytest.mark.parametrize("kind", ["nan", "infinity"])
def test_call_tools_tells_the_model_of_a_number_that_json_lacks(kind):
    environment, said = answer("odd", f'{{"kind": "{kind}"}}')
    assert said == "odd failed: its result holds NaN or an infinity, which JSON does not have."
    assert environment.tool_errors == {"raised": 1}


def test_call_tools_gives_null_as_it_is():
    environment, said = answer("odd", '{"kind": "null"}')
    assert said == '{"ratio":null,"of":[1.5]}'
    assert not environment.tool_errors


def test_call_tools_logs_where_a_tool_failed(caplog):
    with caplog.at_level(logging.INFO, logger="gymcli"):
        answer("fail", '{"how": "error"}')
    line = Tools.fail.__code__.co_firstlineno + 9
    place = f"tests/environment/test_contract.py:{line} in Tools.fail"
    assert f"the tool fail failed: ValueError: two lines: {place}" in caplog.text


def test_call_tools_takes_a_subclass_of_str_for_its_text():
    said = answer("odd", '{"kind": "kind_of_text"}')[1]
    assert (type(said), said) == (str, "a name")


def test_call_tools_replaces_what_cannot_be_written():
    assert answer("odd", '{"kind": "surrogate"}')[1] == "half ?"


@pytest.mark.parametrize("kind", ["long", "long_error"])
def test_call_tools_cuts_what_is_too_long(kind):
    said = answer("odd", f'{{"kind": "{kind}"}}')[1]
    text, marker = said.rsplit("\n", 1)
    assert len(text) == 200
    assert marker.endswith(" more characters left out]")


@pytest.mark.parametrize(
    "name",
    [
        "verify",
        "setup",
        "step",
        "close",
        "__class__",
        "call_tools",
        "",
        "put ",
        "../put",
        "x" * 999,
    ],
)
def test_call_tools_runs_nothing_but_tools(name):
    """A model may name any method of the environment, but only tools are run."""
    environment, said = answer(name, "{}")
    assert said.startswith("There is no tool ")
    assert len(said) <= 260
    assert environment.tool_errors == {"unknown_tool": 1}


def test_call_tools_lists_the_tools_there_are():
    said = answer("pull", "{}")[1]
    assert said == "There is no tool 'pull'. Available tools: put, look, wait, fail, odd."


@pytest.mark.parametrize(
    ("shown", "available"),
    [
        ([{"type": "function", "function": {"name": "look", "parameters": {}}}], "look"),
        ([{"type": "web_search"}], "none"),
        ([], "none"),
    ],
)
def test_call_tools_runs_only_what_the_model_was_shown(shown, available):
    environment = made()
    environment.shown_tools = shown
    said = answer("put", '{"item": "a"}', environment)[1]
    assert said == f"There is no tool 'put'. Available tools: {available}."
    assert environment.log == []


def test_call_tools_counts_wrong_arguments_by_fault():
    environment = made()
    run_calls(environment, ("put", "{"), ("put", "[]"), ("put", '{"item": 3}'), ("pull", "{}"))
    assert environment.tool_errors == {
        "not_json": 1,
        "not_an_object": 1,
        "wrong_arguments": 1,
        "unknown_tool": 1,
    }


def test_call_tools_runs_tools_that_are_made_by_hand():
    """A tool that the environment lists wins over a method's tool of the same name."""

    class ByHand(Tools):
        """Shows tools that are known only at run time."""

        def tools(self):
            schema = {"type": "object", "properties": {"item": {"type": "string"}}}
            return [
                Tool(self.bound, description="Bound."),
                Tool(lambda item: f"not {item}", name="put", description="P.", parameters=schema),
                self.method_tools()["odd"],
            ]

        def bound(self, item: str) -> str:
            return f"bound {item} {self.task.size}"

    environment = made(ByHand)
    assert answer("bound", '{"item": "a"}', environment)[1] == "bound a 3"
    assert answer("put", '{"item": "a"}', environment)[1] == "not a"
    assert answer("odd", '{"kind": "nothing"}', environment)[1] == "null"


def test_step_answers_tool_calls():
    environment = made()
    message = Message(role="assistant", tool_calls=calls(("put", '{"item": "a"}')))
    step = asyncio.run(environment.step(message))
    assert step == Step([Message(role="tool", tool_call_id="c0", content='{"on_shelf":1}')])


def test_step_records_calls_that_are_never_run():
    class Shows(Tools):
        """Shows the row's tools and runs none."""

        executes_tools = False

    environment = made(Shows)
    message = Message(role="assistant", tool_calls=calls(("put", '{"item": "a"}')))
    assert asyncio.run(environment.step(message)) == Step([], stop_reason="done")
    assert environment.log == []


def test_step_without_calls_and_replies_ends_the_episode():
    assert asyncio.run(made().step(Message(role="assistant", content="Done."))) == Step([])


def test_step_asks_reply_for_the_next_turn():
    class Talks(Tools):
        """Says something once."""

        async def reply(self, rollout):
            return None if rollout.messages else "Go on."

    environment = made(Talks)
    said = asyncio.run(environment.step(Message(role="assistant", content="Yes?")))
    assert said == Step([Message(role="user", content="Go on.")])
    environment.rollout = Rollout(messages=said.messages)
    assert asyncio.run(environment.step(Message(role="assistant", content="Done."))) == Step([])


def test_a_tool_that_blocks_runs_in_a_thread_and_others_go_on():
    """Each call waits for the other, which requires that the event loop keeps running."""

    class Blocking(Environment[Task]):
        """Wait for each other."""

        barrier = threading.Barrier(2, timeout=30)

        @tool(in_thread=True, reads_only=True)
        def wait(self) -> str:
            """Wait for the other call."""
            self.barrier.wait()
            return str(threading.current_thread() is threading.main_thread())

    calls = [ToolCall(id=name, function=FunctionCall(name="wait", arguments="{}")) for name in "ab"]
    messages = asyncio.run(Blocking(Task()).call_tools(calls))
    assert [message.text for message in messages] == ["False", "False"]


def test_an_async_tool_needs_no_thread():
    with pytest.raises(TypeError, match="is async, and so needs no thread"):

        @tool(in_thread=True)
        async def wait(self) -> str:
            """Wait."""


def test_options_of_a_scoring_are_those_of_the_class():
    class Scoring:
        options = Tools.Options(loud=True)

    assert Tools.options_of(Scoring()).loud
    with pytest.raises(AssertionError):
        type("Other", (Tools,), {"Options": type("Options", (EnvironmentOptions,), {})}).options_of(
            Scoring()
        )
