"""Who gets the top reward: the oracle, and nobody else."""

import pytest
import scipy.stats

from gymcli import FunctionCall, Message, Score, Step, ToolCall
from gymcli.checks.score_checks import exceeds, said, share
from tests.checks.subjects import Sound, finding, rows_of, says


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
    assert found.text == "reward 0 in place of 1 in 11 of 12 tasks"
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
    """Reward by the place among the attempts of a task; alone nothing has one."""

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
    assert found.text.endswith(" as well as the oracle in 12 of 12 tasks")
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
    """Take part of the answer for the answer."""

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
    """No task takes all of three others' answers, yet too many take the first."""

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
    """An episode longer than the other task's gold turns is played to its end."""

    class Twice(Sound):
        async def step(self, message):
            turns = sum(m.role == "assistant" for m in self.rollout.responses)
            if turns < int(self.task.answer):
                return Step([Message(role="user", content="Again.")])
            return Step([])

    assert finding("swapped", Twice, rows_of(["1", "3"])).status == "ok"


def test_said_reads_arguments_and_not_ids():
    def call(name, text):
        return ToolCall(id=name, function=FunctionCall("f", text))

    one, same, other, broken = (
        [Message(role="assistant", tool_calls=[call(*pair)])]
        for pair in [("1", '{"a": 1}'), ("2", '{"a":1}'), ("3", '{"a":2}'), ("4", "{")]
    )
    assert said(one) == said(same)
    assert len({said(one), said(other), said(broken)}) == 3


@pytest.mark.parametrize(
    ("reward", "top", "expected"),
    [(1.0, 2.0, 0.5), (3.0, 2.0, 1.0), (-1.0, 2.0, 0.0), (0.0, 0.0, 1.0), (-1.0, 0.0, 0.0)],
)
def test_share_of_the_top(reward, top, expected):
    assert share(reward, top) == expected


def test_exceeds_allows_for_luck():
    assert not exceeds(18, 60, 0.25)
    assert exceeds(27, 60, 0.25)
    assert exceeds(24, 60, 0.25)
    assert not exceeds(24, 60, 0.25, num_candidates=10)
    assert not exceeds(60, 60, 1.0)


@pytest.mark.parametrize(("num", "chance"), [(60, 0.05), (60, 0.25), (500, 0.5), (3, 0.05)])
def test_exceeds_suspects_a_sound_environment_once_in_a_hundred(num, chance):
    """Against scipy: the smallest number that is suspected comes by luck less than 1 % of times."""
    suspected = next(k for k in range(num + 2) if k > num or exceeds(k, num, chance))
    tail = scipy.stats.binom(num, chance).sf
    assert tail(suspected - 1) < 0.01 <= tail(suspected - 2)
