"""Tests of a single episode: how it ends, what it records, and how it fails."""

import asyncio
import contextlib
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.environment.contract import Environment
from gymcli.environment.tool import EnvironmentOptions, Step, Task, tool
from gymcli.errors import (
    CancelledAttemptError,
    ContextOverflowError,
    CrashedAttemptError,
    EndpointGoneError,
    EndpointTimeoutError,
    EnvironmentTimeoutError,
    EpisodeError,
    FatalEndpointError,
    ModelError,
    RoleError,
    RunDirectoryError,
    ServerError,
    SetupError,
    UsageError,
)
from gymcli.rollout.episode import (
    DEFAULT_MAX_TURNS,
    Episode,
    EpisodeFailedError,
    EpisodeLimits,
    EpisodePlan,
    attempt_seed,
    play,
)
from gymcli.rollout.event_loop import Watchdog
from gymcli.types import (
    Answer,
    FunctionCall,
    Message,
    Rollout,
    TaskRow,
    ToolCall,
    Tries,
    Usage,
)

PROMPT = Message(role="user", content="Go.")
LOOK = {"type": "function", "function": {"name": "look", "parameters": {}}}


class Place(Task):
    size: int = 1


class World(Environment[Place]):
    """Behaves as its class attributes say."""

    opening = ()
    steps = ()
    """What `step` returns, call by call; exceptions are raised. Empty: the default `step`."""
    fails_in = ""
    error = ValueError("broken\nhere")
    state = None

    class Options(EnvironmentOptions):
        depth: int = 1

    def __init__(self, *positional, **named):
        super().__init__(*positional, **named)
        self.num_closed = 0
        self.coming = list(self.steps)
        self.fail("__init__")

    def fail(self, where):
        if self.fails_in == where:
            raise self.error

    async def setup(self):
        self.fail("setup")
        self.drawn = self.rng.random()
        return list(self.opening)

    @tool
    def look(self) -> str:
        """Look around."""
        return "a wall"

    @tool
    def grow(self, by: int) -> int:
        """Grow."""
        return self.task.size + by

    async def reply(self, rollout):
        self.fail("reply")

    async def step(self, message):
        if not self.coming:
            return await super().step(message)
        given = self.coming.pop(0)
        if isinstance(given, Exception):
            raise given
        return given

    async def final_state(self):
        self.fail("final_state")
        return self.state

    async def close(self):
        self.num_closed += 1
        self.fail("close")

    async def oracle(self, rollout):
        self.fail("oracle")
        return Message(role="assistant", content="gold")


class Scripted:
    """A policy that returns the given answers in order, and then repeats the last one."""

    def __init__(self, *answers, tries=None):
        self.answers = list(answers)
        self.tries = tries or Tries()
        self.requests = []
        self.num_messages = []

    async def answer(self, request):
        self.requests.append(request)
        self.num_messages.append(len(request.messages))
        request.tries.retries.update(self.tries.retries)
        request.tries.usage.add(self.tries.usage)
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(found, Exception):
            raise found
        return found


def says(text="Done.", **fields):
    return Answer(message=Message(role="assistant", content=text), **fields)


def calls(name="look", arguments="{}", **fields):
    call = ToolCall(id="c", function=FunctionCall(name, arguments))
    return Answer(message=Message(role="assistant", tool_calls=[call]), **fields)


def thinks():
    return Answer(message=Message(role="assistant", reasoning="Hm."))


def user(text="And?"):
    return Step([Message(role="user", content=text)])


def world(**attributes):
    """Return a World class with these attributes, and the list of its instances."""
    instances = []

    class Made(World):
        """A World with the attributes of one test."""

        def __init__(self, *positional, **named):
            instances.append(self)
            super().__init__(*positional, **named)

    for name, value in attributes.items():
        setattr(Made, name, value)
    return Made, instances


def plan_of(environment, *, attempt=0, row=None, **fields):
    row = row or {}
    return EpisodePlan(
        row=TaskRow(
            **{"id": "t", "env": "world", "hash": "h", "messages": [PROMPT], "fields": {}, **row}
        ),
        attempt=attempt,
        environment=environment,
        options=environment.Options(),
        **{
            "model": "m",
            "params": {},
            "run_seed": 0,
            "sends_seed": False,
            "max_turns": None,
            **fields,
        },
    )


def played(policy, *, row=None, plan=None, **attributes):
    """Play an episode in a world and check that it was closed once."""
    environment, instances = world(**attributes)
    try:
        return asyncio.run(play(plan_of(environment, row=row, **(plan or {})), policy))
    finally:
        assert [instance.num_closed for instance in instances] == [1]


def failed(policy, *, row=None, **attributes):
    with pytest.raises(EpisodeFailedError) as caught:
        played(policy, row=row, **attributes)
    assert caught.value.__cause__ is not None
    assert str(caught.value) == str(caught.value.error)
    assert "\n" not in str(caught.value)
    return caught.value


def roles(rollout):
    return [message.role for message in rollout.messages]


def test_play_ends_when_the_environment_has_nothing_to_say():
    rollout = played(Scripted(says("Hello.")))
    assert rollout.stop_reason == "done"
    assert [message.text for message in rollout.messages] == ["Go.", "Hello."]
    assert rollout.num_prompt_messages == 1


def test_play_runs_tools_until_the_model_stops_calling_them():
    policy = Scripted(calls("look"), calls("grow", '{"by": 2}'), calls("gone"), says())
    rollout = played(policy, row={"fields": {"size": 5}})
    texts = [message.text for message in rollout.messages if message.role == "tool"]
    assert texts == ["a wall", "7", "There is no tool 'gone'. Available tools: look, grow."]
    assert rollout.tool_errors == {"unknown_tool": 1}
    assert rollout.timing.tool_seconds > 0
    assert policy.num_messages == [1, 3, 5, 7]
    assert [spec["function"]["name"] for spec in rollout.tools] == ["look", "grow"]
    assert policy.requests[0].tools == rollout.tools


@pytest.mark.parametrize("shown", [[], [LOOK]])
def test_play_shows_the_tools_of_the_row_and_runs_no_other(shown):
    rollout = played(Scripted(calls("grow", '{"by": 1}'), says()), row={"tools": shown})
    assert rollout.tools == shown
    assert rollout.messages[2].text.startswith("There is no tool 'grow'.")


@pytest.mark.parametrize(
    ("answer", "stop_reason"),
    [
        (says(finish_reason="length"), "length"),
        (calls(finish_reason="length"), "length"),
        (says("", finish_reason="content_filter"), "content_filter"),
        (Answer(message=Message(role="assistant"), finish_reason="refusal"), "refusal"),
        (ContextOverflowError("too long"), "context_overflow"),
    ],
)
def test_play_ends_with_a_stop_reason_of_the_model(answer, stop_reason):
    """The model's last message is recorded, and the environment does not see it."""

    async def final_state(_):
        return 3

    rollout = played(Scripted(calls(), answer), final_state=final_state)
    assert rollout.stop_reason == stop_reason
    said = ["assistant"] if isinstance(answer, Answer) else []
    assert roles(rollout) == ["user", "assistant", "tool", *said]
    assert rollout.final_state == 3


def test_play_goes_on_after_a_refusal_that_calls_a_tool():
    both = calls()
    both.message.refusal = "Not that."
    assert played(Scripted(both, says())).stop_reason == "done"


@pytest.mark.parametrize("stop_reason", ["env_done", "done", "episode_time"])
def test_play_ends_where_the_environment_says_so(stop_reason):
    steps = [Step([Message(role="user", content="Enough.")], stop_reason=stop_reason)]
    rollout = played(Scripted(says()), steps=steps)
    assert rollout.stop_reason == stop_reason
    assert rollout.messages[-1].text == "Enough."


class Patient:
    """A policy that reports an hour of waiting in line, and then answers."""

    def __init__(self, seconds_of_work):
        self.waited = 0.0
        self.seconds_of_work = seconds_of_work

    async def answer(self, request):
        self.waited += 3600.0
        await asyncio.sleep(self.seconds_of_work)
        return says()


def test_play_counts_no_waiting_in_line_as_time_of_the_episode():
    """An hour of an outage must not end an episode and score it as unfinished."""
    environment, _ = world()
    plan = msgspec.structs.replace(plan_of(environment), limits=EpisodeLimits(max_seconds=0.1))
    assert asyncio.run(play(plan, Patient(0.3))).stop_reason == "done"


def test_play_cuts_off_a_request_that_waited_before():
    class Stalling(Patient):
        async def answer(self, request):
            self.waited += 0.2
            await asyncio.Event().wait()

    environment, _ = world()
    plan = msgspec.structs.replace(plan_of(environment), limits=EpisodeLimits(max_seconds=0.1))
    rollout = asyncio.run(play(plan, Stalling(0)))
    assert rollout.stop_reason == "episode_time"
    assert rollout.timing.model_seconds >= 0.3


def test_play_ends_after_the_default_number_of_turns():
    rollout = played(Scripted(calls()))
    assert rollout.stop_reason == "max_turns"
    assert roles(rollout) == ["user", *["assistant", "tool"] * DEFAULT_MAX_TURNS]
    assert DEFAULT_MAX_TURNS == 32


@pytest.mark.parametrize(
    ("command_line", "row", "environment", "expected"),
    [(2, 3, 4, 2), (None, 3, 4, 3), (None, None, 4, 4)],
)
def test_play_takes_the_limit_of_the_command_line_then_row_then_class(
    command_line, row, environment, expected
):
    policy = Scripted(calls())
    plan = {"max_turns": command_line}
    rollout = played(policy, plan=plan, row={"max_turns": row}, max_turns=environment)
    assert len(policy.requests) == expected
    assert rollout.messages[-1].role == "tool"


def test_play_asks_once_more_after_a_message_that_only_reasons():
    policy = Scripted(thinks(), says("Well."))
    rollout = played(policy)
    assert rollout.stop_reason == "done"
    assert policy.num_messages == [1, 2]
    assert rollout.output_text == "Well."


def test_play_ends_after_two_messages_in_a_row_that_only_reason():
    policy = Scripted(thinks())
    assert played(policy).stop_reason == "no_answer"
    assert len(policy.requests) == 2


def test_play_forgets_a_message_that_only_reasons_once_something_was_said():
    rollout = played(Scripted(thinks(), calls(), thinks(), calls(), thinks(), thinks()))
    assert rollout.stop_reason == "no_answer"
    assert roles(rollout).count("assistant") == 6


def test_play_ends_on_a_message_that_says_nothing_at_all():
    assert played(Scripted(Answer(message=Message(role="assistant")))).stop_reason == "done"


def test_play_counts_what_setup_says_as_prompt():
    rollout = played(Scripted(says()), opening=[Message(role="user", content="You wake up.")])
    assert rollout.num_prompt_messages == 2
    assert [message.text for message in rollout.messages] == ["Go.", "You wake up.", "Done."]


@pytest.mark.parametrize(
    ("rewards", "recorded"),
    [
        ([None, None, None], []),
        ([1, None, 0.5], [1.0, None, 0.5]),
        ([None, 0, None], [None, 0.0, None]),
        ([None, None, 2.0], [None, None, 2.0]),
    ],
)
def test_play_records_a_reward_for_each_turn_where_there_is_any(rewards, recorded):
    steps = [user()._replace(reward=reward) for reward in rewards]
    steps[-1] = Step([], reward=rewards[-1])
    assert played(Scripted(says()), steps=steps).step_rewards == recorded


def test_play_records_no_reward_for_turns_that_no_step_saw():
    steps = [user()._replace(reward=1.0), user()._replace(reward=2.0)]
    policy = Scripted(thinks(), says(), says(), says(finish_reason="length"))
    assert played(policy, steps=steps).step_rewards == [None, 1.0, 2.0, None]


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_play_refuses_a_step_reward_that_is_no_finite_number(reward):
    error = failed(Scripted(says()), steps=[Step([], reward=reward)]).error
    assert isinstance(error, EpisodeError)
    assert "not a finite number" in str(error)


def test_play_sums_up_usage_retries_and_times():
    """This includes answers that could not be used."""
    counted = {"usage": Usage(prompt_tokens=5, completion_tokens=1)}
    tries = Tries(retries={"ServerError": 2}, usage=Usage(prompt_tokens=3))
    started = time.time()
    rollout = played(Scripted(calls(**counted, model="m-2"), says(**counted), tries=tries))
    assert rollout.usage == Usage(prompt_tokens=16, completion_tokens=2)
    assert rollout.retries == {"ServerError": 4}
    assert rollout.response_model == "m-2"
    timing = rollout.timing
    assert started - 1 < timing.started_at < time.time() + 1
    assert 0 < timing.model_seconds < timing.total_seconds
    assert 0 < timing.tool_seconds < timing.total_seconds


def test_play_leaves_the_response_model_out_where_it_is_the_one_asked_for():
    assert played(Scripted(says(model="m"))).response_model is None


def test_play_records_what_was_asked_for():
    environment, _ = world()
    plan = plan_of(environment, attempt=3, params={"temperature": 0}, run_seed=7)
    plan = msgspec.structs.replace(plan, options=environment.Options(depth=4))
    rollout = asyncio.run(play(plan, Scripted(says())))
    assert (rollout.task_id, rollout.task_hash, rollout.attempt) == ("t", "h", 3)
    assert (rollout.env, rollout.env_version, rollout.model) == ("world", "1", "m")
    assert (rollout.sampling, rollout.env_options) == ({"temperature": 0}, {"depth": 4})
    assert rollout.seed == attempt_seed(7, "t", 3)
    assert rollout.reward is None
    assert msgspec.json.decode(msgspec.json.encode(rollout), type=Rollout) == rollout


@pytest.mark.parametrize("sends_seed", [False, True])
def test_play_sends_the_seed_of_the_attempt_where_it_is_asked_to(sends_seed):
    policy = Scripted(says())
    plan = {"sends_seed": sends_seed, "params": {"top_p": 1}, "run_seed": 7}
    rollout = played(policy, plan=plan)
    expected = {"top_p": 1, "seed": attempt_seed(7, "t", 0)} if sends_seed else {"top_p": 1}
    assert policy.requests[0].params == expected
    assert rollout.sampling == {"top_p": 1}


def test_play_gives_the_environment_the_same_randomness_for_the_same_attempt():
    def drawn(run_seed, attempt):
        environment, instances = world()
        plan = plan_of(environment, attempt=attempt, run_seed=run_seed)
        asyncio.run(play(plan, Scripted(says())))
        return instances[0].drawn

    assert drawn(1, 0) == drawn(1, 0)
    assert len({drawn(1, 0), drawn(1, 1), drawn(2, 0)}) == 3


@given(st.integers(), st.text(), st.integers(0, 99))
def test_attempt_seed_is_one_that_every_endpoint_takes(run_seed, task_id, attempt):
    seed = attempt_seed(run_seed, task_id, attempt)
    assert 0 <= seed < 2**31
    assert seed == attempt_seed(run_seed, task_id, attempt)
    assert seed != attempt_seed(run_seed, task_id, attempt + 1)


def test_play_without_a_policy_plays_the_oracle():
    assert played(None).output_text == "gold"


def test_play_fails_where_there_is_no_oracle():
    async def oracle(self, rollout):
        """Has no answer."""

    error = failed(None, oracle=oracle).error
    assert isinstance(error, EpisodeError)
    assert str(error) == "world has no oracle for this task"


def test_failure_of_setup_is_of_that_phase():
    failure = failed(Scripted(says()), fails_in="setup")
    assert type(failure.error) is SetupError
    assert str(failure.error) == "ValueError: broken here"
    assert failure.rollout.messages == [PROMPT]


def test_failure_of_making_the_instance_is_of_phase_setup():
    environment, instances = world(fails_in="__init__")
    with pytest.raises(EpisodeFailedError) as caught:
        asyncio.run(play(plan_of(environment), Scripted(says())))
    assert caught.value.error.phase == "setup"
    assert [instance.num_closed for instance in instances] == [0]


def test_failure_of_typing_the_task_is_of_phase_setup():
    environment, instances = world()
    plan = plan_of(environment, row={"fields": {"size": "large"}})
    with pytest.raises(EpisodeFailedError, match=r"ValidationError: .* size") as caught:
        asyncio.run(play(plan, Scripted(says())))
    assert caught.value.error.phase == "setup"
    assert instances == []


@pytest.mark.parametrize("fails_in", ["reply", "final_state"])
def test_failure_of_the_environment_is_of_that_phase_and_keeps_the_record(fails_in):
    failure = failed(Scripted(calls(), says()), fails_in=fails_in)
    assert type(failure.error) is EpisodeError
    assert str(failure.error) == "ValueError: broken here"
    assert roles(failure.rollout) == ["user", "assistant", "tool", "assistant"]
    assert failure.rollout.timing.total_seconds > 0


def test_a_record_counts_whatever_close_raises(caplog):
    environment, _ = world(fails_in="close", error=EndpointGoneError("the sandbox is stuck"))
    rollout = asyncio.run(play(plan_of(environment), Scripted(calls(), says())))
    assert rollout.stop_reason == "done"
    assert caplog.messages == [f"world {rollout.task_id}/0: close failed: the sandbox is stuck"]


@pytest.mark.parametrize(
    "error",
    [
        *(UsageError("odd"), RunDirectoryError("odd"), FatalEndpointError("odd")),
        *(EndpointGoneError("odd"), ContextOverflowError("odd"), CancelledAttemptError("odd")),
        CrashedAttemptError("odd"),  # such an attempt would not be retried
    ],
)
@pytest.mark.parametrize(("fails_in", "kind"), [("setup", SetupError), ("reply", EpisodeError)])
def test_an_environment_cannot_raise_what_ends_a_run(error, fails_in, kind):
    environment, _ = world(fails_in=fails_in, error=error)
    with pytest.raises(EpisodeFailedError) as caught:
        asyncio.run(play(plan_of(environment), Scripted(says())))
    assert type(caught.value.error) is kind
    assert str(caught.value.error).endswith("odd")


def test_failure_of_the_oracle_is_of_phase_environment():
    assert failed(None, fails_in="oracle").error.phase == "environment"


@pytest.mark.parametrize("fails_in", ["__init__", "setup", "reply", "oracle"])
def test_failure_that_names_its_phase_keeps_it(fails_in):
    """A role that fails in an environment is not a failure of the environment."""
    environment, _ = world(fails_in=fails_in, error=RoleError("the judge is gone"))
    policy = None if fails_in == "oracle" else Scripted(says())
    with pytest.raises(EpisodeFailedError) as caught:
        asyncio.run(play(plan_of(environment), policy))
    assert caught.value.error is environment.error


def test_failure_of_an_exception_without_a_text_names_its_class():
    assert str(failed(Scripted(says()), fails_in="setup", error=KeyError())) == "KeyError"


@pytest.mark.parametrize(
    "error", [ServerError("503", status=503), ConnectionResetError("odd"), ValueError()]
)
def test_failure_of_the_model_is_of_that_phase_and_keeps_record_and_retries(error):
    tries = Tries(retries={"ServerError": 3})
    failure = failed(Scripted(calls(), error, tries=tries))
    assert failure.error.phase == "model"
    assert (failure.error is error) == isinstance(error, ModelError)
    assert roles(failure.rollout) == ["user", "assistant", "tool"]
    assert failure.rollout.retries == {"ServerError": 6}
    assert failure.rollout.timing.model_seconds > 0


class Stalling:
    """A policy that never answers, after the given failed tries."""

    def __init__(self, *failed):
        self.failed = failed

    async def answer(self, request):
        for error in self.failed:
            request.tries.count(error)
        await asyncio.Event().wait()


def test_the_time_of_an_episode_ends_one_whose_model_is_slow():
    rollout = played(Stalling(), plan={"limits": EpisodeLimits(max_seconds=0.2)})
    assert rollout.stop_reason == "episode_time"


def test_the_time_of_an_episode_scores_nothing_after_endpoint_failures():
    """The failures say nothing about the model."""
    plan = plan_of(world()[0], limits=EpisodeLimits(max_seconds=0.2))
    with pytest.raises(EpisodeFailedError) as caught:
        asyncio.run(play(plan, Stalling(ServerError("500"), ServerError("500"))))
    assert isinstance(caught.value.error, EndpointTimeoutError)
    assert caught.value.error.phase == "model"
    assert caught.value.rollout.retries == {"ServerError": 2}


def test_the_time_of_an_episode_leaves_shorter_time_limits_alone():
    """They cancel the same task and take the cancellation back."""

    class Impatient(Stalling):
        async def answer(self, request):
            try:
                async with asyncio.timeout(0.001):
                    await super().answer(request)
            except TimeoutError as error:
                raise EndpointTimeoutError("no answer") from error

    failure = failed(Impatient(), plan={"limits": EpisodeLimits(max_seconds=600.0)})
    assert str(failure.error) == "no answer"


def test_the_time_of_an_episode_ends_a_request_within_a_longer_time_limit():
    class Patience(Stalling):
        async def answer(self, request):
            async with asyncio.timeout(600.0):
                await super().answer(request)

    rollout = played(Patience(), plan={"limits": EpisodeLimits(max_seconds=0.2)})
    assert rollout.stop_reason == "episode_time"


async def test_the_time_of_an_episode_hides_no_cancellation_of_the_same_moment():
    """The caller who cancels the task wants the episode to end, not only the request."""

    class Cancelled(Stalling):
        async def answer(self, request):
            try:
                await super().answer(request)
            except asyncio.CancelledError:
                outer.cancel()
                raise

    outer = None
    environment, instances = world()
    plan = plan_of(environment, limits=EpisodeLimits(max_seconds=0.2))
    async with Watchdog() as watchdog:
        episode = Episode(plan, Cancelled(), watchdog)
        outer = asyncio.create_task(episode.play())
        await asyncio.wait([outer])
        await episode.wait_closed()
    assert outer.cancelled()
    assert [instance.num_closed for instance in instances] == [1]


def test_play_fails_where_the_environment_waits_too_long_and_closes_it():
    async def reply(self, rollout):
        await asyncio.Event().wait()

    failure = failed(Scripted(says()), reply=reply, step_timeout=0.01)
    assert isinstance(failure.error, EnvironmentTimeoutError)
    assert str(failure.error) == "step took longer than 0.01 seconds (step_timeout)"
    assert roles(failure.rollout) == ["user", "assistant"]


def test_play_lets_clean_up_run_to_its_end():
    """A slow `finally` is not interrupted again within `close_timeout`."""
    tidied = []

    async def reply(self, rollout):
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.5)
            tidied.append("all")

    failed(Scripted(says()), reply=reply, step_timeout=0.01)
    assert tidied == ["all"]


def test_play_abandons_a_task_that_does_not_end(caplog):
    async def reply(self, rollout):
        for _ in range(2):  # asyncio.run cancels it once more at the end
            with contextlib.suppress(BaseException):
                await asyncio.Event().wait()

    failure = failed(Scripted(says()), reply=reply, step_timeout=0.01, close_timeout=0.01)
    assert isinstance(failure.error, EnvironmentTimeoutError)
    assert "was cancelled and is still running after 0.01 seconds; it is abandoned" in caplog.text


def test_play_ends_when_the_environment_swallows_its_cancellation():
    async def reply(self, rollout):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return "and on it goes"

    failure = failed(Scripted(says(), says()), reply=reply, step_timeout=0.01)
    assert isinstance(failure.error, EnvironmentTimeoutError)
    assert roles(failure.rollout) == ["user", "assistant"]


def test_a_task_group_that_fails_ends_its_own_attempt_alone():
    """As after a failed task group, a cancellation is pending; see asyncio.Task.cancelling."""

    async def reply(self, rollout):
        asyncio.current_task().cancel()
        await asyncio.sleep(0)

    async def main():
        environment, _ = world(reply=reply)
        try:
            await play(plan_of(environment), Scripted(says()))
        except EpisodeFailedError as error:
            return str(error), asyncio.current_task().cancelling()

    assert asyncio.run(main()) == ("CancelledError, which gymcli did not request", 0)


def test_an_unrequested_cancellation_fails_in_its_own_phase():
    async def setup(self):
        asyncio.current_task().cancel()
        await asyncio.sleep(0)

    failure = failed(Scripted(says()), setup=setup)
    assert type(failure.error) is SetupError
    assert str(failure.error) == "CancelledError, which gymcli did not request"


def test_a_failure_precedes_that_of_a_failing_close():
    assert isinstance(failed(Scripted(ServerError("503")), fails_in="close").error, ServerError)


def test_a_failure_precedes_that_of_a_slow_close(caplog):
    """The attempt was recorded as one whose close took too long."""
    failure = failed(Scripted(ServerError("503")), close=_close_slowly, close_timeout=0.01)
    assert isinstance(failure.error, ServerError)
    assert "close failed: close took longer than 0.01 seconds (close_timeout)" in caplog.text


async def _close_slowly(self):
    self.num_closed += 1
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("attributes", "phase"),
    [
        ({"opening": [Message(role="user", content="half \ud800")]}, "setup"),
        ({"steps": [user("half \ud800")]}, "environment"),
        ({"steps": [Step([Message(role="user", content=[{"x": object()}])])]}, "environment"),
        ({"steps": [None]}, "environment"),
        ({"state": object()}, "environment"),
        ({"state": {"half": "\ud800"}}, "environment"),
    ],
)
def test_failure_when_the_environment_returns_what_no_line_can_hold(attributes, phase):
    """It fails its attempt, instead of the run when the record is written."""
    failure = failed(Scripted(says()), **attributes)
    assert failure.error.phase == phase
    assert msgspec.json.encode(failure.rollout)


async def test_cancelled_episode_closes_its_environment():
    class Waiting:
        """A policy that signals that it was asked, and never answers."""

        def __init__(self):
            self.is_asked = asyncio.Event()

        async def answer(self, request):
            self.is_asked.set()
            await asyncio.Event().wait()

    environment, instances = world()
    policy = Waiting()
    episode = asyncio.create_task(play(plan_of(environment), policy))
    await policy.is_asked.wait()
    episode.cancel()
    with pytest.raises(asyncio.CancelledError):
        await episode
    assert [instance.num_closed for instance in instances] == [1]


@pytest.mark.parametrize("raised", [SystemExit(0), asyncio.CancelledError()])
def test_failure_of_an_environment_that_wants_to_end_the_program_is_recorded(raised):
    """Neither `sys.exit` nor a leaked cancellation ends more than the attempt."""

    async def reply(self, rollout):
        raise raised

    error = failed(Scripted(says()), reply=reply).error
    assert isinstance(error, EpisodeError)
    assert type(raised).__name__ in str(error)


MEBIBYTE = 2**20


def test_play_ends_where_turns_have_added_too_much_text():
    """Sending the whole conversation each turn would take time that grows with its square."""
    policy = Scripted(calls(arguments="{}" + " " * 10 * MEBIBYTE))
    rollout = played(policy)
    assert rollout.stop_reason == "context_overflow"
    # The fourth call exceeds 32 MiB; it is carried out, and nothing is asked after it.
    assert roles(rollout) == ["user", *["assistant", "tool"] * 4]
    assert rollout.final_state is None
    assert len(policy.requests) == 4


def test_play_counts_the_text_of_messages_in_any_shape():
    text = "é" * 3 * MEBIBYTE  # 6 MiB in UTF-8
    messages = [
        Message(role="user", content=text),
        Message(role="user", content=[{"type": "text", "text": text}]),
        Message(role="assistant", reasoning=text),
        Message(role="assistant", response_items=[{"encrypted_content": text}]),
        Message(role="assistant", content="x", extra={"phase": [text]}),
        Message(role="assistant", tool_calls=[ToolCall("c", FunctionCall("look", text))]),
    ]
    for num_added, stop_reason in ((5, "done"), (6, "context_overflow")):
        policy = Scripted(says())
        rollout = played(policy, steps=[Step(messages[:num_added]), Step([])])
        assert rollout.stop_reason == stop_reason
        assert rollout.messages[2:][:num_added] == messages[:num_added]


def test_play_counts_no_media_as_text():
    media = "A" * 12 * MEBIBYTE
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + media}}
    messages = [
        Message(role="user", content=[image, {"type": "text", "text": "Look."}]),
        Message(
            role="assistant", response_items=[{"type": "image_generation_call", "result": media}]
        ),
        Message(role="assistant", content="x", logprobs={"content": [media]}),
    ]
    assert played(Scripted(says()), steps=[Step(messages), Step([])]).stop_reason == "done"


def test_play_counts_no_prompt_as_text_of_the_turns():
    prompt = Message(role="user", content="a" * 31 * MEBIBYTE)
    answer = says("b" * 2 * MEBIBYTE)
    rollout = played(Scripted(answer), row={"messages": [prompt]}, steps=[user(), Step([])])
    assert rollout.stop_reason == "done"


def test_play_refuses_a_prompt_with_too_much_text():
    row = {"messages": [Message(role="user", content="a" * 20 * MEBIBYTE)]}
    opening = [Message(role="user", content="a" * 20 * MEBIBYTE)]
    policy = Scripted(says())
    error = failed(policy, row=row, opening=opening)
    assert isinstance(error.error, SetupError)
    assert error.error.phase == "setup"
    assert "the prompt has 40.0 MiB of text, but the limit is 32 MiB" in str(error)
    assert not policy.requests


def test_play_needs_a_prompt_from_somebody():
    """A row may have no prompt if the environment opens the conversation."""
    error = failed(Scripted(says("hello")), row={"messages": []}, opening=[])
    assert "neither the row nor the environment has one" in str(error.error)


def test_play_records_each_call():
    first = calls(usage=Usage(prompt_tokens=5), response_id="r-1")
    last = says(unknown_finish="eos", usage=Usage(completion_tokens=2))
    rollout = played(Scripted(first, last, tries=Tries(usage=Usage(prompt_tokens=3))))
    one, two = rollout.calls
    assert (one.usage, one.finish_reason, one.response_id) == (first.usage, "stop", "r-1")
    assert (two.usage, two.finish_reason, two.response_id) == (last.usage, "eos", "")
    assert one.seconds + two.seconds == pytest.approx(rollout.timing.model_seconds, abs=1e-5)
    assert rollout.usage.prompt_tokens == 11


def test_failure_records_the_calls_before_it():
    assert len(failed(Scripted(calls(), ServerError("gone", status=500))).rollout.calls) == 1


def test_the_oracle_makes_no_call():
    assert played(None).calls == []


@pytest.mark.parametrize(
    ("params", "message", "lacks"),
    [
        ({"logprobs": True}, Message(role="assistant", content="7"), True),
        (
            {"logprobs": True},
            Message(role="assistant", content="7", logprobs={"content": []}),
            False,
        ),
        ({"logprobs": True}, Message(role="assistant", content=""), False),
        ({"logprobs": False}, Message(role="assistant", content="7"), False),
        ({}, Message(role="assistant", content="7"), False),
    ],
)
def test_play_notes_that_log_probabilities_did_not_come(params, message, lacks):
    plan = plan_of(world()[0], params=params)
    rollout = asyncio.run(play(plan, Scripted(Answer(message=message))))
    assert [call.lacks_logprobs for call in rollout.calls] == [lacks]
