"""Estimates the tokens and the cost of a run before anything is sent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from gymcli.environment.contract import Environment
from gymcli.errors import ModelError, RoleError, RunError, boundary
from gymcli.models.endpoint import Endpoint, max_answer_tokens, merged_params
from gymcli.rollout.episode import DEFAULT_MAX_TURNS, EpisodeFailedError, EpisodePlan, play
from gymcli.runner.collect_options import CollectOptions
from gymcli.runner.plan import RunPlan
from gymcli.runner.resume_state import ResumeState
from gymcli.runner.stopping import spent_on_record
from gymcli.types import Answer, Message, Request, Usage

CHARACTERS_PER_TOKEN = 4
"""Of English text, in the tokenizers of today's models; other languages and code take more tokens.

Nothing is sent, and the tokenizer of a model is behind its endpoint.
"""


class RunEstimate(msgspec.Struct, kw_only=True):
    """The tokens and the cost of the attempts that a run still has to play."""

    num_attempts: int
    max_turns: int
    """The most requests of an attempt. The numbers below count the first one only."""
    prompt_tokens: int
    """About; `CHARACTERS_PER_TOKEN` characters count as one. Media are not counted."""
    max_completion_tokens: int | None
    """None: no `max_tokens` limits the answers of some tasks."""
    prompt_cost: float | None
    """None, as the other costs: the prices are unknown."""
    max_cost: float | None
    roles: list[str]
    """Other models that are asked, whose tokens are not counted."""
    has_media: bool
    as_on_record: Usage | None
    """What the attempts take in all turns if they are like those on record; None: there are none.
    """
    cost_as_on_record: float | None
    spent: Usage
    """By the policy, in earlier commands of the run."""
    spent_cost: float

    @property
    def unbounded(self) -> str:
        """Why the tokens have no upper bound, in words; empty if they have one."""
        if self.max_completion_tokens is None:
            return "answers have no max_tokens"
        if self.max_turns > 1:
            return f"an attempt may have {self.max_turns} turns"
        if self.roles:
            return f"the model of the {' and of the '.join(self.roles)} is not counted"
        return "media are not counted" if self.has_media else ""


class _Prompts(NamedTuple):
    """What the first attempt in an environment shows about the others."""

    num_more_characters: int
    """What the environment adds to the prompt of a row."""
    max_turns: int
    has_media: bool


class _FirstRequest:
    """A policy that stores the first request and refuses to answer."""

    request: Request | None = None

    async def answer(self, request: Request) -> Answer:
        self.request = request
        raise ModelError("a dry run sends no requests")


async def first_request(plan: RunPlan, env: str | None = None) -> Request:
    """Return the first request, in an environment or in all, without sending it.

    Raises:
        RunError: The first attempt cannot start.
    """
    first = plan.first(env)
    with boundary(RoleError):
        # A dry run sends no request, so scripted models play the roles that `setup` may ask.
        stand_ins = first.environment.stand_ins(first.environment.parse_task(first.row.fields))
    policy = _FirstRequest()
    try:
        await play(msgspec.structs.replace(first, roles=stand_ins), policy)
    except EpisodeFailedError as failed:
        if policy.request is None:
            raise RunError(f"the first attempt cannot start: {failed}") from failed.error
    assert policy.request is not None, "an episode starts with a request"
    return policy.request


async def estimate(plan: RunPlan, state: ResumeState) -> RunEstimate:
    """Return the estimate for what is left of a run.

    Raises:
        RunError: The first attempt in an environment cannot start.
    """
    options = plan.options
    endpoint = options.endpoint
    prompts: dict[str, _Prompts] = {}
    num_characters = 0
    has_media = False
    limits: list[int | None] = []
    defaults = endpoint.params if endpoint is not None else {}
    for row in plan.rows():
        if row.env not in prompts:
            request = await first_request(plan, row.env)
            prompts[row.env] = _prompts_of(plan.first(row.env), request)
        has_media = has_media or any(map(_has_media, row.messages))
        num_characters += _num_characters(row.messages) + prompts[row.env].num_more_characters
        limits.append(max_answer_tokens(merged_params(defaults, row.params, options.params)))
    share = state.num_left / max(1, len(limits))
    prompt_tokens = math.ceil(share * num_characters / CHARACTERS_PER_TOKEN)
    bound = max_cost = None
    known_limits = [limit for limit in limits if limit is not None]
    if len(known_limits) == len(limits):
        bound = math.ceil(share * sum(known_limits))
        max_cost = _cost(endpoint, Usage(prompt_tokens=prompt_tokens, completion_tokens=bound))
    spent, recorded = Usage(), None
    if plan.path is not None and plan.path.is_dir():
        spent = spent_on_record(plan.path).policy
        if state.num_scored:
            ratio = state.num_left / state.num_scored
            counts: Mapping[str, int] = msgspec.structs.asdict(spent)
            recorded = Usage(**{name: math.ceil(ratio * count) for name, count in counts.items()})
    return RunEstimate(
        num_attempts=state.num_left,
        max_turns=max((prompt.max_turns for prompt in prompts.values()), default=1),
        prompt_tokens=prompt_tokens,
        max_completion_tokens=bound,
        prompt_cost=_cost(endpoint, Usage(prompt_tokens=prompt_tokens)),
        max_cost=max_cost,
        roles=sorted(plan.manifest.roles),
        has_media=has_media or any(prompt.has_media for prompt in prompts.values()),
        as_on_record=recorded,
        cost_as_on_record=None if recorded is None else _cost(endpoint, recorded),
        spent=spent,
        spent_cost=_cost(endpoint, spent) or 0.0,
    )


class BudgetForecast(msgspec.Struct, kw_only=True):
    """A budget of a command, and what its runs take of it."""

    option: str
    limit: float
    at_least: float
    """With what earlier commands spent; about, since the prompts are estimated."""
    at_most: float | None
    """None: there is no upper bound."""
    unbounded: str
    """Why there is none, in words."""
    fits: bool | None = None
    """Whether the budget leaves the runs to their end; None: that is not known."""

    def __post_init__(self) -> None:
        if self.at_least > self.limit:
            self.fits = False
        elif self.at_most is not None and self.at_most <= self.limit:
            self.fits = True


def budget_forecasts(
    options: CollectOptions, estimates: Sequence[RunEstimate]
) -> list[BudgetForecast]:
    """Return what all runs of a command take of the budgets that they share."""
    if not any(run.num_attempts for run in estimates):
        return []
    unbounded = "; ".join(dict.fromkeys(filter(None, (run.unbounded for run in estimates))))
    bounds = {
        "--max-tokens-total": (
            options.max_tokens_total,
            sum(_num_tokens(run.spent) + run.prompt_tokens for run in estimates),
            sum(run.max_completion_tokens or 0 for run in estimates),
        ),
        "--max-cost": (
            options.max_cost,
            math.fsum(run.spent_cost + (run.prompt_cost or 0.0) for run in estimates),
            math.fsum((run.max_cost or 0.0) - (run.prompt_cost or 0.0) for run in estimates),
        ),
    }
    return [
        BudgetForecast(
            option=option,
            limit=limit,
            at_least=at_least,
            at_most=None if unbounded else at_least + answers,
            unbounded=unbounded,
        )
        for option, (limit, at_least, answers) in bounds.items()
        if limit is not None
    ]


def _prompts_of(plan: EpisodePlan, request: Request) -> _Prompts:
    environment = plan.environment
    tools = len(msgspec.json.encode(request.tools)) if request.tools else 0
    overrides = (
        environment.step is not Environment.step or environment.reply is not Environment.reply
    )
    is_single = not overrides and not (request.tools and environment.executes_tools)
    max_turns = plan.max_turns or plan.row.max_turns or environment.max_turns or DEFAULT_MAX_TURNS
    return _Prompts(
        tools + _num_characters(request.messages) - _num_characters(plan.row.messages),
        1 if is_single else max_turns,
        any(_has_media(message) for message in request.messages),
    )


def _num_characters(messages: Sequence[Message]) -> int:
    return sum(len(message.text) for message in messages)


def _has_media(message: Message) -> bool:
    content = message.content
    return isinstance(content, list) and any("text" not in part for part in content)


def _num_tokens(usage: Usage) -> int:
    return usage.prompt_tokens + usage.completion_tokens


def _cost(endpoint: Endpoint | None, usage: Usage) -> float | None:
    return None if endpoint is None else endpoint.cost(usage)
