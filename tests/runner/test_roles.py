"""Tests of roles: requests, cache, usage, and the attempts that lack a role's answer."""

import asyncio
import itertools
from collections import Counter
from contextlib import AsyncExitStack

import pytest

import gymcli
from gymcli.errors import FatalEndpointError, RunMismatchError, UsageError
from gymcli.metrics.measure import measure
from gymcli.mock import MockAnswer, MockServer
from gymcli.mock.behaviours import last_user_text, refusal_of
from gymcli.models.endpoint import Endpoint
from gymcli.rescoring.run_rescoring import Pending, Rescoring, score_pending
from gymcli.runner.collect_options import CollectOptions
from gymcli.runner.judges import Judges
from gymcli.runner.plan import plan_run
from gymcli.store.run_directory import RunDirectory
from gymcli.tasks.task_source import TaskFile
from gymcli.types import Failure, Rollout
from tests.builders import QUICK, lines_of, write_prompts

JUDGED = "tests.runner.environments:Judged"


def good(request):
    return "[[GOOD]]"


def failing_at(*numbers):
    """Call everything good, but refuse the requests with these numbers."""
    count = itertools.count(1)

    def behave(request):
        return refusal_of(400, "no") if next(count) in numbers else "[[GOOD]]"

    return behave


async def _with_servers(behaviours, use):
    async with AsyncExitStack() as stack:
        servers = {
            name: await stack.enter_async_context(MockServer(behaviour))
            for name, behaviour in behaviours.items()
        }
        return await use(servers)


def endpoint_of(server, model="m", **options):
    return Endpoint(base_url=server.base_url, model=model, **{**QUICK, **options})


def collected(tasks, *, judge=good, env=JUDGED, policy=last_user_text, role="judge", **options):
    """Collect with a policy and a role on two servers; return the records and both servers."""

    async def run(servers):
        endpoint = endpoint_of(servers["policy"])
        roles = {role: endpoint_of(servers["judge"], "j", **options.pop("judge_options", {}))}
        records = gymcli.collect(tasks, endpoint=endpoint, roles=roles, env=env, **options)
        return [record async for record in records], servers["policy"], servers["judge"]

    return asyncio.run(_with_servers({"policy": policy, "judge": judge}, run))


def rescored(run, *, judge=good, **options):
    """Score waiting conversations; return the counts and the judge's server."""

    async def score(servers):
        judges = Judges({"judge": endpoint_of(servers["judge"], "j")})
        return await score_pending(run, judges=judges, env=JUDGED), servers["judge"]

    return asyncio.run(_with_servers({"judge": judge}, score))


def test_collect_asks_the_judge_and_counts_what_it_took(tmp_path):
    tasks = write_prompts(tmp_path / "t.jsonl", 4)
    prices = {"prompt": 1.0, "completion": 2.0}
    records, policy, judge = collected(tasks, judge_options={"prices": prices})
    assert (policy.num_requests, judge.num_requests) == (4, 4)
    for record in records:
        assert (record.reward, record.details) == (1.0, {"reason": "good"})
        use = record.role_usage["judge"]
        assert (use.model, use.num_calls, use.num_cached, use.num_failed) == ("j", 1, 0, 0)
        expected = use.usage.prompt_tokens * 1e-6 + use.usage.completion_tokens * 2e-6
        assert use.cost == pytest.approx(expected)
        assert use.seconds > 0
    assert "[[GOOD]]" not in {record.last_text for record in records}


def test_collect_counts_unusable_answers_of_a_judge(tmp_path):
    """Both count: answers that a retry replaces, and answers without a usable retry."""
    useless = MockAnswer(body='{"choices": [], "usage": {"prompt_tokens": 1000000}}')
    answers = iter([useless, "[[GOOD]]", useless, useless])
    options = {"prices": {"prompt": 1.0, "completion": 0.0}, "max_attempts": 2}
    records, _, judge = collected(
        write_prompts(tmp_path / "t.jsonl", 2),
        judge=lambda _: next(answers),
        judge_options=options,
        concurrency=1,
    )
    good, bad = (record.role_usage["judge"] for record in records)
    assert (good.num_calls, bad.num_calls, bad.num_failed) == (1, 0, 1)
    assert (good.retries, bad.retries) == ({"InvalidAnswerError": 1}, {"InvalidAnswerError": 1})
    assert 1.0 < good.cost < 1.01
    assert (bad.usage.prompt_tokens, bad.cost) == (2000000, 2.0)
    assert judge.num_requests == 4


def test_collect_keeps_a_conversation_whose_judge_failed(tmp_path):
    """Only conversations with a failed judge wait; scoring them sends no other request."""
    tasks = write_prompts(tmp_path / "t.jsonl", 20)
    run = tmp_path / "run"
    records, policy, judge = collected(tasks, judge=failing_at(3, 9), out=run, concurrency=1)
    failed = [record for record in records if isinstance(record, Failure)]
    assert [record.error.error_class for record in failed] == ["RoleError"] * 2
    assert {record.error.phase for record in failed} == {"role"}
    assert {record.error.status for record in failed} == {400}
    assert all(record.role_usage["judge"].num_failed == 1 for record in failed)
    assert (policy.num_requests, judge.num_requests) == (20, 20)
    assert len(lines_of(run / "verdicts.jsonl")) == 18
    assert len(lines_of(run / "generations.jsonl")) == 20

    pending, judge = rescored(run)
    assert pending == Pending(2, 0, 0)
    assert judge.num_requests == 2
    scored = Counter(line["task_id"] for line in lines_of(run / "rollouts.jsonl"))
    assert len(scored) == 20
    assert set(scored.values()) == {1}


def test_a_judge_that_gave_no_verdict_is_asked_again(tmp_path):
    """An answer that is no verdict scores nothing, and is only saved if it is asked about."""
    useless = [
        MockAnswer(text="[[BAD]] be", finish_reason="length"),
        MockAnswer(text="[[BAD]]", finish_reason="content_filter"),
        MockAnswer(refusal="I cannot judge that."),
        "",
        "I cannot say.",
    ]
    answers = iter([*useless, "I cannot say either."])
    tasks = write_prompts(tmp_path / "t.jsonl", len(useless))
    run = tmp_path / "run"
    records, _, _ = collected(tasks, judge=lambda _: next(answers), out=run, concurrency=1)
    assert {(r.error.error_class, r.error.phase) for r in records} == {("RoleError", "role")}
    num_calls = [record.role_usage["judge"].num_calls for record in records]
    assert num_calls == [1, 1, 1, 1, 2]
    saved = [line["message"]["content"] for line in lines_of(run / "verdicts.jsonl")]
    assert saved == ["I cannot say."]

    records, policy, judge = collected(tasks, out=run)
    assert [record.reward for record in records] == [1.0] * len(useless)
    assert (policy.num_requests, judge.num_requests) == (0, len(useless))


def test_collect_resumes_conversations_that_wait_for_their_judge(tmp_path):
    tasks = write_prompts(tmp_path / "t.jsonl", 5)
    run = tmp_path / "run"
    collected(tasks, judge=failing_at(2), out=run, concurrency=1)
    records, policy, judge = collected(tasks, out=run)
    assert (len(records), policy.num_requests, judge.num_requests) == (1, 0, 1)


def test_rescoring_makes_no_call_that_was_made_before(tmp_path):
    run = tmp_path / "run"
    collected(write_prompts(tmp_path / "t.jsonl", 6), out=run)
    nowhere = Endpoint(base_url="http://127.0.0.1:9/v1", model="j", **QUICK)
    report = Rescoring(run, env=JUDGED, judges=Judges({"judge": nowhere})).run()
    assert (report.num_rescored, report.num_changed, report.num_failed) == (6, 0, 0)


def test_rescoring_finds_both_answers_of_a_judge_that_was_asked_once_more(tmp_path):
    run, tasks = tmp_path / "run", write_prompts(tmp_path / "t.jsonl", 6)
    answers = itertools.cycle(["Well.", "[[GOOD]]"])
    records, _, judge = collected(tasks, judge=lambda _: next(answers), out=run, concurrency=1)
    assert [record.reward for record in records] == [1.0] * 6
    assert {record.role_usage["judge"].num_calls for record in records} == {2}
    assert (judge.num_requests, len(lines_of(run / "verdicts.jsonl"))) == (12, 12)

    nowhere = Endpoint(base_url="http://127.0.0.1:9/v1", model="j", **QUICK)
    report = Rescoring(run, env=JUDGED, judges=Judges({"judge": nowhere})).run()
    assert (report.num_rescored, report.num_changed, report.num_failed) == (6, 0, 0)


def test_rescoring_asks_a_different_judge_and_saves_its_verdicts(tmp_path):
    run, out = tmp_path / "run", tmp_path / "out"
    collected(write_prompts(tmp_path / "t.jsonl", 6), out=run)

    async def again(servers):
        judges = Judges({"judge": endpoint_of(servers["judge"], "other")})
        rescoring = Rescoring(run, env=JUDGED, judges=judges, out=out)
        return await asyncio.to_thread(rescoring.run), servers["judge"].num_requests

    report, num_requests = asyncio.run(_with_servers({"judge": lambda request: "[[BAD]]"}, again))
    assert (report.num_changed, report.num_down, num_requests) == (6, 6, 6)
    assert report.reasons == {"good -> bad": 6}
    assert len(lines_of(out / "verdicts.jsonl")) == 12
    assert {line["reward"] for line in lines_of(out / "rollouts.jsonl")} == {0.0}
    uses = [line["role_usage"]["judge"] for line in lines_of(out / "rollouts.jsonl")]
    assert {(use["model"], use["num_calls"]) for use in uses} == {("other", 1)}
    assert {line["model"] for line in lines_of(run / "verdicts.jsonl")} == {"j", "other"}


def test_rescoring_does_not_write_into_a_run_it_may_only_read(tmp_path):
    """It is a bare file, or a directory that another process is writing."""
    run = tmp_path / "run"
    collected(write_prompts(tmp_path / "t.jsonl", 3), out=run)
    (run / "verdicts.jsonl").unlink()
    bare = tmp_path / "rollouts.jsonl"
    bare.write_bytes((run / "rollouts.jsonl").read_bytes())
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json*")}

    async def again(servers):
        judges = Judges({"judge": endpoint_of(servers["judge"], "j")})
        reports = []
        for place in (bare, run):
            rescoring = Rescoring(place, env=JUDGED, judges=judges)
            reports.append((await asyncio.to_thread(rescoring.run), rescoring.warnings))
        return reports, servers["judge"].num_requests

    other = RunDirectory(run)
    other.lock()
    try:
        reports, num_requests = asyncio.run(_with_servers({"judge": good}, again))
    finally:
        other.close()
    assert [report.num_rescored for report, _ in reports] == [3, 3]
    assert num_requests == 6
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.json*")} == before
    (_, of_file), (_, of_run) = reports
    assert not of_file
    assert [text.startswith("3 new answers of judges were not saved") for text in of_run] == [True]


def test_verify_needs_the_judge(tmp_path):
    run = tmp_path / "run"
    collected(write_prompts(tmp_path / "t.jsonl", 2), out=run)
    with pytest.raises(UsageError, match="--role judge=NAME_OR_URL"):
        list(gymcli.rescore(run, env=JUDGED))


def test_verify_takes_roles_inside_a_running_loop(tmp_path):
    run = tmp_path / "run"
    collected(write_prompts(tmp_path / "t.jsonl", 2), out=run)

    async def notebook():
        return list(gymcli.rescore(run, env=JUDGED, roles={"judge": "oracle"}))

    assert [result.new_reward for result in asyncio.run(notebook())] == [0.0, 0.0]


def test_equal_requests_are_asked_once(tmp_path):
    """This includes concurrent requests, and attempts with equal answers."""
    tasks = write_prompts(tmp_path / "t.jsonl", 3)
    records, _, judge = collected(tasks, policy=lambda request: "the same", repeats=4)
    assert judge.num_requests == 1
    uses = [record.role_usage["judge"] for record in records]
    assert sum(use.num_calls for use in uses) == 1
    assert sum(use.num_cached for use in uses) == 11


def test_parameters_of_a_role_win_and_belong_to_the_identity(tmp_path):
    tasks, run = write_prompts(tmp_path / "t.jsonl", 2), tmp_path / "run"
    params = {"judge": {"temperature": 0.5}}
    _, _, judge = collected(tasks, out=run, role_params=params)
    assert {request.body["temperature"] for request in judge.requests} == {0.5}
    with pytest.raises(RunMismatchError, match=r"roles\.judge\.params\.temperature"):
        collected(tasks, out=run, role_params={"judge": {"temperature": 0.6}})


@pytest.mark.parametrize("name", ["Judged", "Lenient", "Rewording", "JudgedTogether"])
def test_what_a_role_says_of_the_run_ends_it_whatever_the_environment_does(tmp_path, name):
    """Log probabilities are not cached: the user must leave them out."""
    tasks, run = write_prompts(tmp_path / "t.jsonl", 2), tmp_path / "run"
    params = {"judge": {"logprobs": True}}
    env = f"tests.runner.environments:{name}"
    with pytest.raises(UsageError, match="cached answers have no log probabilities"):
        collected(tasks, env=env, out=run, role_params=params)
    assert not (run / "rollouts.jsonl").exists()
    assert not (run / "failures.jsonl").exists()


def test_collect_refuses_to_start_without_a_role(tmp_path):
    tasks = write_prompts(tmp_path / "t.jsonl", 2)
    with pytest.raises(UsageError, match="environments needs a model for the role judge"):
        plan_run([TaskFile(tasks)], CollectOptions(model="oracle", env=JUDGED))


def test_collect_refuses_a_role_that_nobody_has(tmp_path):
    tasks = write_prompts(tmp_path / "t.jsonl", 2)
    options = CollectOptions(
        model="oracle", env=JUDGED, roles={"judge": "oracle", "jugde": "oracle"}
    )
    with pytest.raises(UsageError, match='did you mean "judge"'):
        plan_run([TaskFile(tasks)], options)


def test_collect_asks_environments_before_it_starts(tmp_path):
    tasks = write_prompts(tmp_path / "t.jsonl", 2)
    options = CollectOptions(model="oracle", env="tests.runner.environments:Unprepared")
    with pytest.raises(UsageError, match="needs the package anything"):
        plan_run([TaskFile(tasks)], options)


def test_default_roles_serve_who_declares_them(tmp_path):
    tasks = write_prompts(tmp_path / "t.jsonl", 2)
    defaults = {"judge": "oracle", "user": "oracle"}
    options = CollectOptions(model="oracle", env=JUDGED, default_roles=defaults)
    plan = plan_run([TaskFile(tasks)], options, has_directory=False)
    assert plan.manifest.roles == {"judge": "oracle"}


async def test_oracle_and_stand_in_need_no_model(tmp_path):
    tasks = write_prompts(tmp_path / "t.jsonl", 2)
    records = gymcli.collect(tasks, model="oracle", env=JUDGED, roles={"judge": "oracle"})
    assert [record.reward async for record in records] == [1.0, 1.0]


async def test_a_role_without_a_stand_in_leaves_the_attempt_unscored(tmp_path):
    tasks = write_prompts(tmp_path / "t.jsonl", 1)
    env = "tests.runner.environments:Talked"
    records = gymcli.collect(tasks, model="oracle", env=env, roles={"user": "oracle"})
    [failure] = [record async for record in records]
    assert failure.error.error_class == "RoleError"
    assert "no stand-in for the role user" in failure.error.message


def test_a_user_that_fails_is_no_failure_of_the_policy(tmp_path):
    tasks = write_prompts(tmp_path / "t.jsonl", 3)
    env = "tests.runner.environments:Talked"
    records, policy, user = collected(
        tasks, judge=failing_at(2), env=env, role="user", concurrency=1
    )
    assert [type(record) for record in records] == [Rollout, Failure, Rollout]
    assert records[1].error.phase == "role"
    assert (policy.num_requests, user.num_requests) == (2, 3)


def test_a_user_is_asked_every_time(tmp_path):
    tasks = write_prompts(tmp_path / "t.jsonl", 3)
    env = "tests.runner.environments:Talked"
    _, _, user = collected(tasks, env=env, role="user")
    assert user.num_requests == 3


def test_a_judge_that_refuses_the_key_ends_the_run(tmp_path):
    tasks = write_prompts(tmp_path / "t.jsonl", 60)

    def refuse(request):
        return refusal_of(401, "no such key")

    with pytest.raises(FatalEndpointError, match=r"judge: .*no such key"):
        collected(tasks, judge=refuse, out=tmp_path / "run", concurrency=2)
    assert len(lines_of(tmp_path / "run" / "generations.jsonl")) < 60


def test_collect_warns_where_the_policy_judges_itself(tmp_path):
    tasks = write_prompts(tmp_path / "t.jsonl", 1)
    endpoint = Endpoint(base_url="http://127.0.0.1:9/v1", model="m")
    options = CollectOptions(endpoint=endpoint, env=JUDGED, roles={"judge": endpoint})
    plan = plan_run([TaskFile(tasks)], options, has_directory=False)
    assert any("the judge is the policy itself" in text for text in plan.warnings)


def test_metrics_count_roles_apart(tmp_path):
    """The policy's usage is the same with and without a judge."""
    tasks, run, alone = write_prompts(tmp_path / "t.jsonl", 4), tmp_path / "run", tmp_path / "alone"
    collected(tasks, out=run, judge=failing_at(1), concurrency=1)
    metrics = measure(run).metrics()
    use = metrics.role_usage["judge"]
    assert (use.num_calls, use.num_failed, use.model) == (3, 1, "j")
    assert use.cost is None
    assert use.usage.prompt_tokens > 0

    async def unjudged(servers):
        endpoint = endpoint_of(servers["policy"])
        roles = {"judge": "oracle"}
        records = gymcli.collect(tasks, endpoint=endpoint, roles=roles, env=JUDGED, out=alone)
        return [record async for record in records]

    asyncio.run(_with_servers({"policy": last_user_text}, unjudged))
    policy = measure(alone).metrics()
    assert policy.role_usage == {}
    assert metrics.usage == policy.usage
    assert metrics.usage["prompt_tokens"] > 0


def test_a_schema_is_sent_as_a_response_format(tmp_path):
    tasks = write_prompts(tmp_path / "t.jsonl", 1)
    env = "tests.runner.environments:Schooled"
    [record], _, judge = collected(tasks, env=env, judge=lambda request: '{"good": true}')
    assert record.details["reason"] == "true"
    sent = judge.requests[0].body["response_format"]
    assert sent["type"] == "json_schema"
    assert sent["json_schema"]["schema"]["required"] == ["good"]


async def test_stand_ins_that_cannot_be_made_leave_the_attempt_unscored(tmp_path):
    tasks = write_prompts(tmp_path / "t.jsonl", 1)
    env = "tests.runner.environments:Schooled"
    records = gymcli.collect(tasks, model="oracle", env=env, roles={"judge": "oracle"})
    [failure] = [record async for record in records]
    assert failure.error.message.endswith("role judge: ValueError: nobody can stand in")


@pytest.mark.slow
@pytest.mark.local_model
async def test_the_embedded_model_judges_under_a_schema(tmp_path):
    pytest.importorskip("xllamacpp")
    tasks = write_prompts(tmp_path / "t.jsonl", 1)
    env = "tests.runner.environments:Schooled"
    records = gymcli.collect(
        tasks,
        model="oracle",
        env=env,
        roles={"judge": "local"},
        role_params={"judge": {"max_tokens": 64, "temperature": 0.0}},
    )
    [record] = [record async for record in records]
    assert record.details["reason"] in ("true", "false")
    assert record.role_usage["judge"].usage.completion_tokens > 0
