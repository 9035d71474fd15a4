"""The summary begins with the verdict, fits the length limit, and shows no text as Markdown."""

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from gymcli.comparison.comparison_results import (
    Comparison,
    Difference,
    Drift,
    RunSide,
    TaskDifference,
)
from gymcli.comparison.gates import GateProblem
from gymcli.metrics.results import Estimate, Interval
from gymcli.reporting.markdown import (
    MAX_CHARACTERS,
    MarkdownText,
    comparison_blocks,
    comparison_markdown,
    join_blocks,
    markdown,
    table,
)
from gymcli.store.scored_lines import EnvironmentFacts, FailureLine, ScoredLine
from gymcli.types import ErrorRecord
from tests.reporting.reports import HOSTILE, report_of, sums

REWARDS = {**{f"t{n}": [1.0, 1.0] for n in range(20)}, "flaky": [0.0, 1.0], "bad": [0.0, 0.0]}


def failure(name: str = "ServerError", task_id: str = "x", env: str = "sums") -> FailureLine:
    return FailureLine(env=env, task_id=task_id, error=ErrorRecord(error_class=name, phase="model"))


def text_of(*reports) -> str:
    return markdown(reports, clean=lambda text: text)


def outside_code(text: str) -> str:
    """Return the text without its code spans, and check that each ends on its line."""
    for line in text.splitlines():
        assert line.count("`") % 2 == 0, line
    return re.sub(r"`[^`\n]*`", "", text)


@pytest.mark.parametrize(
    ("gates", "verdict"),
    [
        (("pass@1 >= 0.5",), "PASS"),
        (("pass@1 >= 0.9", "pass@1 >= 0.5"), "INCONCLUSIVE"),
        (("pass@1 >= 0.9", "flaky == 0"), "FAIL"),
    ],
)
def test_verdict_comes_first(gates, verdict):
    report = report_of(sums(REWARDS), gates=gates, model="m")
    assert text_of(report).splitlines()[0] == f"## **{verdict}**: `runs/a` of `m`"


def test_gates_are_a_table():
    problem = GateProblem(what="cost < 1", reason="what it cost is not known")
    report = report_of(sums(REWARDS), gates=("pass@1 >= 0.9", "flaky <= 3"), problems=(problem,))
    lines = text_of(report).splitlines()
    assert lines[0] == "## **NOT JUDGED**: `runs/a`"
    assert lines[2] == "| gate | verdict | value | interval |  |"
    assert re.fullmatch(
        r"\| `pass@1 >= 0.9` \| \*\*INCONCLUSIVE\*\* \| 0.932 \| 0.\d+ .. 0.\d+ \(95 %\) \| about "
        r"[\d,]+ tasks such as these.* would decide \|",
        lines[4],
    )
    assert lines[5] == "| `flaky <= 3` | PASS | 1 | - |  |"
    assert lines[6] == "| `cost < 1` | **NOT JUDGED** | - | - | what it cost is not known |"


def test_numbers_failures_and_flaky_tasks_are_tables():
    report = report_of(sums(REWARDS), [failure(), failure("RateLimitError", "y")])
    text = text_of(report)
    assert text.startswith("## Run: `runs/a`\n")
    assert "| environment | tasks | scored | coverage | mean reward | 95 % | `pass@2` | " in text
    assert re.search(
        r"\| `sums` \| 24 \| 44 of 10 \| 440.0% \| 0.932 \| 0.\d+ .. 0.\d+ \| 0.955 \| 0.909 "
        r"\| 1 \|",
        text,
    )
    folded = text.split("<details><summary>All numbers</summary>\n\n")[1].split("\n\n</details>")[0]
    assert "| `sums` | `mean_reward` | 0.932 | " in folded
    assert "pass@1" not in text
    assert "cost" not in text
    assert "avg@1" not in text
    assert "### Attempts without a score\n\n|  | number |\n| --- | --- |\n| `RateLimit" in text
    assert "| `sums` | `flaky` | 1/2 |" in text
    assert "| `sums` | `bad` |" not in text


def test_slices_are_tables():
    report = report_of(sums(REWARDS))
    report.metrics.slices["level"] = {"3": report.metrics.environments["sums"]}
    text = text_of(report)
    head = "| `level` | tasks | mean reward | 95 % | `pass@2` | `pass^2` | flaky |"
    assert f"### By `level`\n\n{head}\n" in text
    assert re.search(r"\| `3` \| 22 \| 0.932 \| 0.\d+ .. 0.\d+ \| 0.955 \| 0.909 \| 1 \|", text)


def test_slices_of_environments_that_share_no_scale_are_their_own():
    facts = {"a": EnvironmentFacts(max_reward=1.0), "b": EnvironmentFacts(max_reward=2.0)}
    lines = [ScoredLine(env=env, task_id=str(n), reward=1.0) for env in "ab" for n in range(3)]
    report = report_of(lines, facts=facts)
    for own in report.metrics.environments.values():
        own.slices["level"] = {"3": own}
    text = text_of(report)
    assert "### `a` by `level`" in text
    assert "### `b` by `level`" in text
    assert "| `all` |" in text


def test_difference_to_a_baseline_is_a_section():
    report = report_of(sums(REWARDS))
    found = report.metrics.estimates["mean_reward"]
    part = Difference(
        num_tasks=3, mean_a=0.5, mean_b=0.6, difference=found, p_value=0.25, p_adjusted=0.5
    )
    comparison = Comparison(
        a=RunSide(run="main"),
        b=RunSide(run="runs/a"),
        num_tasks=22,
        mean_a=0.9,
        mean_b=0.93,
        difference=found,
        p_value=0.000985,
        smallest_margin=0.0612,
        verdict="FAIL",
        way_out="about 30 tasks would decide",
        broken=["t1"],
        num_broken=1,
        fixed=[f"f{n}" for n in range(40)],
        num_fixed=50,
        drift=[Drift(kind="prompt", env="sums", name="prompt")],
        slices={"level": {"3": part}},
    )
    text = text_of(report._replace(comparison=comparison))
    assert text == snapshot("""\
## **FAIL**, compared with the baseline: `runs/a`

| environment | tasks | scored | coverage | mean reward | 95 % | `pass@2` | `pass^2` | flaky |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
| `sums` | 22 | 44 of 10 | 440.0% | 0.932 | 0.755 .. 0.984 | 0.955 | 0.909 | 1 |

<details><summary>All numbers</summary>

|  | number | value | interval | error | tasks | attempts |
| --- | --- | --- | --- | --- | --- | --- |
| `sums` | `mean_reward` | 0.932 | 0.755 .. 0.984 | 0.0498 | 22 | 44 |
| `sums` | `pass@2` | 0.955 | 0.761 .. 0.993 | 0.0455 | 22 | 44 |
| `sums` | `pass^2` | 0.909 | 0.701 .. 0.977 | 0.0627 | 22 | 44 |

</details>

### Compared with `main`: FAIL

The runs differ in more than the model: `sums: prompt`

| `mean_reward` | tasks | baseline | run | difference | interval | p | p (Holm) | verdict |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
| `all` | 22 | 0.900 | 0.930 | +0.932 | +0.755 .. +0.984 | &lt; 0.001 | - | FAIL |
| `level=3` | 3 | 0.500 | 0.600 | +0.932 | +0.755 .. +0.984 | 0.250 | 0.500 | INCONCLUSIVE |

About 30 tasks would decide; the run passes with --margin 0.062 or more

Tasks: 0 regressed (1 broken), 0 improved (50 fixed), 0 unchanged

Broken: `t1`

Fixed: `f0`, `f1`, `f2`, `f3`, `f4`, `f5`, `f6`, `f7`, `f8`, `f9`, `f10`, `f11`, `f12`, `f13`, `f14`, `f15`, `f16`, `f17`, `f18`, `f19`, `f20`, `f21`, `f22`, `f23`, `f24`, `f25`, `f26`, `f27`, `f28`, `f29` and 20 more

### Flaky tasks

| environment | task | passed |
| --- | --- | --- |
| `sums` | `flaky` | 1/2 |

- 66% of the variance lies between tasks: the best use of the next request is another task, not another attempt
- 1 of 22 tasks passes only sometimes: `gym show runs/a --where '0 < num_passed < num_attempts'`
""")  # noqa: E501  # as it is written


def _lost(env, task_id):
    return TaskDifference(
        env=env,
        task_id=task_id,
        num_attempts_a=4,
        num_attempts_b=4,
        num_passes_a=4,
        num_passes_b=1,
        value_a=1.0,
        value_b=0.25,
        difference=-0.75,
        direction="regressed",
        flaky_in="B",
        change="flaky",
    )


def hostile_report(text: str):
    """Return a report with this text in every place that an outsider can fill."""
    own = text or "env"
    facts = {own: EnvironmentFacts(max_reward=1.0), "another": EnvironmentFacts(max_reward=2.0)}
    lines = [
        ScoredLine(
            env=env,
            task_id=f"{text}{task}",
            attempt=attempt,
            reward=float(attempt),
            components={text: 1.0},
            metrics={text: 1.0},
            tool_errors={text: 1},
        )
        for env in (own, "another")
        for task in range(3)
        for attempt in range(2)
    ]
    report = report_of(
        lines,
        [failure(text, f"{text}x", own)],
        facts=facts,
        problems=(GateProblem(what=text, reason=text),),
        model=text,
        run=text,
    )
    part = report.metrics.environments[own]
    report.metrics.environments[own].slices[text] = {text: part}
    report.metrics.environments["another"].advice.append(text)
    comparison = Comparison(
        metric=text,
        a=RunSide(run=text),
        b=RunSide(run=text),
        way_out=text,
        broken=[text],
        num_broken=1,
        drift=[Drift(kind="prompt", name=text)],
        num_tasks=1,
        regressions=[_lost(text, text)],
        slices={text: {text: Difference()}},
    )
    return report._replace(comparison=comparison)


def check_harmless(text: str) -> None:
    """Check that nothing outside code spans is active in Markdown or on a forge."""
    rest = outside_code(text)
    rest = re.sub(r"\\[\\`*_\[\]#|~$]", "", rest)
    rest = re.sub("</?details>|</?summary>", "", rest)
    assert not re.search(r"[<>]|\]\(|!\[|@\w|\$|~~|://|www\.", rest.replace("**", ""))
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e\ud800-\udfff]", text)
    for line in text.splitlines():
        if line.startswith("| "):
            assert line.endswith(" |")
    for rows in re.findall(r"(?:^\|.*\n)+", text + "\n", re.MULTILINE):
        widths = {re.sub(r"\\\|", "", line).count("|") for line in rows.splitlines()}
        assert len(widths) == 1, rows


def test_hostile_text_is_text():
    text = text_of(hostile_report(HOSTILE))
    check_harmless(text)
    assert "<img src=x onerror=alert(1)>" in text  # unchanged within a code span


def test_hostile_comparison_is_text():
    comparison = hostile_report(HOSTILE).comparison
    text = comparison_markdown(comparison, clean=lambda text: text)
    assert text.startswith("## **INCONCLUSIVE**: `")
    check_harmless(text)


@given(st.text(st.sampled_from("`|\\*_[]()<>!#@$~&\n\t ab1-=:/."), max_size=30))
def test_no_text_is_markdown(text):
    check_harmless(text_of(hostile_report(text)))


def test_summary_fits_and_says_what_was_left_out():
    rewards = {f"{'long name ' * 20}{n}": [0.0, 1.0] for n in range(500)}
    report = report_of(sums(rewards))
    text = text_of(report)
    assert "450 more are left out.\n" in text
    assert len(text) < 10_000

    many = text_of(*[report] * 30)
    assert len(many) <= MAX_CHARACTERS < 65_536
    assert len(many.encode()) < 1 << 20
    assert re.search(r"\d+ more sections did not fit; `gym metrics` prints everything.\n$", many)


def test_secrets_are_taken_out():
    report = report_of(sums({"secret": [0.0, 1.0]}), model="secret", run="secret")
    text = markdown([report], clean=lambda text: text.replace("secret", "[redacted]"))
    assert "secret" not in text
    assert "`[redacted]`" in text


def test_nothing_scored_is_told_too():
    text = text_of(report_of([], [failure()]))
    assert "| `sums` | 1 | 0 of 10 | 0.0% | - | - |" in text
    assert msgspec.json.encode(text)


SCRUBBED_TEXT = MarkdownText(lambda text: text.replace("secret", "[redacted]"))


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("plain", "`plain`"),
        ("", "`(empty)`"),
        ("a`b``c", "`a'b''c`"),
        ("a|b\\|c\\", "`a¦b\\¦c\\`"),
        ("a\n\n# b", "`a # b`"),
        ("the secret", "`the [redacted]`"),
        ("x" * 200, f"`{'x' * 79}…`"),
    ],
)
def test_code_is_one_span(text, span):
    assert SCRUBBED_TEXT.code(text) == span


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("about 30 tasks would decide", "about 30 tasks would decide"),
        ("a * b_c [d](e) | f", "a \\* b\\_c \\[d\\](e) \\| f"),
        ("<b> & `c`", "&lt;b&gt; &amp; 'c'"),
        ("pass@4", "pass@\u20604"),
        ("http://e.vil www.e.vil", "http:\u2060//e.vil www\u2060.e.vil"),
        ("the secret", "the \\[redacted\\]"),
    ],
)
def test_sentence_is_text(text, sentence):
    assert SCRUBBED_TEXT.sentence(text) == sentence


def test_table_says_how_many_rows_are_left_out():
    assert table(("a", "b"), [("1", "2")]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
    lines = table(("a",), [("1",)] * 12, max_rows=5).splitlines()
    assert len(lines) == 9
    assert lines[-2:] == ["", "7 more are left out."]


def test_blocks_that_do_not_fit_are_left_out_whole():
    assert join_blocks(["a", "b"]) == "a\n\nb\n"
    block = "x" * (MAX_CHARACTERS // 4)
    text = join_blocks([block] * 6)
    assert len(text) <= MAX_CHARACTERS
    assert text.count("x" * len(block)) == 3
    assert re.search("^3 more sections did not fit", text, re.MULTILINE)


TEXT = MarkdownText(lambda text: text)


def difference(value: float) -> Estimate:
    interval = Interval(low=value - 0.1, high=value + 0.1, level=0.95, method="t")
    return Estimate(value=value, estimator="mean", num_values=4, num_clusters=2, interval=interval)


def test_blocks_of_a_comparison():
    comparison = Comparison(
        metric="pass@1",
        a=RunSide(run="main"),
        b=RunSide(run="new"),
        num_tasks=1200,
        mean_a=0.5,
        mean_b=0.4,
        difference=difference(-0.1),
        p_value=0.0312,
        verdict="FAIL",
        broken=["t1", "t2"],
        num_broken=2,
        num_fixed=0,
        num_regressed=46,
        num_improved=22,
        num_unchanged=52,
        num_flaky=82,
        regressions=[_lost("a", "t3")],
        drift=[Drift(kind="prompt", name="prompt", a="x", b="y")],
        environments={"a": Difference(num_tasks=2, p_adjusted=0.5), "b": Difference()},
    )
    drift, table, counts, regressions, broken = comparison_blocks(comparison, TEXT)
    assert counts == (
        "Tasks: 46 regressed (2 broken), 22 improved (0 fixed), 52 unchanged, "
        "82 flaky in either run"
    )
    assert regressions.splitlines()[-1] == "| `a` | `t3` | 1.000 | 0.250 | -0.750 |"
    assert drift.endswith("differ in more than the model: `prompt x in A, y in B`")
    assert broken == "Broken: `t1`, `t2`"
    assert table.splitlines() == [
        "| `pass@1` | tasks | baseline | run | difference | interval | p | p (Holm) | verdict |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        "| `all` | 1,200 | 0.500 | 0.400 | -0.100 | -0.200 .. +0.000 | 0.031 | - | FAIL |",
        "| `a` | 2 | - | - | - | - | - | 0.500 | INCONCLUSIVE |",
        "| `b` | 0 | - | - | - | - | - | - | INCONCLUSIVE |",
    ]


def test_what_would_decide_is_said():
    comparison = Comparison(
        a=RunSide(run="a"), b=RunSide(run="b"), way_out="about 30 tasks would decide"
    )
    [table, way_out] = comparison_blocks(comparison, TEXT)
    assert way_out == "About 30 tasks would decide"
    assert "| `all` | 0 |" in table
