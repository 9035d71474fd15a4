"""Tests of workers: functions that hang, allocate, crash or raise in a separate process."""

import asyncio
import math
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymcli.environment.registry import Registry
from gymcli.errors import VerifierCrashedError, VerifierError, VerifierTimeoutError
from gymcli.rollout.fork_server import forget_fork_servers
from gymcli.rollout.scoring import Workers, score
from gymcli.rollout.verify_context import VerifyContext
from gymcli.types import Rollout, Verifier
from tests.rollout import isolated
from tests.rollout.isolated import Holder, is_running, wait_for
from tests.rollout.misbehaving import Sum

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the limit rests on /proc")


@pytest.fixture(scope="module")
def shared():
    """Yield a pool of one worker for tests that leave it usable."""
    with Pool(1) as workers:
        yield workers


class Pool(Workers):
    """Workers with an event loop of their own, for tests that are not async."""

    def __init__(self, num_workers=None, **fields):
        self._runner = asyncio.Runner()
        super().__init__(num_workers, **fields)

    def run(self, coroutine):
        return self._runner.run(coroutine)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._runner.run(self.close())
        self._runner.close()


def called(workers, function, *args, timeout=20.0, memory_mb=1024, imports=()):
    call = workers.isolated.call(
        function, *args, timeout=timeout, memory_mb=memory_mb, imports=imports
    )
    return workers.run(call)


def nested():
    return lambda: None


def test_call_gives_the_result_of_another_process(shared):
    assert called(shared, isolated.add, [1], [2]) == [1, 2]
    assert called(shared, isolated.process) != os.getpid()


@settings(max_examples=30)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner),
    )
)
def test_call_gives_every_value_back_as_it_was(shared, value):
    assert called(shared, isolated.add, (value,), ()) == (value,)


def test_call_passes_much_data_both_ways(shared):
    assert called(shared, isolated.add, b"x" * 3_000_000, b"") == b"x" * 3_000_000


def test_call_reuses_processes(shared):
    assert len({called(shared, isolated.process) for _ in range(5)}) == 1


def test_call_runs_at_most_so_many_at_once_and_all_in_the_end():
    async def all_called(workers):
        calls = (
            workers.isolated.call(isolated.process, timeout=20, memory_mb=512) for _ in range(12)
        )
        return await asyncio.gather(*calls)

    with Pool(2) as workers:
        found = workers.run(all_called(workers))
    assert len(found) == 12
    # The first worker may be quick enough to run all calls.
    assert 1 <= len(set(found)) <= 2


def test_call_is_not_held_up_by_another_that_hangs(tmp_path):
    async def beside(workers):
        hanging = asyncio.create_task(
            workers.isolated.call(
                isolated.sleep_for_ever, tmp_path / "pid", timeout=60, memory_mb=512
            )
        )
        await wait_for((tmp_path / "pid").exists)
        given = await workers.isolated.call(isolated.add, 1, 2, timeout=20, memory_mb=512)
        assert not hanging.done()
        hanging.cancel()
        return given

    with Pool(2) as workers:
        assert workers.run(beside(workers)) == 3


@pytest.mark.parametrize(
    "function", [isolated.sleep_for_ever, isolated.spin, isolated.hold_the_interpreter]
)
def test_call_kills_what_takes_too_long(function, tmp_path):
    with Pool(1) as workers:
        pid = called(workers, isolated.process)
        words = f"^{function.__name__} took longer than 0.5 seconds$"
        with pytest.raises(VerifierTimeoutError, match=words):
            called(workers, function, tmp_path / "pid", timeout=0.5)
        assert int((tmp_path / "pid").read_text()) == pid
        assert not is_running(pid)
        assert called(workers, isolated.process) != pid, "the next call gets a new worker"


def test_call_kills_what_the_function_started(tmp_path):
    async def timed_out(workers):
        call = workers.isolated.call(
            isolated.start_another, tmp_path / "pid", timeout=60, memory_mb=2048
        )
        task = asyncio.create_task(call)
        await wait_for((tmp_path / "pid").exists)
        task.cancel()
        await asyncio.wait([task])
        pid = int((tmp_path / "pid").read_text())
        await wait_for(lambda: not is_running(pid))

    with Pool(1) as workers:
        workers.run(timed_out(workers))


def test_call_counts_neither_waiting_nor_importing_as_time():
    async def in_line(workers):
        slow = {"timeout": 0.9, "memory_mb": 512, "imports": ("tests.rollout.slow_import",)}
        calls = [workers.isolated.call(isolated.add, number, 0, **slow) for number in range(3)]
        return await asyncio.gather(*calls)

    with Pool(1) as workers:
        assert workers.run(in_line(workers)) == [0, 1, 2]
        assert called(workers, isolated.is_imported, "tests.rollout.slow_import")


@ON_LINUX
def test_call_limits_memory():
    with Pool(1) as workers:
        pid = called(workers, isolated.process)
        assert called(workers, isolated.take_memory, 30, memory_mb=100) == 30 * isolated.MEGABYTE
        with pytest.raises(VerifierError, match=r"^take_memory needed more than 100 MB of memory$"):
            called(workers, isolated.take_memory, 300, memory_mb=100)
        assert called(workers, isolated.take_memory, 300) == 300 * isolated.MEGABYTE
        assert called(workers, isolated.process) != pid, "a worker without memory is not trusted"


@ON_LINUX
def test_call_sets_its_limit_each_time(shared):
    first = called(shared, isolated.limit, memory_mb=300, timeout=10)
    second = called(shared, isolated.limit, memory_mb=200, timeout=10)
    assert 50 * isolated.MEGABYTE < first - second < 150 * isolated.MEGABYTE


@ON_LINUX
def test_call_keeps_to_a_limit_that_is_in_force():
    """As in a shell after `ulimit -v`."""
    code = """
    import asyncio, resource
    from gymcli.rollout.scoring import Workers
    from tests.rollout import isolated

    resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30, 4 * 2**30))
    async def main():
        async with Workers(1) as workers:
            return await workers.isolated.call(isolated.limit, timeout=1000, memory_mb=10**6)

    assert asyncio.run(main()) == 4 * 2**30
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


@pytest.mark.parametrize(
    ("function", "args", "words"),
    [
        (isolated.leave, (3,), "^leave: its process died \\(exit code 3\\)$"),
        (isolated.leave, (0,), "^leave: its process died \\(exit code 0\\)$"),
        (isolated.crash, (), "^crash: its process died \\(SIGABRT\\)$"),
    ],
)
def test_call_says_how_a_process_died(function, args, words):
    with Pool(1) as workers:
        with pytest.raises(VerifierError, match=words):
            called(workers, function, *args)
        assert called(workers, isolated.add, 1, 2) == 3


def test_call_takes_another_worker_where_an_idle_one_was_killed():
    """The death may be noticed before or after the call is sent."""
    with Pool(1) as workers:
        for _ in range(5):
            pid = called(workers, isolated.process)
            os.kill(pid, signal.SIGKILL)
            assert called(workers, isolated.process) != pid


def test_call_gives_up_on_a_module_that_ends_every_worker(tmp_path, monkeypatch):
    (tmp_path / "ends_all.py").write_text("import os\nos._exit(7)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with Pool(1) as workers:
        called(workers, isolated.process)
        with pytest.raises(VerifierError, match=r"^process: its process died \(exit code 7\)$"):
            called(workers, isolated.process, imports=("ends_all",))


@pytest.mark.parametrize("data", [b"garbage\n", b"\xff", b"\n\n", b"{}\n"])
def test_call_replaces_a_process_whose_reply_cannot_be_read(data):
    with Pool(1) as workers:
        pid = called(workers, isolated.process)
        words = "^write_everywhere: its process sent a reply that cannot be read$"
        with pytest.raises(VerifierCrashedError, match=words):
            called(workers, isolated.write_everywhere, data)
        assert called(workers, isolated.process) != pid


WRITING = """
import asyncio, os
from gymcli.rollout.scoring import Workers
from tests.rollout import isolated
from tests.processes import TOO_LONG

async def main():
    workers = Workers(1)
    for turn in range(4):
        try:
            async with asyncio.timeout(TOO_LONG):
                call = workers.isolated.call(isolated.add, turn, 1, timeout=20, memory_mb=512)
                print(await call, flush=True)
        except BaseException as error:
            print(type(error).__name__, flush=True)
        if turn == 1:
            isolated.write_everywhere(b"garbage\\n")

asyncio.run(main())
"""


@pytest.mark.parametrize("name", ["write_everywhere", "write_to_low_descriptors"])
def test_call_survives_what_the_caller_writes_to_every_descriptor(name):
    """What the worker and the fork server read, if anything, costs one call at most."""
    program = WRITING.replace("write_everywhere", name)
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True
    )
    replies = done.stdout.split()
    assert (replies[0], replies[1], replies[3]) == ("1", "2", "4")
    assert replies[2] == "3" or (replies[2], name) == ("VerifierCrashedError", "write_everywhere")


@ON_LINUX
@pytest.mark.slow
def test_call_counts_no_time_in_which_the_process_has_no_cpu():
    with Pool(1) as workers:
        passed = called(workers, isolated.compute_where_others_do, 0.9, 0, 2, timeout=2.0)
    assert passed > 2.0


@ON_LINUX
@pytest.mark.slow
def test_call_takes_no_more_than_four_times_its_limit():
    with Pool(1) as workers, pytest.raises(VerifierTimeoutError, match=r"longer than 0\.5 seconds"):
        called(workers, isolated.compute_where_others_do, 5.0, 19, 2, timeout=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("way_out", ["answered", "cancelled", "closed"])
async def test_the_event_loop_turns_while_the_fork_server_starts(way_out, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, time\nif 'gymcli.rollout.isolation' in sys.orig_argv:\n    time.sleep(3.0)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    forget_fork_servers()
    gaps = []

    async def turn():
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            gaps.append(time.monotonic() - before)

    started = time.monotonic()
    turning = asyncio.create_task(turn())
    workers = Workers(1)
    calling = asyncio.create_task(
        workers.isolated.call(isolated.add, 1, 2, timeout=20, memory_mb=512)
    )
    if way_out == "answered":
        assert await calling == 3
    else:
        await asyncio.sleep(0.5)
    if way_out == "cancelled":
        calling.cancel()
        await asyncio.wait([calling])
    await workers.close()
    forget_fork_servers()
    turning.cancel()
    await asyncio.wait([calling])
    assert (time.monotonic() - started > 3.0) == (way_out == "answered")
    assert max(gaps) < 1.0
    assert calling.cancelled() == (way_out == "cancelled")


def test_call_raises_what_the_function_raised(shared):
    with pytest.raises(KeyError) as raised:
        called(shared, isolated.raise_key_error, "gold")
    assert raised.value.args == ("gold",)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (isolated.exit_politely, "exit_politely raised SystemExit: enough"),
        (isolated.raise_no_exception, "raise_no_exception raised NoException: out of time"),
        (isolated.raise_cancelled, "raise_cancelled raised CancelledError"),
        (isolated.raise_not_made_again, "raise_not_made_again raised NotMadeAgainError: ab"),
        (isolated.raise_unpicklable, "raise_unpicklable raised ValueError: with a lambda"),
        (isolated.give_unpicklable, "give_unpicklable returned a value that cannot be pickled: "),
        (
            isolated.give_unreadable,
            "give_unreadable returned a value that cannot be unpickled here: ValueError: ",
        ),
    ],
)
def test_call_describes_what_cannot_be_passed_on(shared, function, words):
    with pytest.raises(VerifierError, match=f"^{words}"):
        called(shared, function)
    assert called(shared, isolated.add, 1, 2) == 3


def test_call_survives_a_stop_iteration(shared):
    with pytest.raises(RuntimeError, match="StopIteration"):
        called(shared, isolated.raise_stop)


def test_call_keeps_prints_apart_from_results(shared, capfd):
    with Pool(1) as workers:  # a worker that inherits this test's stderr
        assert called(workers, isolated.chatter) == "quiet"
        assert called(workers, isolated.chatter) == "quiet"
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err.count("straight to the file") == 2
    assert "on stderr" in printed.err


@pytest.mark.parametrize("function", [math.factorial, Holder.double])
def test_call_takes_functions_that_have_a_name(shared, function):
    assert called(shared, function, 2) in (2, 4)


@pytest.mark.parametrize(
    "function",
    [lambda: None, nested(), Holder.own_name, Holder().method, [].append, "add", None],
    ids=["lambda", "nested", "classmethod", "method", "of a list", "string", "none"],
)
def test_call_refuses_what_has_no_name(shared, function):
    with pytest.raises(
        TypeError, match="must be a function at the top level of an importable module"
    ):
        called(shared, function)


def test_call_refuses_a_function_of_a_script(tmp_path):
    """Importing a script would run it again in every worker."""
    script = tmp_path / "script.py"
    script.write_text(
        "import asyncio\nfrom gymcli.rollout.scoring import Workers\ndef f(): pass\n"
        "asyncio.run(Workers(1).isolated.call(f, timeout=9, memory_mb=99))\n"
    )
    ran = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    assert "TypeError: __main__.f cannot be called in another process" in ran.stderr


def test_call_refuses_arguments_that_cannot_be_pickled(shared):
    with pytest.raises(
        VerifierError, match=r"^add: its arguments cannot be sent to another process: "
    ):
        called(shared, isolated.add, nested(), 1)


@pytest.mark.parametrize("missing", ["no_such_package_at_all", "gymcli.no_such_module"])
def test_call_says_what_cannot_be_imported(shared, missing):
    words = f"^add cannot be loaded in another process: ModuleNotFoundError: .*'{missing}'"
    with pytest.raises(VerifierError, match=words):
        called(shared, isolated.add, 1, 2, imports=(missing,))
    assert called(shared, isolated.add, 1, 2) == 3


def test_call_says_that_no_worker_can_be_started(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    # A fork server of an earlier test would be used again.
    monkeypatch.setattr("gymcli.rollout.fork_server._servers", {})
    words = "^add: no process can be started: .*/no/such/python"
    with Pool(1) as workers, pytest.raises(VerifierError, match=words):
        called(workers, isolated.add, 1, 2)


def test_call_says_that_no_other_worker_can_be_started(monkeypatch):
    async def in_line(workers):
        limits = {"timeout": 20, "memory_mb": 512}
        await workers.isolated.call(isolated.process, **limits)
        forget_fork_servers()
        monkeypatch.setattr(sys, "executable", "/no/such/python")
        calls = (isolated.leave, 3), (isolated.add, 1, 2)
        return await asyncio.gather(
            *(workers.isolated.call(*call, **limits) for call in calls), return_exceptions=True
        )

    with Pool(1) as workers:
        died, not_started = map(str, workers.run(in_line(workers)))
    assert died == "leave: its process died (exit code 3)"
    assert not_started.startswith("add: no process can be started: ")


def test_calls_have_another_fork_server_where_one_is_killed_at_its_start(monkeypatch, caplog):
    servers = {}
    monkeypatch.setattr("gymcli.rollout.fork_server._servers", servers)

    async def in_line(workers):
        calls = [
            asyncio.create_task(workers.isolated.call(isolated.add, n, 1, timeout=20, memory_mb=99))
            for n in range(20)
        ]
        await asyncio.sleep(0)
        [server] = servers.values()
        os.kill(server._process.pid, signal.SIGKILL)
        return await asyncio.gather(*calls)

    with Pool(2) as workers:
        assert workers.run(in_line(workers)) == list(range(1, 21))
    assert not caplog.records


def test_call_says_that_a_worker_died_at_its_start(monkeypatch):
    monkeypatch.setattr(sys, "path", ["/no/such/folder"])
    # A fork server of an earlier test would be used again.
    monkeypatch.setattr("gymcli.rollout.fork_server._servers", {})
    with Pool(1) as workers, pytest.raises(VerifierError, match=r"^add: its process died"):
        called(workers, isolated.add, 1, 2)


def test_call_kills_the_worker_of_a_caller_that_leaves(tmp_path):
    async def leaving(workers):
        task = asyncio.create_task(
            workers.isolated.call(isolated.spin, tmp_path / "pid", timeout=60, memory_mb=512)
        )
        await wait_for((tmp_path / "pid").exists)
        waiting = asyncio.create_task(
            workers.isolated.call(isolated.add, 1, 2, timeout=9, memory_mb=99)
        )
        left = asyncio.create_task(workers.isolated.call(isolated.spin, timeout=60, memory_mb=512))
        await asyncio.sleep(0)
        left.cancel()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        pid = int((tmp_path / "pid").read_text())
        await wait_for(lambda: not is_running(pid))
        assert await waiting == 3, "the place of the killed worker is free again"

    with Pool(1) as workers:
        workers.run(leaving(workers))


async def test_close_ends_idle_and_busy_workers(tmp_path):
    workers = Workers(2)
    path = tmp_path / "pid"
    call = workers.isolated.call(isolated.spin, path, timeout=60, memory_mb=512)
    busy = asyncio.create_task(call)
    await wait_for(path.exists)
    idle = await workers.isolated.call(isolated.process, timeout=20, memory_mb=512)
    await workers.close()
    with pytest.raises(VerifierError, match=r"^spin was cut off"):
        await busy
    assert not is_running(idle)
    assert not is_running(int(path.read_text()))
    with pytest.raises(VerifierError, match="the workers were closed"):
        await workers.isolated.call(isolated.process, timeout=20, memory_mb=512)
    await workers.close()


async def test_close_refuses_calls_that_still_wait(tmp_path):
    workers = Workers(1)
    spin = workers.isolated.call(isolated.spin, tmp_path / "pid", timeout=60, memory_mb=512)
    busy = asyncio.create_task(spin)
    await wait_for((tmp_path / "pid").exists)
    waiting = asyncio.create_task(
        workers.isolated.call(isolated.add, 1, 2, timeout=9, memory_mb=99)
    )
    await asyncio.sleep(0)
    await workers.close()
    ended = await asyncio.gather(busy, waiting, return_exceptions=True)
    assert [type(error) for error in ended] == [VerifierError, VerifierError]


@pytest.mark.slow
@pytest.mark.parametrize(
    "function", ["sleep_for_ever", "spin", "hold_the_interpreter", "start_another"]
)
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_worker_ends_with_its_parent(function, sent, tmp_path):
    """So does the process that its function started and that writes the id."""
    code = f"""
    import asyncio
    from pathlib import Path
    from gymcli.rollout.scoring import Workers
    from tests.rollout import isolated

    workers = Workers(1)
    path = Path({str(tmp_path / "pid")!r})
    asyncio.run(workers.isolated.call(isolated.{function}, path, timeout=100, memory_mb=512))
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)]) as parent:
        asyncio.run(wait_for((tmp_path / "pid").exists))
        worker = int((tmp_path / "pid").read_text())
        assert is_running(worker)
        parent.send_signal(sent)
        parent.wait(20)
    asyncio.run(wait_for(lambda: not is_running(worker)))


def test_idle_worker_ends_with_a_parent_that_closes_nothing(tmp_path):
    code = f"""
    import asyncio
    from pathlib import Path
    from gymcli.rollout.scoring import Workers
    from tests.rollout import isolated

    asyncio.run(Workers(1).isolated.call(isolated.tell, Path({str(tmp_path / "pid")!r}), timeout=20,
                                memory_mb=512))
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=60)
    worker = int((tmp_path / "pid").read_text())
    asyncio.run(wait_for(lambda: not is_running(worker)))


def test_worker_does_not_hear_of_an_interrupt_of_the_group(shared):
    """Ctrl-C only reaches the parent, which then decides."""
    pid = called(shared, isolated.process)
    assert os.getpgid(pid) == pid != os.getpgid(0)


def scored(environment, workers=None):
    found = score(
        environment,
        Rollout(),
        verifier=Verifier(),
        options=environment.Options(),
        workers=workers,
    )
    return asyncio.run(found) if workers is None else workers.run(found)


def test_score_ends_the_workers_of_its_own():
    rollout = scored(Sum)
    assert rollout.reward == 0.75
    assert not is_running(int(rollout.answer))


def test_score_leaves_given_workers_open(shared):
    first, second = scored(Sum, shared), scored(Sum, shared)
    assert first.answer == second.answer
    assert is_running(int(first.answer))


async def test_isolated_starts_no_worker_for_a_verifier_that_needs_none():
    async with VerifyContext(Sum, options=Sum.Options()) as context:
        assert context._processes is None


def test_isolated_finds_functions_of_an_environment_given_as_a_file(tmp_path):
    """The functions may also take and return classes of that file."""
    file = tmp_path / "my env.py"
    file.write_text(
        textwrap.dedent(
            '''
            """An environment in a file."""

            import os
            from typing import NamedTuple

            from gymcli import Environment, Score, Task


            class Found(NamedTuple):
                number: float
                process: int


            def half(found):
                return Found(found.number / 2, os.getpid())


            class Halves(Environment[Task]):
                """Halves numbers in a worker."""

                @classmethod
                async def verify(cls, rollout, context):
                    found = await context.isolated(half, Found(0.5, os.getpid()))
                    assert isinstance(found, Found)
                    assert found.process != os.getpid()
                    return Score(found.number)
            '''
        )
    )
    assert scored(Registry((f"{file}:Halves",)).find("my env").environment).reward == 0.25
