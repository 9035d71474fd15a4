"""The page: valid, complete, reproducible, and immune to hostile text in runs."""

import itertools
import re

import msgspec
import pytest

from gymcli.comparison.gates import GateVerdict
from gymcli.metrics.measure import measure
from gymcli.metrics.results import Interval
from gymcli.reporting.html_page import MARK, html_report
from gymcli.reporting.html_run import read_run
from gymcli.secrets import Scrubber
from tests.builders import gym, write_rows
from tests.comparison.compared import nemo
from tests.reporting.html_pages import (
    HOSTILE,
    Page,
    attempts,
    page_of,
    script_hash,
    usual_run,
    write_run,
)

pytest.importorskip("jinja2", reason="needs the extra `report`")
pytest.importorskip("plotly", reason="needs the extra `report`")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return usual_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="module")
def text(run):
    return page_of(run)


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def test_the_page_says_what_made_it(text):
    assert text.startswith("<!doctype html>")
    assert MARK in text[:500]


def test_names_within_the_page_are_unique(page):
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    targets = [attrs["href"] for attrs in page.all("a")]
    assert targets[0] == "#main"
    assert {target.removeprefix("#") for target in targets} <= set(ids)


def test_headings_skip_no_level(page):
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))


def test_every_table_has_a_caption_and_can_be_scrolled_by_keyboard(page):
    regions = [attrs for attrs in page.all("div") if attrs.get("class") == "scroll"]
    assert len(page.all("table")) == len(page.all("caption")) == len(regions)
    assert all(attrs["tabindex"] == "0" and attrs["aria-label"] for attrs in regions)
    assert all(attrs["scope"] in ("row", "col") for attrs in page.all("th"))


def test_every_chart_has_words_and_a_figure(page):
    plots = [attrs for attrs in page.all("div") if "data-chart" in attrs]
    assert {attrs["data-chart"] for attrs in plots} == set(page.embedded("figures"))
    assert len(plots) >= 7
    assert all(attrs["role"] == "img" and len(attrs["aria-label"]) > 20 for attrs in plots)


def test_every_chart_has_its_numbers_beside_it(text):
    for figure in re.findall("<figure.*?</figure>", text, re.DOTALL):
        assert figure.count("<table>") == 1


def test_figures_are_what_plotly_takes(page):
    graph_objects = pytest.importorskip("plotly.graph_objects")
    for figure in page.embedded("figures").values():
        assert graph_objects.Figure(figure).data


def test_scripts_are_those_that_the_policy_names(page):
    policy = page.policy()
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    own = [script for attrs, script in page.scripts if not attrs]
    assert len(own) == 2
    assert sorted(re.findall("'sha256-[^']+'", policy)) == sorted(map(script_hash, own))
    others = [attrs["type"] for attrs, _ in page.scripts if attrs]
    assert others == ["application/json"] * 2


def test_nothing_is_loaded_from_elsewhere(page, text):
    assert not {"link", "iframe", "object", "embed", "base", "form"} & {t for t, _ in page.elements}
    for _, attrs in page.elements:
        assert not {"src", "srcset", "action", "background", "style"} & set(attrs)
    plotly = max((script for _, script in page.scripts), key=len)
    assert "http" not in text.replace(plotly, "").replace("http-equiv", "")
    assert "url(" not in text.replace(plotly, "")


def test_no_element_listens_by_attribute(page):
    assert not [name for _, attrs in page.elements for name in attrs if name.startswith("on")]


def test_the_same_runs_give_the_same_bytes(run, text):
    assert page_of(run) == text


def test_numbers_are_those_of_gym_metrics(run, page):
    report = msgspec.json.decode(gym("metrics", run, "--json", "--by-task").stdout)
    for found in (report, *report["environments"].values()):
        for name in ("mean_reward", "strict_mean_reward", "num_scored", "coverage"):
            assert found[name] in page.numbers
    for env in report["environments"].values():
        for curve in ("pass_at_k", "pass_hat_k", "avg_at_k"):
            assert set(env[curve].values()) <= set(page.numbers)
    assert set(report["latency"]["total_seconds"].values()) <= set(page.numbers)
    held = page.embedded("tasks")["run-1"]
    by_id = {task["task_id"]: task for task in report["tasks"]}
    for row, task_id in enumerate(held["id"]):
        task = by_id.pop(task_id)
        assert held["mean"][row] == task["mean_reward"]
        assert held["scored"][row] == task["num_scored"]
        assert held["passed"][row] == task["num_passes"]
    assert by_id == {}


def test_every_number_about_rewards_says_how_sure_it_is(run, page):
    """Those that are another name of one of them are left out."""
    for env in measure(run).metrics().environments.values():
        assert {"mean_reward", "pass@2"} <= env.distinct.keys() < env.estimates.keys()
        for name, found in env.distinct.items():
            cells = [f"{found.value:.3f}", found.estimator]
            cells += [f"{found.num_clusters:,}", f"{found.num_values:,}"]
            if interval := found.interval:
                cells.append(f"{interval.low:.3f} .. {interval.high:.3f}")
                cells.append(f"95 % {interval.method}")
            assert page.has_row(name, *cells)


def test_bands_of_curves_are_the_intervals(run, page):
    report = msgspec.json.decode(gym("metrics", run, "--json").stdout)
    estimates = report["environments"]["quiz"]["estimates"]
    band, line = page.embedded("figures")["run-1-0-k"]["data"][:2]
    assert line["name"].startswith("pass@k")
    intervals = [estimates[f"pass@{k}"]["interval"] for k in line["x"]]
    assert line["y"] == [estimates[f"pass@{k}"]["value"] for k in line["x"]]
    assert band["y"] == [
        *(interval["high"] for interval in intervals),
        *(interval["low"] for interval in reversed(intervals)),
    ]


def test_slices_are_those_of_gym_metrics(tmp_path):
    records = [
        *attempts("a", [1.0, 1.0], task={"kind": "easy"}),
        *attempts("b", [0.0, 1.0], task={"kind": "<i>hard"}),
        *attempts("c", [0.0, 0.0], task={"kind": "<i>hard"}),
    ]
    run = write_run(tmp_path / "run", *records)
    page = Page(page_of(run, by=["kind"]))
    report = msgspec.json.decode(gym("metrics", run, "--json", "--by", "kind").stdout)
    slices = report["environments"]["quiz"]["slices"]["kind"]
    assert set(slices) == {"easy", "<i>hard"}
    for value, found in slices.items():
        assert page.has_row(value, f"{found['mean_reward']:.3f}", str(found["num_scored"]))
    (drawn,) = page.embedded("figures")["run-1-0-slice-0"]["data"]
    assert drawn["y"] == ["&lt;i&gt;hard", "easy"]
    assert drawn["x"] == [0.25, 1.0]
    assert [attrs["id"] for attrs in page.all("section")][-3:-1] == ["run-1-slices", "run-1-tasks"]


def test_advice_is_that_of_gym_metrics(run, page):
    report = msgspec.json.decode(gym("metrics", run, "--json").stdout)
    for name, env in report["environments"].items():
        assert env["advice"]
        for sentence in env["advice"]:
            assert f"{name}: {sentence}" in page.text


def test_long_advice_is_folded(tmp_path):
    """Otherwise long advice would push the numbers far down the page."""
    records = [r for n in range(6) for r in attempts("a", [1.0, 0.0], env=f"env{n}")]
    run = write_run(tmp_path / "run", *records)
    report = msgspec.json.decode(gym("metrics", run, "--json").stdout)
    advice = [(name, one) for name, e in report["environments"].items() for one in e["advice"]]
    page = Page(page_of(run))
    assert f"{len(advice) - 8} more" in page.text
    for name, sentence in advice:
        assert page.text.count(f"{name}: {sentence}") == 1


def test_the_verdict_comes_first(page):
    sections = [attrs["id"] for attrs in page.all("section")]
    parts = ("verdict", "environments", "rewards", "effort", "failures", "attempts", "tasks")
    assert sections == ["run-1", *(f"run-1-{part}" for part in (*parts, "method"))]
    assert "13 scored of 16 expected" in page.text


def test_gates_stand_before_all_numbers(run):
    interval = Interval(low=0.4, high=0.6, level=0.95, method="t")
    missed = GateVerdict(
        gate="avg@1 >= 0.9", verdict="FAIL", value=0.5, interval=interval, judged_on="bound"
    )
    held = GateVerdict(gate="coverage > 0.5", verdict="PASS", value=0.8, judged_on="number")
    text = html_report([read_run(run)], verdicts=[[missed, held]], clean=str)
    said = Page(text).text
    assert "FAIL avg@1 >= 0.9: it is 0.5, 0.400 .. 0.600 (95 % t)" in said
    assert "PASS coverage > 0.5: it is 0.8" in said
    assert text.index('<li class="fail">') < text.index('<li class="pass">')
    assert text.index('<li class="pass">') < text.index("Mean reward")


def test_unscored_and_flaky_are_named(page):
    assert "the most frequent reason: ServerError" in page.text
    assert "Tasks with both passed and failed attempts" in page.text
    held = page.embedded("tasks")["run-1"]
    assert held["attempts"][held["id"].index("hard")] == [0.0, 0.0, "x", 0.0]
    assert held["id"][0] == "lost"


def test_what_a_run_holds_cannot_script_the_page(tmp_path):
    hostile = attempts(
        HOSTILE, [1.0, 0.0, None], env=HOSTILE, components={HOSTILE: 1.0}, metrics={HOSTILE: 2.0}
    )
    for record in hostile:
        record.model = HOSTILE
        if hasattr(record, "answer"):
            record.answer = HOSTILE
    path = write_run(tmp_path / "run", *hostile, model=HOSTILE)
    text = page_of(path)
    page = Page(text)
    assert len(page.scripts) == len(Page(page_of(usual_run(tmp_path / "other"))).scripts)
    assert not page.all("img")
    assert all(attrs["href"].startswith("#") for attrs in page.all("a"))
    assert HOSTILE in page.text
    embedded = [script for attrs, script in page.scripts if attrs]
    assert not re.search("[<>&\u2028\u2029]", "".join(embedded))
    assert page.embedded("tasks")["run-1"]["id"] == [" ".join(HOSTILE.split())]
    for figure in page.embedded("figures").values():
        assert "<" not in msgspec.json.encode(figure).decode()


def test_secrets_and_control_characters_are_taken_out(tmp_path):
    key = "sk-a&b<Vy0Rk3Jq8Zt5LmN2"
    records = attempts(f"{key} task", [1.0, 0.0], env=f"env {key}", components={key: 1.0})
    path = write_run(tmp_path / f"run {key}", *records, model=f"model {key}")
    text = page_of(path, path, clean=Scrubber([key]).text)
    assert "Vy0Rk3Jq8Zt5" not in text
    assert "[redacted] task" in text
    assert "model [redacted]" in text
    assert f"<title>{path.parent}/run [redacted], " in text


@pytest.mark.parametrize(
    ("name", "records"),
    [
        ("empty", []),
        ("all failed", attempts("a", [None, None])),
        ("single", attempts("a", [1.0])),
        ("unbounded", attempts("a", [-3.5, 12.25]) + attempts("b", [1e100, 0.0])),
    ],
)
def test_runs_with_little_data_have_a_page(tmp_path, name, records):
    best = None if name == "unbounded" else 1.0
    page = Page(page_of(write_run(tmp_path / "run", *records, max_reward=best)))
    told = "Nothing is scored." in page.text
    assert told == (name in ("empty", "all failed"))
    assert len(page.embedded("tasks")["run-1"]["id"]) == len({r.task_id for r in records})


def test_a_bare_file_says_what_is_not_known(run):
    page = Page(page_of(run / "rollouts.jsonl"))
    assert "A rollout file does not record how many attempts were expected." in page.text


def test_a_rollout_file_of_nemo_gym_has_a_page(tmp_path):
    own = {"agent_ref": {"name": "mcqa_simple_agent"}, "expected_answer": "B"}
    theirs = [nemo("a", reward, attempt=n, **own) for n, reward in enumerate((1.0, 0.0))]
    file = write_rows(tmp_path / "theirs.jsonl", theirs)
    page = Page(page_of(file))
    assert "mcqa" in page.text
    assert 0.5 in page.numbers
    assert page.embedded("tasks")["run-1"]["attempts"] == [[1.0, 0.0]]


def test_several_runs_have_a_section_each(tmp_path):
    runs = [usual_run(tmp_path / name) for name in ("one", "two", "three")]
    page = Page(page_of(*runs))
    sections = [attrs["id"] for attrs in page.all("section") if attrs.get("class") == "run"]
    assert sections == ["run-1", "run-2", "run-3"]
    assert list(page.embedded("tasks")) == sections
    heads = [attrs["id"] for attrs in page.all("h2")]
    assert heads == ["runs-title", "run-1-title", "run-2-title", "run-3-title"]


def test_of_many_attempts_a_sample_is_drawn(tmp_path):
    records = [r for n in range(400) for r in attempts(f"t{n}", [0.0, 1.0, 1.0, 0.5, 0.0])]
    page = Page(page_of(write_run(tmp_path / "run", *records)))
    assert "1,500 points drawn at random of 2,000; the means are over all." in page.text
    assert len(page.embedded("figures")["run-1-0-tokens"]["data"][0]["x"]) == 1500
