r"""Gives instructions that go against habit; a judge looks at each criterion of a rubric.

Source: the resources server inverse_if of NVIDIA NeMo Gym (Apache-2.0), reimplemented
independently. The judge is asked about each criterion, all at once, and shown the last message
without what stands in `<think>`. A row may bring the judge's prompt, as a template of `str.format`,
and system message; what a row does not have is looked for in its `metadata`, else ours are used. A
verdict is a JSON object with `result`. Where a row brings prompt or system message, it may also be
PASS or FAIL in the last five lines, from the last one up, PASS before FAIL in a line: a judge that
writes "does not pass" in place of an object says PASS. Differences from the reference:

- Our own judge answers by an object and nothing else: the response may end with the word PASS.
- What the judge quotes from the response is no verdict: not an object, not the whole, and not a
  line unless it is the bare word; nor is what it repeats of a row's prompt. Where the lowest line
  with PASS or FAIL has it from such a quote alone, there is no verdict. Tags of thoughts are broken
  in all that the judge is shown.
- The judge's endpoint is asked to keep to a schema; the verdict is read whether it did or not.
- An answer without a verdict, or with objects that disagree, is a failure of the judge.
- A judge that fails leaves the attempt unscored.
- A row without criteria is refused, since it would get 0 whatever is said; so is a template that
  leaves out the response or the criterion, or has a placeholder that nothing fills.
- Where a row has no `prompt`, the judge is shown the one that the model was.
- `weighted` is the mean, as there: criteria have no weights.

One row:
{"id": "inverse-0", "difficulty": "easy", "prompt": "List the numbers 7, 8, 9 in the order in which
nobody would ...", "rubric": [{"id": "C1", "criteria": "Is the number of lines in the response,
blank ones aside, 3?"}, {"id": "C2", "criteria": "Is line 1, blank ones aside, exactly \"9\"?"}],
"reference_response": "9\n8\n7"}
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from random import Random
from statistics import fmean
from typing import Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from gymcli import (
    Context,
    Environment,
    EnvironmentOptions,
    JSONObject,
    Message,
    Model,
    Properties,
    Rollout,
    Score,
    Task,
)
from gymcli.envs import load_generator

from .judging import BRACES, RubricJudge, as_template, judge_by, judging, quotable, without_thoughts

__all__ = ["Criterion", "InverseInstruction", "InverseInstructionFollowing"]

Aggregation = Literal["mean", "min", "max", "all", "any", "weighted"]

AGGREGATIONS: Mapping[Aggregation, Callable[[list[float]], float]] = {
    "mean": fmean,
    "min": min,
    "max": max,
    "all": min,
    "any": max,
    "weighted": fmean,
}
"""A criterion is worth 0 or 1, so that the least says whether all are met, the largest whether any
is."""


class Criterion(BaseModel):
    """One line of a rubric."""

    id: str | int = ""
    criteria: str = Field(pattern=r"\S")
    """A question about the response that is to be answered with yes."""


class InverseInstruction(Task):
    """An instruction, and what a response to it has to be like."""

    rubric: list[Criterion] = Field(min_length=1)
    prompt: str | None = None
    """The instruction as the judge sees it; None: as the model does."""
    reference_response: str | None = None
    """A response that meets all criteria."""
    judge_prompt_template: str | None = None
    """With `{prompt}`, `{model_response}`, `{standard_response}` and `{criteria}`; other braces are
    doubled."""
    judge_system_prompt: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_metadata(cls, fields: JSONObject) -> JSONObject:
        """Take what is missing or empty from the row's `metadata`."""
        metadata = fields.get("metadata")
        if not isinstance(metadata, dict):
            return fields
        found = {name: metadata.get(name) for name in cls.model_fields if not fields.get(name)}
        return {**fields, **{name: value for name, value in found.items() if value}}

    @field_validator("judge_prompt_template")
    @classmethod
    def _is_template(cls, text: str | None) -> str | None:
        if text:
            as_template(text)
        return text

    @property
    def judge(self) -> RubricJudge:
        """The judge as the row wants it asked."""
        return judge_by(self.judge_prompt_template, self.judge_system_prompt)


class InverseInstructionFollowing(Environment[InverseInstruction]):
    """Follow instructions that go against habit; a judge looks at each criterion."""

    version = "2"
    required_roles = ("judge",)
    properties = Properties(
        "single-step", "counterintuitive instruction following", "writing", "text", "rubric, judge"
    )

    class Options(EnvironmentOptions):
        """What a rubric is worth."""

        aggregation: Aggregation = "mean"
        """`mean` and `weighted` give the share of the criteria that are met; for 1 `min` and `all`
        want every one, `max` and `any` one of them."""

    options: Options

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward the share of criteria that the judge says are met, or what `aggregation` says.

        Raises:
            RoleError: The judge failed, or gave no verdict on a criterion.

        """
        task = cls.parse_task(rollout.task)
        shown = "\n\n".join(m.text for m in rollout.messages[: rollout.num_prompt_messages])
        response = without_thoughts(rollout.last_text)
        common = {
            "prompt": quotable(task.prompt or shown),
            "model_response": quotable(response),
            "standard_response": quotable(task.reference_response or ""),
            **BRACES,
        }
        items = [{**common, "criteria": quotable(item.criteria)} for item in task.rubric]
        judge = dataclasses.replace(task.judge, response=response)
        verdicts = await judge.ask_all(context.roles["judge"], items)
        passed = [float(verdict.label == "PASS") for verdict in verdicts]
        records: list[JSONObject] = [
            {"id": item.id, "label": verdict.label, "text": verdict.text}
            for item, verdict in zip(task.rubric, verdicts, strict=True)
        ]
        return Score(
            AGGREGATIONS[cls.options_of(context).aggregation](passed),
            metrics={"num_passed": sum(passed), "num_total": float(len(passed))},
            details={"reason": _reason(passed), "verdicts": [*records]},
        )

    async def oracle(self, rollout: Rollout) -> Message | None:
        """Return the row's reference; None where it has none."""
        reference = self.task.reference_response
        return Message(role="assistant", content=reference) if reference else None

    @classmethod
    def stand_ins(cls, task: InverseInstruction) -> Mapping[str, Model]:
        """Return a judge that decides our own criteria by rule, and others by the reference."""
        return {"judge": judging(task.judge, task.reference_response or "")}

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Write instructions with one right response each; some rows bring their own judge."""
        yield from load_generator("inverse_if").generate(rng, num)


def _reason(passed: list[float]) -> str:
    return "all_passed" if all(passed) else "some_passed" if any(passed) else "none_passed"
