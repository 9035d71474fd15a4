"""Tests of the estimate of tokens and cost before a run."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from gymcli.benchmarks.resolution import task_inputs
from gymcli.mock import MockAnswer
from gymcli.models.endpoint import Endpoint
from gymcli.runner.collect_options import CollectOptions
from gymcli.runner.cost_estimate import RunEstimate, budget_forecasts, estimate, first_request
from gymcli.runner.plan import RunPlan, plan_run
from gymcli.runner.resume_state import existing_state
from gymcli.types import Usage
from tests.builders import collect_all, write_rows

PRICES = {"prompt": 1e6, "completion": 2e6}
"""A token of a prompt costs 1, one of an answer 2."""


def endpoint(**options) -> Endpoint:
    return Endpoint(base_url="http://127.0.0.1:9/v1", model="m", **options)


def plan(tasks: Path, *, model: Endpoint | None = None, **options) -> RunPlan:
    collect = CollectOptions(model="m", endpoint=model or endpoint(prices=PRICES), **options)
    return plan_run(task_inputs([tasks]), collect, has_directory=collect.out is not None)


def estimate_plan(run: RunPlan) -> RunEstimate:
    return asyncio.run(estimate(run, existing_state(run)))


def estimate_of(tasks: Path, **options) -> RunEstimate:
    return estimate_plan(plan(tasks, **options))


@pytest.fixture
def write(tmp_path):
    """Return a function that writes rows to a tasks file."""

    def write_prompts(*rows, env="arithmetic"):
        path = tmp_path / "tasks.jsonl"
        lines = ({"id": str(n), "env": env, "answer": 1, **row} for n, row in enumerate(rows))
        write_rows(path, lines)
        return path

    return write_prompts


def test_four_characters_count_as_a_token(write):
    tasks = write({"prompt": "x" * 40}, {"prompt": "x" * 80})
    found = estimate_of(tasks, params={"max_tokens": 7}, repeats=3)
    assert (found.num_attempts, found.max_turns) == (6, 1)
    assert (found.prompt_tokens, found.max_completion_tokens) == (3 * (10 + 20), 3 * 2 * 7)
    assert (found.prompt_cost, found.max_cost) == (90.0, 90.0 + 2 * 42)
    assert (found.unbounded, found.as_on_record, found.spent) == ("", None, Usage())


def test_a_selection_counts_its_own_tasks(write):
    tasks = write({"prompt": "x" * 40}, {"prompt": "x" * 80})
    assert estimate_of(tasks, limit=1).prompt_tokens == 10
    assert estimate_of(tasks, task_ids=("1",)).prompt_tokens == 20


@pytest.mark.parametrize(
    ("of_endpoint", "of_rows", "of_command", "expected"),
    [
        ({}, [{}, {}], {}, None),
        ({"max_tokens": 5}, [{}, {}], {}, 10),
        ({"max_tokens": 5}, [{"max_completion_tokens": 8}, {}], {}, 13),
        ({"max_tokens": 5}, [{"max_tokens": 8}, {}], {"max_output_tokens": 2}, 4),
        ({}, [{"max_tokens": 8}, {}], {}, None),
    ],
)
def test_the_limit_of_answers_is_that_of_each_request(
    write, of_endpoint, of_rows, of_command, expected
):
    tasks = write(*({"prompt": "x", "params": params} for params in of_rows))
    found = estimate_of(tasks, model=endpoint(params=of_endpoint, prices=PRICES), params=of_command)
    assert found.max_completion_tokens == expected
    assert (found.max_cost is None) == (expected is None)
    assert found.unbounded == ("answers have no max_tokens" if expected is None else "")


def test_costs_are_unknown_without_prices(write):
    found = estimate_of(write({"prompt": "x" * 9}), model=endpoint(), params={"max_tokens": 7})
    assert (found.prompt_tokens, found.max_completion_tokens) == (3, 7)
    assert (found.prompt_cost, found.max_cost, found.spent_cost) == (None, None, 0.0)


def test_tools_and_what_the_environment_adds_are_part_of_the_prompt():
    """The tasks of this environment bring no tools; the environment shows them."""
    found = estimate_plan(_shipped("example_multi_step", limit=1))
    request = asyncio.run(first_request(_shipped("example_multi_step", limit=1)))
    texts = sum(len(message.text) for message in request.messages)
    tools = len(msgspec.json.encode(request.tools))
    assert request.tools
    assert found.prompt_tokens == -(-(texts + tools) // 4)
    assert found.max_turns == 32
    assert estimate_plan(_shipped("example_multi_step", limit=1, max_turns=3)).max_turns == 3


def _shipped(env: str, **options) -> RunPlan:
    params = {"max_tokens": 5}
    return plan(Path(env), params=params, **options)


@pytest.mark.parametrize(
    ("env", "reason"),
    [
        ("mcqa", ""),
        ("example_multi_step", "an attempt may have 32 turns"),
        ("circle_count", "media are not counted"),
    ],
)
def test_why_there_is_no_upper_bound_is_said(env, reason):
    assert estimate_plan(_shipped(env, limit=2)).unbounded == reason


def test_a_judge_is_not_counted():
    judge = {"judge": endpoint(prices=PRICES)}
    found = estimate_plan(_shipped("equivalence_llm_judge", limit=2, roles=judge))
    assert found.roles == ["judge"]
    assert found.unbounded == "the model of the judge is not counted"


def test_rows_of_several_environments_count_with_the_additions_of_their_own(write, tmp_path):
    tasks = write({"prompt": "x" * 40}, {"prompt": "x" * 40, "env": "example_single_tool_call"})
    found = estimate_of(tasks)
    alone = [estimate_of(tasks, task_ids=(name,)) for name in "01"]
    assert found.prompt_tokens == sum(one.prompt_tokens for one in alone)
    assert alone[1].prompt_tokens > alone[0].prompt_tokens == 10
    assert found.max_turns == 32


def test_what_is_left_is_estimated_by_what_is_on_record_too(write, tmp_path):
    tasks = write(*({"prompt": f"What is {n} + 1?"} for n in range(4)))
    run = tmp_path / "run"
    answer = MockAnswer(text="1", usage=Usage(prompt_tokens=30, completion_tokens=5))
    options = {"out": run, "params": {"max_tokens": 7}}
    collect_all(tasks, lambda _: answer, limit=1, **options)
    found = estimate_of(tasks, **options)
    assert (found.num_attempts, found.max_completion_tokens) == (3, 21)
    assert found.prompt_tokens == 11  # 3 of 14 characters each
    assert found.spent == Usage(prompt_tokens=30, completion_tokens=5)
    assert found.as_on_record == Usage(prompt_tokens=90, completion_tokens=15)
    assert (found.spent_cost, found.cost_as_on_record) == (40.0, 120.0)
    complete = estimate_of(tasks, limit=1, **options)
    assert (complete.num_attempts, complete.prompt_tokens) == (0, 0)


@pytest.mark.parametrize(
    ("budgets", "params", "expected"),
    [
        ({}, {"max_tokens": 5}, []),
        ({"max_cost": 100.0}, {"max_tokens": 5}, [("--max-cost", 40.0, 60.0, True)]),
        ({"max_cost": 60.0}, {"max_tokens": 5}, [("--max-cost", 40.0, 60.0, True)]),
        ({"max_cost": 50.0}, {"max_tokens": 5}, [("--max-cost", 40.0, 60.0, None)]),
        ({"max_cost": 30.0}, {"max_tokens": 5}, [("--max-cost", 40.0, 60.0, False)]),
        ({"max_cost": 50.0}, {}, [("--max-cost", 40.0, None, None)]),
        ({"max_cost": 30.0}, {}, [("--max-cost", 40.0, None, False)]),
        (
            {"max_tokens_total": 45, "max_cost": 60.0},
            {"max_tokens": 5},
            [("--max-tokens-total", 40.0, 50.0, None), ("--max-cost", 40.0, 60.0, True)],
        ),
    ],
)
def test_a_budget_is_compared_with_the_bounds(write, budgets, params, expected):
    """Two models share the budget."""
    tasks = write({"prompt": "x" * 80})
    runs = [plan(tasks, params=params, **budgets) for _ in range(2)]
    forecasts = budget_forecasts(runs[0].options, [estimate_plan(run) for run in runs])
    assert [(one.option, one.at_least, one.at_most, one.fits) for one in forecasts] == expected
    assert all(bool(one.unbounded) == (one.at_most is None) for one in forecasts)


def test_a_budget_counts_what_is_spent(write, tmp_path):
    tasks = write(*({"prompt": "x" * 40} for n in range(2)))
    answer = MockAnswer(text="1", usage=Usage(prompt_tokens=30, completion_tokens=5))
    options = {"out": tmp_path / "run", "params": {"max_tokens": 7}}
    collect_all(tasks, lambda _: answer, limit=1, **options)
    run = plan(tasks, max_tokens_total=50, **options)
    (forecast,) = budget_forecasts(run.options, [estimate_plan(run)])
    assert (forecast.at_least, forecast.at_most, forecast.fits) == (45.0, 52.0, None)


def test_a_complete_run_has_no_forecast(write, tmp_path):
    """It needs no budget, whatever it has spent."""
    tasks = write({"prompt": "x"})
    answer = MockAnswer(text="1", usage=Usage(prompt_tokens=30, completion_tokens=5))
    collect_all(tasks, lambda _: answer, out=tmp_path / "run")
    run = plan(tasks, max_tokens_total=10, out=tmp_path / "run")
    assert budget_forecasts(run.options, [estimate_plan(run)]) == []
    assert budget_forecasts(run.options, []) == []
