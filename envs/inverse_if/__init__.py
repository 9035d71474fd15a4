r"""Follow instructions that go against habit; a judge checks each criterion of a rubric.

Source: the resources server inverse_if of NVIDIA NeMo Gym (Apache-2.0), reimplemented
independently. The judge gets one request for each criterion, all of them concurrently, and sees the
last message without `<think>` blocks. A row may bring the judge's prompt, as a `str.format`
template, and system message; what a row lacks is taken from its `metadata`, then from our defaults.
A verdict is a JSON object with `result`. If the row brings a prompt or a system message, PASS or
FAIL in one of the last five lines is a verdict too. They are read from the bottom, PASS before FAIL
in each, so a judge that writes "does not pass" instead of an object says PASS. Differences from the
reference:

- Our own judge must answer with an object, because the response may end with the word PASS.
- A quote from the response is not a verdict, whether it is an object, the whole response or a line
  (other than the bare word). Neither is a repeated part of a row's prompt. If the lowest line with
  PASS or FAIL has it only from such a quote, there is no verdict. The judge is shown every field
  with its thought tags broken.
- The judge's endpoint is asked to follow a schema; the verdict is read even if it does not.
- An answer without a verdict is asked about once more. If there is none then, or if objects
  disagree, the judge failed, and a judge that fails leaves the attempt unscored.
- An empty response gets 0 without asking the judge: it would meet every criterion to leave
  something out.
- A row without criteria is refused, since every response to it would get 0. So is a template that
  leaves out the response or the criterion, or has an unknown placeholder.
- If a row has no `prompt`, the judge is shown the model's prompt.
- `weighted` equals `mean`, as in the reference: criteria have no weights.

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
"""A criterion scores 0 or 1, so the minimum is `all` and the maximum is `any`."""


class Criterion(BaseModel):
    """One line of a rubric."""

    id: str | int = ""
    criteria: str = Field(pattern=r"\S")
    """A question about the response; yes means that the criterion is met."""


class InverseInstruction(Task):
    """An instruction and the criteria for a response to it."""

    rubric: list[Criterion] = Field(min_length=1)
    """The criteria that the judge checks, one by one."""
    prompt: str | None = None
    """The instruction that the judge is shown; without it, the prompt of the model."""
    reference_response: str | None = None
    """A response that meets every criterion."""
    judge_prompt_template: str | None = None
    """With `{prompt}`, `{model_response}`, `{standard_response}` and `{criteria}`; literal braces
    are doubled."""
    judge_system_prompt: str | None = None
    """The judge's system message; without it, ours."""

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
        """The judge, with the row's prompt and system message if it has any."""
        return judge_by(self.judge_prompt_template, self.judge_system_prompt)


class InverseInstructionFollowing(Environment[InverseInstruction]):
    """Follow instructions that go against habit; a judge checks each criterion."""

    version = "3"
    required_roles = ("judge",)
    properties = Properties(
        "single-step", "counterintuitive instruction following", "writing", "text", "rubric, judge"
    )

    class Options(EnvironmentOptions):
        """How a rubric becomes a reward."""

        aggregation: Aggregation = "mean"
        """`mean` and `weighted`: the share of criteria that are met. `min` and `all`: 1 if every
        criterion is met. `max` and `any`: 1 if at least one is."""

    options: Options

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward the share of criteria that the judge finds met, or another `aggregation` of them.

        Raises:
            RoleError: The judge failed, or returned no verdict on a criterion.

        """
        task = cls.parse_task(rollout.task)
        shown = "\n\n".join(m.text for m in rollout.messages[: rollout.num_prompt_messages])
        response = without_thoughts(rollout.last_text)
        num_total = float(len(task.rubric))
        if not response:
            metrics = {"num_passed": 0.0, "num_total": num_total}
            return Score(0.0, metrics=metrics, details={"reason": "no_answer"})
        # Fields are escaped before the judge sees them: it may quote any of them, and reading its
        # verdict cuts off everything before a closing thought tag.
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
            metrics={"num_passed": sum(passed), "num_total": num_total},
            details={"reason": _reason(passed), "verdicts": [*records]},
        )

    async def oracle(self, rollout: Rollout) -> Message | None:
        """Return the row's reference response, if it has one."""
        reference = self.task.reference_response
        return Message(role="assistant", content=reference) if reference else None

    @classmethod
    def stand_ins(cls, task: InverseInstruction) -> Mapping[str, Model]:
        """Return a judge that decides our own criteria by rule.

        Any other criterion is met only by the reference response itself.
        """
        return {"judge": judging(task.judge, task.reference_response or "")}

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Write instructions with one right response each; some rows bring a judge's prompt."""
        yield from load_generator("inverse_if").generate(rng, num)


def _reason(passed: list[float]) -> str:
    return "all_passed" if all(passed) else "some_passed" if any(passed) else "none_passed"
