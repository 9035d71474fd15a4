r"""Asks for the answer to a mathematical problem; math-verify checks it, then a judge.

Source: the resources server math_with_judge of NVIDIA NeMo Gym 0.7 (Apache-2.0), reimplemented
independently. The library math-verify (extra `math`) and the judge compare the gold answer with the
place where the text states its answer, which `answer_place` chooses. An answer that the library
accepts is right. If it does not accept one and there is a judge, the judge compares both, and then
again in the other order: both verdicts must be "equal".

A place is read as one formula. Escapes, Markdown, currency signs and the dollars of formulas are
taken off; "and" and "or" are commas, so that "18 or 20" is two solutions; "is" is "=". Words before
and after the formula, and units, are dropped unless the gold answer has words too; so is what
follows "because" or "since". Nothing can be read if words are left within ("3 hours 24 minutes"),
or if they deny, bound or scale what they name ("not 18", "at least 18", "18 thousand", "half of
18"); "minus" and "negative" are signs. An answer that cannot be read has the reward 0 and the
reason `no_answer`, unless a judge can compare it; without a place, the judge is not asked.

Differences from NeMo Gym 0.7:

- It gives the library the whole text, once the text has a last box that is complete and not empty:
  `= 18, \boxed{?}` is right there for 18. `answer_place=boxed` has that condition too, and reads
  the box alone, together with boxes that are joined to it. Its judge sees the last box alone.
- A gold answer between 0 and 0.001 in magnitude is compared by six significant digits, not by six
  decimals: 1.6e-19 is not 9.1e-31. This does not hold for the members of sets.
- Words are compared as text, in any case and font. `√2`, `540°`, `10⁻⁵`, `1.6e-19`, `2 1/2`,
  `18.` and `x = 1,450` are read, which the library cannot. "8 0 9" is not read; the library makes
  17 of it.
- If the library takes more than 10 seconds, or its process dies, that does not make the answer
  wrong: the judge decides. Without a judge, an answer that never ends, such as a tower of powers,
  leaves the attempt unscored. The library's own limits of 5 seconds for each step, after which it
  answers "wrong", are off.
- An answer is cut after 1,000 characters, for the record and for the judge.
- An empty expected answer leaves the attempt unscored, because the row is at fault. Without a
  judge, so does one in which the library can read nothing.
- The judge puts its label in a tag that neither the answers nor the prompt can contain. An answer
  without a clear verdict, or with both, is a failure of the judge and leaves the attempt unscored;
  in the reference the first label counts, and no label is "not equal".
- The judge is asked if `--role judge=...` names one, unless `use_judge` is off.
- An answer with more digits than Python prints is not an error: it is compared like any other, and
  extracted as the text has it.

Not corrected: the library's own mistakes. It finds `y = 3` right for 3, `50\%` for 50 and `(1, 2)`
for the solutions 1 and 2, and ignores the base of `1011_2`. A judge can overrule the library on
answers that it finds wrong, not on those that it finds right. Letters after a number are taken for
its unit: "3xy" is right for 3.

One row:
{"id": "math-1", "difficulty": "medium", "prompt": "From 7 women and 6 men, a committee of two women
and two men is chosen. In how many ways?\n\nPut your final answer in \boxed{}.", "question": "From 7
women and 6 men, a committee of two women and two men is chosen. In how many ways?",
"expected_answer": "315"}
"""

import importlib.util
import re
from collections.abc import Iterator, Mapping
from random import Random

from gymcli import (
    Context,
    Environment,
    EnvironmentOptions,
    JSONObject,
    Judge,
    Message,
    MissingPackageError,
    Model,
    Properties,
    Rollout,
    Score,
    StandIn,
    Task,
    VerifierError,
)
from gymcli.envs import load_generator
from gymcli.envs.math_with_judge.math_answer import (
    MAX_ANSWER,
    AnswerPlace,
    LibraryFinding,
    compare,
    stated_answer,
    without_dollars,
)

__all__ = ["MathProblem", "MathWithJudge"]

EQUAL, DIFFERENT = "[[A=B]]", "[[A!=B]]"

JUDGE = Judge(
    """Two people were asked a question of mathematics. Did they give the same final answer?

<question>
{question}
</question>

<answer_a>
{first}
</answer_a>

<answer_b>
{second}
</answer_b>

Compare what A and B give in the end, not how they got there. Answers are the same where they have
the same value or name the same object, however each is written: as a fraction or a decimal, \
factored or expanded, in other words or another order where order does not matter. They differ \
where one is missing, where one gives more or fewer solutions, or where they agree only roughly. \
Do not solve the problem, and do not ask which of them is right.

Your verdict is [[A=B]] if the answers are the same, [[A!=B]] if not.
""",
    labels={"equal": EQUAL, "different": DIFFERENT},
    rule="tagged",
    version="3",
)

SHOWN_ANSWERS = re.compile(
    r"<answer_a>\n(.*)\n</answer_a>\n\n<answer_b>\n(.*)\n</answer_b>", re.DOTALL
)


class MathProblem(Task):
    """A problem and its gold answer."""

    question: str
    """The problem, as the judge is shown it."""
    expected_answer: str
    """In LaTeX, with or without `$..$` or `\\(..\\)` around it."""


class MathWithJudge(Environment[MathProblem]):
    """Solve mathematical problems; math-verify checks the answer, a judge what it rejects."""

    version = "3"
    optional_roles = ("judge",)
    waits_to_verify = True
    properties = Properties(
        "single-step", "mathematics", "mathematics", "short answer", "symbolic, then judge"
    )

    class Options(EnvironmentOptions):
        """Where the answer is read, whether to ask a judge, and the time limit of the library."""

        answer_place: AnswerPlace = "boxed_or_line"
        """`boxed_or_line`: the last boxes, without any the last line "ANSWER: ..."; `line_or_boxed`
        prefers the line; `boxed` reads boxes alone, and the last one must be complete; `sentence`
        reads what follows the last "final answer is"."""
        use_judge: bool = True
        """False: only the library decides, even if there is a judge."""
        library_timeout: float = 10.0
        """Seconds that the library may take for one attempt."""

    options: Options

    @classmethod
    def prepare(cls, options: EnvironmentOptions) -> None:
        """Check that the library is installed before the model is asked."""
        _require_library()

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if the library, or the judge in both orders, finds the answer right.

        Raises:
            RoleError: The judge failed, or returned no verdict.
            VerifierError: The expected answer is empty; or there is no judge, and the library did
                not finish or can read nothing in the expected answer.

        """
        _require_library()
        task = cls.parse_task(rollout.task)
        if not without_dollars(task.expected_answer):
            raise VerifierError('the row has an empty "expected_answer"; no answer can be right')
        options = cls.options_of(context)
        judge = context.roles.get("judge") if options.use_judge else None
        details: JSONObject = {"reason": "no_answer", "expected": task.expected_answer}
        score = Score(0.0, details=details)
        score.components = {"library_reward": 0.0}
        score.metrics = {"library_failed": 0.0}
        # An answer line ends with its message.
        text = "\n".join(answer.text for answer in rollout.responses if answer.role == "assistant")
        answer = stated_answer(text, options.answer_place)
        if answer is None:
            return score
        finding = LibraryFinding(is_right=False, answer=None)
        try:
            finding = await context.isolated(
                compare,
                task.expected_answer,
                answer,
                timeout=options.library_timeout,
                imports=("math_verify",),
            )
        except VerifierError as error:
            # Neither a slow library nor a gold answer that it cannot read makes the answer wrong.
            if judge is None:
                raise
            details["library_failure"] = str(error)
            score.metrics["library_failed"] = 1.0
        score.answer = finding.answer
        score.reward = score.components["library_reward"] = float(finding.is_right)
        if finding.answer is not None:
            details["reason"] = "library" if finding.is_right else "wrong"
        # As in the reference, the judge cannot take back what the library accepts.
        if judge is not None and not finding.is_right:
            shown = answer[:MAX_ANSWER]
            verdicts = await JUDGE.confirm(
                judge,
                "equal",
                swap=("first", "second"),
                question=task.question,
                first=task.expected_answer,
                second=shown,
            )
            score.answer = finding.answer or shown
            is_right = [verdict.label for verdict in verdicts] == ["equal", "equal"]
            score.reward = score.components["judge_reward"] = float(is_right)
            disagreement = "judge_disagrees" if len(verdicts) == 2 else "wrong"
            details["reason"] = "judge" if is_right else disagreement
            details["verdicts"] = [verdict.record() for verdict in verdicts]
        return score

    async def oracle(self, rollout: Rollout) -> Message:
        """Return the answer in a box, in the sentence that names it."""
        gold = without_dollars(self.task.expected_answer)
        return Message(role="assistant", content=f"The final answer is \\boxed{{{gold}}}.")

    @classmethod
    def stand_ins(cls, task: MathProblem) -> Mapping[str, Model]:
        """Return a judge that finds two texts equal if both are the gold answer."""
        gold = task.expected_answer.split()

        def compare_texts(messages: list[Message]) -> str:
            shown = SHOWN_ANSWERS.search(messages[-1].text)
            are_gold = shown is not None and shown[1].split() == shown[2].split() == gold
            return EQUAL if are_gold else DIFFERENT

        return {"judge": StandIn(compare_texts)}

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Write problems whose answers are computed and all different."""
        yield from load_generator("math_with_judge").generate(rng, num)


def _require_library() -> None:
    if importlib.util.find_spec("math_verify") is None:
        raise MissingPackageError("math_with_judge needs math-verify: pip install 'gymcli[math]'")
