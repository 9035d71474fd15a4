"""Checks of scores: only the oracle gets the top reward, and scores repeat."""

import itertools
from random import Random

import pytest
import scipy.stats

from gymcli import FunctionCall, Message, Score, Step, ToolCall, tool
from gymcli.checks.score_checks import exceeds_chance, share_of_top, speed, turns_key
from gymcli.checks.subject import failed
from tests.checks.subjects import Sound, finding, rows_of, says, subject_of
from tests.pooled import run_pooled


class Chance(Sound):
    """Reward without a top."""

    max_reward = None

    @classmethod
    async def verify(cls, rollout, context):
        return Score(10.0 if rollout.last_text == cls.parse_task(rollout.task).answer else 2.0)


class Generous(Sound):
    @classmethod
    async def verify(cls, rollout, context):
        return Score(1.0)


class Penniless(Chance):
    @classmethod
    async def verify(cls, rollout, context):
        return Score(3.0)


class Mute(Sound):
    async def oracle(self, rollout):
        return None


class MuteChance(Chance):
    async def oracle(self, rollout):
        return None


class Crashing(Sound):
    @classmethod
    async def verify(cls, rollout, context):
        raise RuntimeError("no verdict")


class Wrong(Sound):
    async def oracle(self, rollout):
        return says("gold-0")


@pytest.mark.parametrize("check", ["oracle", "empty", "echo", "swapped", "guessing"])
def test_sound_environment_holds(check):
    assert finding(check, Sound).status == "ok"
    assert finding(check, Chance).status == "ok"


def test_oracle_below_the_top():
    found = finding("oracle", Wrong)
    assert found.status == "failed"
    assert found.text == "reward 0 instead of 1 in 11 of 12 tasks"
    assert found.task_ids == [f"t{number}" for number in range(1, 12)]
    assert found.numbers == {"mean": pytest.approx(1 / 12)}


def test_oracle_above_the_top():
    class Lavish(Generous):
        max_reward = 0.5

    assert finding("oracle", Lavish).status == "failed"


@pytest.mark.parametrize(("environment", "reason"), [(Mute, "no oracle"), (Crashing, "no verdict")])
def test_oracle_that_cannot_be_played_or_scored(environment, reason):
    found = finding("oracle", environment)
    assert found.status == "failed"
    assert "12 of 12 tasks cannot be played or scored" in found.text
    assert reason in found.text


@pytest.mark.parametrize("check", ["empty", "echo", "swapped"])
def test_anything_gets_the_top(check):
    found = finding(check, Generous)
    assert found.status == "failed"
    assert len(found.task_ids) == 12


@pytest.mark.parametrize("check", ["empty", "echo", "swapped"])
def test_without_a_top_the_oracle_must_be_better(check):
    assert finding(check, Penniless).status == "failed"
    assert finding(check, MuteChance).status == "n/a"


class Ranked(Sound):
    """Rewards an attempt relative to the others of its task; a single attempt has no reward."""

    max_reward = None

    @classmethod
    async def verify(cls, rollout, context):
        return Score(0.0)

    @classmethod
    async def verify_group(cls, rollouts, context):
        gold = cls.parse_task(rollouts[0].task).answer
        scores = [cls.points(rollout.last_text, gold) for rollout in rollouts]
        return [Score(score - sum(scores) / len(scores)) for score in scores]

    @classmethod
    def points(cls, text, gold):
        return float(text == gold)


class Reversed(Ranked):
    @classmethod
    async def verify_group(cls, rollouts, context):
        return (await super().verify_group(rollouts, context))[::-1]


class Contrary(Ranked):
    @classmethod
    def points(cls, text, gold):
        return float(text != gold)


GROUP_CHECKS = ["oracle", "empty", "echo", "swapped"]


@pytest.mark.parametrize("check", GROUP_CHECKS)
def test_groups_have_the_oracle_at_the_top(check):
    found = finding(check, Ranked)
    assert found.status == "ok"
    assert found.text.endswith("group in all 12 tasks")
    assert found.numbers == {"mean": pytest.approx(0.75 if check == "oracle" else -0.25)}


@pytest.mark.parametrize("check", GROUP_CHECKS)
def test_groups_that_are_judged_the_other_way_round(check):
    found = finding(check, Contrary)
    assert found.status == "failed"
    assert found.text.endswith(" as well as the oracle in the groups of 12 of 12 tasks")
    assert len(found.task_ids) == 12


@pytest.mark.parametrize("check", GROUP_CHECKS)
def test_groups_whose_scores_come_in_another_order(check):
    assert finding(check, Reversed).status == "failed"


@pytest.mark.parametrize(
    ("text", "points", "failing"),
    [
        ("", 1.0, {"oracle", "empty"}),
        ("Task ", 1.0, {"oracle", "echo"}),
        ("gold-", 1.0, {"swapped"}),
        ("gold-", 2.0, {"oracle", "swapped"}),
    ],
)
def test_groups_in_which_another_one_is_as_good_as_the_oracle(text, points, failing):
    class Even(Ranked):
        @classmethod
        def points(cls, said, gold):
            if said == gold:
                return 1.0
            return points * (said.startswith(text) if text else not said)

    failed = {name for name in GROUP_CHECKS if finding(name, Even).status == "failed"}
    assert failed == failing


def test_groups_forgive_one_other_answer_that_is_right_by_chance():
    class Lax(Ranked):
        @classmethod
        def points(cls, said, gold):
            return float(said in (gold, "gold-8" if gold == "gold-7" else gold))

    assert finding("oracle", Lax).status == "ok"
    found = finding("swapped", Lax)
    assert found.status == "ok"
    assert found.text.endswith("in all 12 tasks; 1 were as good by chance")


def test_groups_without_another_task_s_answer():
    assert finding("swapped", Ranked, rows_of(["same", "same"])).status == "n/a"
    assert finding("oracle", Ranked, rows_of(["same", "same"])).status == "ok"


def test_groups_without_an_oracle():
    class MuteRanked(Ranked):
        async def oracle(self, rollout):
            return None

    assert "no oracle" in finding("oracle", MuteRanked).text
    assert finding("empty", MuteRanked).status == "n/a"


def test_groups_of_attempts_that_cannot_be_scored():
    class Unspeaking(Ranked):
        @classmethod
        async def verify(cls, rollout, context):
            if not rollout.last_text:
                raise RuntimeError("nothing was said")
            return Score(0.0)

    found = finding("swapped", Unspeaking)
    assert found.status == "failed"
    assert "nothing was said" in found.text


def test_groups_have_attempts_of_different_numbers():
    class Numbered(Ranked):
        @classmethod
        async def verify_group(cls, rollouts, context):
            assert [rollout.attempt for rollout in rollouts] == [0, 1, 2, 3]
            return await super().verify_group(rollouts, context)

    assert finding("oracle", Numbered).status == "ok"


@pytest.mark.parametrize("check", ["empty", "echo"])
def test_what_cannot_be_scored_fails(check):
    assert finding(check, Crashing).status == "failed"


def test_echo_without_a_user():
    rows = rows_of(["", "x"])
    for row in rows:
        row.messages = [Message(role="system", content="You are asked nothing.")]
    assert finding("echo", Sound, rows).task_ids == ["t0"]


def test_swapped_takes_only_answers_that_differ():
    assert finding("swapped", Sound, rows_of(["same", "same"])).status == "n/a"
    assert finding("swapped", Sound, rows_of(["same", "same", "other"])).status == "ok"


def test_swapped_takes_other_words_for_one_answer_for_no_difference():
    class Wordy(Sound):
        @classmethod
        async def verify(cls, rollout, context):
            return Score(1.0, answer="the same")

    assert finding("swapped", Wordy).status == "n/a"


class Careless(Sound):
    """Accepts any text that contains the answer."""

    @classmethod
    async def verify(cls, rollout, context):
        return Score(float(cls.parse_task(rollout.task).answer in rollout.last_text))


def test_swapped_forgives_one_that_is_right_by_chance():
    answers = ["1", "1 and 2", *(f"gold {letter}" for letter in "abcdefghijklmnopqr")]
    found = finding("swapped", Careless, rows_of(answers))
    assert found.status == "ok"
    assert found.text == "below the top in all 20 tasks; 1 were right by chance"
    assert found.numbers["right"] == 1.0


def test_swapped_finds_one_task_that_takes_anything():
    found = finding("swapped", Careless, rows_of(["", *"abcdefghij"]))
    assert found.status == "failed"
    assert found.task_ids == ["t0"]


def test_swapped_finds_many_that_take_some():
    """No task accepts all of the three other answers, but too many accept the first one."""

    class Lax(Sound):
        @classmethod
        async def verify(cls, rollout, context):
            gold = int(cls.parse_task(rollout.task).answer)
            said = int(rollout.last_text or -9)
            return Score(float(said in (gold, gold + 1)))

    found = finding("swapped", Lax, rows_of([str(number) for number in range(12)]))
    assert found.status == "failed"
    assert len(found.task_ids) == 11


def test_swapped_says_what_cannot_be_scored():
    class Picky(Sound):
        @classmethod
        async def verify(cls, rollout, context):
            if rollout.last_text != cls.parse_task(rollout.task).answer:
                raise RuntimeError("wrong answers are too much for me")
            return Score(1.0)

    assert "too much for me" in finding("swapped", Picky).text


def test_swapped_goes_on_with_the_last_turn():
    """An episode that is longer than the other task's gold turns is played to its end."""

    class Twice(Sound):
        async def step(self, message):
            turns = sum(m.role == "assistant" for m in self.rollout.responses)
            if turns < int(self.task.answer):
                return Step([Message(role="user", content="Again.")])
            return Step([])

    assert finding("swapped", Twice, rows_of(["1", "3"])).status == "ok"


def test_turns_key_reads_arguments_and_not_ids():
    def call(name, text):
        return ToolCall(id=name, function=FunctionCall("f", text))

    one, same, other, broken = (
        [Message(role="assistant", tool_calls=[call(*pair)])]
        for pair in [("1", '{"a": 1}'), ("2", '{"a":1}'), ("3", '{"a":2}'), ("4", "{")]
    )
    assert turns_key(one) == turns_key(same)
    assert len({turns_key(one), turns_key(other), turns_key(broken)}) == 3


@pytest.mark.parametrize(
    ("reward", "top", "expected"),
    [(1.0, 2.0, 0.5), (3.0, 2.0, 1.0), (-1.0, 2.0, 0.0), (0.0, 0.0, 1.0), (-1.0, 0.0, 0.0)],
)
def test_share_of_the_top(reward, top, expected):
    assert share_of_top(reward, top) == expected


def test_exceeds_chance_allows_for_luck():
    assert not exceeds_chance(18, 60, 0.25)
    assert exceeds_chance(27, 60, 0.25)
    assert exceeds_chance(24, 60, 0.25)
    assert not exceeds_chance(24, 60, 0.25, num_candidates=10)
    assert not exceeds_chance(60, 60, 1.0)


@pytest.mark.parametrize(("num", "chance"), [(60, 0.05), (60, 0.25), (500, 0.5), (3, 0.05)])
def test_exceeds_chance_suspects_a_sound_environment_once_in_a_hundred(num, chance):
    """Compared with scipy: luck reaches the smallest suspect number less than 1 % of times."""
    suspected = next(k for k in range(num + 2) if k > num or exceeds_chance(k, num, chance))
    tail = scipy.stats.binom(num, chance).sf
    assert tail(suspected - 1) < 0.01 <= tail(suspected - 2)


LETTERS = ["A", "B", "C", "D"]


class Letters(Sound):
    """Choose a letter."""

    @classmethod
    def choices(cls, task):
        return LETTERS


class Shuffled(Letters):
    """Offers the same texts in another order in every task."""

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
    """Most answers are C, which neither the first option nor a random one reveals."""
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
    """Without a gold choice, the constant guess is the first option; lists may differ in length."""

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
    """Rewards a guess more than the oracle."""

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


def test_guesses_that_cannot_be_scored_fail():
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


class Group(Sound):
    """Rewards relative to the mean of the group."""

    max_reward = None

    @classmethod
    async def verify_group(cls, rollouts, context):
        mean = sum(rollout.reward for rollout in rollouts) / len(rollouts)
        return [Score(rollout.reward - mean) for rollout in rollouts]


class FirstWins(Group):
    @classmethod
    async def verify_group(cls, rollouts, context):
        return [Score(float(place == 0)) for place, _ in enumerate(rollouts)]


class BrokenGroup(Group):
    @classmethod
    async def verify_group(cls, rollouts, context):
        raise RuntimeError("no agreement")


@pytest.mark.parametrize("environment", [Sound, Group])
def test_repeatable_holds(environment):
    found = finding("repeatable", environment)
    assert (found.status, found.text) == ("ok", "36 records, 5 times each")


def test_repeatable_of_a_verifier_that_counts():
    class Counting(Sound):
        count = itertools.count()

        @classmethod
        async def verify(cls, rollout, context):
            return Score(1.0, details={"call": next(cls.count)})

    found = finding("repeatable", Counting)
    assert (found.status, found.text) == ("failed", "the same record is scored differently")
    assert len(found.task_ids) == 12


def test_repeatable_of_a_verifier_that_fails_later():
    class Tired(Sound):
        count = itertools.count()

        @classmethod
        async def verify(cls, rollout, context):
            if next(cls.count) > 50:
                raise RuntimeError("enough")
            return Score(1.0)

    assert finding("repeatable", Tired).status == "failed"


def test_repeatable_of_a_verifier_that_writes_into_the_record():
    class Growing(Sound):
        @classmethod
        async def verify(cls, rollout, context):
            rollout.task["seen"] = rollout.task.get("seen", 0) + 1
            return Score(1.0)

    found = finding("repeatable", Growing)
    assert (found.status, found.text) == ("failed", "verify changes the record it scores")


def test_repeatable_of_a_verifier_that_compares_identities():
    """A record that was read from JSON is equal but not identical."""

    class Remembering(Sound):
        seen = {}

        @classmethod
        async def verify(cls, rollout, context):
            first = cls.seen.setdefault(rollout.task_id, rollout.task)
            return Score(float(first is rollout.task))

    assert finding("repeatable", Remembering).status == "failed"


def test_repeatable_of_a_group_that_depends_on_its_order():
    found = finding("repeatable", FirstWins)
    assert found.status == "failed"
    assert found.text == "the same group is scored differently, or its order matters"


def test_repeatable_of_a_group_that_cannot_be_scored():
    assert "no agreement" in finding("repeatable", BrokenGroup).text


def test_nothing_to_repeat_and_nothing_to_time():
    class Crashing(Sound):
        @classmethod
        async def verify(cls, rollout, context):
            raise RuntimeError("no verdict")

    assert "no verdict" in finding("repeatable", Crashing).text
    assert finding("repeatable", Sound, []).status == "n/a"
    assert finding("speed", Crashing).status == "n/a"


def test_speed_is_measured():
    found = finding("speed", Sound)
    assert found.status == "ok"
    assert 0 < found.numbers["p50_milliseconds"] <= found.numbers["p99_milliseconds"]
    assert "slow" not in found.text


def test_speed_of_a_slow_verifier_is_a_note():
    subject = subject_of(Sound)
    subject.verify_seconds += [1.5] * 100
    found = run_pooled(speed(subject))
    assert found.status == "ok"
    assert found.text.endswith(" calls, slow")


class GenerousGroup(Generous):
    @classmethod
    async def verify_group(cls, rollouts, context):
        return [Score(1.0) for _ in rollouts]


class Counting(Sound):
    count = 0

    @classmethod
    async def verify(cls, rollout, context):
        cls.count += 1
        return Score(1.0, metrics={"count": cls.count})


@pytest.mark.parametrize(
    ("check", "environment", "turns"),
    [
        ("empty", Generous, [""]),
        ("echo", Generous, ["Task 0?"]),
        ("swapped", Generous, ["gold-1"]),
        ("guessing", Generous, ["gold-1"]),
        ("echo", GenerousGroup, ["Task 0?"]),
        ("oracle", GenerousGroup, []),
        ("repeatable", Counting, ["gold-1"]),
    ],
)
def test_a_failed_check_shows_the_reply_that_got_too_much(check, environment, turns):
    found = finding(check, environment)
    assert found.status == "failed"
    assert len(found.turns) == len(turns)
    if check not in ("repeatable", "guessing"):
        assert found.task_ids[0] == "t0"
        assert found.turns == turns


def test_a_reply_shows_calls_and_is_cut():
    calls = [ToolCall("1", FunctionCall("add", '{"count": 1}'))]
    turns = [Message(role="assistant", content="So: ", tool_calls=calls), says("x" * 5000)]
    found = failed("wrong", ["t0"], turns=turns * 20)
    assert found.turns[0] == 'So:  add({"count": 1})'
    assert len(found.turns[1]) < 2100
    assert len(found.turns) == 20
