"""`gym collect --dry-run`: print what a run would do, take and send."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gymcli.commands.console import one_line, print_json, result, warn
from gymcli.commands.signals import run_async
from gymcli.reporting.formatting import counted, settings_text

if TYPE_CHECKING:
    from gymcli.runner.cost_estimate import BudgetForecast, RunEstimate
    from gymcli.runner.plan import RunPlan
    from gymcli.runner.resume_state import ResumeState
    from gymcli.store.manifest import Manifest


def show_plans(plans: Sequence[RunPlan], *, is_json: bool) -> None:
    """Print the plan of each run, what it will take, and the body of its first request."""
    import msgspec

    from gymcli.runner.cost_estimate import budget_forecasts, estimate
    from gymcli.runner.resume_state import existing_state

    states = list(map(existing_state, plans))
    texts = [text for plan in plans for text in plan.warnings]
    texts += [text for state in states for text in state.warnings]
    for text in dict.fromkeys(texts):
        warn(text)
    # The oracle sends no request.
    estimates = [
        None if plan.options.model == "oracle" else run_async(estimate(plan, state))
        for plan, state in zip(plans, states, strict=True)
    ]
    budgets = budget_forecasts(
        plans[0].options, [estimated for estimated in estimates if estimated is not None]
    )
    if is_json:
        objects = list(map(_plan_object, plans, states, estimates))
        report = objects[0] if len(objects) == 1 else {"runs": objects}
        print_json({**report, **({"budgets": msgspec.to_builtins(budgets)} if budgets else {})})
        return
    for number, items in enumerate(zip(plans, states, estimates, strict=True)):
        if number:
            result()
        _show_plan(*items)
    if budgets:
        result()
        for budget in budgets:
            result(f"budget        {_budget_text(budget)}")


def _plan_object(
    plan: RunPlan, state: ResumeState, estimated: RunEstimate | None
) -> dict[str, object]:
    import msgspec

    manifest, options = state.manifest, plan.options
    request = msgspec.Raw(_first_body(plan)) if plan.num_expected else None
    benchmark = manifest.benchmark
    return {
        **({} if benchmark is None else {"benchmark": msgspec.to_builtins(benchmark)}),
        "plan": {
            "tasks": manifest.tasks,
            "num_tasks": manifest.num_tasks,
            "shard": manifest.shard or None,
            "repeats": options.repeats,
            "num_expected": plan.num_expected,
            "num_scored": state.num_scored,
            "num_left": state.num_left,
            "environments": list(manifest.environments),
            "model": manifest.model,
            "base_url": options.endpoint.base_url if options.endpoint else None,
            "run": str(plan.path),
        },
        **({} if estimated is None else {"estimate": msgspec.to_builtins(estimated)}),
        "request": request,
    }


def _show_plan(plan: RunPlan, state: ResumeState, estimated: RunEstimate | None) -> None:
    manifest, options = state.manifest, plan.options
    if manifest.benchmark is not None:
        result(f"benchmark     {manifest.benchmark.name} {manifest.benchmark.version}")
        for text in benchmark_texts(manifest):
            result(f"              {one_line(text)}")
    files = ", ".join(
        f"{file['path']} ({file['num_rows']} {'row' if file['num_rows'] == 1 else 'rows'})"
        for file in manifest.tasks
    )
    result(f"tasks         {files}")
    repeats = f", {options.repeats} of each" if options.repeats > 1 else ""
    tasks = counted(manifest.num_tasks, "task")
    result(f"attempts      {plan.num_expected} of {tasks}{repeats}")
    if manifest.shard:
        result(f"shard         {manifest.shard}")
    if state.num_scored:
        result(f"scored        {state.num_scored}, left {state.num_left}")
    result(f"environments  {', '.join(manifest.environments)}")
    place = options.endpoint.base_url if options.endpoint else "on this machine"
    result(f"model         {manifest.model} ({place})")
    result(f"run           {plan.path}")
    if estimated is not None and state.num_left:
        for text in _estimate_texts(estimated, is_endpoint=options.endpoint is not None):
            result(text)
    if plan.num_expected:
        result()
        result("first request (not sent):")
        print_json(_first_body(plan))


def _estimate_texts(estimated: RunEstimate, *, is_endpoint: bool) -> Iterator[str]:
    """Yield the lines about the tokens and the cost of a run."""
    from gymcli.runner.cost_estimate import CHARACTERS_PER_TOKEN

    limit = estimated.max_completion_tokens
    answers = "unlimited without --max-tokens" if limit is None else f"at most {limit:,}"
    prompts = f"about {estimated.prompt_tokens:,} ({CHARACTERS_PER_TOKEN} characters a token)"
    yield f"tokens        prompts {prompts}, answers {answers}"
    if estimated.max_turns > 1:
        yield f"              only the first turns: an attempt may have {estimated.max_turns}"
    if estimated.has_media:
        yield "              without media, such as images"
    if estimated.roles:
        yield f"              without those of the {' and of the '.join(estimated.roles)}"
    recorded = estimated.as_on_record
    if recorded is not None:
        yield (
            f"              at the rate of the attempts on record: prompts "
            f"{recorded.prompt_tokens:,}, answers {recorded.completion_tokens:,}"
        )
    if estimated.prompt_cost is None:
        if is_endpoint:
            yield "cost          unknown: the model has no prices in gym.toml"
        return
    text = f"prompts about {estimated.prompt_cost:.4g}"
    if estimated.max_cost is not None:
        text += f", with the longest answers {estimated.max_cost:.4g}"
    yield f"cost          {text}"
    if estimated.cost_as_on_record is not None:
        cost = f"{estimated.cost_as_on_record:.4g}"
        yield f"              at the rate of the attempts on record: {cost}"


def _budget_text(forecast: BudgetForecast) -> str:
    style = ",.0f" if forecast.option == "--max-tokens-total" else ".4g"
    text = f"{forecast.option} {forecast.limit:{style}}"
    if forecast.fits is False:
        least = f"about {forecast.at_least:{style}} or more"
        return f"{text} will probably end the run early: it takes {least}"
    text += " is enough" if forecast.fits else " may end the run early"
    if forecast.at_most is None:
        return f"{text}: there is no upper bound, since {forecast.unbounded}"
    return f"{text}: the upper bound is about {forecast.at_most:{style}}"


def _first_body(plan: RunPlan) -> bytes:
    from gymcli.models.client import Client
    from gymcli.models.endpoint import Endpoint
    from gymcli.runner.cost_estimate import first_request
    from gymcli.runner.identity import emulates_tools

    options = plan.options
    endpoint = options.endpoint or Endpoint(
        base_url="http://127.0.0.1",
        model=plan.manifest.model,
        emulate_tools=emulates_tools(options),
    )
    return Client(endpoint, concurrency=1).payload(run_async(first_request(plan)))


def benchmark_texts(manifest: Manifest) -> Iterator[str]:
    """Yield the settings, then the numbers of tasks and attempts, that are not the benchmark's."""
    record = manifest.benchmark
    if record is not None:
        remarks = "; ".join(record.remarks)
        yield from filter(None, (settings_text(record.name, record.deviations), remarks))
