"""The index of a run is asked by one thread at a time."""

import asyncio
import threading
from pathlib import Path

import pytest

from gymcli.reporting.viewer import open_run
from tests.reporting.viewer_runs import rollout, write_run


def test_who_leaves_does_not_let_two_threads_at_the_index(tmp_path):
    run = write_run(tmp_path / "run", [rollout("a")])
    has_begun, may_end, order = threading.Event(), threading.Event(), []

    def long(index, listings):
        has_begun.set()
        may_end.wait()
        order.append("first")

    async def main():
        async with open_run(run) as viewed:
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

    asyncio.run(main())
    assert order == ["first", "second"]


def test_an_error_of_a_question_is_that_of_who_asked(tmp_path):
    run = write_run(tmp_path / "run", [rollout("a")])

    async def main():
        async with open_run(run) as viewed:
            with pytest.raises(ZeroDivisionError):
                await viewed.ask(lambda *_: 1 / 0)
            return await viewed.ask(lambda index, _: len(index.rows))

    assert asyncio.run(main()) == 1


def test_a_run_is_called_by_the_name_of_its_folder(tmp_path, monkeypatch):
    run = write_run(tmp_path / "run", [rollout("a")])
    monkeypatch.chdir(run)
    for path in (run, Path()):
        viewed = open_run(path)
        assert viewed.name == "run"
        viewed.index.close()
