"""Each call of Python returns what `--json` of its command prints, also in a running event loop."""

import asyncio
import gc
import shlex
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress

import msgspec
import pytest

import gymcli
from gymcli.errors import GymError, UsageError
from gymcli.library.call_options import MetricsOptions
from gymcli.library.calls import call_blocking, run_blocking
from gymcli.library.measurement import measured_runs
from gymcli.metrics.aggregate import Aggregator
from gymcli.rescoring.file_rescoring import iterate_async
from tests.builders import gym, write_rows, write_sums


@pytest.fixture(autouse=True)
def heeded_interrupt():
    """Heed SIGINT, which a background job of a shell ignores."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def in_loop(function):
    """Call a function where an event loop runs, as in a notebook."""

    async def main():
        return function()

    with closing(asyncio.new_event_loop()) as loop:  # `asyncio.run` handles interrupts itself
        return loop.run_until_complete(main())


def as_json(result):
    return msgspec.json.decode(msgspec.json.encode(result))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Make a folder with the runs a and b of the same six tasks."""
    folder = tmp_path_factory.mktemp("calls")
    tasks = write_sums(folder / "sums.jsonl", 6, kind="easy")
    for name in "ab":
        out = folder / "runs" / name
        gym("collect", tasks, "--model", "oracle", "--out", out, exit_code=0)
    return folder


@pytest.mark.parametrize(
    ("call", "command"),
    [
        (lambda: gymcli.measure("runs/a"), "metrics runs/a"),
        (
            lambda: gymcli.measure("runs/a", "runs/b", by=["kind"], by_task=True),
            "metrics runs/a runs/b --by kind --by-task",
        ),
        (
            lambda: gymcli.measure("runs/a", gates=["difference >= -1"], baseline="runs/b"),
            "metrics runs/a --gate 'difference >= -1' --baseline runs/b",
        ),
        (
            lambda: gymcli.compare("runs/a", "runs/b", by=["kind"]),
            "compare runs/a runs/b --by kind",
        ),
        (lambda: gymcli.compare("runs/a", "runs/b", "runs/b"), "compare runs/a runs/b runs/b"),
        (lambda: gymcli.verify("runs/a"), "verify runs/a"),
        (lambda: gymcli.verify("runs/a", repeat=2), "verify runs/a --repeat 2"),
        (lambda: gymcli.runs("runs"), "runs runs"),
        (lambda: gymcli.check("mcqa", limit=2), "check mcqa -n 2"),
        (lambda: gymcli.check("mcqa", "arithmetic", limit=2), "check mcqa arithmetic -n 2"),
    ],
)
def test_calls_return_what_commands_print(folder, monkeypatch, call, command):
    monkeypatch.chdir(folder)
    result = in_loop(call)
    printed = msgspec.json.decode(gym(*shlex.split(command), "--json").stdout)
    assert _without_times(as_json(result)) == _without_times(printed)
    assert len(result.to_dataframe()) == len(result.rows())
    assert result._repr_html_().startswith("<table><caption>")


def _without_times(value):
    """Return a JSON value without the findings on speed, which differ each time."""
    if isinstance(value, list):
        return [_without_times(item) for item in value]
    if isinstance(value, dict):
        if value.get("check") == "speed":
            return "speed"
        return {name: _without_times(item) for name, item in value.items()}
    return value


def test_collect_returns_what_the_command_prints(folder, monkeypatch):
    monkeypatch.chdir(folder)

    async def collected():
        return await gymcli.collect("sums.jsonl", model="oracle", out="runs/a")

    printed = msgspec.json.decode(
        gym("collect", "sums.jsonl", "--model", "oracle", "--out", "runs/a", "--json").stdout
    )
    assert as_json(asyncio.run(collected())) == printed


def test_gates_have_a_verdict(folder, monkeypatch):
    monkeypatch.chdir(folder)
    report = gymcli.gate("runs/a", "mean_reward >= 0.2", "coverage < 1")
    assert [gate.verdict for gate in report.gates] == ["PASS", "FAIL"]
    assert report.verdict == "FAIL"
    assert gymcli.gate("runs/a", "coverage == 1").verdict == "PASS"


def test_pending_conversations_alone_can_be_scored(folder):
    report = gymcli.verify(folder / "runs" / "a", pending=True)
    assert report.num_scored == 0
    assert report.rows() == [as_json(report)]
    assert len(report.to_dataframe()) == 1
    assert "<td>0</td>" in report._repr_html_()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gymcli.Endpoint(base_ur="x", model="m"), 'did you mean "base_url"'),
        (lambda: gymcli.check(gymcli.Judge), "is not a name; write the environment's name"),
        (lambda: gymcli.check("mcqa", limit="some"), "check: limit: is not a whole number"),
        (lambda: gymcli.collect(3), "collect: 3 is not the path or the name of tasks"),
        (lambda: gymcli.measure(), "measure: name a run"),
        (lambda: gymcli.measure(3), "measure: 3 is not the path of a run"),
        (lambda: gymcli.measure("runs/a", by=3), "measure: by: must be a list"),
        (lambda: gymcli.measure("runs/a", baseline="gone"), "no such run directory"),
        (lambda: gymcli.measure("runs/a", ks=[0]), "measure: ks.0: must be 1 or more"),
        (lambda: gymcli.measure("runs/a", ks=[10**6]), "ks.0: must be 999999 or less"),
        (lambda: gymcli.check(prompt="p.toml"), "--prompt FILE: name the environment"),
        (lambda: gymcli.check("gsm8k", prompt="p.toml"), "gsm8k is a benchmark, which has tasks"),
        (lambda: gymcli.verify("runs/a", num_workers=2), "--workers need --engine ray"),
        (lambda: gymcli.gate("runs/a"), "gate: name a condition"),
        (lambda: gymcli.gate("runs/a", "difference > 0"), "needs baseline=RUN"),
        (lambda: gymcli.gate("runs/a", "pass@9 > 0"), "runs/a: pass@9 > 0: no task has more than"),
        (lambda: gymcli.gate("runs/a", "mean > 0"), 'there is no number "mean"'),
        (lambda: gymcli.compare("runs/a"), "compare: name two runs or more"),
        (lambda: gymcli.compare("runs/a", "runs/b", margin="x"), "margin: is not a number"),
        (lambda: gymcli.verify("runs/a", repeat=1), "verify: repeat: must be 2 or more"),
        (lambda: gymcli.verify("runs/a", repeat=2, out="o"), "--repeat writes nothing"),
        (lambda: gymcli.runs("gone"), "gone: there is no such folder"),
    ],
)
def test_errors_are_ours(folder, monkeypatch, call, message):
    monkeypatch.chdir(folder)
    with pytest.raises(GymError) as raised:
        call()
    assert message in str(raised.value)


def test_a_coroutine_runs_where_a_loop_runs():
    async def double(number):
        await asyncio.sleep(0)
        return 2 * number

    assert run_blocking(double(2)) == 4
    assert in_loop(lambda: run_blocking(double(2))) == 4
    assert in_loop(lambda: call_blocking(lambda: asyncio.run(double(3)))) == 6
    with pytest.raises(UsageError, match="no"):
        in_loop(lambda: run_blocking(_refuse()))


def interrupt():
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


async def _go_on():
    """Interrupt the program, and do not end when cancelled."""
    asyncio.get_running_loop().call_soon(interrupt)
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)


async def _block(is_over):
    """Interrupt the program, and block the event loop."""
    interrupt()
    is_over.wait(60)


def test_an_interrupt_ends_a_call_whose_coroutine_goes_on():
    started = time.monotonic()
    for call in (lambda: run_blocking(_go_on()), lambda: in_loop(lambda: run_blocking(_go_on()))):
        with pytest.raises(KeyboardInterrupt):
            call()
    assert time.monotonic() - started < 30


def test_an_interrupt_ends_a_call_whose_coroutine_blocks_the_loop(monkeypatch):
    monkeypatch.setattr("gymcli.rollout.event_loop._LEAVE_SECONDS", 0.5)
    is_over = threading.Event()
    started = time.monotonic()
    for work in (
        lambda: run_blocking(_block(is_over)),
        lambda: call_blocking(lambda: asyncio.run(_block(is_over))),
        lambda: list(iterate_async(_blocking_items(is_over))),
    ):
        with pytest.raises(KeyboardInterrupt):
            in_loop(work)
    assert time.monotonic() - started < 30
    is_over.set()


async def _blocking_items(is_over):
    await _block(is_over)
    yield 1


def test_an_interrupt_cancels_a_coroutine_where_a_loop_runs():
    ended = []

    async def wait():
        asyncio.get_running_loop().call_soon(interrupt)
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(threading.current_thread() is threading.main_thread())

    with pytest.raises(KeyboardInterrupt):
        in_loop(lambda: run_blocking(wait()))
    assert ended == [False]


async def _refuse():
    raise UsageError("no")


def test_commands_import_the_library_when_they_run():
    source = (
        "import sys, importlib\n"
        "for name in ('collect', 'metrics', 'verify', 'compare', 'check', 'runs'):\n"
        "    importlib.import_module(f'gymcli.commands.{name}')\n"
        "names = [name for name in sys.modules if name.startswith('gymcli.library.')]\n"
        "print(*(name for name in names if not name.endswith('_options')))\n"
        "print('numpy' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, check=True, text=True
    )
    assert done.stdout == "\nFalse\n"


def test_measuring_imports_nothing_that_asks_a_model():
    """It takes 0.3 s of CPU, as long as the rest of a short command."""
    source = (
        "import sys, gymcli.library.measurement\n"
        "print([name for name in ('aiohttp', 'jsonschema') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, check=True, text=True
    )
    assert done.stdout == "[]\n"


def test_checks_of_several_environments_have_the_failures_of_all():
    checks = gymcli.check("tests.checks.broken:Forbidden", "arithmetic", limit=2)
    assert [report.env for report in checks] == ["broken", "arithmetic"]
    assert checks.failures == [*checks[0].failures, *checks[1].failures]


def test_findings_hold_no_secret(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sk-0123-4567-89ab")
    texts = str(as_json(gymcli.check("tests.library.leaking:Leaking", limit=1)))
    assert "RuntimeError: [redacted]" in texts
    assert "sk-0123" not in texts


def test_tasks_without_a_prompt_are_checked_with_one(tmp_path):
    tasks = write_rows(tmp_path / "t.jsonl", [{"id": "a", "word": "x", "answer": "y"}])
    prompt = tmp_path / "prompt.yaml"
    prompt.write_text('user: "Say {word}."')
    env = "tests.checks.broken:Good"
    assert gymcli.check(env, tasks=tasks).num_tasks == 0
    assert gymcli.check(env, tasks=tasks, prompt=prompt).num_tasks == 1


def test_runs_that_are_measured_are_kept_in_memory_only_for_plans(folder):
    runs = [folder / "runs" / name for name in "ab"]
    measured = list(measured_runs(runs, MetricsOptions()))
    gc.collect()
    assert not [item for item in gc.get_objects() if type(item) is Aggregator]
    assert [run.report.num_scored for run in measured] == [6, 6]
