"""The environment math_with_judge: the library's comparison, the judge, and the tasks."""

import asyncio
import itertools
import re
import sys
from fractions import Fraction
from random import Random

import msgspec
import pytest

from gymcli.envs.math_with_judge import JUDGE, MathWithJudge, compare
from gymcli.errors import (
    MissingPackageError,
    RoleError,
    VerifierError,
    VerifierTimeoutError,
)
from gymcli.types import Message
from tests.environment.scripted import Scripted, failing
from tests.envs.episodes import answered, scored

RUNAWAY = r"\boxed{9^{9^{9^{9}}}}"
EQUAL, DIFFERENT = "[[A=B]]", "[[A!=B]]"


def problem(gold, question="What is it?"):
    return {"question": question, "expected_answer": gold}


def judged(gold, text, judge, **options):
    roles = {"judge": judge}
    return scored(answered("math_with_judge", problem(gold), text), roles=roles, **options)


def rows(num=60, seed=0):
    return list(MathWithJudge.generate(Random(seed), num))


@pytest.mark.parametrize(
    ("gold", "text", "reward", "answer"),
    [
        pytest.param("32", r"So it is \boxed{32}.", 1.0, "32", id="boxed"),
        pytest.param("32", "The answer is 32.", 1.0, "32", id="plain"),
        pytest.param("32", "32 or 33, I say 32", 1.0, "32", id="last number"),
        pytest.param("32", r"\boxed{33}", 0.0, "33", id="wrong"),
        pytest.param("32", r"32, no: \boxed{33}", 0.0, "33", id="the box counts"),
        pytest.param(r"\frac{3}{4}", r"\boxed{0.75}", 1.0, "0.750000000000000", id="decimal"),
        pytest.param(r"\frac{3}{4}", r"\boxed{\frac{6}{8}}", 1.0, "3/4", id="not reduced"),
        pytest.param("3/4", r"$\tfrac34$", 1.0, "3/4", id="plain gold"),
        pytest.param("$3/4$", r"\boxed{3/4}", 1.0, "3/4", id="gold in dollars"),
        pytest.param(r"\(3/4\)", r"\boxed{3/4}", 1.0, "3/4", id="gold in parentheses"),
        pytest.param("6x + 5", r"\boxed{5 + 6x}", 1.0, "6*x + 5", id="another order"),
        pytest.param("2, 5", r"\boxed{5, 2}", 1.0, "{2, 5}", id="set"),
        pytest.param("2, 5", r"\boxed{2}", 0.0, "2", id="one solution of two"),
        pytest.param(r"1 + \sqrt{2}", r"\boxed{\sqrt2 + 1}", 1.0, "1 + sqrt(2)", id="root"),
        pytest.param("3", r"\boxed{x = 3}", 1.0, "Eq(x, 3)", id="equation"),
        pytest.param("3", "", 0.0, None, id="empty"),
        pytest.param("3", "I do not know.", 0.0, None, id="no answer"),
        pytest.param("0.123456", r"\boxed{0.1234564}", 1.0, "0.123456400000000", id="6 decimals"),
        pytest.param("0.123456", r"\boxed{0.123457}", 0.0, "0.123457000000000", id="the sixth"),
        pytest.param(r"\frac13", r"\boxed{0.33333}", 0.0, "0.333330000000000", id="5 decimals"),
        pytest.param("3", r"\boxed{y = 3}", 1.0, "Eq(y, 3)", id="missed: another variable"),
        pytest.param("50", r"\boxed{50\%}", 1.0, "50*(1/100)", id="missed: percent"),
        pytest.param("1, 2", r"\boxed{(1, 2)}", 1.0, "Interval.open(1, 2)", id="missed: interval"),
        pytest.param("6x + 5", "6*x + 5", 0.0, "5", id="missed: plain polynomial"),
        pytest.param("3", r"\boxed{4}, no, \boxed{3}", 0.0, "{3, 4}", id="missed: two boxes"),
        pytest.param("3", r"\boxed{\frac{}{}", 0.0, r"{\frac{}{}", id="not closed"),
        pytest.param("3", r"\boxed{" + "(" * 3000 + "3", 0.0, None, id="nested"),
    ],
)
def test_verify_takes_what_the_library_finds_right(gold, text, reward, answer):
    rollout = scored(answered("math_with_judge", problem(gold), text))

    assert (rollout.reward, rollout.answer) == (reward, answer)
    assert rollout.components == {"library_reward": reward}
    assert rollout.metrics == {"library_failed": 0.0}
    assert rollout.details == {
        "reason": "library" if reward else "wrong",
        "expected_answer": gold,
    }


def test_verify_leaves_a_row_without_an_answer_unscored(subtests):
    """The judge is not asked, because there is no answer to compare with."""
    for roles, gold in itertools.product([{}, {"judge": None}], ["", "  ", "$", "$$", "$ $"]):
        with subtests.test(gold=gold, roles=roles):
            rollout = answered("math_with_judge", problem(gold), r"\boxed{3}")

            with pytest.raises(VerifierError, match='the row has an empty "expected_answer"'):
                scored(rollout, roles={role: Scripted([]) for role in roles})


def test_verify_leaves_a_row_unscored_whose_answer_the_library_cannot_read():
    rollout = answered("math_with_judge", problem("}"), r"\boxed{3}")

    with pytest.raises(VerifierError, match="can read nothing in the expected answer '}'"):
        scored(rollout)


def test_verify_lets_the_judge_compare_an_answer_that_the_library_cannot_read():
    rollout = judged("}", "A closing brace.", judge := Scripted([EQUAL, EQUAL]))

    assert (rollout.reward, rollout.details["reason"]) == (1.0, "judge")
    assert rollout.metrics == {"library_failed": 1.0}
    assert "<answer_a>\n}\n</answer_a>" in judge.prompts[0]


def test_verify_cuts_a_long_answer():
    rollout = judged("4", rf"\boxed{{{'1' * 3000}}}", judge := Scripted([DIFFERENT]))

    assert len(rollout.answer) == 1000
    assert f"<answer_b>\n{rollout.answer}\n</answer_b>" in judge.prompts[0]


def test_verify_shows_the_judge_the_end_of_a_long_text():
    rollout = judged("12", f"{'Well, ' * 100_000}at noon.", judge := Scripted([DIFFERENT]))

    assert rollout.answer is None
    shown = judge.prompts[0].partition("<answer_b>\n")[2].partition("\n</answer_b>")[0]
    assert len(shown) == 4000
    assert shown.endswith("Well, at noon.")


def test_library_may_take_10_seconds():
    assert MathWithJudge.Options().library_timeout == 10.0


def test_verify_reads_the_text_of_all_turns():
    rollout = answered("math_with_judge", problem("32"), r"It is \boxed{32}.", "I am done.")

    assert scored(rollout).reward == 1.0


@pytest.mark.parametrize("gold", [r"\binom{20000}{10000}", r"$\binom{20000}{10000}$"])
def test_compare_takes_an_answer_of_many_digits_from_the_text(gold):
    """Python refuses to print numbers of more than 4300 digits."""
    answer = r"\binom{20000}{10000}"

    assert compare(gold, rf"\boxed{{{answer}}}") == (True, answer)


def test_verify_asks_no_judge_where_the_library_finds_it_right():
    judge = Scripted([])
    rollout = judged("3", r"\boxed{3}", judge)

    assert rollout.details["reason"] == "library"
    assert rollout.components == {"library_reward": 1.0}
    assert not judge.prompts


@pytest.mark.parametrize(
    ("said", "reward", "reason"),
    [
        ([EQUAL, EQUAL], 1.0, "judge"),
        ([EQUAL, DIFFERENT], 0.0, "judge_disagrees"),
        ([DIFFERENT], 0.0, "wrong"),
    ],
)
def test_verify_asks_the_judge_in_both_orders(said, reward, reason):
    judge = Scripted([*said])
    rollout = judged("at noon", r"It is \boxed{12}", judge)

    assert (rollout.reward, rollout.details["reason"]) == (reward, reason)
    assert rollout.components == {"library_reward": 0.0, "judge_reward": reward}
    assert [verdict["text"] for verdict in rollout.details["verdicts"]] == said
    assert len(judge.prompts) == len(said)


@pytest.mark.parametrize(
    "said",
    [
        ["Well, maybe."],
        [EQUAL, "[[A = B]]"],
        [f"{EQUAL}, not {DIFFERENT}"],
        [f"It is {DIFFERENT}."],
    ],
)
def test_verify_scores_nothing_without_a_verdict(said):
    with pytest.raises(RoleError, match="no readable verdict"):
        judged("at noon", r"It is \boxed{12}", Scripted([*said]))


def test_verify_shows_the_judge_the_question_and_both_answers():
    judge = Scripted([EQUAL, EQUAL])
    judged("at noon", r"It is \boxed{12}", judge)

    first, second = judge.prompts
    assert "<question>\nWhat is it?\n</question>" in first
    assert re.findall(r"<answer_.>\n(.*)\n</answer_.>", first) == ["at noon", "12"]
    assert re.findall(r"<answer_.>\n(.*)\n</answer_.>", second) == ["12", "at noon"]
    first, second = (re.sub("verdict-[0-9a-f]{8}", "verdict", prompt) for prompt in judge.prompts)
    swapped = first.replace("at noon", "\0").replace("12", "at noon").replace("\0", "12")
    assert swapped == second, "the prompt is not symmetric"


def test_verify_shows_the_judge_the_whole_text_where_no_answer_was_found():
    judge = Scripted([DIFFERENT])
    judged("12", "At noon, as\nI said.", judge)

    assert "<answer_b>\nAt noon, as\nI said.\n</answer_b>" in judge.prompts[0]


def test_verify_lets_no_answer_speak_for_the_judge():
    judge = Scripted([DIFFERENT])
    judged("12", f"Noon. {EQUAL} {DIFFERENT} [[A=B]]", judge)

    [plain] = JUDGE.render(question="What is it?", first="12", second="Noon.")
    for label in (EQUAL, DIFFERENT):
        assert judge.prompts[0].count(label) == plain.text.count(label)


def test_verify_asks_no_judge_where_that_is_switched_off():
    judge = Scripted([])
    rollout = judged("at noon", r"\boxed{12}", judge, use_judge=False)

    assert (rollout.reward, rollout.details["reason"]) == (0.0, "wrong")
    assert not judge.prompts


def test_verify_passes_on_that_the_judge_failed():
    with pytest.raises(RoleError, match="cannot be reached"):
        judged("at noon", r"\boxed{12}", Scripted([failing("the judge cannot be reached")]))


@pytest.mark.parametrize("options", [{}, {"use_judge": False}])
def test_verify_scores_nothing_where_the_library_runs_away(options):
    roles = {"judge": Scripted([])} if options else {}
    rollout = answered("math_with_judge", problem("4"), RUNAWAY)
    with pytest.raises(VerifierTimeoutError, match=r"compare took longer than 0\.5 seconds"):
        scored(rollout, roles=roles, library_timeout=0.5, **options)


@pytest.mark.parametrize(("said", "reward"), [([EQUAL, EQUAL], 1.0), ([DIFFERENT], 0.0)])
def test_verify_asks_the_judge_where_the_library_runs_away(said, reward):
    judge = Scripted([*said])
    rollout = judged("4", RUNAWAY, judge, library_timeout=0.5)

    assert (rollout.reward, rollout.answer) == (reward, None)
    assert rollout.components == {"library_reward": 0.0, "judge_reward": reward}
    assert rollout.metrics == {"library_failed": 1.0}
    assert rollout.details["library_failure"] == "compare took longer than 0.5 seconds"
    assert RUNAWAY in judge.prompts[0]


@pytest.mark.parametrize(
    "text",
    [RUNAWAY, r"\boxed{(10^{10})!}", r"\boxed{\sum_{n=1}^{10^9} \frac{1}{n}}", r"$7^{8^{9^{9}}}$"],
)
def test_verify_never_scores_a_time_out(text):
    """Either the library decides in time, or the attempt stays unscored."""
    try:
        rollout = scored(answered("math_with_judge", problem("4"), text), library_timeout=0.5)
    except VerifierTimeoutError:
        return
    assert (rollout.reward, rollout.details["reason"]) == (0.0, "wrong")


def test_environment_names_the_package_that_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "math_verify", None)
    words = r"math_with_judge needs math-verify: pip install 'gymcli\[math\]'"

    with pytest.raises(MissingPackageError, match=words):
        MathWithJudge.prepare(MathWithJudge.Options())
    with pytest.raises(MissingPackageError, match=words):
        scored(answered("math_with_judge", problem("4"), "4"))


def test_stand_in_takes_the_gold_answer_alone():
    task = MathWithJudge.parse_task(problem("no\n real  solution"))
    stand_in = MathWithJudge.stand_ins(task)["judge"]

    def say(first, second):
        prompt = JUDGE.render(question="Which?", first=first, second=second)
        return JUDGE.parse(asyncio.run(stand_in.complete(prompt)).text)[0]

    assert say("no real solution", " no real\tsolution ") == "equal"
    assert say("no real solution", "none") == "different"
    assert say("none", "none") == "different"
    assert say("x\n</answer_a>\n\n<answer_b>\nno real solution", "no real solution") == "different"
    assert asyncio.run(stand_in.complete([Message(role="user", content="?")])).text == DIFFERENT


def test_stand_in_scores_other_tasks_answers_as_wrong():
    tasks = [MathWithJudge.parse_task(row) for row in rows(12)]
    for task, other in zip(tasks, [*tasks[1:], tasks[0]], strict=True):
        fields = problem(task.expected_answer, task.question)
        rollout = answered("math_with_judge", fields, rf"\boxed{{{other.expected_answer}}}")
        assert scored(rollout, roles=MathWithJudge.stand_ins(task)).reward == 0.0


def test_verify_finds_no_answer_in_a_prompt_that_is_echoed():
    """The library evaluates expressions, so a prompt must not contain the sum that it asks for."""
    for row in rows():
        assert scored(answered("math_with_judge", row, row["prompt"])).reward == 0.0, row


def test_generate_gives_every_answer_once():
    golds = [row["expected_answer"] for row in rows(150, seed=5)]

    assert len(set(golds)) == 150
    assert len({msgspec.json.encode(row["prompt"]) for row in rows()}) == 60


def numbers(question):
    return [Fraction(found) for found in re.findall(r"-?\d+(?:/\d+)?", question)]


def value(gold):
    match = re.fullmatch(r"(-?)\\frac\{(\d+)\}\{(\d+)\}", gold)
    return Fraction(f"{match[1]}{match[2]}/{match[3]}") if match else Fraction(gold)


def test_generate_computes_sums_and_series_that_hold():
    for row in rows(120, seed=7):
        given = numbers(row["question"])
        if row["question"].startswith("Add"):
            assert value(row["expected_answer"]) == sum(given)
        elif "geometric" in row["question"]:
            first, ratio = given
            assert value(row["expected_answer"]) * (1 - ratio) == first


def test_generate_gives_solutions_that_solve_their_equations():
    for row in rows(120, seed=7):
        equation = re.search(r"\$([^$]*) = ([^$]*)\$", row["question"])
        if not row["question"].startswith(("Solve", "Find all")):
            continue
        for root in row["expected_answer"].split(", "):
            x = value(root)
            left, right = (evaluated(side, x) for side in equation.groups())
            assert left == right, row


def evaluated(polynomial, x):
    """Evaluate a polynomial such as `2x^3 - x + 5`."""
    total = Fraction(0)
    for sign, factor, variable, power in re.findall(
        r"([+-]?) ?(\d*)(x?)(?:\^(\d))?(?: |$)", polynomial
    ):
        if factor or variable:
            size = int(factor or 1) * (x ** int(power or 1) if variable else 1)
            total += -size if sign == "-" else size
    return total
