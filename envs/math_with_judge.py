r"""Asks for the answer to a mathematical problem; math-verify checks it, then a judge.

Source: the resources server math_with_judge of NVIDIA NeMo Gym (Apache-2.0), reimplemented
independently. The library math-verify (extra `math`) reads the whole text; an answer that it
accepts is right. If it does not accept one and there is a judge, the judge compares the gold answer
with the extracted one, or with the text if none was extracted, and then again in the other order:
both verdicts must be "equal". An answer that the library cannot parse, or fails at, is not right.
Differences from the reference:

- If the library takes more than 10 seconds, or its process dies, that does not make the answer
  wrong: the judge decides. Without a judge, an answer that never ends, such as a tower of powers,
  leaves the attempt unscored. The library's own limits of 5 seconds for each step, after which it
  answers "wrong", are off.
- An extracted answer is cut after 1,000 characters, for the record and for the judge. If none was
  extracted, the judge is shown the last 4,000 characters of the text.
- An empty expected answer leaves the attempt unscored, because the row is at fault. Without a
  judge, so does one in which the library can read nothing.
- The judge must put its label in a tag that neither the answers nor the prompt can contain, or
  answer with the label only. An answer without a label, or with both, is a failure of the judge and
  leaves the attempt unscored; in the reference the first label counts, and no label is "not equal".
- The judge is asked if `--role judge=...` names one, unless `use_judge` is off.
- An answer with more digits than Python prints is not an error: it is compared like any other, and
  extracted as the text has it.

Not corrected: the library's own mistakes. It finds `y = 3` right for 3, `50\%` for 50 and `(1, 2)`
for the solutions 1 and 2. It finds `6*x + 5` wrong for 6x + 5 outside of `\boxed` and dollars, and
a right answer in a box wrong if the text has another box. A judge can overrule the library on
answers that it finds wrong, not on those that it finds right.

One row:
{"id": "math-1", "difficulty": "medium", "prompt": "From 7 women and 6 men, a committee of two women
and two men is chosen. In how many ways?\n\nPut your final answer in \boxed{}.", "question": "From 7
women and 6 men, a committee of two women and two men is chosen. In how many ways?",
"expected_answer": "315"}
"""

import importlib.util
import logging
import re
from collections.abc import Iterator, Mapping
from random import Random
from typing import NamedTuple

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
    Verdict,
    VerifierError,
)
from gymcli.envs import load_generator

__all__ = ["LibraryFinding", "MathProblem", "MathWithJudge", "compare"]

MAX_ANSWER = 1000
"""Characters of an extracted answer that the record keeps and a judge is shown."""
MAX_TEXT = 4000
"""The number of trailing characters that the judge is shown of a text without an answer."""

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

Write nothing but your verdict: [[A=B]] if the answers are the same, [[A!=B]] if not.
""",
    labels={"equal": EQUAL, "different": DIFFERENT},
    rule="tagged",
    version="2",
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


class LibraryFinding(NamedTuple):
    """The library's verdict on a text."""

    is_right: bool
    answer: str | None
    """The first right answer, else the first answer; cut after `MAX_ANSWER` characters."""


class MathWithJudge(Environment[MathProblem]):
    """Solve mathematical problems; math-verify checks the answer, a judge what it rejects."""

    version = "2"
    optional_roles = ("judge",)
    waits_to_verify = True
    properties = Properties(
        "single-step", "mathematics", "mathematics", "short answer", "symbolic, then judge"
    )

    class Options(EnvironmentOptions):
        """Whether to ask a judge, and the time limit of the library."""

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
        if not _without_dollars(task.expected_answer):
            raise VerifierError('the row has an empty "expected_answer"; no answer can be right')
        judge = context.roles.get("judge") if cls.options_of(context).use_judge else None
        found, failure = LibraryFinding(is_right=False, answer=None), ""
        try:
            found = await cls._compared(task, rollout, context)
        except VerifierError as error:
            # Neither a slow library nor a gold answer that it cannot read makes the answer wrong.
            if judge is None:
                raise
            failure = str(error)
        details: JSONObject = {"expected_answer": task.expected_answer}
        if failure:
            details["library_failure"] = failure
        score = Score(float(found.is_right), answer=found.answer, details=details)
        score.components = {"library_reward": score.reward}
        score.metrics = {"library_failed": float(bool(failure))}
        details["reason"] = "library" if found.is_right else "wrong"
        # As in the reference, the judge cannot take back what the library accepts.
        if judge is not None and not found.is_right:
            shown = found.answer or rollout.output_text[-MAX_TEXT:]
            verdicts = await _judged(judge, task, shown)
            details["reason"] = _reason(verdicts)
            details["verdicts"] = [verdict.record() for verdict in verdicts]
            score.reward = float(details["reason"] == "judge")
            score.components["judge_reward"] = score.reward
        return score

    @classmethod
    async def _compared(
        cls, task: MathProblem, rollout: Rollout, context: Context
    ) -> LibraryFinding:
        """Ask the library, in a process that can be killed."""
        return await context.isolated(
            compare,
            task.expected_answer,
            rollout.output_text,
            timeout=cls.options_of(context).library_timeout,
            imports=("math_verify",),
        )

    async def oracle(self, rollout: Rollout) -> Message:
        """Return the answer in a box."""
        gold = _without_dollars(self.task.expected_answer)
        return Message(role="assistant", content=f"The answer is \\boxed{{{gold}}}.")

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


async def _judged(judge: Model, task: MathProblem, answer: str) -> list[Verdict]:
    """Ask the judge whether an answer equals the expected one, in both orders."""
    return await JUDGE.confirm(
        judge,
        "equal",
        swap=("first", "second"),
        question=task.question,
        first=task.expected_answer,
        second=answer,
    )


def compare(gold: str, text: str) -> LibraryFinding:
    """Look for the gold answer in a text; runs in a worker, which limits its time.

    Raises:
        VerifierError: The library can read nothing in the gold answer.

    """
    import math_verify as library  # late: an extra, and a second to import

    # It logs a warning about the timeouts that are off, and about every text without an answer.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    in_latex, as_plain = library.LatexExtractionConfig(), library.ExprExtractionConfig()
    # Both timeouts are off: they would turn a slow step into "wrong". The worker's limit does not.
    boxed = f"\\boxed{{{_without_dollars(gold)}}}"
    golds = library.parse(boxed, (in_latex,), parsing_timeout=None)
    if not golds:
        raise VerifierError(f"math-verify can read nothing in the expected answer {gold!r:.200}")
    answers = library.parse(text, (as_plain, in_latex), parsing_timeout=None)
    for answer in answers:
        if library.verify(golds, answer, 6, timeout_seconds=None):  # 6 decimals, as the reference
            return LibraryFinding(is_right=True, answer=_written(answer, answers))
    return LibraryFinding(is_right=False, answer=_written(answers[0], answers) if answers else None)


def _written(answer: object, answers: list[object]) -> str:
    """Return an answer as text."""
    try:
        return str(answer)[:MAX_ANSWER]
    except ValueError:
        # Python prints no integer of more than 4,300 digits. The list ends with the extracted text.
        return str(answers[-1])[:MAX_ANSWER]


def _require_library() -> None:
    if importlib.util.find_spec("math_verify") is None:
        raise MissingPackageError("math_with_judge needs math-verify: pip install 'gymcli[math]'")


def _without_dollars(gold: str) -> str:
    """Remove the outer `$..$` of an answer."""
    text = gold.strip()
    if text.startswith("$") and text.endswith("$"):
        text = text[1:-1].strip()
    return text


def _reason(verdicts: list[Verdict]) -> str:
    labels = [verdict.label for verdict in verdicts]
    if labels == ["equal", "equal"]:
        return "judge"
    return "judge_disagrees" if len(labels) == 2 else "wrong"
