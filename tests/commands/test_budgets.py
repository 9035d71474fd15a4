"""Tests of budgets of runs, limits of episodes, recorded costs, and `--no-retry`."""

import itertools
import shutil
from pathlib import Path

import msgspec
import pytest

from gymcli.mock import MockAnswer
from gymcli.mock.behaviours import last_user_text, num_turns, refusal_of
from gymcli.types import Usage
from tests.builders import FLAKY, add_up, gym, lines_of, write_sums

TWENTY = Usage(prompt_tokens=15, completion_tokens=5)
PATIENCE = ("0.5", "3", "30", "300")
"""Limits that are tried one after another: one of them is long enough on any machine."""
NO_USAGE = '{"choices": [{"message": {"role": "assistant", "content": "It is 1."}}]}'


def priced(request) -> MockAnswer:
    """Answer a sum correctly and report twenty tokens of usage."""
    return MockAnswer(text=add_up(request).text, usage=TWENTY)


@pytest.fixture
def ask(working_folder, mock_server):
    """Return the arguments that collect ten sums, one at a time, at twenty tokens each."""
    mock_server.behaviour = priced
    tasks = write_sums(Path("sums.jsonl"), 10)
    where = ("--model", "m", "--base-url", mock_server.base_url)
    return ("collect", tasks, *where, "--concurrency", "1", "--out", "run")


@pytest.fixture
def ask_priced(ask, mock_server):
    """Return the same for a model with prices: 15 + 10 millionths make 25 per rollout."""
    Path("gym.toml").write_text(
        f'[models.dear]\nbase_url = "{mock_server.base_url}"\nmodel = "m"\n'
        "prices = { prompt = 1.0, completion = 2.0 }\n"
    )
    return ("collect", "sums.jsonl", "--model", "dear", "--concurrency", "1", "--out", "run")


def scored() -> int:
    path = Path("run/rollouts.jsonl")
    return len(lines_of(path)) if path.is_file() else 0


def test_a_budget_of_tokens_stops_the_run(ask, mock_server):
    """Tokens of earlier commands count; with a larger budget the run completes."""
    done = gym(*ask, "--max-tokens-total", "90", exit_code=6)
    assert (scored(), mock_server.num_requests) == (5, 5)
    assert "mean reward" in done.stdout
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        "the budget --max-tokens-total 90 is reached, 100 tokens are spent; "
        "5 of 10 attempts are scored; resume, with a larger budget if it was too small: gym "
    )
    assert (gym(*ask, "--max-tokens-total", "90").exit_code, mock_server.num_requests) == (6, 5)
    assert (gym(*ask, "--max-tokens-total", "140").exit_code, scored()) == (6, 7)
    gym(*ask, "--max-tokens-total", "200", exit_code=0)
    assert (scored(), mock_server.num_requests) == (10, 10)
    gym(*ask, "--max-tokens-total", "20", exit_code=0)


def test_a_budget_is_overshot_by_no_more_than_is_in_flight(ask, mock_server):
    line = (*ask, "--concurrency", "4", "--max-tokens-total", "60", "--min-coverage", "0")
    gym(*line, exit_code=6)
    assert 3 <= mock_server.num_requests <= 3 + 3
    assert scored() == mock_server.num_requests


def test_a_budget_counts_roles(working_folder, mock_server):
    Path("t.jsonl").write_text("".join(f'{{"id": "t{n}", "prompt": "Go {n}."}}\n' for n in "abcd"))
    mock_server.behaviour = lambda request: MockAnswer(
        text=f"[[GOOD]] {last_user_text(request)}", usage=TWENTY
    )
    where = ("--model", "m", "--base-url", mock_server.base_url, "--concurrency", "1")
    env = ("--env", "tests.runner.environments:Judged")
    role = ("--role", f"judge={mock_server.base_url}#j")
    line = ("collect", "t.jsonl", *where, *env, *role, "--out", "run")
    done = gym(*line, "--max-tokens-total", "80")
    assert (done.exit_code, scored(), mock_server.num_requests) == (6, 2, 4)
    again = gym(*line, "--max-tokens-total", "80")
    assert (again.exit_code, mock_server.num_requests) == (6, 4)
    assert "80 tokens are spent" in again.stderr


def test_a_budget_of_money_stops_the_run(ask_priced, mock_server):
    done = gym(*ask_priced, "--max-cost", "0.00006")
    assert (done.exit_code, scored()) == (6, 3)
    assert "--max-cost 6e-05 is reached, a cost of 7.5e-05 is spent" in done.stderr
    assert (gym(*ask_priced, "--max-cost", "0.00006").exit_code, mock_server.num_requests) == (6, 3)
    gym(*ask_priced, "--max-cost", "1", exit_code=0)


def test_a_budget_of_money_needs_prices(ask, ask_priced, mock_server):
    for option in ("--max-cost", "--max-episode-cost"):
        done = gym(*ask, option, "1", exit_code=2)
        assert f"{option}: the price of the model m is unknown" in done.stderr
        assert '[models."m"] prices = ' in done.stderr
    judged = ("--env", "tests.runner.environments:Judged")
    Path("t.jsonl").write_text('{"prompt": "Go."}\n')
    role = ("--role", f"judge={mock_server.base_url}#j", *judged)
    done = gym("collect", "t.jsonl", *ask_priced[2:], *role, "--max-cost", "1", exit_code=2)
    assert "--max-cost: the price of the judge j is unknown" in done.stderr
    assert mock_server.num_requests == 0
    gym("collect", "arithmetic", "--model", "local", "--max-cost", "1", exit_code=2)
    gym(
        "collect", "arithmetic", "--model", "oracle", "--max-cost", "1", "--limit", "2", exit_code=0
    )


def test_the_time_of_a_run_ends_it(ask, mock_server):
    """Attempts in flight at that moment are recorded as cut off by a budget."""
    mock_server.behaviour = lambda _: MockAnswer(fault="stall")
    for seconds in PATIENCE:
        before = mock_server.num_requests
        shutil.rmtree("run", ignore_errors=True)
        done = gym(
            *ask, "--max-run-time", seconds, "--grace", "0", "--concurrency", "3", exit_code=6
        )
        assert f"the {seconds} seconds of --max-run-time are over; 0 of 10" in done.stderr
        # On a busy machine the time may be over before all three are asked.
        if mock_server.num_requests - before == 3:
            break
    failures = lines_of(Path("run/failures.jsonl"))
    assert [line["error"]["class"] for line in failures] == ["BudgetAttemptError"] * 3
    mock_server.behaviour = priced
    gym(*ask, "--no-retry", exit_code=0)


@pytest.mark.parametrize(
    "option", ["--max-cost", "--max-run-time", "--max-episode-time", "--grace", "--outage-deadline"]
)
@pytest.mark.parametrize("value", ["nan", "inf", "-1"])
def test_limits_are_numbers(ask, option, value):
    assert "is not a number" in gym(*ask, option, value, exit_code=2).stderr


@pytest.fixture
def ask_in_turns(working_folder, mock_server):
    """Return the arguments of three episodes that the model never ends."""
    Path("asking.py").write_text(
        "from gymcli import Context, Environment, Rollout, Score, Task\n\n\n"
        "class Asking(Environment[Task]):\n"
        '    """Go on."""\n\n'
        "    async def reply(self, rollout: Rollout) -> str:\n"
        '        return "Go on."\n\n'
        "    @classmethod\n"
        "    async def verify(cls, rollout: Rollout, context: Context) -> Score:\n"
        '        return Score(float(sum(m.role == "assistant" for m in rollout.messages)))\n'
    )
    Path("t.jsonl").write_text("".join(f'{{"id": "t{n}", "prompt": "Go."}}\n' for n in range(3)))
    mock_server.behaviour = lambda _: MockAnswer(text="I go.", usage=TWENTY)
    Path("gym.toml").write_text(
        f'[models.dear]\nbase_url = "{mock_server.base_url}"\nmodel = "m"\n'
        "prices = { prompt = 1.0, completion = 2.0 }\n"
    )
    return ("collect", "t.jsonl", "--model", "dear", "--env", "asking.py:Asking")


@pytest.mark.parametrize(
    ("limit", "stop_reason"),
    [
        (("--max-episode-tokens", "41"), "episode_tokens"),
        (("--max-episode-cost", "0.00006"), "episode_cost"),
    ],
)
def test_a_limit_of_an_episode_ends_it_and_it_is_scored(ask_in_turns, limit, stop_reason):
    """The episode ends after the turn that reached the limit, and that turn is still answered."""
    gym(*ask_in_turns, *limit, "--out", "run", exit_code=0)
    for line in lines_of(Path("run/rollouts.jsonl")):
        assert (line["stop_reason"], line["reward"]) == (stop_reason, 3.0)
        assert line["messages"][-1] == {"role": "user", "content": "Go on."}
        assert line["cost"] == pytest.approx(75e-6)
    other = gym(*ask_in_turns, "--out", "run", exit_code=2)
    assert limit[0].removeprefix("--").replace("-", "_") in other.stderr


def test_the_time_of_an_episode_cuts_a_request_off(ask_in_turns, mock_server):
    def behave(request):
        is_second = num_turns(request) == 1
        return MockAnswer(text="I go.", usage=TWENTY, fault="stall" if is_second else None)

    mock_server.behaviour = behave
    for seconds in PATIENCE:
        shutil.rmtree("run", ignore_errors=True)
        done = gym(*ask_in_turns, "--max-episode-time", seconds, "--out", "run")
        if done.exit_code == 0:
            break
    for line in lines_of(Path("run/rollouts.jsonl")):
        assert (line["stop_reason"], line["reward"]) == ("episode_time", 1.0)
    assert not Path("run/failures.jsonl").exists()


def test_what_a_run_costs_is_on_record(ask_priced):
    done = gym(*ask_priced)
    told = "cost          0.0003 (tokens and cost of the last try of each attempt)\n"
    assert told in done.stdout
    assert {line["cost"] for line in lines_of(Path("run/rollouts.jsonl"))} == {25e-6}
    metrics = msgspec.json.decode(gym("metrics", "run", "--json").stdout)
    assert metrics["cost"] == metrics["environments"]["arithmetic"]["cost"]
    assert metrics["cost"] == pytest.approx(250e-6)


def test_what_failures_cost_is_counted(ask_in_turns, mock_server):
    """A failed attempt costs nothing before its first answer, and its tokens after it."""

    def behave(request):
        if num_turns(request) == 1 or len(mock_server.requests) == 1:
            return refusal_of(400, "no")
        return MockAnswer(text="I go.", usage=TWENTY)

    mock_server.behaviour = behave
    gym(*ask_in_turns, "--concurrency", "1", "--out", "run")
    costs = [line.get("cost") for line in lines_of(Path("run/failures.jsonl"))]
    assert costs == [0.0, 25e-6, 25e-6]
    assert msgspec.json.decode(Path("run/metrics.json").read_bytes())["cost"] == 50e-6


def test_a_cost_without_prices_or_usage_is_unknown(ask, ask_priced, mock_server):
    """The cost is left out, never 0, without prices or when an answer lacks its usage."""
    assert "cost" not in gym(*ask).stdout
    assert msgspec.json.decode(Path("run/metrics.json").read_bytes())["cost"] is None
    numbers = itertools.count()

    def behave(request):
        return MockAnswer(body=NO_USAGE) if next(numbers) == 3 else priced(request)

    mock_server.behaviour = behave
    line = [*ask_priced[:-1], "other"]
    assert "cost" not in gym(*line).stdout
    costs = [row.get("cost") for row in lines_of(Path("other/rollouts.jsonl"))]
    assert costs.count(None) == 1


def test_a_budget_stops_the_run_at_an_answer_without_usage(ask, ask_priced, mock_server):
    """One answer without usage is enough, even after others that reported theirs."""
    numbers = itertools.count()

    def behave(request):
        return MockAnswer(body=NO_USAGE) if next(numbers) % 3 == 2 else priced(request)

    mock_server.behaviour = behave
    done = gym(*ask, "--max-tokens-total", "1000")
    assert (done.exit_code, scored(), mock_server.num_requests) == (6, 3, 3)
    assert (
        "an answer did not report its token usage, so --max-tokens-total cannot be enforced; "
        "leave the option out to continue without the limit; 3 of 10 attempts are scored; resume"
    ) in done.stderr
    again = gym(*ask_priced[:-1], "other", "--max-cost", "1")
    assert (again.exit_code, mock_server.num_requests) == (6, 6)
    assert "so --max-cost cannot be enforced" in again.stderr
    gym(*ask, exit_code=0)


def test_an_unenforced_budget_is_reported_when_no_attempt_is_left(ask, mock_server):
    """All attempts are in flight when the first answer arrives without usage."""
    mock_server.behaviour = lambda _: MockAnswer(body=NO_USAGE)
    done = gym(*ask, "--concurrency", "10", "--max-tokens-total", "3", "--min-coverage", "0")
    assert (done.exit_code, scored()) == (6, mock_server.num_requests)
    assert "--max-tokens-total cannot be enforced" in done.stderr
    assert ("; resume" in done.stderr) == (scored() < 10)


@pytest.mark.parametrize("limit", ["--max-episode-tokens", "--max-episode-cost"])
def test_a_limit_of_an_episode_needs_answers_with_usage(ask_in_turns, mock_server, limit):
    mock_server.behaviour = lambda _: MockAnswer(body=NO_USAGE)
    gym(*ask_in_turns, limit, "1000", "--out", "run", exit_code=4)
    for line in lines_of(Path("run/failures.jsonl")):
        assert (line["error"]["class"], line["error"]["phase"]) == ("UnknownUsageError", "model")
        assert f"so {limit} cannot be enforced" in line["error"]["message"]
        assert [message["role"] for message in line["messages"]] == ["user", "assistant", "user"]
    assert mock_server.num_requests == 3
    assert not scored()


def test_the_time_of_an_episode_scores_nothing_after_endpoint_failures(ask, mock_server):
    """An endpoint that fails and then stalls says nothing about the model: no reward, not 0."""
    asked = set()

    def behave(request):
        text = last_user_text(request)
        if text in asked:
            return MockAnswer(fault="stall")
        asked.add(text)
        return refusal_of(500, "no")

    mock_server.behaviour = behave
    line = (*ask, "--limit", "3", "--concurrency", "3", "--max-episode-time", "0.3")
    gym(*line, exit_code=4)
    failures = lines_of(Path("run/failures.jsonl"))
    assert [(f["error"]["class"], f["retries"]) for f in failures] == [
        ("EndpointTimeoutError", {"ServerError": 1})
    ] * 3
    assert not scored()


def test_a_budget_counts_unusable_answers(ask, mock_server):
    """They were requested, so they are paid for."""
    numbers = itertools.count()
    useless = MockAnswer(body='{"choices": [], "usage": {"prompt_tokens": 16}}')
    mock_server.behaviour = lambda request: useless if next(numbers) == 0 else priced(request)
    gym(*ask, "--max-tokens-total", "36", exit_code=6)
    (line,) = lines_of(Path("run/rollouts.jsonl"))
    assert line["usage"]["prompt_tokens"] == 15 + 16
    assert line["retries"] == {"InvalidAnswerError": 1}


def test_the_last_answer_of_an_episode_needs_no_usage(ask, mock_server):
    """After the last request there is nothing left to limit."""
    mock_server.behaviour = lambda _: MockAnswer(body=NO_USAGE)
    gym(*ask, "--max-episode-tokens", "1000", exit_code=0)


def test_no_retry_leaves_what_failed(ask, mock_server):
    """Only missing attempts run, and the exit code is that of the whole run."""

    def behave(request):
        return refusal_of(400, "no") if "9 + 1" in last_user_text(request) else priced(request)

    mock_server.behaviour = behave
    gym(*ask, "--limit", "8", exit_code=0)
    gym(*ask, exit_code=4)
    assert mock_server.num_requests == 10
    mock_server.behaviour = priced
    done = gym(*ask, "--no-retry")
    assert (done.exit_code, mock_server.num_requests) == (4, 10)
    assert (
        "9 attempts are already scored, 1 failed earlier and are not retried (--no-retry)"
        in done.stderr
    )
    again = done.stderr.partition("retry with: gym collect ")[2]
    assert again
    assert "--no-retry" not in again
    gym(*ask, "--no-retry", "--min-coverage", "0.9", exit_code=0)
    gym(*ask, exit_code=0)
    assert (scored(), mock_server.num_requests) == (10, 11)


def test_no_retry_scores_what_waits(ask, mock_server):
    """A conversation whose verifier failed is not lost."""
    Path("flaky.py").write_text(FLAKY)
    Path("broken").touch()
    write_sums(Path("sums.jsonl"), 3, env="flaky")
    line = (*ask, "--env", "flaky.py:Flaky")
    gym(*line, exit_code=4)
    Path("broken").unlink()
    gym(*line, "--no-retry", exit_code=0)
    assert mock_server.num_requests == 3


def test_a_task_by_its_id_resumes_and_is_guessed(ask, mock_server):
    gym(*ask, "--task", "sum-3", exit_code=0)
    gym(*ask, "--task", "sum-3", exit_code=0)
    assert (scored(), mock_server.num_requests) == (1, 1)
    wrong = gym(*ask, "--task", "sun-4", exit_code=2)
    assert wrong.stderr.startswith('error: --task sun-4: no task has this id (did you mean "sum-')
    gym(*ask, exit_code=0)
    assert (scored(), mock_server.num_requests) == (10, 10)


def test_failures_stop_the_run(ask, mock_server):
    """Only those of this command count; the same command resumes and retries them."""
    wrong = ("What is 2 + 1?", "What is 5 + 1?", "What is 7 + 1?")
    mock_server.behaviour = lambda request: (
        refusal_of(400, "no") if last_user_text(request) in wrong else add_up(request)
    )
    done = gym(*ask, "--max-failures", "2")
    assert (done.exit_code, scored(), mock_server.num_requests) == (4, 4, 6)
    assert "mean reward" in done.stdout
    assert done.stderr.splitlines()[-1].startswith(
        "error: stopped after 2 failed attempts (--max-failures); 4 of 10 attempts are scored; "
        "run/failures.jsonl has the causes; resume with: gym collect sums.jsonl"
    )
    again = gym(*ask, "--max-failures", "1")
    assert (again.exit_code, scored(), mock_server.num_requests) == (4, 4, 7)
    assert "error: stopped after 1 failed attempt (--max-failures); " in again.stderr
    # Failures of earlier commands are no failures of this one.
    gym(*ask, "--max-failures", "1", "--no-retry", exit_code=4)
    mock_server.behaviour = add_up
    assert (gym(*ask, "--max-failures", "1").exit_code, scored()) == (0, 10)


def test_failures_of_all_models_are_counted_together(ask, mock_server):
    mock_server.behaviour = lambda request: (
        refusal_of(400, "no") if last_user_text(request) == "What is 3 + 1?" else add_up(request)
    )
    two = (*ask[:-1], "two", "--model", "n")
    done = gym(*two, "--max-failures", "2", exit_code=4)
    assert done.stderr.count("stopped after 2 failed attempts (--max-failures)") == 2
    assert len(lines_of(Path("two/m/rollouts.jsonl"))) < 9
