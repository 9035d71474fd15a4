"""Guessers: what they can know, and when they know too much."""

from random import Random

import pytest

from gymcli import FunctionCall, Message, Score, Step, ToolCall, tool
from tests.checks.subjects import Sound, finding, rows_of, says

LETTERS = ["A", "B", "C", "D"]


class Letters(Sound):
    """Choose a letter."""

    @classmethod
    def choices(cls, task):
        return LETTERS


class Shuffled(Letters):
    """The same texts, in another order in every task."""

    @classmethod
    def choices(cls, task):
        return Random(str(task.model_extra["number"])).sample(LETTERS, 4)


def letters(rng, weights, num=60):
    return rows_of(rng.choices(LETTERS, weights=weights, k=num))


def test_choices_set_the_chance():
    found = finding("guessing", Letters, letters(Random(1), [1, 1, 1, 1]))
    assert found.status == "ok"
    assert set(found.numbers) >= {"constant", "random", "first option"}
    assert found.numbers["random limit"] == 0.25


def test_commonest_place_gives_answers_away():
    """Most answers are C: neither the first option nor a random one shows it."""
    found = finding("guessing", Letters, letters(Random(1), [1, 1, 6, 1]))
    assert found.status == "failed"
    assert found.numbers["constant"] > 0.5
    assert found.numbers["first option"] < 0.25


def test_commonest_text_gives_answers_away():
    rows = letters(Random(1), [1, 1, 6, 1])
    for number, row in enumerate(rows):
        row.fields["number"] = number
    found = finding("guessing", Shuffled, rows)
    assert found.status == "failed"
    assert found.numbers["constant"] > 0.5


def test_first_option_gives_answers_away():
    found = finding("guessing", Letters, rows_of(["A"] * 30))
    assert found.status == "failed"
    assert found.numbers["first option"] == 1.0


@pytest.mark.parametrize("seed", range(8))
def test_uniform_answers_never_fail_by_luck(seed):
    assert finding("guessing", Letters, letters(Random(seed), [1, 1, 1, 1])).status == "ok"


@pytest.mark.parametrize("seed", range(8))
def test_uniform_golds_without_choices_never_fail_by_luck(seed):
    answers = [str(Random(f"{seed}/{number}").randrange(20)) for number in range(60)]
    assert finding("guessing", Sound, rows_of(answers)).status == "ok"


def test_commonest_answer_of_other_tasks():
    answers = ["yes"] * 6 + [f"gold-{number}" for number in range(14)]
    found = finding("guessing", Sound, rows_of(answers))
    assert found.status == "failed"
    assert found.numbers["constant"] == 0.3
    assert found.numbers["constant limit"] == 0.05
    assert "first option" not in found.numbers


def test_one_task_has_no_others_to_guess_by():
    assert finding("guessing", Sound, rows_of(["only"])).status == "n/a"


def test_tasks_with_and_without_choices():
    class Mixed(Sound):
        @classmethod
        def choices(cls, task):
            return ["yes", "no"] if task.answer in ("yes", "no") else []

    found = finding("guessing", Mixed, rows_of(["yes", "no", "one", "two"] * 5))
    assert found.numbers["constant limit"] == pytest.approx((0.5 + 0.05) / 2)
    assert found.numbers["first option limit"] == 0.5


def test_choices_that_the_oracle_does_not_say():
    """Without a gold choice the constant is the first place; choices of other lengths are met."""

    class Odd(Sound):
        @classmethod
        def choices(cls, task):
            return ["p", "q"] if task.answer == "gold-0" else ["p"]

    found = finding("guessing", Odd)
    assert (found.status, found.numbers["constant"]) == ("ok", 0.0)


def test_a_constant_place_that_some_tasks_lack():
    class Uneven(Sound):
        @classmethod
        def choices(cls, task):
            return LETTERS if task.answer == "D" else LETTERS[:2]

    found = finding("guessing", Uneven, rows_of(["D", "D", "A"] * 6))
    assert found.numbers["constant"] == 1.0
    assert found.status == "failed"


def test_calls_are_guessed_whole():
    class Calling(Sound):
        @tool
        def put(self, what: str) -> str:
            """Put something."""
            return what

        async def oracle(self, rollout):
            if rollout.tool_calls:
                return says("done")
            call = FunctionCall("put", f'{{"what": "{self.task.answer}"}}')
            return Message(role="assistant", tool_calls=[ToolCall(id="c", function=call)])

        @classmethod
        async def verify(cls, rollout, context):
            given = [call.arguments for call in rollout.tool_calls]
            return Score(float(f'"{cls.parse_task(rollout.task).answer}"' in str(given)))

    assert finding("guessing", Calling).status == "ok"
    assert finding("guessing", Calling, rows_of(["same"] * 12)).numbers["constant"] == 1.0


class Relative(Sound):
    max_reward = None


class BestAtSilence(Relative):
    """A guess beats the oracle."""

    @classmethod
    async def verify(cls, rollout, context):
        own = cls.parse_task(rollout.task).answer
        return Score(float(len(rollout.last_text) % 5) if rollout.last_text == own else 9.0)


def test_without_a_top_guessers_must_not_beat_the_oracle():
    answers = [f"gold{'!' * number}" for number in range(12)]
    assert finding("guessing", Relative, rows_of(answers)).status == "ok"
    found = finding("guessing", BestAtSilence, rows_of(answers))
    assert found.status == "failed"
    assert "(the oracle " in found.text


def test_without_a_top_one_task_or_no_oracle_decides_nothing():
    class Blind(Relative):
        @classmethod
        def choices(cls, task):
            return ["gold-0", "x"]

    class Mute(Blind):
        async def oracle(self, rollout):
            return None

    assert finding("guessing", Blind, rows_of(["gold-0"])).status == "ok"
    assert finding("guessing", Mute).status == "ok"


def test_what_cannot_be_scored_fails():
    class Picky(Sound):
        @classmethod
        async def verify(cls, rollout, context):
            if rollout.last_text != cls.parse_task(rollout.task).answer:
                raise RuntimeError("no")
            return Score(1.0)

    assert finding("guessing", Picky).status == "failed"


def test_turns_of_a_guess_repeat():
    class Patient(Sound):
        async def step(self, message):
            asked = len(self.rollout.responses) < 3
            return Step([Message(role="user", content="And?")] if asked else [])

    assert finding("guessing", Patient).status == "ok"
