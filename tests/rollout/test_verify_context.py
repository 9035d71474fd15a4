"""Tests of scoring one record: scores, replays, and `search` with its time limit."""

import asyncio
import math
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.environment.contract import Environment
from gymcli.environment.registry import Registry
from gymcli.environment.tool import EnvironmentOptions, Step, Task, tool
from gymcli.errors import (
    ContextOverflowError,
    EpisodeError,
    ReplayDivergedError,
    RoleError,
    VerifierError,
    VerifierTimeoutError,
)
from gymcli.rollout.episode import EpisodePlan, play
from gymcli.rollout.scoring import score
from gymcli.rollout.verify_context import SEARCH_TIMEOUT, VerifyContext
from gymcli.types import (
    LARGEST,
    Answer,
    FunctionCall,
    Message,
    Rollout,
    Score,
    TaskRow,
    ToolCall,
    Verifier,
)
from tests.pooled import pooled_workers, run_pooled


def scored(give, rollout=None):
    """Score a record with a verifier that returns, or raises, the given object."""

    class Quiz(Environment[Task]):
        """Returns what the test says."""

        @classmethod
        async def verify(cls, rollout, context):
            if isinstance(give, BaseException):
                raise give
            return give

    verifier = Verifier("1", "abc")
    found = score(Quiz, rollout or Rollout(), verifier=verifier, options=Quiz.Options())
    return asyncio.run(found)


def test_score_gives_the_record_with_its_score():
    given_score = Score(
        0.5, {"style": 1.0}, {"length": 3.0}, answer="B", details={"reason": "correct"}
    )
    before = Rollout(task_id="a", reward=0.0, details={"old": 1})
    after = scored(given_score, before)
    assert (after.reward, after.components, after.metrics) == (0.5, {"style": 1}, {"length": 3})
    assert (after.answer, after.details) == ("B", {"reason": "correct"})
    assert after.verifier == Verifier("1", "abc")
    assert after.timing.verify_seconds > 0
    assert before == Rollout(task_id="a", reward=0.0, details={"old": 1})


@pytest.mark.parametrize("reward", [True, 1, 1.0, Fraction(1, 1)])
def test_score_writes_every_real_number_as_a_float(reward):
    after = scored(Score(reward, {"part": reward}, {"much": reward}))
    assert [type(value) for value in (after.reward, after.components["part"])] == [float, float]
    assert msgspec.json.decode(msgspec.json.encode(after), type=Rollout) == after


@pytest.mark.parametrize(
    ("give", "words"),
    [
        (None, "verify returned None (NoneType), not a Score"),
        (1.0, "verify returned 1.0 (float), not a Score"),
        (Score(math.nan), "verify returned an unusable Score: reward = nan, not a finite number"),
        (Score(math.inf), "Score: reward = inf, not a finite number"),
        (Score(-1e200), "Score: reward = -1e+200, and the maximum is 1e+100"),
        (Score(0.0, {"style": 1e200}), "Score: style = 1e+200, and the maximum is"),
        (Score(None), "Score: reward = None, not a finite number"),
        (Score("1"), "Score: reward = '1', not a finite number"),
        (Score(math.nan, {"reward": 1.0}), "Score: reward = nan"),
        (Score(0.0, {"style": math.nan}), "Score: style = nan"),
        (Score(0.0, {}, {"length": None}), "Score: length = None"),
        (Score(10**400), "Score: int too large to convert to float"),
        (Score(0.0, None), "'NoneType' object has no attribute 'items'"),
        (Score(0.0, answer=3), "Expected `str | null`, got `int` - at `$.answer`"),
        (Score(0.0, answer="half \ud800"), "surrogates not allowed"),
        (Score(0.0, details={"x": object()}), "Score: Encoding objects of type object"),
        (Score(0.0, details=[]), "Expected `object`, got `array` - at `$.details`"),
        (ValueError("two\nlines"), "ValueError: two lines"),
        (ZeroDivisionError(), "ZeroDivisionError"),
    ],
)
def test_score_refuses_what_no_line_can_hold(give, words):
    """The attempt stays unscored, and the value reaches neither the file nor a mean."""
    with pytest.raises(VerifierError) as caught:
        scored(give)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.phase == "verify"


@pytest.mark.parametrize("error", [RoleError("gone"), VerifierTimeoutError("slow")])
def test_score_passes_on_errors_that_name_their_phase(error):
    with pytest.raises(type(error)) as caught:
        scored(error)
    assert caught.value is error


@given(st.floats(-LARGEST, LARGEST), st.none() | st.text(), st.text())
def test_score_is_the_same_after_a_line(reward, answer, reason):
    after = scored(Score(reward, {"part": reward}, answer=answer, details={"reason": reason}))
    assert msgspec.json.decode(msgspec.json.encode(after), type=Rollout) == after


class Stack(Task):
    start: int = 0


class Piles(Environment[Stack]):
    """Pile things up; a replay of the record shows how high."""

    class Options(EnvironmentOptions):
        bonus: int = 0

    opening = ()
    closing_error = None
    closed = None

    async def setup(self):
        self.height = self.task.start + self.options.bonus
        self.drawn = self.rng.random()
        return [Message(role="user", content=text) for text in self.opening]

    @tool
    def pile(self, count: int) -> int:
        """Pile up."""
        if count < 0:
            raise EpisodeError("it fell over")
        self.height += count
        return self.height

    @tool
    def draw(self) -> float:
        """Draw a number."""
        return self.rng.random()

    async def reply(self, rollout):
        return "More?" if self.height < 3 else None

    async def close(self):
        if self.closed is not None:
            self.closed.append(self.height)
        if self.closing_error is not None:
            raise self.closing_error

    @classmethod
    async def verify(cls, rollout, context):
        world = await context.replay(rollout)
        return Score(float(world.height), metrics={"drawn": world.drawn})


def piles(**attributes):
    return type("Made", (Piles,), {"__doc__": Piles.__doc__, **attributes})


class Scripted:
    def __init__(self, *answers):
        self.answers = list(answers)

    async def answer(self, request):
        found = self.answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


def says(text="Fine.", **fields):
    return Answer(message=Message(role="assistant", content=text), **fields)


def calls(*named, **fields):
    made = [
        ToolCall(id=f"c{number}", function=FunctionCall(name, arguments))
        for number, (name, arguments) in enumerate(named)
    ]
    return Answer(message=Message(role="assistant", tool_calls=made), **fields)


def recorded(*answers, environment=Piles, max_turns=None, tools=None, **options):
    """Play an episode, and return its record as decoded from its line."""
    prompt = [Message(role="user", content="Pile up.")]
    fields = {"start": 1}
    plan = EpisodePlan(
        row=TaskRow(id="t", env="piles", hash="h", messages=prompt, fields=fields, tools=tools),
        attempt=0,
        environment=environment,
        options=environment.Options(**options),
        model="m",
        params={},
        run_seed=3,
        sends_seed=False,
        max_turns=max_turns,
    )
    rollout = asyncio.run(play(plan, Scripted(*answers)))
    return msgspec.json.decode(msgspec.json.encode(rollout), type=Rollout)


def rescored(rollout, environment=Piles):
    options = environment.Options(**rollout.env_options)
    # A worker of its own would import this module and hypothesis for each score.
    workers = pooled_workers()
    found = score(environment, rollout, verifier=Verifier(), options=options, workers=workers)
    return run_pooled(found)


LENGTH = {"finish_reason": "length"}
UP_2, UP_5 = ("pile", '{"count": 2}'), ("pile", '{"count": 5}')


@pytest.mark.parametrize(
    ("answers", "max_turns", "height"),
    [
        ([calls(UP_2), says()], None, 3),
        ([calls(UP_2, ("pile", "{"), ("gone", "{}")), says()], None, 3),
        ([says(), calls(UP_2), says()], None, 3),
        ([calls(UP_2), calls(UP_5)], 2, 8),
        ([calls(UP_2), calls(UP_5, **LENGTH)], None, 3),
        ([calls(UP_2), says(**LENGTH)], None, 3),
        (
            [Answer(message=Message(role="assistant", reasoning="Hm.")), calls(UP_2), says()],
            None,
            3,
        ),
        ([Answer(message=Message(role="assistant", reasoning="Hm."))] * 2, None, 1),
        ([ContextOverflowError("too long")], None, 1),
        ([calls(UP_2), ContextOverflowError("too long")], None, 3),
        ([says(), says(finish_reason="refusal")], None, 1),
        ([calls(UP_2), says(finish_reason="malformed_call"), calls(UP_5), says()], None, 8),
        ([calls(UP_2), says(finish_reason="malformed_call")], 2, 3),
    ],
)
def test_replay_ends_where_the_episode_ended(answers, max_turns, height):
    """Messages that the environment did not see, such as a cut-off one, are not replayed."""
    assert rescored(recorded(*answers, max_turns=max_turns)).reward == height


def test_replay_draws_the_same_random_numbers_and_takes_the_options_on_record():
    rollout = recorded(calls(("draw", "{}"), UP_2), says(), bonus=4)
    assert rollout.env_options == {"bonus": 4}
    first, second = rescored(rollout), rescored(rollout)
    assert first.reward == 7.0
    assert first.metrics == second.metrics


def test_replay_of_an_environment_that_ends_the_episode_itself():
    class Ends(Piles):
        """Ends after the first message, without a reply."""

        async def step(self, message):
            self.height += 10
            return Step([], stop_reason="env_done")

    rollout = recorded(says(), environment=Ends)
    assert rollout.stop_reason == "env_done"
    assert rescored(rollout, Ends).reward == 11.0


def test_replay_shows_the_tools_on_record():
    """A tool that the row did not show is refused again."""
    row_tools = [{"type": "function", "function": {"name": "draw", "parameters": {}}}]
    assert rescored(recorded(calls(UP_5), says(), says(**LENGTH), tools=row_tools)).reward == 1.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: setattr(m[2], "content", "7"), "the replay returned '3', the record has '7'"),
        (
            lambda m: m.insert(3, Message(role="user", content="x")),
            "returned 1 messages, the record",
        ),
        (lambda m: m.append(Message(role="user", content="x")), "returned 0 messages, the record"),
        (lambda m: setattr(m[2], "tool_call_id", "c9"), "the replay returned '3', the record has"),
    ],
)
def test_replay_that_diverges_is_an_error_that_shows_both(change, words):
    rollout = recorded(calls(UP_2), says())
    change(rollout.messages)
    with pytest.raises(ReplayDivergedError, match=words):
        rescored(rollout)


def test_replay_compares_the_opening():
    environment = piles(opening=("You see stones.", "Begin."))
    rollout = recorded(calls(UP_2), says(), environment=environment)
    assert rollout.num_prompt_messages == 3
    assert rescored(rollout, environment).reward == 3.0
    with pytest.raises(
        ReplayDivergedError, match="the replayed opening differs from the one on record"
    ):
        rescored(rollout, piles(opening=("You see bricks.",)))


def test_replay_of_other_programs_rollouts_does_not_compare_words():
    rollout = recorded(calls(UP_2), says())
    rollout.env_version = ""
    rollout.messages[2].content = '{"height": 3}'
    assert rescored(rollout, piles(opening=("Words of ours.",))).reward == 3.0


class Speaking:
    """A model that always says the same and counts its calls."""

    is_scalar = True

    def __init__(self):
        self.num_calls = 0

    async def complete(self, messages, **options):
        self.num_calls += 1
        return Message(role="assistant", content="Go on.")


class Led(Piles):
    """Pile things up as a simulated user says."""

    required_roles = ("user",)

    async def reply(self, rollout):
        assert self.roles["user"].is_scalar
        return (await self.roles["user"].complete(rollout.messages)).text


def test_replay_asks_no_role():
    """The user's messages are on record; asking again would cost and could differ."""
    rollout = recorded(calls(UP_2), says())
    rollout.messages.append(Message(role="user", content="Go on."))
    user = Speaking()
    found = score(Led, rollout, verifier=Verifier(), options=Led.Options(), roles={"user": user})
    with pytest.raises(RoleError, match="user: a replay asks no role"):
        asyncio.run(found)
    assert user.num_calls == 0


def test_replay_does_not_show_how_the_episode_ended():
    seen = []

    class Peeking(Piles):
        """Reads fields that are not known yet in a replay."""

        async def setup(self):
            record = self.rollout
            seen.append((record.stop_reason, record.final_state, record.reward, record.answer))
            return await super().setup()

        async def final_state(self):
            return self.height

    rollout = recorded(calls(UP_2), says(), environment=Peeking)
    assert (rollout.stop_reason, rollout.final_state) == ("done", 3)
    scored_once = rescored(rollout, Peeking)
    rescored(scored_once, Peeking)
    assert scored_once.reward == 3.0
    assert (scored_once.stop_reason, scored_once.final_state) == ("done", 3)
    assert seen == [(None, None, None, None)] * 3


def test_an_episode_error_in_a_replay_is_one_of_the_verifier():
    rollout = recorded(calls(UP_2), says())
    rollout.messages[1].tool_calls[0].function.arguments = '{"count": -1}'
    with pytest.raises(VerifierError, match="it fell over"):
        rescored(rollout)


def test_replay_of_a_task_that_cannot_be_typed_is_a_verifier_error():
    rollout = recorded(calls(UP_2), says())
    rollout.task = {"start": "high"}
    with pytest.raises(VerifierError, match="ValidationError: "):
        rescored(rollout)


def test_score_closes_what_was_replayed():
    environment = piles(closed=[])
    rescored(recorded(calls(UP_2), says(), environment=environment), environment)
    assert environment.closed == [3, 3]


def test_score_closes_what_was_replayed_when_the_verifier_fails():
    """The verifier's error is more informative than a later one of closing."""

    class Fails(Piles):
        """Fails after two replays."""

        closed = []
        closing_error = OSError("closing failed")

        @classmethod
        async def verify(cls, rollout, context):
            await context.replay(rollout)
            await context.replay(rollout)
            raise ValueError("verify failed")

    with pytest.raises(VerifierError, match="ValueError: verify failed"):
        rescored(recorded(calls(UP_2), says()), Fails)
    assert Fails.closed == [3, 3]


def test_a_score_counts_whatever_closing_raises(caplog):
    scored = rescored(recorded(calls(UP_2), says()), piles(closing_error=OSError("stuck")))
    assert scored.reward is not None
    assert caplog.messages[-1] == "Made: close failed after a replay: OSError: stuck"


def context_of(**fields):
    return VerifyContext(Piles, options=Piles.Options(), **fields)


def test_context_has_options_and_roles():
    context = context_of(roles={"judge": "a model"})
    assert context.options == Piles.Options()
    assert context.roles == {"judge": "a model"}
    assert context_of().roles == {}


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (r"\d+", "1 and 22", ["1", "22"]),
        (r"is (\w)", "it is B, is C", ["B", "C"]),
        (r"(a)|(b)", "ab", ["a", ""]),
        (r"x", "abc", []),
        (r"", "a", ["", ""]),
    ],
)
def test_search_gives_the_first_group_or_the_whole_match(pattern, text, expected):
    assert context_of().search(pattern, text) == expected


def test_search_takes_flags():
    assert context_of().search("b", "aB", flags=2) == ["B"]


@pytest.mark.parametrize("pattern", ["(", "*", "[a", r"\p{nothing}", "(" * 5_000 + ")" * 5_000])
def test_search_refuses_what_is_no_regular_expression(pattern):
    with pytest.raises(ValueError, match="is not a regular expression"):
        context_of().search(pattern, "text")


def test_search_stops_a_pattern_that_takes_too_long():
    """The pattern backtracks for ever; the limit holds for the whole search."""
    with pytest.raises(VerifierTimeoutError, match=f"longer than {SEARCH_TIMEOUT:g} seconds"):
        context_of().search("(a|aa)+$", "a" * 60 + "b")


@given(st.text(alphabet="ab(|)*+?[]\\{}^$.,1-", max_size=8), st.text(alphabet="ab1", max_size=8))
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_search_of_any_pattern_gives_texts_or_the_one_error(pattern, text):
    try:
        found = context_of().search(pattern, text)
    except ValueError:
        return
    assert all(match in text for match in found)


@pytest.mark.parametrize("raised", [SystemExit(0), asyncio.CancelledError()])
def test_score_survives_a_verifier_that_wants_to_end_the_program(raised):
    with pytest.raises(VerifierError, match=type(raised).__name__):
        scored(raised)


@pytest.mark.parametrize(
    "arguments", ['{"count": "3"}', '{"count": 3, "note": "x"}', '{"count": 3.0}']
)
def test_replay_reads_arguments_of_others_as_their_servers_did(arguments):
    """Their servers converted arguments and dropped unknown ones; gymcli refuses both."""
    call = ToolCall(id="c", function=FunctionCall("increment_counter", arguments))
    environment = Registry().find("example_session_state_mgmt").environment
    rollout = Rollout(
        task={"initial_count": 1, "expected_count": 4},
        messages=[
            Message(role="assistant", tool_calls=[call]),
            Message(role="tool", tool_call_id="c", content='{"success":true}'),
        ],
        stop_reason="max_turns",
    )
    verifier, options = Verifier("1", "a"), environment.Options()
    workers = pooled_workers()
    theirs = run_pooled(
        score(environment, rollout, verifier=verifier, options=options, workers=workers)
    )
    assert theirs.reward == 1.0


@pytest.mark.parametrize("closing", [ValueError("closing"), SystemExit(0)])
def test_the_error_of_verify_precedes_that_of_a_failing_close(closing):
    class World(Environment[Task]):
        """Fails in `verify` and in `close`."""

        async def close(self):
            raise closing

        @classmethod
        async def verify(cls, rollout, context):
            await context.replay(rollout)
            raise KeyError("the verifier")

    found = score(World, Rollout(), verifier=Verifier("1", "a"), options=World.Options())
    with pytest.raises(VerifierError, match="KeyError: 'the verifier'"):
        asyncio.run(found)
