"""The server of the page: it serves whoever has the token, and answers about one run or two."""

import asyncio
import os
import sys
import threading
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.comparison.paired_runs import compare_runs
from gymcli.errors import RunFileError, UsageError
from gymcli.metrics.measure import measure
from gymcli.reporting.viewer import (
    KINDS,
    CachedMeasurement,
    Listing,
    Listings,
    TaskScores,
    ViewedRun,
    differences,
    failures_of,
    quote,
)
from gymcli.secrets import Scrubber
from gymcli.store.run_index import Refreshed, RunIndex
from tests.builders import write_rows
from tests.comparison.compared import nemo
from tests.reporting.viewer_runs import TOKEN, Shown, failure, lines, rollout, said, write_run


async def test_a_disconnected_client_frees_the_index_only_when_its_thread_ends(tmp_path):
    run = write_run(tmp_path / "run", [rollout("a")])
    has_begun, may_end, order = threading.Event(), threading.Event(), []

    def long(index, listings):
        has_begun.set()
        may_end.wait()
        order.append("first")

    with closing(ViewedRun(run)) as viewed:
        leaving = asyncio.create_task(viewed.ask(long))
        await asyncio.to_thread(has_begun.wait)
        never = asyncio.create_task(viewed.ask(lambda *_: order.append("never")))
        second = asyncio.create_task(viewed.ask(lambda *_: order.append("second")))
        await asyncio.sleep(0)
        for task in (leaving, never):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert order == []
        may_end.set()
        await second
    assert order == ["first", "second"]


async def test_an_error_goes_to_the_client_that_asked(tmp_path):
    run = write_run(tmp_path / "run", [rollout("a")])
    with closing(ViewedRun(run)) as viewed:
        with pytest.raises(ZeroDivisionError):
            await viewed.ask(lambda *_: 1 / 0)
        assert await viewed.ask(lambda index, _: len(index.rows)) == 1


def test_a_run_is_called_by_the_name_of_its_folder(tmp_path, monkeypatch):
    run = write_run(tmp_path / "run", [rollout("a")])
    monkeypatch.chdir(run)
    for path in (run, Path()):
        viewed = ViewedRun(path)
        assert viewed.name == "run"
        viewed.index.close()


def asked(run, *questions, runs=(), **options):
    """Ask several questions in order; each is a name with its parameters and expected status."""

    async def main():
        async with Shown(run, *runs, **options) as shown:
            return [await shown.ask(name, **given) for name, given in questions]

    return asyncio.run(main())


def tasks(answer):
    return [row["task_id"] for row in answer["rows"]]


@pytest.fixture
def run(tmp_path):
    """A run of four tasks with two attempts each; one attempt failed and one waits to be scored."""
    rollouts = [
        rollout("a", 0, 1.0, usage={"completion_tokens": 5}),
        rollout("a", 1, 0.0, usage={"completion_tokens": 50}),
        rollout("b", 0, 0.5, stop_reason="length", answer="7"),
        rollout("b", 1, 0.5, task={"kind": "hard"}),
        rollout("c", 0, 0.0, messages=[said("assistant", "Übermut, I cannot.")]),
        rollout("d", 0, 1.0, env="mcqa"),
    ]
    waiting = {**rollout("d", 1), "env": "mcqa"}
    del waiting["reward"]
    failures = [failure("c", 1), failure("c", 1, "EndpointTimeoutError"), failure("a", 1)]
    return write_run(
        tmp_path / "run",
        rollouts,
        failures=failures,
        generations=[waiting],
        environments=("arithmetic", "mcqa"),
    )


def test_the_list_has_every_attempt_once(run):
    [found] = asked(run, ("list", {}))
    assert (found["num_rows"], found["num_matching"], found["offset"]) == (8, 8, 0)
    rows = {(row["task_id"], row["attempt"]): row for row in found["rows"]}
    assert len(rows) == 8
    assert rows["a", 1]["status"] == "scored"
    assert rows["c", 1]["error"] == "EndpointTimeoutError"
    assert rows["d", 1]["status"] == "waiting"
    assert (rows["a", 0]["passed"], rows["b", 0]["passed"]) == (True, False)
    assert found["choices"] == {
        "env": {"arithmetic": 6, "mcqa": 2},
        "status": {"scored": 6, "waiting": 1, "failed": 1},
        "stop_reason": {"done": 6, "length": 1},
    }


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"where": "reward == 0.5"}, {"b"}),
        ({"where": "0 < avg < 1", "only_status": "scored"}, {"a", "b"}),
        ({"only_reward": "mixed"}, {"a", "b"}),
        ({"only_reward": "passed"}, {"a", "d"}),
        ({"only_reward": "not-passed"}, {"a", "b", "c"}),
        ({"only_reward": "between"}, {"b"}),
        ({"only_reward": "zero"}, {"a", "c"}),
        ({"only_status": "failed"}, {"c"}),
        ({"only_status": "waiting"}, {"d"}),
        ({"only_stop_reason": "length"}, {"b"}),
        ({"only_env": "mcqa"}, {"d"}),
        ({"containing": "Übermut"}, {"c"}),
        ({"containing": "What is b?"}, {"b"}),
        ({"containing": 'it\'s "quoted" \\ \n'}, set()),
        ({"where": "task.kind == 'hard'"}, {"b"}),
        ({"where": "reward == 1 or reward == 0", "only_env": "mcqa"}, {"d"}),
        ({"where": "error == 'EndpointTimeoutError'"}, {"c"}),
    ],
)
def test_a_filter_and_quick_choices_select(run, given, wanted):
    [found] = asked(run, ("list", given))
    assert set(tasks(found)) == wanted
    assert found["num_matching"] == len(found["rows"])


def test_quick_choices_are_shown_as_one_expression(run):
    given = {"where": "reward < 1 or cost > 2", "only_env": "arithmetic", "containing": "It"}
    [found] = asked(run, ("list", given))
    whole = found["expression"]
    assert whole == '(reward < 1 or cost > 2) and (env == "arithmetic") and (contains(text, "It"))'
    [again] = asked(run, ("list", {"where": whole}))
    assert again["rows"] == found["rows"]


def test_rows_are_sorted_and_those_without_a_value_come_last(run):
    up, down, by_task = asked(
        run,
        ("list", {"sort": "reward"}),
        ("list", {"sort": "-reward"}),
        ("list", {"sort": "-task_id"}),
    )
    rewards = [row["reward"] for row in up["rows"]]
    assert rewards == [0.0, 0.0, 0.5, 0.5, 1.0, 1.0, None, None]
    assert [row["reward"] for row in down["rows"]] == [1.0, 1.0, 0.5, 0.5, 0.0, 0.0, None, None]
    assert tasks(by_task) == list("ddccbbaa")


def test_pages_follow_each_other_and_one_beyond_the_end_is_the_last(run):
    pages = asked(run, *(("list", {"limit": 3, "offset": start}) for start in (0, 3, 6, 9, 10**9)))
    assert [len(page["rows"]) for page in pages] == [3, 3, 2, 2, 2]
    assert [page["offset"] for page in pages] == [0, 3, 6, 6, 6]
    numbers = [row["number"] for page in pages[:3] for row in page["rows"]]
    assert numbers == list(range(8))


@pytest.mark.parametrize(
    ("given", "field"),
    [
        *(
            ({"where": text}, "where")
            for text in ("reward <", "rewrd > 1", "().__class__", "a" * 9999)
        ),
        ({"where": "reward > 'x'"}, "where"),
        ({"sort": "nothing"}, "where"),
        ({"only_reward": "best"}, "only_reward"),
        *(({"limit": text}, "limit") for text in ("-1", "501", "x", "1" * 99, "\u0663")),
        *(({"run": text}, "run") for text in ("1", "-1", "a")),
        ({"offset": "1.5"}, "offset"),
    ],
)
def test_wrong_questions_get_an_error_of_one_line(run, given, field):
    [found] = asked(run, ("list", {"status": 400, **given}))
    assert found["field"] == field
    assert found["error"]
    assert "\n" not in found["error"]


def test_a_rollout_comes_with_its_neighbours(run):
    key = {"env": "arithmetic", "task": "b", "attempt": 0}
    [found, filtered, outside] = asked(
        run,
        ("rollout", key),
        ("rollout", {**key, "where": "reward == 0.5", "sort": "-attempt"}),
        ("rollout", {**key, "only_env": "mcqa"}),
    )
    assert found["record"]["messages"][0]["content"] == "What is b?"
    assert found["record"]["answer"] == found["row"]["answer"] == "7"
    assert (found["position"], found["num_matching"]) == (2, 8)
    assert found["previous"]["attempt"] == 1
    assert found["next"]["task_id"] == "b"
    assert [row["attempt"] for row in found["attempts"]] == [0, 1]
    assert (filtered["position"], filtered["next"]) == (1, None)
    assert filtered["previous"]["attempt"] == 1
    assert (outside["position"], outside["previous"], outside["next"]) == (None, None, None)


def test_a_failure_is_told_with_its_earlier_tries(run):
    key = {"env": "arithmetic", "task": "c", "attempt": 1}
    [found, history, none] = asked(
        run, ("rollout", key), ("history", key), ("history", {**key, "attempt": 0})
    )
    assert found["record"]["error"]["class"] == "EndpointTimeoutError"
    errors = [each["error"]["class"] for each in history["failures"]]
    assert errors == ["ServerError", "EndpointTimeoutError"]
    assert "messages" not in history["failures"][0]
    assert none == {"failures": []}


def test_attempts_of_a_task_are_told_page_by_page(tmp_path):
    records = [rollout("many", attempt, float(attempt % 2)) for attempt in reversed(range(1, 12))]
    run = write_run(tmp_path / "run", [*records, rollout("other")])
    key = {"env": "arithmetic", "task": "many"}
    [first, last] = asked(run, ("task", key), ("task", {**key, "offset": 8, "limit": 4}))
    assert (first["num_rows"], round(first["mean"], 3)) == (11, 0.545)
    assert [row["attempt"] for row in first["rows"]] == [1, 2, 3, 4]
    assert [row["attempt"] for row in last["rows"]] == [9, 10, 11]


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("rollout", {"env": "arithmetic", "task": "nobody", "attempt": 0}),
        ("rollout", {"env": "nowhere", "task": "a", "attempt": 0}),
        ("rollout", {"env": "arithmetic", "task": "a", "attempt": 999}),
        ("record", {}),
        ("task", {"env": "arithmetic", "task": "'"}),
        ("pair", {"env": "arithmetic", "task": "\\"}),
        ("differences", {}),
        ("comparison", {}),
        ("nothing", {}),
    ],
)
def test_what_is_not_there_is_told(run, name, given):
    [found] = asked(run, (name, {"status": 404, **given}))
    assert found["error"]


def test_the_numbers_are_those_of_gym_metrics(run):
    [found] = asked(run, ("metrics", {}))
    assert found["metrics"] == msgspec.json.decode(msgspec.json.encode(measure(run).metrics()))
    assert found["curves"] == [["pass@", "pass_at_k"], ["pass^", "pass_hat_k"]]


@pytest.mark.slow
async def test_a_run_that_grows_is_followed(run):
    async with Shown(run) as shown:
        await shown.ask("list", where="reward == 1", sort="-attempt")
        before = await shown.ask("status")
        with (run / "rollouts.jsonl").open("ab") as file:
            file.write(lines([rollout("e", 0, 1.0), rollout("c", 1, 1.0)]))
            file.write(lines([rollout("f")])[:40])  # the writer has not finished this line
        await until_changed(shown, before)
        grown = await shown.ask("list")
        with (run / "rollouts.jsonl").open("ab") as file:
            file.write(lines([rollout("f")])[40:])
        whole = await until_changed(shown, await shown.ask("status"), num_rows=10)
        last = await shown.ask("list")
    assert before["runs"][0]["num_rows"] == 8
    assert grown["num_rows"] == 9
    rows = {(row["task_id"], row["attempt"]): row for row in grown["rows"]}
    assert rows["c", 1]["status"] == "scored"
    assert rows["c", 1]["number"] == grown["rows"].index(rows["c", 1])
    assert whole["runs"][0]["version"] > before["runs"][0]["version"]
    assert tasks(last)[-2:] == ["e", "f"]


async def until_changed(shown, before, num_rows=None):
    """Ask until the run has grown; the server looks at most once a second."""
    while True:
        found = await shown.ask("status")
        [run] = found["runs"]
        is_there = run["version"] != before["runs"][0]["version"] if num_rows is None else False
        if is_there or run["num_rows"] == num_rows:
            return found
        await asyncio.sleep(0.1)


async def test_a_damaged_line_is_told_and_the_rest_stays(run):
    async with Shown(run) as shown:
        with (run / "rollouts.jsonl").open("ab") as file:
            file.write(lines([rollout("e")]) + b"nonsense\n")
        while not (found := (await shown.ask("status"))["runs"][0])["problem"]:
            await asyncio.sleep(0.1)
        rows = await shown.ask("list")
    assert "rollouts.jsonl:8" in found["problem"]
    assert rows["num_rows"] == 9
    assert found["version"] == rows["version"] > 0


async def test_a_run_that_is_gone_is_told(run):
    async with Shown(run) as shown:
        run.rename(run.with_name("elsewhere"))
        while not (found := (await shown.ask("status"))["runs"][0])["problem"]:
            await asyncio.sleep(0.1)
        refused = await shown.ask("metrics", status=409)
    assert "no such run directory" in found["problem"]
    assert "no such run directory" in refused["error"]


@pytest.mark.skipif(sys.platform == "darwin", reason="file names are UTF-8 there")
def test_a_run_whose_name_is_no_text_is_served(tmp_path):
    run = write_run(tmp_path / os.fsdecode(b"\xff"), [rollout("a")])

    async def main():
        async with Shown(run) as shown:
            missing = await shown.ask("task", status=404, env="arithmetic", task="b")
            run.rename(tmp_path / "elsewhere")
            while not (found := (await shown.ask("status"))["runs"][0])["problem"]:
                await asyncio.sleep(0.1)
            return missing["error"], found["problem"]

    for told in asyncio.run(main()):
        assert f"{tmp_path}/?: " in told


@pytest.fixture
def two(tmp_path):
    a = write_run(
        tmp_path / "one" / "a",
        [
            *(rollout("fixed", n, 0.0) for n in range(2)),
            *(rollout("broken", n, 1.0) for n in range(2)),
            *(rollout("flaky", n, float(n)) for n in range(2)),
            rollout("same"),
            rollout("worse", 0, 0.5),
            rollout("gone"),
        ],
        failures=[failure("new")],
    )
    b = write_run(
        tmp_path / "two" / "b",
        [
            *(rollout("fixed", n, 1.0) for n in range(2)),
            *(rollout("broken", n, 0.0) for n in range(2)),
            *(rollout("flaky", n, 1.0) for n in range(2)),
            rollout("same"),
            rollout("worse", 0, 0.25),
            rollout("new"),
        ],
    )
    return a, b


def test_two_runs_differ_task_by_task(two):
    a, b = two
    whole, fixed, alone, beyond, by_a = asked(
        a,
        ("differences", {}),
        ("differences", {"kind": "fixed"}),
        ("differences", {"kind": "only_b"}),
        ("differences", {"offset": 900, "limit": 5}),
        ("differences", {"sort": "-mean_a", "limit": 1}),
        runs=(b,),
    )
    assert [(row["task_id"], row["kinds"], row["difference"]) for row in whole["rows"]] == [
        ("broken", ["regressed", "broken"], -1.0),
        ("worse", ["regressed"], -0.25),
        ("same", ["unchanged"], 0.0),
        ("flaky", ["improved", "flaky_a"], 0.5),
        ("fixed", ["improved", "fixed"], 1.0),
        ("gone", ["only_a"], None),
        ("new", ["only_b"], None),
    ]
    assert (whole["counts"]["regressed"], whole["counts"]["broken"]) == (2, 1)
    assert whole["counts"]["fixed"] == 1
    assert tasks(fixed) == ["fixed"]
    assert (fixed["rows"][0]["passes_a"], fixed["rows"][0]["passes_b"]) == (0, 2)
    assert tasks(alone) == ["new"]
    assert (beyond["offset"], tasks(beyond)) == (5, ["gone", "new"])
    assert (by_a["num_tasks"], by_a["num_matching"], len(by_a["rows"])) == (7, 7, 1)
    assert by_a["rows"][0]["mean_a"] == 1.0


def test_both_runs_give_their_attempts_of_a_task(two):
    a, b = two
    key = {"env": "arithmetic", "task": "new"}
    pair, record = asked(a, ("pair", key), ("record", {**key, "attempt": 0, "run": 1}), runs=(b,))
    assert [[row["status"] for row in rows] for rows in pair["runs"]] == [["failed"], ["scored"]]
    assert [[row["run"] for row in rows] for rows in pair["runs"]] == [[0], [1]]
    assert record["record"]["reward"] == 1.0


@pytest.mark.parametrize("given", [{"kind": "better!"}, {"sort": "__class__"}, {"sort": "-x"}])
def test_differences_of_no_kind_are_refused(two, given):
    a, b = two
    [found] = asked(a, ("differences", {"status": 400, **given}), runs=(b,))
    assert "use one of" in found["error"]


def test_a_rollout_of_others_is_shown(tmp_path):
    answer = {"output": [{"type": "message", "role": "assistant", "content": "B"}]}
    line = nemo("x", agent_ref={"name": "mcqa"}, response=answer)
    file = write_rows(tmp_path / "theirs.jsonl", [line])
    [found] = asked(file, ("list", {}))
    [row] = found["rows"]
    assert (row["env"], row["reward"], row["passed"]) == ("mcqa", 1.0, True)
    key = {"env": row["env"], "task": row["task_id"], "attempt": row["attempt"]}
    [told] = asked(file, ("rollout", key))
    assert [message["role"] for message in told["record"]["messages"]] == ["user", "assistant"]


def test_the_runs_are_told_with_their_names(two):
    a, b = two
    [found] = asked(a, ("runs", {}), runs=(b,))
    assert [run["name"] for run in found["runs"]] == ["a", "b"]
    assert [run["path"] for run in found["runs"]] == [str(a), str(b)]
    assert {run["model"] for run in found["runs"]} == {"m"}
    assert {"reward", "avg", "text"} <= set(found["names"])


def test_the_difference_as_a_whole_is_that_of_gym_compare(two):
    a, b = two
    [found] = asked(a, ("comparison", {}), runs=(b,))
    wanted = compare_runs(a, b, allow_drift=True)
    assert found["comparison"] == msgspec.json.decode(msgspec.json.encode(wanted))


def test_runs_that_cannot_be_compared_are_told(two, tmp_path):
    empty = write_run(tmp_path / "empty", failures=[failure("a")])
    questions = ("comparison", {"status": 409}), ("differences", {})
    refused, found = asked(two[0], *questions, runs=(empty,))
    assert str(empty) in refused["error"]
    assert found["counts"] == {"only_a": 6}


def test_a_record_with_unknown_roles_is_served_unchanged(tmp_path):
    odd = [said("<b>", "hello", more={"of": "this"})]
    run = write_run(tmp_path / "run", [rollout("odd", messages=odd)])
    [found] = asked(run, ("rollout", {"env": "arithmetic", "task": "odd", "attempt": 0}))
    assert found["record"]["messages"] == odd


@pytest.mark.parametrize("line", [b"[1]", b"no JSON", b'{"task_id":"b","attempt":0}', b""])
async def test_a_line_that_was_changed_is_told(tmp_path, line):
    run = write_run(tmp_path / "run", [rollout("a")])
    file = run / "rollouts.jsonl"
    async with Shown(run) as shown:
        await shown.ask("list")
        with file.open("r+b") as changed:  # the same file with the same length
            size = len(changed.read()) - 1
            changed.seek(0)
            changed.write(line.ljust(size))
        key = {"env": "arithmetic", "task": "a", "attempt": 0}
        assert "was changed" in (await shown.ask("record", status=409, **key))["error"]


def test_a_record_that_is_too_large_is_left_to_gym_show(tmp_path):
    huge = [said("assistant", "x" * (49 << 20))]
    run = write_run(tmp_path / "run", [rollout("huge", messages=huge), rollout("b")])
    key = {"env": "arithmetic", "task": "huge", "attempt": 0}
    refused, found = asked(run, ("rollout", {"status": 413, **key}), ("list", {}))
    assert f"gym show {run} huge/0 prints it" in refused["error"]
    assert tasks(found) == ["huge", "b"]


@pytest.fixture
def served_run(tmp_path):
    return write_run(tmp_path / "run", [rollout("a"), rollout("b", reward=0.0)])


def visit(served_run, *asked, **options):
    """Request addresses below the root, each with its own headers and method."""

    async def main():
        async with Shown(served_run, **options) as shown:
            return [await shown.get(shown.root + path, **more) for path, more in asked]

    return asyncio.run(main())


def test_the_page_and_its_files_are_there(served_run):
    names = ["", "main.js", "list.js", "text.js", "style.css"]
    found = visit(served_run, *((f"{TOKEN}/{name}", {}) for name in names))
    assert [status for status, _, _ in found] == [200] * 5
    assert [headers["Content-Type"].split(";")[0] for _, headers, _ in found] == [
        *("text/html", "text/javascript", "text/javascript", "text/javascript", "text/css")
    ]
    assert "<main" in found[0][2]


def test_every_answer_has_the_headers_that_keep_text_from_scripting(served_run):
    paths = [f"{TOKEN}/", f"{TOKEN}/api/list", f"{TOKEN}/none", "", f"{TOKEN}/api/list?where=1+"]
    for status, headers, _ in visit(served_run, *((path, {}) for path in paths)):
        policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
        assert policy["default-src"] == "'none'", status
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["img-src"] == "data:"
        assert policy["base-uri"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] == "no-store"
        assert "Set-Cookie" not in headers
        assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize(
    "path",
    [
        *("", "api/list", "main.js", "favicon.ico", TOKEN[:-1] + "/", TOKEN + "x/", f"x/{TOKEN}/"),
        *(
            TOKEN.upper() + "/",
            f"?token={TOKEN}",
            "%00/",
            "%ff%fe/api/list",
            "\u00e9/".encode().hex(),
        ),
    ],
)
def test_without_the_token_nothing_is_told(served_run, path):
    [(status, _, text)] = visit(served_run, (path, {}))
    assert status == 403
    assert "What is" not in text
    assert TOKEN not in text


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *(("evil.example", 403), ("evil.example:80", 403), ("127.0.0.1.evil.example", 403)),
        *(("127.0.0.2", 403), ("0.0.0.0", 403), ("", 403), ("127.0.0.1:80@evil.example", 403)),
        *(("localhost:9", 200), ("LOCALHOST", 200), ("127.0.0.1", 200), ("[::1]:80", 200)),
    ],
)
def test_a_name_of_others_is_refused(served_run, host, status):
    [(found, _, text)] = visit(served_run, (f"{TOKEN}/api/list", {"headers": {"Host": host}}))
    assert found == status
    assert ("What is" in text) is False


@pytest.mark.parametrize(
    "name",
    [
        *("../__init__.py", "..%2f__init__.py", "%2e%2e/__init__.py", "page/main.js", "index.html"),
        *("/etc/passwd", "//etc/passwd", "main.js/", "main.js%00", "api", "api/", "api/__init__"),
        *("api/../main.js", "style.css%2f..", "\\..\\__init__.py", "api/_runs", "api/answer"),
    ],
)
def test_a_path_leads_to_no_other_file(served_run, name):
    [(status, _, text)] = visit(served_run, (f"{TOKEN}/{name}", {}))
    # The client may normalise a path before it sends it; the result is then a valid path.
    assert status in (403, 404) or "// Which page is shown" in text
    assert "import annotations" not in text


def test_nothing_can_be_changed(served_run):
    methods = ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"]
    found = visit(served_run, *((f"{TOKEN}/api/list", {"method": method}) for method in methods))
    assert [status for status, _, _ in found] == [405] * 5
    [(status, headers, text)] = visit(served_run, (f"{TOKEN}/", {"method": "HEAD"}))
    assert (status, text) == (200, "")
    assert int(headers["Content-Length"]) > 100


def test_an_address_without_its_slash_says_so(served_run):
    [(status, _, text)] = visit(served_run, (TOKEN, {}))
    assert status == 404
    assert "must end with a slash" in text


def test_secrets_are_taken_out_of_rollouts_and_errors(tmp_path):
    secret = "sk-4f9a8b7c6d5e4f3a"
    talk = [{"role": "assistant", "content": f"The key is {secret}."}]
    run = write_run(tmp_path / "run", [rollout("a", messages=talk, details={"reason": secret})])
    record = "api/rollout?env=arithmetic&task=a&attempt=0"
    wrong = f"api/list?where={secret}"
    asked = ((f"{TOKEN}/{path}", {}) for path in (record, wrong))
    [(status, _, text), (refused, _, error)] = visit(run, *asked, scrubber=Scrubber([secret]))
    assert (status, refused) == (200, 400)
    assert secret not in text + error
    assert text.count("[redacted]") == 2


class Clock:
    """A clock that advances by `step` whenever it is read."""

    def __init__(self):
        self.now = 0.0
        self.step = 0.0

    def __call__(self):
        self.now += self.step
        return self.now


@pytest.fixture
def listed_run(tmp_path):
    return write_run(tmp_path / "run", [rollout(name, 0, 0.5) for name in "abc"])


def test_a_run_that_grows_is_searched_again_after_ten_times_the_search(listed_run):
    clock = Clock()
    half = Listing("reward == 0.5", "-task_id")
    with RunIndex(listed_run) as index:
        listings = Listings(index, clock=clock)
        clock.step = 1.0  # the search seems to take a second
        assert listings.rows(half) == ([2, 1, 0], 0)
        clock.step = 0.0
        with (listed_run / "rollouts.jsonl").open("ab") as file:
            file.write(lines([rollout("d", 0, 0.5)]))
        listings.take(index.refresh())
        assert listings.version == 1
        clock.now += 9.0
        assert listings.rows(half) == ([2, 1, 0], 0)
        clock.now += 2.0
        assert listings.rows(half) == ([3, 2, 1, 0], 1)
        assert listings.rows(Listing()) == (range(4), 1)


def test_a_file_that_is_replaced_leaves_nothing_of_the_old_lists(listed_run):
    with RunIndex(listed_run) as index:
        listings = Listings(index)
        assert listings.rows(Listing("reward == 0.5")) == ([0, 1, 2], 0)
        (listed_run / "new").write_bytes(lines([rollout("z", 0, 0.5)]))
        (listed_run / "new").replace(listed_run / "rollouts.jsonl")
        listings.take(index.refresh())
        assert listings.rows(Listing("reward == 0.5")) == ([0], 1)


def test_nothing_new_changes_no_version(listed_run):
    with RunIndex(listed_run) as index:
        listings = Listings(index)
        listings.take(index.refresh())
        listings.take(Refreshed())
        assert listings.version == 0


def test_few_lists_are_kept_and_the_one_asked_for_last_longest(listed_run):
    clock = Clock()
    with RunIndex(listed_run) as index:
        listings = Listings(index, clock=clock)
        first, _ = listings.rows(Listing("attempt == 0"))
        for number in range(20):
            listings.rows(Listing(f"attempt < {number}"))
            assert listings.rows(Listing("attempt == 0"))[0] is first
        assert len(listings._measurements) == 8


@pytest.mark.parametrize(
    "text",
    ["", "plain", 'it\'s "so"', "a\\b", "\\", "\n\t\r\0\x1b", "\u2028é\U0001f600", "\\u0041"],
)
def test_a_quoted_text_is_found_as_it_is(tmp_path, text):
    named = rollout(f"x{text}x", 0, 0.5)
    listed_run = write_run(tmp_path / "run", [named, rollout("other")])
    with RunIndex(listed_run) as index:
        found, _ = Listings(index).rows(Listing(f"task_id == {quote(f'x{text}x')}"))
        assert found == [0]


class Measurement:
    """Counts its calls; each blocks until `may_end` is set."""

    def __init__(self):
        self.num_calls = 0
        self.has_begun = threading.Event()
        self.may_end = threading.Event()

    def __call__(self):
        self.num_calls += 1
        self.has_begun.set()
        self.may_end.wait()
        return self.num_calls


async def test_requests_share_a_measurement_under_way():
    measurement = Measurement()
    kept = CachedMeasurement(
        measurement, clock=lambda: 0.0
    )  # a measurement takes no time, so that no pause follows it
    first = asyncio.create_task(kept.of(1))
    await asyncio.to_thread(measurement.has_begun.wait)
    others = [asyncio.create_task(kept.of(1)) for _ in range(3)]
    measurement.may_end.set()
    together = [await each for each in (first, *others)]
    again = await kept.of(1)
    newer = await kept.of(2)
    assert {found.value for found in together} == {again.value} == {1}
    assert (newer.value, newer.version) == (2, 2)


async def test_a_newer_version_is_measured_after_ten_times_the_measurement():
    now = 0.0

    def measure():
        nonlocal now
        now += 1.0
        return now

    kept = CachedMeasurement(measure, clock=lambda: now)
    found = [await kept.of("a"), await kept.of("b")]
    now += 9.0
    found.append(await kept.of("b"))
    now += 1.0
    versions = [(found.value, found.version) for found in [*found, await kept.of("b")]]
    assert versions == [(1.0, "a"), (1.0, "a"), (1.0, "a"), (12.0, "b")]


async def test_a_measurement_goes_on_when_nobody_waits_any_more():
    measurement = Measurement()
    kept = CachedMeasurement(measurement)
    leaving = asyncio.create_task(kept.of(1))
    await asyncio.to_thread(measurement.has_begun.wait)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    waiting = asyncio.create_task(kept.of(1))
    measurement.may_end.set()
    assert (await waiting).value == 1
    assert measurement.num_calls == 1


async def test_a_measurement_is_given_up_at_the_end():
    measurement = Measurement()
    kept = CachedMeasurement(measurement)
    await kept.close()  # nothing is being measured yet
    waiting = asyncio.create_task(kept.of(1))
    await asyncio.to_thread(measurement.has_begun.wait)
    await kept.close()
    measurement.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not waiting.cancelling()


async def test_a_failed_measurement_is_repeated_by_the_next_request():
    answers = [UsageError("gone"), 7]

    def measure():
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    kept = CachedMeasurement(measure)
    with pytest.raises(UsageError, match="gone"):
        await kept.of(1)
    assert (await kept.of(1)).value == 7


KEY = ("env", "task")
MIRRORED = {"fixed": "broken", "improved": "regressed", "only_a": "only_b", "flaky_a": "flaky_b"}
MIRRORED |= {b: a for a, b in MIRRORED.items()}


def kinds(a, b):
    [row] = differences({KEY: a} if a else {}, {KEY: b} if b else {}).rows
    return " ".join(row.kinds)


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        (TaskScores(0.0, 2, 0), TaskScores(1.0, 2, 2), "improved fixed"),
        (TaskScores(1.0, 3, 3), TaskScores(0.5, 1, 0), "regressed broken"),
        (TaskScores(0.5, 2, 1), TaskScores(1.0, 2, 2), "improved flaky_a"),
        (TaskScores(1.0, 4, 4), TaskScores(0.25, 4, 1), "regressed flaky_b"),
        (TaskScores(0.5, 2, 1), TaskScores(0.5, 2, 1), "unchanged flaky_both"),
        (TaskScores(0.2, 2, 0), TaskScores(0.4, 2, 0), "improved"),
        (TaskScores(0.4, 2, 0), TaskScores(0.2, 2, 0), "regressed"),
        (TaskScores(1.0, 2, 2), TaskScores(1.0, 1, 1), "unchanged"),
        (TaskScores(-3.0, 2, None), TaskScores(7.0, 1, 1), "improved"),
        (TaskScores(0.3, 2, None), TaskScores(0.1 + 0.2, 1, None), "unchanged"),
        (TaskScores(1.0, 2, None), TaskScores(1.0, 1, None), "unchanged"),
        (TaskScores(1.0, 1, 1), None, "only_a"),
        (None, TaskScores(1.0, 1, 1), "only_b"),
    ],
)
def test_direction_and_flakiness_are_two_things(a, b, wanted):
    assert kinds(a, b) == wanted


@st.composite
def standings(draw):
    num = draw(st.integers(1, 4))
    passed = draw(st.none() | st.integers(0, num))
    return TaskScores(draw(st.floats(-2, 2)), num, passed)


tables = st.dictionaries(st.tuples(st.sampled_from("ef"), st.sampled_from("abc")), standings())


@given(tables, tables)
def test_the_runs_the_other_way_round_give_the_mirror_image(a, b):
    there, back = differences(a, b), differences(b, a)
    assert [row.kinds for row in back.rows] == [
        [MIRRORED.get(kind, kind) for kind in row.kinds] for row in there.rows
    ]
    for one, other in zip(there.rows, back.rows, strict=True):
        assert (one.mean_a, one.num_b) == (other.mean_b, other.num_a)
        assert one.difference is None or one.difference == -other.difference


@given(tables)
def test_a_run_differs_from_itself_in_nothing(a):
    rows = differences(a, a).rows
    assert {kind for row in rows for kind in row.kinds} <= {"unchanged", "flaky_both"}
    assert all(row.difference == 0 for row in rows)


@given(tables, tables, st.sampled_from(["", *KINDS]), st.booleans())
def test_selected_differences_are_of_one_kind_and_sorted(a, b, wanted, is_descending):
    found = differences(a, b)
    sort = "-difference" if is_descending else "difference"
    rows = found.select(wanted, sort)
    assert len(rows) == (found.counts.get(wanted, 0) if wanted else len(found.rows))
    known = [row.difference for row in rows if row.difference is not None]
    assert known == sorted(known, reverse=is_descending)
    assert all(row.difference is None for row in rows[len(known) :])
    one_each = sum(found.counts[kind] for kind in ("regressed", "improved", "unchanged"))
    assert one_each == sum(row.difference is not None for row in found.rows)


def errors(listed_run, task="a", attempt=0):
    with RunIndex(listed_run) as index:
        row = index.find("arithmetic", task, attempt)
        return [each.error.error_class for each in failures_of(listed_run, row)]


def test_errors_are_those_of_the_attempt_in_order(tmp_path):
    others = [failure("a", 1, "Other"), failure("aa", 0, "Other"), failure("b", 0, "a")]
    own = [failure("a", 0, name) for name in ("First", "Second", "Third")]
    listed_run = write_run(tmp_path, [rollout("a")], failures=[own[0], *others, *own[1:]])
    assert errors(listed_run) == ["First", "Second", "Third"]
    assert errors(listed_run, "b") == ["a"]


def test_of_many_errors_the_last_ones_are_returned(tmp_path):
    listed_run = write_run(tmp_path, failures=[failure("a", 0, f"E{n}") for n in range(80)])
    assert errors(listed_run) == [f"E{n}" for n in range(30, 80)]


def test_a_line_that_is_not_finished_is_left_out(tmp_path):
    listed_run = write_run(tmp_path, failures=[failure("a", 0, "First")])
    with (listed_run / "failures.jsonl").open("ab") as file:
        file.write(lines([failure("a", 0, "Second")])[:-10])
    assert errors(listed_run) == ["First"]


def test_a_damaged_line_is_told(tmp_path):
    listed_run = write_run(tmp_path, [rollout("a")], failures=[failure("b")])
    with RunIndex(listed_run) as index:
        row = index.find("arithmetic", "a", 0)
        with (listed_run / "failures.jsonl").open("ab") as file:
            file.write(b'{"task_id":"a",\n')
        with pytest.raises(RunFileError, match=r"failures.jsonl:2: is damaged"):
            failures_of(listed_run, row)


def test_a_bare_file_has_no_history(tmp_path):
    file = tmp_path / "rollouts.jsonl"
    file.write_bytes(lines([rollout("a")]))
    with RunIndex(file) as index:
        assert failures_of(file, index.rows[0]) == []
