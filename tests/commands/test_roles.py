"""Tests of `--role` and of `[roles]` in gym.toml."""

import itertools
from pathlib import Path

import msgspec
import pytest

from gymcli.mock.behaviours import last_user_text, refusal_of
from gymcli.store.run_directory import RunDirectory
from tests.builders import gym, lines_of, write_prompts

JUDGED = "tests.runner.environments:Judged"


@pytest.fixture
def ask(working_folder, mock_server):
    """Return the arguments that collect four judged rollouts; one server is policy and judge."""
    mock_server.behaviour = judge_or_echo
    tasks = write_prompts(Path("t.jsonl"), 4)
    policy = ("--model", "m", "--base-url", mock_server.base_url)
    return ("collect", tasks, "--env", JUDGED, *policy, "--out", "run")


def judge_or_echo(request):
    text = last_user_text(request)
    return "[[GOOD]]" if text.startswith("Is this good?") else text


def test_collect_asks_the_model_of_an_address(ask, mock_server):
    done = gym(*ask, "--role", f"judge={mock_server.base_url}#j", exit_code=0)
    assert "judge         4 calls, " in done.stdout
    assert " s a call (j)" in done.stdout
    manifest = msgspec.json.decode(Path("run/run.json").read_bytes())
    assert manifest["roles"] == {"judge": f"{mock_server.base_url}#j"}
    assert manifest["identity"]["roles"] == {"judge": {"model": "j", "params": {}}}


def test_collect_looks_up_the_model_that_an_address_serves(ask, mock_server):
    assert "(mock)" in gym(*ask, "--role", f"judge={mock_server.base_url}", exit_code=0).stdout


def test_collect_takes_roles_and_prices_of_gym_toml(ask, mock_server, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "sk-judge-secret")
    Path("gym.toml").write_text(
        f"""
        [models.strict]
        base_url = "{mock_server.base_url}"
        model = "strict-1"
        api_key_env = "JUDGE_KEY"
        prices = {{prompt = 1000.0, completion = 2000.0}}

        [roles]
        judge = "strict"
        """
    )
    done = gym(*ask, "--json", exit_code=0)
    use = msgspec.json.decode(done.stdout)["role_usage"]["judge"]
    assert use["model"] == "strict-1"
    assert use["cost"] > 0
    keys = {request.headers.get("Authorization") for request in mock_server.requests}
    assert keys == {None, "Bearer sk-judge-secret"}
    for path in Path("run").iterdir():
        assert "sk-judge-secret" not in path.read_text()

    again = gym("verify", "run", "--env", JUDGED, exit_code=0)
    assert "4 rescored, 0 changed rewards" in again.stdout


def test_collect_says_which_role_is_missing(ask):
    done = gym(*ask, exit_code=2)
    assert (
        "environment environments needs a model for the role judge: pass --role judge=NAME_OR_URL"
        in done.stderr
    )


def test_collect_goes_on_without_a_default_role_that_it_does_not_need(ask, mock_server):
    Path("gym.toml").write_text('[roles]\nuser = "nobody"\n')
    done = gym(*ask, "--role", f"judge={mock_server.base_url}#j", exit_code=0)
    assert "no model" not in done.stderr


def test_collect_says_why_a_default_role_that_it_needs_is_not_there(ask, mock_server):
    Path("gym.toml").write_text('[roles]\njudge = "nobody"\n')
    done = gym(*ask, exit_code=2)
    assert (
        "needs a model for the role judge: --role judge=nobody: no endpoint for model nobody"
    ) in done.stderr
    done = gym(*ask, "--role", f"judge={mock_server.base_url}#j", exit_code=0)
    assert "no model" not in done.stderr
    assert "missing_roles" not in Path("run/run.json").read_text()


def test_collect_takes_parameters_of_roles(ask, mock_server):
    role = ("--role", f"judge={mock_server.base_url}#j")
    gym(*ask, *role, "--role-param", "judge.temperature=0.25", exit_code=0)
    sent = [request.body for request in mock_server.requests if request.body["model"] == "j"]
    assert {body["temperature"] for body in sent} == {0.25}


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--role", "judge", "--role judge: expected key=value"),
        ("--role-param", "temperature=1", "expected role.key=value"),
        ("--role-param", "judge.temperature", "expected key=value"),
        ("--role-param", "judge.model=x", "--role-param model: is not a sampling parameter"),
    ],
)
def test_collect_refuses_options_that_mean_nothing(ask, option, value, message):
    assert message in gym(*ask, option, value, exit_code=2).stderr


def test_verify_takes_the_roles_of_the_run(ask, mock_server):
    gym(*ask, "--role", f"judge={mock_server.base_url}#j", exit_code=0)
    num_before = mock_server.num_requests
    done = gym("verify", "run", "--env", JUDGED, exit_code=0)
    assert "4 rescored, 0 changed rewards" in done.stdout
    assert mock_server.num_requests == num_before
    other = gym("verify", "run", "--env", JUDGED, "--role", f"judge={mock_server.base_url}#k")
    assert "4 rescored, 0 changed rewards" in other.stdout
    assert mock_server.num_requests == num_before + 4


def test_verify_repeat_asks_the_judge_again(ask, mock_server):
    """A note says so first; a judge that changes its mind is a finding, not a failure."""
    gym(*ask, "--role", f"judge={mock_server.base_url}#j", exit_code=0)
    before = {path.name: path.read_bytes() for path in Path("run").iterdir()}
    num_before = mock_server.num_requests
    verdicts = itertools.cycle(["[[GOOD]]"] * 4 + ["[[BAD]]"] * 4)
    mock_server.behaviour = lambda _: next(verdicts)
    done = gym("verify", "run", "--env", JUDGED, "--repeat", "2", exit_code=0)
    assert done.stderr.startswith("every rollout is scored 2 times, asking judge each time and ")
    assert "4 rollouts scored 2 times, 4 with different rewards\n" in done.stdout
    assert mock_server.num_requests == num_before + 8
    assert {path.name: path.read_bytes() for path in Path("run").iterdir()} == before


def test_verify_scores_what_waited_for_its_judge(ask, mock_server):
    """The judge that the run was made with is asked, whichever other one is given."""
    leave_waiting(ask, mock_server)
    rollouts = Path("run/rollouts.jsonl")
    other = ("--role", f"judge={mock_server.base_url}#k")
    refused = gym("verify", "run", "--env", JUDGED, *other, "--pending", exit_code=2)
    assert 'roles.judge.model "j" there, "k" here' in refused.stderr
    left = gym("verify", "run", "--env", JUDGED, *other, exit_code=0)
    assert "warning: 3 conversations still wait for their score: run: " in left.stderr
    assert "1 rescored" in left.stdout
    assert len(lines_of(rollouts)) == 1

    done = gym("verify", "run", "--env", JUDGED, exit_code=0)
    assert "3 waiting conversations scored, 0 failed" in done.stderr
    assert "4 rescored, 0 changed rewards" in done.stdout
    assert {line["reward"] for line in lines_of(rollouts)} == {1.0}
    models = [line["model"] for line in lines_of(Path("run/verdicts.jsonl"))]
    assert sorted(models) == ["j", "j", "j", "j", "k"]


def leave_waiting(ask, mock_server):
    """Collect while the judge refuses all requests but the first."""

    def behave(request):
        if last_user_text(request).startswith("Is this good?"):
            num_asked = sum(r.body["model"] == "j" for r in mock_server.requests)
            return refusal_of(400, "no") if num_asked > 1 else "[[GOOD]]"
        return last_user_text(request)

    mock_server.behaviour = behave
    role = ("--role", f"judge={mock_server.base_url}#j", "--concurrency", "1")
    gym(*ask, *role, "--min-coverage", "0.1", exit_code=0)
    assert len(lines_of(Path("run/rollouts.jsonl"))) == 1
    mock_server.behaviour = judge_or_echo


def test_verify_rescores_a_run_that_another_process_writes(ask, mock_server):
    """Conversations waiting there stay waiting; only `--pending` has nothing else to do."""
    leave_waiting(ask, mock_server)
    other = RunDirectory(Path("run"))
    other.lock()
    try:
        done = gym("verify", "run", "--env", JUDGED)
        refused = gym("verify", "run", "--env", JUDGED, "--pending")
    finally:
        other.close()
    assert done.exit_code == 0, done.stderr
    assert "3 conversations still wait for their score: run: another process" in done.stderr
    assert "1 rescored" in done.stdout
    assert refused.exit_code == 4
    assert "another process is writing this run" in refused.stderr


def test_verify_goes_on_after_a_torn_verdict(ask, mock_server):
    """Verify also writes the verdicts file, and leaves it whole."""
    gym(*ask, "--role", f"judge={mock_server.base_url}#j", exit_code=0)
    verdicts = Path("run/verdicts.jsonl")
    verdicts.write_bytes(verdicts.read_bytes()[:-20])
    num_before = mock_server.num_requests
    first = gym("verify", "run", "--env", JUDGED, exit_code=0)
    assert "warning: run/verdicts.jsonl: the last line was not finished" in first.stderr
    again = gym("verify", "run", "--env", JUDGED)
    assert (again.exit_code, again.stderr) == (0, "")
    assert mock_server.num_requests == num_before + 1
    assert len(lines_of(verdicts)) == 4


@pytest.mark.parametrize(
    "mistyped", [("--role", "jugde=oracle"), ("--role-param", "jugde.temperature=0")]
)
def test_a_mistyped_role_is_refused(ask, mock_server, mistyped):
    role = ("--role", f"judge={mock_server.base_url}#j")
    hint = 'did you mean "judge"?'
    refused = gym(*ask, *role, *mistyped)
    assert (refused.exit_code, hint in refused.stderr) == (2, True)
    leave_waiting(ask, mock_server)
    for more in ((), ("--pending",)):
        refused = gym("verify", "run", "--env", JUDGED, *mistyped, *more)
        assert (refused.exit_code, hint in refused.stderr) == (2, True)
    assert len(lines_of(Path("run/rollouts.jsonl"))) == 1


def test_dry_run_shows_the_first_request_and_asks_no_role(ask, mock_server):
    gym(*ask, "--role", f"judge={mock_server.base_url}#j", "--dry-run", exit_code=0)
    assert mock_server.num_requests == 0


def test_collect_refuses_a_reward_model_for_a_policy(ask, mock_server):
    Path("gym.toml").write_text(
        f'[models.rm]\nbase_url = "{mock_server.base_url}"\ndialect = "pooling"\n'
    )
    done = gym("collect", "t.jsonl", "--env", JUDGED, "--model", "rm", exit_code=2)
    assert "is a reward model (pooling), which cannot be the policy" in done.stderr


def test_summary_tells_calls_from_answers_on_record(ask, mock_server):
    def behave(request):
        if last_user_text(request).startswith("Is this good?"):
            num_asked = sum(r.body["model"] == "j" for r in mock_server.requests)
            return refusal_of(400, "no") if num_asked == 1 else "[[GOOD]]"
        return "always the same"

    mock_server.behaviour = behave
    role = ("--role", f"judge={mock_server.base_url}#j", "--concurrency", "1")
    done = gym(*ask, *role, "--min-coverage", "0.5")
    assert "judge         1 calls, 2 recorded answers, 1 failed, " in done.stdout


def test_verify_speaks_of_a_missing_model_only_where_it_is_needed(ask, mock_server):
    gym(*ask, "--role", f"judge={mock_server.base_url}#j")
    Path("gym.toml").write_text('[roles]\njudge = "nobody"\nuser = "nobody"\n')
    bare = gym("verify", "run/rollouts.jsonl", "--env", JUDGED, exit_code=2)
    assert "needs a model for the role judge: --role judge=nobody" in bare.stderr
    given = gym(
        "verify", "run/rollouts.jsonl", "--env", JUDGED, "--role", "judge=oracle", exit_code=0
    )
    assert "nobody" not in given.stderr


def test_collect_tells_what_was_tried_again_for_a_role(ask, mock_server):
    numbers = itertools.count()

    def behave(request):
        is_judged = last_user_text(request).startswith("Is this good?")
        if is_judged and next(numbers) == 0:
            return refusal_of(429, "slow", retry_after="0.01")
        return judge_or_echo(request)

    mock_server.behaviour = behave
    done = gym(*ask, "--role", f"judge={mock_server.base_url}#j", exit_code=0)
    assert "judge         4 calls, 1 retries of RateLimitError, " in done.stdout
    rollouts = lines_of(Path("run/rollouts.jsonl"))
    told = [rollout["role_usage"]["judge"].get("retries") for rollout in rollouts]
    assert sorted(told, key=bool) == [None, None, None, {"RateLimitError": 1}]


def test_collect_shares_the_load_of_several_addresses(ask, mock_server):
    """The second address is the same server under another name; neither is part of the identity."""
    other = mock_server.base_url.replace("127.0.0.1", "localhost")
    gym(*ask, "--base-url", other, "--role", f"judge={mock_server.base_url}#j", exit_code=0)
    hosts = {received.headers["Host"].split(":")[0] for received in mock_server.requests}
    assert hosts == {"127.0.0.1", "localhost"}
    again = gym(*ask, "--role", f"judge={mock_server.base_url}#j", exit_code=0)
    assert "all 4 attempts are already scored" in again.stderr


@pytest.mark.parametrize("model", ["", pytest.param("#j", marks=pytest.mark.slow)])
def test_an_address_of_a_role_that_is_down_ends_the_run(ask, model):
    """With code 4, as the policy's does, whether its model is looked up first or not."""
    done = gym(
        *ask, "--role", f"judge=http://127.0.0.1:9/v1{model}", "--outage-deadline", "0", exit_code=4
    )
    assert "judge: " in done.stderr.splitlines()[-1]
    assert "127.0.0.1:9" in done.stderr.splitlines()[-1]
