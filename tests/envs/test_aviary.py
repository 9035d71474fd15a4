"""The environment aviary: the adapter for aviary's environments, and the bundled calculator."""

import asyncio
import itertools
import math
import subprocess
import sys
from pathlib import Path
from random import Random

import msgspec
import pytest
from aviary import core
from hypothesis import given
from hypothesis import strategies as st

import gymcli
from gymcli.environment.registry import environment_options
from gymcli.envs.aviary import Aviary
from gymcli.envs.aviary.calculator import CalculatorEnv
from gymcli.envs.aviary.expressions import MAX_CHARACTERS, evaluate, number_text
from gymcli.errors import EpisodeError, SetupError, UsageError
from gymcli.rollout.episode import EpisodeFailedError
from gymcli.types import FunctionCall, Message, Rollout, TaskRow, ToolCall
from tests.envs.episodes import calls, played, says, scored, task_row

HERE = "tests.envs.test_aviary"

PROBLEM = {"task_kwargs": {"answer": 84}, "expression": "12 * 7"}


class Lamp(core.Environment[int]):
    """A third-party environment: switching the light on is worth 2.5, switching it off -1."""

    def __init__(self, start=0, closed=None):
        self.start = start
        self.closed = [] if closed is None else closed

    @classmethod
    def from_task(cls, task):
        return cls(start=len(task))

    async def reset(self):
        self.state = self.start
        self.tools = [core.Tool.from_function(self.press), core.Tool.from_function(self.leave)]
        return [core.Message(content=f"The lamp was pressed {self.state} times.")], self.tools

    async def step(self, action):
        num_before = self.state
        answers = await self.exec_tool_calls(action, concurrency=False)
        reward = sum(2.5 if n % 2 == 0 else -1.0 for n in range(num_before, self.state))
        return answers, reward, self.state < 0, self.state > 5

    async def press(self, times: int = 1) -> int:
        """Press the switch.

        Args:
            times: How often.
        """
        if times > 100:
            raise RuntimeError("the switch broke")
        self.state += times
        return self.state

    async def leave(self) -> str:
        """Leave the room."""
        self.state = -1
        return "The door is shut."

    async def close(self):
        self.closed.append(self.state)


class Lamps(core.TaskDataset[Lamp]):
    """A dataset of lamps: by index, by argument, and as an endless sequence."""

    num_made = itertools.count()

    def __init__(self, step=1):
        self.number = next(self.num_made)
        self.step = step
        self.next = itertools.count()

    def get_new_env_by_idx(self, idx):
        return Lamp(idx * self.step)

    def get_new_env_by_args(self, **kwargs):
        return Lamp(**kwargs)

    def get_new_env(self):
        return Lamp(1000 + next(self.next))


class Scene(core.Environment[None]):
    """Shows scripted messages: the opening, then the observations of each step."""

    opening = [core.Message(content="Go.")]
    observations = []
    ending = (False, False)
    shown = True

    async def reset(self):
        self.tools = [core.Tool.from_function(self.look)] if self.shown else []
        return self.opening, self.tools

    async def step(self, action):
        return [make(action) for make in self.observations], 1, *self.ending

    async def look(self) -> None:
        """Look around."""


class Stuck(Scene):
    """A step that never returns."""

    async def step(self, action):
        await asyncio.Event().wait()


class Late(Scene):
    """Raises a TimeoutError of its own."""

    async def reset(self):
        raise TimeoutError("the notebook did not start")


class Talk(Scene):
    """Has no tools and answers texts."""

    shown = False
    observations = [lambda action: core.Message(content=f"You said {action.content}.")]


class Album(Scene):
    """Opens with every kind of message that aviary has."""

    opening = [
        core.Message(role="system", content="Be brief."),
        core.Message.create_message(text="What is this?", images="data:image/png;base64,AAAA"),
        core.Message(content="Cached.", cache_breakpoint=True),
        core.Message(role="function", content="Old."),
        core.ToolRequestMessage(tool_calls=[core.ToolCall.from_name("look", id="a")]),
        core.ToolResponseMessage(content="A cat.", name="look", tool_call_id="a"),
        core.Message(),
    ]


class Crowd(Scene):
    """Answers calls out of order, answers a call that nobody made, and leaves calls unanswered."""

    observations = [
        lambda _: core.Message(content="state: 1", info={core.ENV_STATE_INFO_KEY: True}),
        lambda action: core.ToolResponseMessage.from_call(action.tool_calls[1], "second"),
        lambda _: core.ToolResponseMessage(content="stray", name="look", tool_call_id="no"),
        lambda _: core.Message(role="assistant", content="I am not the model."),
        lambda action: core.ToolResponseMessage.from_call(action.tool_calls[0], "first"),
    ]


class Loose(Scene):
    """Shows a tool without a description or a schema."""

    async def reset(self):
        info = core.FunctionInfo(name="look", description="", parameters=None)
        self.tools = [core.Tool(self.look, info=info)]
        return [], self.tools


class Numbers(Scene):
    """Returns numbers instead of booleans, as numpy code may."""

    ending = (1, 0)


@core.fenv.start()
def count_up(start=0):
    return f"Count from {start}.", {"count": start}


@count_up.tool()
def add(number: int, state) -> str:
    """Add a number."""
    state.extras["count"] += number
    state.reward, state.done = 0.25, state.extras["count"] > 9
    return str(state.extras["count"])


def no_world(**_):
    return "no world"


def played_in(name, *messages, fields=None, max_turns=None, **options):
    row = task_row("aviary", fields or {})
    return played(row, *messages, max_turns=max_turns, env_class=f"{HERE}:{name}", **options)


def failure_of(row, *messages, **options):
    with pytest.raises(EpisodeFailedError) as caught:
        played(row, *messages, **options)
    return caught.value.error


def texts_of(messages):
    return [(message.role, message.content) for message in messages]


def submits(answer):
    return calls(("submit_answer", msgspec.json.encode({"answer": answer}).decode()))


def calculates(expression):
    return calls(("calculator", msgspec.json.encode({"expr": expression}).decode()))


# The adapter


def test_foreign_environment_runs_unchanged():
    turns = [calls(("press", "{}"), ("press", '{"times": 2}')), calls(("leave", ""))]

    rollout = scored(played_in("Lamp", *turns))

    assert texts_of(rollout.messages[1:2]) == [("user", "The lamp was pressed 0 times.")]
    assert rollout.num_prompt_messages == 2
    assert [t["function"]["name"] for t in rollout.tools] == ["press", "leave"]
    assert rollout.tools[0]["function"]["description"] == "Press the switch."
    assert [m.content for m in rollout.responses if m.role == "tool"] == [
        "1",
        "3",
        "The door is shut.",
    ]
    assert rollout.step_rewards == [4.0, 0.0]
    assert (rollout.reward, rollout.stop_reason) == (4.0, "env_done")
    assert rollout.final_state == {"outcome": "done"}
    assert rollout.details["reason"] == "done"
    assert rollout.timing.tool_seconds > 0


async def test_foreign_environment_is_closed():
    closed = []
    made = Aviary(
        Aviary.parse_task({"task_kwargs": {"closed": closed}}),
        options=Aviary.Options(env_class=f"{HERE}:Lamp"),
    )
    await made.close()
    await made.setup()
    await made.close()
    assert closed == [0]


def test_step_says_that_the_world_was_truncated():
    rollout = scored(played_in("Lamp", calls(("press", '{"times": 6}'))))

    assert rollout.stop_reason == "env_done"
    assert rollout.final_state == {"outcome": "truncated"}
    assert rollout.details["reason"] == "truncated"
    assert rollout.reward == 3 * 2.5 - 3


def test_step_takes_numbers_of_other_types():
    rollout = played_in("Numbers", calls(("look", "")))

    assert rollout.step_rewards == [1.0]
    assert rollout.stop_reason == "env_done"


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        pytest.param(("push", "{}"), "unknown_tool", id="unknown tool"),
        pytest.param(("press", "{"), "not_json", id="not JSON"),
        pytest.param(("press", "[1]"), "not_an_object", id="no object"),
        pytest.param(("press", '{"times": "x"}'), "wrong_arguments", id="wrong type"),
        pytest.param(("press", '{"self": 1}'), "wrong_arguments", id="unknown argument"),
    ],
)
def test_step_answers_calls_that_cannot_be_made(call, fault):
    """The message's other calls are made; if there are none, the step's reward is 0."""
    rollout = played_in("Lamp", calls(call, ("press", "{}")), calls(call), says("Well."))

    first, second, third = (m for m in rollout.responses if m.role == "tool")
    assert (first.tool_call_id, second.tool_call_id) == ("call_0", "call_1")
    assert second.content == "1"
    assert first.content == third.content
    assert rollout.tool_errors == {fault: 2}
    assert rollout.step_rewards == [2.5, 0.0, None]


def test_step_without_calls_ends_the_episode():
    rollout = scored(played_in("Lamp", calls(("press", "{}")), says("I am done.")))

    assert (rollout.stop_reason, rollout.reward) == ("done", 2.5)
    assert rollout.details["reason"] == "open"


def test_step_without_calls_is_nudged():
    rollout = played_in("Lamp", says("Hm."), calls(("leave", "{}")), nudge="Call a tool.")

    assert texts_of(rollout.responses[1:2]) == [("user", "Call a tool.")]
    assert rollout.stop_reason == "env_done"
    assert rollout.step_rewards == [None, 0.0]


def test_step_gives_a_world_without_tools_the_text():
    rollout = played_in("Talk", says("yes"), says("no"), max_turns=2)

    assert rollout.tools == []
    assert [m.content for m in rollout.responses if m.role == "user"] == [
        "You said yes.",
        "You said no.",
    ]
    assert rollout.step_rewards == [1.0, 1.0]


def test_step_puts_answers_before_all_else():
    turn = calls(("look", ""), ("look", ""), ("look", ""))

    rollout = played_in("Crowd", turn, says("Done."))

    answers = rollout.responses[1:-1]
    assert [m.tool_call_id for m in answers] == ["call_0", "call_1", "call_2", None, None, None]
    assert texts_of(answers) == [
        ("tool", "first"),
        ("tool", "second"),
        ("tool", "The environment gave no answer to this call."),
        ("user", "state: 1"),
        ("user", "stray"),
        ("user", "I am not the model."),
    ]


def test_step_answers_calls_that_share_an_id():
    """Some endpoints leave the id of a call empty."""
    both = [ToolCall(id="", function=FunctionCall("press", "{}")) for _ in range(2)]

    rollout = played_in("Lamp", Message(role="assistant", tool_calls=both), says("Done."))

    assert [m.content for m in rollout.responses[1:-1]] == ["1", "2"]


def test_setup_reads_every_kind_of_message():
    rollout = played_in("Album", says("Done."))

    system, image, cached, old, asking, answer, empty = rollout.messages[1:-1]
    assert texts_of([system, cached, old, answer, empty]) == [
        ("system", "Be brief."),
        ("user", "Cached."),
        ("user", "Old."),
        ("tool", "A cat."),
        ("user", ""),
    ]
    assert [part["type"] for part in image.content] == ["image_url", "text"]
    assert asking.tool_calls == [ToolCall(id="a", function=FunctionCall("look", "{}"))]
    assert (answer.tool_call_id, answer.name) == ("a", None)


def test_setup_shows_a_tool_that_says_little():
    rollout = played_in("Loose", calls(("look", "")), says("Done."))

    assert rollout.tools[0]["function"] == {
        "name": "look",
        "description": "",
        "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
    }
    assert not rollout.tool_errors


def test_setup_opens_a_row_with_an_empty_prompt():
    """A row of NeMo Gym may hold only an index into the dataset."""
    row = TaskRow(id="0", env="aviary", hash="0", messages=[], fields={"task_idx": 3})

    rollout = played(row, calls(("leave", "")), dataset=f"{HERE}:Lamps")

    assert texts_of(rollout.messages[:1]) == [("user", "The lamp was pressed 3 times.")]
    assert rollout.num_prompt_messages == 1


# Which environment is played


@pytest.mark.parametrize(
    ("fields", "start"),
    [
        pytest.param({"task_idx": 2}, 2, id="position"),
        pytest.param({"task_idx": 0}, 0, id="first position"),
        pytest.param({"task_kwargs": {"start": 7}}, 7, id="arguments"),
        pytest.param({}, 1000, id="next one"),
    ],
)
def test_dataset_gives_the_world_of_a_row(fields, start):
    rollout = played(task_row("aviary", fields), says("Done."), dataset=f"{HERE}:Lamps")

    assert rollout.messages[1].content == f"The lamp was pressed {start} times."


def test_dataset_is_made_once_with_its_arguments():
    before = next(Lamps.num_made)
    options = {"dataset": f"{HERE}:Lamps", "dataset_args": {"step": 50}}

    for _ in range(3):
        rollout = played(task_row("aviary", {"task_idx": 2}), says("Done."), **options)
        assert rollout.messages[1].content == "The lamp was pressed 100 times."

    assert next(Lamps.num_made) == before + 2


def test_class_is_made_from_a_text():
    rollout = played_in("Lamp", says("Done."), fields={"task": "four"})

    assert rollout.messages[1].content == "The lamp was pressed 4 times."


def test_class_may_be_a_functional_environment():
    turns = [calls(("add", '{"number": 4}')), calls(("add", '{"number": 3}'))]

    rollout = scored(played_in("count_up", *turns, fields={"task_kwargs": {"start": 3}}))

    assert rollout.messages[1].content == "Count from 3."
    assert (rollout.stop_reason, rollout.reward) == ("env_done", 0.5)


@pytest.mark.parametrize(
    ("options", "fields", "opening"),
    [
        pytest.param({"dataset": "dummy"}, {}, "via print_story", id="data set"),
        pytest.param({"env_class": "dummy"}, {"task": "rain"}, "about rain", id="class and task"),
        pytest.param(
            {"env_class": "dummy"},
            {"task_kwargs": {"end_immediately": False}},
            "via print_story",
            id="class and arguments",
        ),
    ],
)
def test_worlds_of_aviary_run_by_name(options, fields, opening):
    turns = [
        calls(("cast_float", '{"x": "1.5"}'), ("cast_int", '{"x": 2.5}')),
        calls(("print_story", '{"story": "It rained on the parade."}')),
    ]

    rollout = scored(played(task_row("aviary", fields), *turns, max_turns=2, **options))

    assert opening in rollout.messages[1].content
    assert [m.content for m in rollout.responses if m.role == "tool"] == ["1.5", "2", "null"]
    assert rollout.reward == 1.0
    is_over = fields.get("task_kwargs") is None
    assert rollout.stop_reason == ("env_done" if is_over else "max_turns")
    assert "state" not in rollout.tools[0]["function"]["parameters"]["properties"]


@pytest.mark.parametrize(
    ("options", "fields", "message"),
    [
        pytest.param({}, {"task_idx": 0}, "give --env-arg dataset=NAME", id="no data set"),
        pytest.param({}, {}, "missing 1 required positional argument: 'answer'", id="no answer"),
        pytest.param(
            {"dataset": "gsm9k"},
            {"task_idx": 0},
            'aviary knows no task data set "gsm9k" (it knows dummy,',
            id="unknown data set",
        ),
        pytest.param(
            {"env_class": "dumy"}, {}, 'knows no environment "dumy" (', id="unknown environment"
        ),
        pytest.param(
            {"env_class": "no_such_module:World"}, {}, "No module named 'no_such", id="no module"
        ),
        pytest.param(
            {"env_class": f"{HERE}:World"}, {}, f"{HERE} has no class World", id="no class"
        ),
        pytest.param(
            {"env_class": f"{HERE}:HERE"}, {}, f"{HERE} has no class HERE", id="no callable"
        ),
        pytest.param(
            {"env_class": f"{HERE}:no_world"},
            {},
            f"{HERE}:no_world returned str, not an aviary environment",
            id="no environment",
        ),
        pytest.param(
            {"dataset": f"{HERE}:Lamp"},
            {"task_idx": 0},
            f"{HERE}:Lamp returned Lamp, not an aviary task data set",
            id="environment for data set",
        ),
        pytest.param({"env_class": f"{HERE}:Late"}, {}, "notebook did not start", id="its timeout"),
    ],
)
def test_setup_fails_where_there_is_no_world(options, fields, message):
    error = failure_of(task_row("aviary", fields), says("Done."), **options)

    assert isinstance(error, SetupError)
    assert message in str(error)


def test_options_take_one_world():
    with pytest.raises(UsageError, match=r"env_class: .*give env_class or dataset, not both"):
        environment_options(Aviary, "aviary", {"dataset": "dummy", "env_class": "a:B"}, {})


def test_options_read_arguments_as_an_object():
    options = environment_options(
        Aviary, "aviary", {"dataset": "gsm8k", "dataset_args": '{"split": "test"}'}, {}
    )

    assert options.dataset_args == {"split": "test"}


def test_setup_says_which_package_is_missing():
    """Run in a process without fhaviary, in which the module itself can still be imported."""
    script = (
        "import sys; sys.modules['aviary'] = None\n"
        "from gymcli.envs.aviary import Aviary\n"
        "from gymcli.errors import MissingPackageError\n"
        "from gymcli.rollout.episode import EpisodeFailedError\n"
        "from tests.envs.episodes import played, says, task_row\n"
        "try:\n"
        "    played(task_row('aviary', {'task_kwargs': {'answer': 1}}), says('1'))\n"
        "except EpisodeFailedError as error:\n"
        "    print(error)\n"
        "try:\n"
        "    Aviary.prepare(Aviary.Options())\n"
        "except MissingPackageError as error:\n"
        "    print(error)\n"
    )
    root = Path(__file__).parents[2]

    done = subprocess.run(
        [sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True
    )

    assert done.stdout.count("the environment aviary needs the package") == 2
    assert done.stdout.count("pip install 'gymcli[aviary]'") == 2


# Failures of the environment


def test_step_that_raises_fails_the_attempt():
    """The tool raises, and the environment does not catch the exception."""
    error = failure_of(
        task_row("aviary", {}), calls(("press", '{"times": 101}')), env_class=f"{HERE}:Lamp"
    )

    assert isinstance(error, EpisodeError)
    assert str(error) == "RuntimeError: the switch broke"


def test_step_that_takes_too_long_fails_the_attempt():
    error = failure_of(
        task_row("aviary", {}),
        calls(("look", "")),
        env_class=f"{HERE}:Stuck",
        step_timeout=0.01,
    )

    assert isinstance(error, EpisodeError)
    assert "the world's step took longer than 0.01 seconds (step_timeout)" in str(error)


# The score


def test_verify_adds_up_recorded_rewards():
    rollout = Rollout(env="aviary", step_rewards=[0.1] * 10 + [None, -0.5])

    assert scored(rollout).reward == 0.5


@given(st.lists(st.none() | st.floats(-1e6, 1e6)))
def test_verify_does_not_depend_on_the_order_of_rewards(rewards):
    there = Rollout(env="aviary", step_rewards=rewards)
    back = Rollout(env="aviary", step_rewards=rewards[::-1])

    assert scored(there).reward == scored(back).reward


def test_verify_scores_a_record_without_rewards():
    rollout = scored(Rollout(env="aviary"))

    assert (rollout.reward, rollout.details["reason"]) == (0.0, "unknown")


def test_rescoring_keeps_the_recorded_reward(tmp_path):
    """Rescoring loads no code that a record names."""
    rollout = scored(played(task_row("aviary", PROBLEM)))
    rollout.env_options = {"env_class": "no_such_module:World"}
    rollout.step_rewards = []
    path = tmp_path / "rollouts.jsonl"
    path.write_bytes(msgspec.json.encode(rollout) + b"\n")

    [rescored] = gymcli.rescore(path)

    assert not rescored.is_rescored
    assert rescored.new_reward == 1.0


# The calculator


@pytest.mark.parametrize(
    ("answer", "reward"),
    [
        pytest.param("84", 1.0, id="text"),
        pytest.param(" 84.0 ", 1.0, id="text with spaces"),
        pytest.param(84, 1.0, id="number"),
        pytest.param(84.008, 1.0, id="within the tolerance"),
        pytest.param(84.0085, 0.0, id="outside the tolerance"),
        pytest.param(-84, 0.0, id="other sign"),
        pytest.param("inf", 0.0, id="infinite"),
        pytest.param("nan", 0.0, id="not a number"),
        pytest.param("9" * 400, 0.0, id="text of 400 digits"),
        pytest.param("84 jars", -1.0, id="with a unit"),
        pytest.param("", -1.0, id="empty"),
    ],
)
def test_submit_answer_compares_with_a_tolerance(answer, reward):
    rollout = scored(played(task_row("aviary", PROBLEM), submits(answer), says("Done.")))

    assert rollout.reward == reward
    assert rollout.stop_reason == "env_done"


def test_submit_answer_takes_a_number_beyond_every_float_for_a_wrong_one():
    """An integer has no limit in JSON; one too large for a float used to fail the attempt."""
    call = ("submit_answer", f'{{"answer": {"9" * 400}}}')

    rollout = scored(played(task_row("aviary", PROBLEM), calls(call)))

    assert (rollout.reward, rollout.stop_reason) == (0.0, "env_done")
    assert rollout.responses[-1].text == "The answer is wrong."


async def test_calculator_world_takes_a_number_beyond_every_float_for_a_wrong_one():
    world = CalculatorEnv(answer=6)
    await world.reset()
    assert (await world.submit_answer(10**400), world.state.reward) == ("The answer is wrong.", 0.0)


def test_submit_answer_takes_zero():
    row = task_row("aviary", {"task_kwargs": {"answer": 0}})

    assert scored(played(row, submits(0))).reward == 1.0
    assert scored(played(row, submits(1e-9))).reward == 1.0
    assert scored(played(row, submits(1e-4))).reward == 0.0


def test_calculator_goes_on_after_a_result():
    turns = [calculates("12 * 7"), calculates("84 / 8"), submits(84)]

    rollout = scored(played(task_row("aviary", PROBLEM), *turns))

    assert [m.content for m in rollout.responses if m.role == "tool"][:2] == ["84", "10.5"]
    assert rollout.step_rewards == [0.0, 0.0, 1.0]
    assert rollout.reward == 1.0


def test_calculator_that_fails_ends_the_episode():
    rollout = scored(played(task_row("aviary", PROBLEM), calculates("12 jars"), submits(84)))

    assert rollout.reward == -1.0
    assert rollout.stop_reason == "env_done"
    assert rollout.responses[-1].text.startswith("The expression cannot be worked out: it has")


def test_calculator_counts_the_first_answer_of_a_message():
    """Submitting every possible number does not help."""
    guesses = [("submit_answer", f'{{"answer": {number}}}') for number in (83, 84, 85)]

    rollout = scored(played(task_row("aviary", PROBLEM), calls(*guesses)))

    assert rollout.reward == 0.0
    assert [m.content for m in rollout.responses[1:]] == [
        "The answer is wrong.",
        *["The environment gave no answer to this call."] * 2,
    ]


async def test_calculator_world_stands_on_its_own():
    """The environment also works without gymcli, played by an agent of aviary."""
    world = CalculatorEnv(answer=6, problem="What is twice three?")
    opening, tools = await world.reset()
    idle = await world.step(core.Message(content="Six?"))
    call = core.ToolCall.from_tool(tools[1], answer="6")
    (answers, *result) = await world.step(core.ToolRequestMessage(tool_calls=[call]))
    assert [message.content for message in opening] == ["What is twice three?"]
    assert idle[1:] == (0.0, False, False)
    assert [message.content for message in answers] == ["The answer is right."]
    assert result == [1.0, True, False]


def test_oracle_has_no_turn_for_other_worlds():
    error = failure_of(task_row("aviary", {}), env_class=f"{HERE}:Lamp")

    assert "has no oracle for this task" in str(error)


def test_generate_keeps_answers_out_of_problems():
    for row in Aviary.generate(Random(1), 90):
        answer = row["task_kwargs"]["answer"]

        assert evaluate(row["expression"]) == answer
        assert number_text(answer) not in row["prompt"].replace("?", " ").split()


# Expressions


def test_evaluate_works_out(subtests):
    cases = [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("-2 ** 2", -4),
        ("+7 // 2", 3),
        ("7 % 4", 3),
        ("2 ** -1", 0.5),
        ("1e3 / 8", 125),
        ("1000 - .5", 999.5),
        ("2 ** 2 ** 3", 256),
        (" 3 ", 3),
    ]
    for text, value in cases:
        with subtests.test(text=text, value=value):
            assert evaluate(text) == value


def test_evaluate_refuses(subtests):
    cases = [
        ("", "not well formed"),
        ("1 +", "not well formed"),
        ("(((", "not well formed"),
        ("1 2", "not well formed"),
        ("1\n+ 1", "other things than numbers"),
        ("e", "other things than numbers"),
        ("()", "other things than numbers"),
        ("2(3)", "other things than numbers"),
        ("x", "other things than numbers"),
        ("__import__('os')", "other things than numbers"),
        ("1,000", "other things than numbers"),
        ("'a' * 9", "other things than numbers"),
        ("2j", "other things than numbers"),
        ("1 / 0", "divides by zero"),
        ("1 % 0", "divides by zero"),
        ("0 ** -1", "divides by zero"),
        ("(-8) ** 0.5", "no real value"),
        ("9 ** 9 ** 9 ** 9", "too large"),
        ("1e308 * 10", "too large"),
        ("1e999", "too large"),
        ("1" * (MAX_CHARACTERS + 1), "longer than"),
    ]
    for text, reason in cases:
        with subtests.test(text=text), pytest.raises(ValueError, match=reason):
            evaluate(text)


@given(st.text(alphabet="0123456789.eE+-*/%() \t", max_size=MAX_CHARACTERS))
def test_evaluate_gives_a_finite_number_or_refuses(text):
    try:
        value = evaluate(text)
    except ValueError:
        return
    assert math.isfinite(value)


@pytest.mark.parametrize("text", ["-" * 199 + "1", "1" + "+1" * 99, "(" * 99 + "1" + ")" * 99])
def test_evaluate_bears_deep_nesting(text):
    assert abs(evaluate(text)) in (1, 100)


@pytest.mark.parametrize(
    ("value", "text"),
    [(84.0, "84"), (0.1 + 0.2, "0.3"), (-0.0, "0"), (1e20, "1e+20"), (2 / 3, "0.666666666666667")],
)
def test_number_text_writes_as_a_calculator_does(value, text):
    assert number_text(value) == text
