"""Tests of reading and comparing two runs: what is paired, refused or unknown."""

import gzip

import msgspec
import pytest

from gymcli.comparison.difference_verdict import Rule
from gymcli.comparison.paired_runs import TaskContents, TaskDrift, compare_runs, task_drift
from gymcli.errors import RunError, RunFileError, RunMismatchError, UsageError
from gymcli.metrics.measure import ComparedLine, measure
from tests.builders import collect_all, write_rows, write_sums
from tests.comparison.compared import failure, line, mixed, nemo, write_run


@pytest.fixture
def runs(tmp_path):
    """Return two runs of the same tasks."""
    return write_run(tmp_path / "a", mixed()), write_run(tmp_path / "b", mixed(every=4))


def test_a_run_against_itself(runs):
    found = compare_runs(runs[0], runs[0])
    assert (found.difference.value, found.p_value, found.verdict) == (0.0, None, "INCONCLUSIVE")
    assert found.is_same_run
    assert (found.drift, found.unknown, found.unmatched.num_only_a) == ([], [], 0)
    assert [setting.name for setting in found.compared] == ["model"]


def test_numbers_of_either_run_are_those_of_gym_metrics(runs):
    found = compare_runs(*runs)
    for run, side in zip(runs, (found.a, found.b), strict=True):
        metrics = measure(run).metrics()
        assert side.run == str(run)
        assert side.mean_reward == metrics.mean_reward
        assert side.strict_mean_reward == metrics.strict_mean_reward
        assert (side.coverage, side.bounds) == (metrics.coverage, metrics.bounds)
        assert side.num_scored == metrics.num_scored == 40
    assert found.mean_b - found.mean_a == pytest.approx(found.difference.value)


def test_the_order_of_lines_does_not_matter(runs, tmp_path):
    turned = write_run(tmp_path / "c", mixed(every=4)[::-1])
    before, after = compare_runs(*runs), compare_runs(runs[0], turned)
    after.b.run = before.b.run
    assert msgspec.json.encode(after) == msgspec.json.encode(before)


def test_tasks_are_paired_by_id_and_content(tmp_path):
    a = write_run(tmp_path / "a", [line("x"), line("y"), line("z", reward=0.0)])
    b = write_run(tmp_path / "b", [line("z"), line("x"), line("w")])
    found = compare_runs(a, b)
    assert (found.num_tasks, found.difference.value) == (2, 0.5)
    assert (found.unmatched.only_a, found.unmatched.only_b) == (["y"], ["w"])
    assert (found.fixed, found.broken) == (["z"], [])


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (
            {"task_hash": "00000000000000bb"},
            "arithmetic: 20 tasks have different content (t000, t001, t002, ...)",
        ),
        ({"verifier": {"version": "2", "source_hash": "s1"}}, "verifier version 1 in A, 2 in B"),
        ({"verifier": {"version": "1", "source_hash": "s2"}}, "verifier source s1 in A, s2 in B"),
        ({"env_version": "2"}, "arithmetic: version 1 in A, 2 in B"),
        ({"env_options": {"hard": True}}, 'options {} in A, {"hard":true} in B'),
        ({"group_size": 2}, "group size 1 in A, 2 in B"),
        ({"tools": [{"type": "function"}]}, "a different prompt or different tools"),
        (
            {"messages": [{"role": "user", "content": "Say 2."}]},
            "a different prompt or different tools",
        ),
    ],
)
def test_lines_that_were_made_in_another_way_are_refused(tmp_path, more, named):
    a, b = write_run(tmp_path / "a", mixed()), write_run(tmp_path / "b", mixed(**more))
    with pytest.raises(RunMismatchError) as raised:
        compare_runs(a, b)
    text = str(raised.value)
    assert named in text
    assert "--allow-drift" in text
    assert str(a) in text
    assert str(b) in text
    assert compare_runs(a, b, allow_drift=True).drift


@pytest.mark.parametrize(
    ("manifest", "named"),
    [
        ({"identity": {"prompt": "aa11"}}, "prompt template none in A, aa11 in B"),
        ({"identity": {"emulate_tools": True}}, "emulated tools none in A, true in B"),
        ({"max_reward": 2.0}, "best reward 1.0 in A, 2.0 in B"),
        ({"pass_threshold": 0.5}, "threshold of success 1.0 in A, 0.5 in B"),
    ],
)
def test_manifests_that_say_another_thing_are_refused(tmp_path, manifest, named):
    tools = [{"type": "function", "function": {"name": "add"}}]
    a = write_run(tmp_path / "a", mixed(tools=tools))
    b = write_run(tmp_path / "b", mixed(tools=tools), **manifest)
    with pytest.raises(RunMismatchError, match=named):
        compare_runs(a, b)


def test_emulated_tools_are_no_difference_where_no_tools_were_shown(tmp_path):
    a = write_run(tmp_path / "a", mixed())
    b = write_run(tmp_path / "b", mixed(), identity={"emulate_tools": True})
    assert compare_runs(a, b).drift == []
    assert [one.name for one in compare_runs(a, b).compared] == ["model"]


def test_another_model_of_a_role_is_refused(tmp_path):
    judged = [{"roles": {"judge": {"model": name, "params": {}}}} for name in ("j1", "j2")]
    a, b = (
        write_run(tmp_path / str(number), mixed(), identity=identity)
        for number, identity in enumerate(judged)
    )
    with pytest.raises(RunMismatchError, match="role judge"):
        compare_runs(a, b)


def test_a_bare_file_says_who_judged_it(tmp_path):
    files = [
        write_rows(tmp_path / f"{name}.jsonl", mixed(role_usage={"judge": {"model": name}}))
        for name in ("j1", "j2")
    ]
    with pytest.raises(RunMismatchError, match="role judge j1 in A, j2 in B"):
        compare_runs(*files)


def test_a_judge_is_compared_as_both_runs_name_it(tmp_path):
    lines = mixed(role_usage={"judge": {"model": "j1"}})
    roles = {"roles": {"judge": {"model": "j1", "params": {"seed": 1}}}}
    run = write_run(tmp_path / "run", lines, identity=roles)
    assert compare_runs(run, run / "rollouts.jsonl").drift == []


def test_every_drift_is_named_at_once(tmp_path):
    a = write_run(tmp_path / "a", mixed())
    b = write_run(tmp_path / "b", mixed(env_version="2", task_hash="bb"), max_reward=3.0)
    with pytest.raises(RunMismatchError) as raised:
        compare_runs(a, b)
    assert len(str(raised.value).splitlines()) == 4
    assert len(compare_runs(a, b, allow_drift=True).drift) == 3


def test_tasks_that_changed_are_paired_by_their_id_where_that_is_allowed(tmp_path):
    a = write_run(tmp_path / "a", mixed())
    b = write_run(tmp_path / "b", mixed(task_hash="00000000000000bb"))
    assert compare_runs(a, b, allow_drift=True).num_tasks == 20


def test_what_is_meant_to_differ_is_shown(tmp_path):
    a = write_run(tmp_path / "a", mixed(sampling={"temperature": 0.0, "top_p": 1.0}))
    b = write_run(
        tmp_path / "b",
        mixed(model="m2", sampling={"top_p": 1.0, "temperature": 0.7}),
        identity={"seed": 5, "max_turns": 3},
    )
    shown = {one.name: (one.a, one.b) for one in compare_runs(a, b).compared}
    assert shown == {
        "model": ("m", "m2"),
        "sampling": ('{"temperature":0.0,"top_p":1.0}', '{"temperature":0.7,"top_p":1.0}'),
        "seed": ("0", "5"),
        "max_turns": ("none", "3"),
    }


def test_prompts_of_different_seeds_are_no_drift(tmp_path):
    """An environment may draw the opening message of an episode at random."""
    other = {"seed": 8, "messages": [{"role": "user", "content": "Another opening."}]}
    a, b = write_run(tmp_path / "a", mixed()), write_run(tmp_path / "b", mixed(**other))
    found = compare_runs(a, b)
    assert (found.drift, found.unknown) == ([], [])
    bare = compare_runs(a / "rollouts.jsonl", b)
    assert bare.drift == []
    assert bare.unknown == [
        "prompts of 20 tasks of arithmetic differ, and so do their seeds: whether these are the "
        "cause is not known"
    ]


def test_a_prompt_that_a_simulated_user_opened_is_not_compared(tmp_path):
    a, b = (
        write_run(
            tmp_path / name,
            mixed(
                role_usage={"user": {"model": "u"}},
                messages=[{"role": "user", "content": name}],
            ),
        )
        for name in ("a", "b")
    )
    assert compare_runs(a, b).drift == []


def test_missing_attempts_are_told(tmp_path):
    lines = mixed(num_attempts=1)
    a = write_run(tmp_path / "a", lines)
    b = write_run(
        tmp_path / "b",
        lines[:16],
        failures=[failure(f"t{n:03}") for n in (16, 17)],
        num_expected=20,
    )
    found = compare_runs(a, b)
    assert (found.b.num_present, found.b.num_scored, found.b.coverage) == (18, 16, 0.8)
    assert found.num_tasks == 16
    assert found.unmatched.num_only_a == 4
    assert found.bounds.low <= 0.0 <= found.bounds.high
    assert "coverage is 100.0% in A and 80.0% in B" in found.warnings[0]


def test_slices_are_fields_of_the_task(tmp_path):
    lines = [
        line(
            f"t{n}",
            reward=float(n % 3 > 0),
            fields={
                "level": {"name": "hard" if n % 2 else "easy"},
                **({"size": n % 4} if n else {}),
            },
        )
        for n in range(12)
    ]
    a = write_run(tmp_path / "a", lines)
    found = compare_runs(a, a, by=["task.level.name", "size"])
    assert {name: part.num_tasks for name, part in found.slices["task.level.name"].items()} == {
        "easy": 6,
        "hard": 6,
    }
    assert list(found.slices["size"]) == ["0", "1", "2", "3", "(none)"]


def test_metrics_of_attempts_are_compared(tmp_path):
    a = write_run(tmp_path / "a", mixed(components={"style": 0.25}))
    b = write_run(tmp_path / "b", mixed(components={"style": 0.5}, metrics={"steps": 3.0}))
    found = compare_runs(a, b, metric="components.style")
    assert (found.metric, found.difference.value) == ("components.style", 0.25)
    assert compare_runs(a, b, metric="pass@2").difference.value == 0.0
    with pytest.raises(UsageError, match=r"--metric metrics\.steps: none of 20 tasks has it"):
        compare_runs(a, b, metric="metrics.steps")
    with pytest.raises(UsageError, match="none of 20 tasks has 3 attempts in both runs"):
        compare_runs(a, b, metric="pass@3")


def test_bare_files_take_their_facts_from_the_environment(runs, tmp_path):
    zipped = tmp_path / "b.jsonl.gz"
    zipped.write_bytes(gzip.compress((runs[1] / "rollouts.jsonl").read_bytes()))
    found = compare_runs(runs[0] / "rollouts.jsonl", zipped)
    assert (found.margin, found.a.num_expected, found.a.coverage) == (0.02, None, None)
    assert found.difference == compare_runs(*runs).difference


def test_rollouts_of_nemo_gym(tmp_path):
    """Facts missing in their lines are reported; prompt and tools distinguish their tasks."""
    a = write_rows(tmp_path / "a.jsonl", [nemo("x", 0.0, judge="yes"), nemo("y")])
    b = write_rows(tmp_path / "b.jsonl", [nemo("x", 1.0, judge="no"), nemo("y")])
    found = compare_runs(a, b)
    assert (found.num_tasks, found.fixed) == (2, ["x"])
    assert found.compared[0].a == "theirs"
    assert found.unknown == [
        f"{file} does not record for arithmetic: version, options, verifier version, "
        "verifier source, group size"
        for file in (a, b)
    ]
    c = write_rows(tmp_path / "c.jsonl", [nemo("x", prompt="What else?"), nemo("y")])
    with pytest.raises(
        RunMismatchError, match=r"1 task has a different prompt or different tools \(x\)"
    ):
        compare_runs(a, c)


def test_an_attempt_whose_verifier_failed_is_not_scored(tmp_path):
    broken = nemo("y", 0.0, _ng_failure_class="Timeout")
    a = write_rows(tmp_path / "a.jsonl", [nemo("x"), nemo("y")])
    b = write_rows(tmp_path / "b.jsonl", [nemo("x"), broken])
    found = compare_runs(a, b)
    assert (found.num_tasks, found.b.num_present, found.b.num_scored) == (1, 2, 1)


def test_lines_that_name_no_environment_take_the_one_that_is_given(tmp_path):
    unnamed = {**nemo("x"), "agent_ref": None}
    a = write_rows(tmp_path / "a.jsonl", [unnamed])
    with pytest.raises(UsageError, match="--env NAME"):
        compare_runs(a, a)
    assert list(compare_runs(a, a, env="arithmetic").environments) == ["arithmetic"]


def test_an_environment_that_is_not_here_has_no_range(tmp_path):
    lines = [line(f"t{n}", env="elsewhere") for n in range(12)]
    a = write_rows(tmp_path / "a.jsonl", lines)
    b = write_rows(tmp_path / "b.jsonl", [*lines[1:], lines[0]])
    found = compare_runs(a, b)
    assert (found.margin, found.num_fixed) == (0.0, None)
    assert "set --margin" in found.warnings[-1]


def test_a_range_that_one_run_records_is_used_for_both(tmp_path):
    """The file's environment cannot be imported; the other run's manifest has its range."""
    lines = [line(f"t{n}", env="elsewhere") for n in range(12)]
    a, b = write_rows(tmp_path / "a.jsonl", lines), write_run(tmp_path / "b", lines)
    manifest = msgspec.json.decode((b / "run.json").read_bytes())
    manifest["environments"] = {"elsewhere": {"max_reward": 4.0, "num_expected": 12}}
    (b / "run.json").write_bytes(msgspec.json.encode(manifest))
    for one, other in ((a, b), (b, a)):
        found = compare_runs(one, other)
        # The default margin is 0.02 of the range.
        assert (found.drift, found.margin) == ([], 0.08)


def test_collected_runs(tmp_path):
    tasks = write_sums(tmp_path / "t.jsonl", 4)
    for name, answers in (("a", None), ("b", lambda _: "It is -1.")):
        collect_all(tasks, *([answers] if answers else []), out=tmp_path / name, repeats=2)
    found = compare_runs(tmp_path / "a", tmp_path / "b", with_tasks=True)
    assert (found.drift, found.unknown, found.verdict) == ([], [], "INCONCLUSIVE")
    assert [task.change for task in found.tasks] == ["broken"] * 4


def test_runs_without_a_common_task(tmp_path):
    a, b = write_run(tmp_path / "a", [line("x")]), write_run(tmp_path / "b", [line("y")])
    with pytest.raises(UsageError, match="share no task: one has x, the other y"):
        compare_runs(a, b)


def test_a_run_without_a_score_cannot_be_used(tmp_path):
    a = write_run(tmp_path / "a", [line("x")])
    b = write_run(tmp_path / "b", [], failures=[failure("x")])
    with pytest.raises(RunError, match="nothing is scored") as raised:
        compare_runs(a, b)
    assert raised.value.exit_code == 4


def test_damage_is_named_by_file_and_line(runs):
    rollouts = runs[1] / "rollouts.jsonl"
    lines = rollouts.read_bytes().splitlines(keepends=True)
    rollouts.write_bytes(b"".join([*lines[:3], b'{"schema_version": 1, "tas\n', *lines[3:]]))
    with pytest.raises(RunFileError, match=r"b/rollouts\.jsonl:4: is not a rollout"):
        compare_runs(*runs)
    rollouts.write_bytes(b"".join([*lines, lines[5]]))
    with pytest.raises(RunFileError, match="is scored by two lines"):
        compare_runs(*runs)
    rollouts.write_bytes(b"".join(lines)[:-9])
    assert compare_runs(*runs).b.num_scored == 39


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"verifier": 5}, "is not a rollout"),
        ({"messages": "hello"}, "is not a rollout"),
        ({"reward": "much"}, "is not a rollout"),
    ],
)
def test_a_line_of_another_shape_is_damaged(tmp_path, more, named):
    a = write_run(tmp_path / "a", [line("x"), line("y", **more)])
    with pytest.raises(RunFileError, match=rf"rollouts\.jsonl:2: {named}"):
        compare_runs(a, a)


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        (Rule(margin=-0.1), "--margin -0.1: must be 0 or a positive number"),
        (Rule(margin=float("nan")), "--margin nan: must be"),
        (Rule(level=0.4), "--level 0.4: must be between"),
        (Rule(level=1.0 - 1e-15), "--level 1: must be between"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(runs, rule, named):
    with pytest.raises(UsageError, match=named):
        compare_runs(*runs, rule=rule)


@pytest.mark.parametrize("more", [{"reward": -1e200}, {"components": {"style": 1e200}}])
def test_values_without_squares_are_refused(tmp_path, more):
    a = write_run(tmp_path / "a", [line("x"), line("y", **more)])
    metric = "components.style" if "components" in more else "mean_reward"
    with pytest.raises(UsageError, match=r"rollouts.jsonl:2: .* beyond 1e\+100 cannot be"):
        compare_runs(a, a, metric=metric)


def test_a_field_that_is_given_twice_is_sliced_by_once(runs):
    assert list(compare_runs(*runs, by=["answer", "answer"]).slices) == ["answer"]


def test_many_settings_in_one_run_are_abbreviated(tmp_path):
    lines = [line(f"t{n:02}", sampling={"max_tokens": n}, model=f"m{n}") for n in range(40)]
    a = write_run(tmp_path / "a", lines)
    found = compare_runs(a, a)
    assert [setting.name for setting in found.compared] == ["model"]
    assert found.a.model.count(",") == 7


def made(attempt=0, task_hash="00000000000000aa", prompt=b'"p"', seed=1):
    """Return a line of a task."""
    return ComparedLine(
        schema_version=1,
        task_id="any",
        attempt=attempt,
        reward=1.0,
        task_hash=task_hash,
        messages=[msgspec.Raw(prompt)],
        num_prompt_messages=1,
        seed=seed,
    )


def contents(*lines_by_task):
    """Return the contents of tasks from the lines of each."""
    found = TaskContents()
    for task, lines in enumerate(lines_by_task):
        for one in lines:
            found.add(task, one)
    return found


def test_equal_tasks_do_not_differ():
    one = contents([made()], [made(seed=2**63)])
    assert task_drift(one, contents([made()], [made(seed=2**63)])) == TaskDrift([], [], 0)


def test_content_goes_before_prompt_and_seed():
    a = contents([made()], [made()], [made()])
    b = contents(
        [made(task_hash="other", prompt=b'"q"')],
        [made(prompt=b'"q"')],
        [made(prompt=b'"q"', seed=2)],
    )
    assert task_drift(a, b) == TaskDrift([0], [1], 1)
    assert task_drift(b, a) == TaskDrift([0], [1], 1)


def test_the_lowest_attempt_counts_in_whatever_order_lines_come():
    a = contents([made(2, prompt=b'"late"'), made(0), made(1, prompt=b'"late"')])
    assert task_drift(a, contents([made(0)])) == TaskDrift([], [], 0)


def test_another_attempt_has_another_seed():
    found = task_drift(contents([made(0)]), contents([made(1, prompt=b'"q"')]))
    assert found == TaskDrift([], [], 1)


def test_what_is_not_known_does_not_differ():
    a = contents([made(task_hash="")], [made()])
    b = contents([made(task_hash="00000000000000bb")])
    assert task_drift(a, b) == TaskDrift([], [], 0)
    assert task_drift(b, a) == TaskDrift([], [], 0)


def test_a_task_that_only_one_run_has():
    a, b = TaskContents(), contents([made()], [made()])
    a.add(1, made(task_hash="other"))
    assert task_drift(a, b).contents == [1]


def test_runs_whose_answers_were_not_read_decide_nothing(tmp_path):
    def run(name, num, **more):
        lines = [line(f"t{n}", details={"reason": "no_answer"}, **more) for n in range(num)]
        lines += [line(f"t{n}", details={"reason": "correct"}, **more) for n in range(num, 100)]
        return write_run(tmp_path / name, lines)

    read, tenth = run("read", 0), run("tenth", 10, timing={"started_at": 1.0})
    many, most = run("many", 11), run("most", 51, model="m2")
    assert compare_runs(read, tenth).verdict == "PASS"
    assert not any("no answer" in text for text in compare_runs(read, tenth).warnings)
    marked = compare_runs(read, many)
    assert (marked.verdict, marked.way_out) == ("PASS", "")
    said = "B: no answer could be read in 11 of 100 attempts; for three of them:"
    assert f"{said} gym show {many} --where" in " ".join(marked.warnings)
    for pair in ((read, most), (most, read)):
        withheld = compare_runs(*pair)
        side = "AB"[pair.index(most)]
        assert withheld.verdict == withheld.environments["arithmetic"].verdict == "INCONCLUSIVE"
        assert withheld.way_out == f"most answers of {side} could not be read"
        assert withheld.smallest_margin is withheld.deciding_interval is None


def test_an_environment_whose_answers_were_not_read_is_undecided_for_itself(tmp_path):
    def run(name, **more):
        unread = [line(f"t{n}", env="quiz", details={"reason": "no_answer"}) for n in range(60)]
        read = [line(f"t{n}", details={"reason": "correct"}, **more) for n in range(100)]
        return write_run(tmp_path / name, unread + read)

    found = compare_runs(run("a"), run("b", timing={"started_at": 1.0}))
    assert found.environments["quiz"].verdict == "INCONCLUSIVE"
    assert found.environments["arithmetic"].verdict == "PASS"
    assert found.verdict == "INCONCLUSIVE"
    assert found.way_out == "most answers of A to quiz and of B to quiz could not be read"
