"""A number that takes long is measured once for each version."""

import asyncio
import threading

import pytest

from gymcli.errors import UsageError
from gymcli.reporting.viewer_lists import CachedMeasurement


class Measurement:
    """Counts its calls; each waits until it may end."""

    def __init__(self):
        self.num_calls = 0
        self.has_begun = threading.Event()
        self.may_end = threading.Event()

    def __call__(self):
        self.num_calls += 1
        self.has_begun.set()
        self.may_end.wait()
        return self.num_calls


def test_who_asks_meanwhile_waits_for_the_same_measurement():
    measurement = Measurement()
    kept = CachedMeasurement(
        measurement, clock=lambda: 0.0
    )  # which takes no time, and needs no rest

    async def main():
        first = asyncio.create_task(kept.of(1))
        await asyncio.to_thread(measurement.has_begun.wait)
        others = [asyncio.create_task(kept.of(1)) for _ in range(3)]
        measurement.may_end.set()
        return [await each for each in (first, *others)], await kept.of(1), await kept.of(2)

    together, again, newer = asyncio.run(main())
    assert {found.value for found in together} == {again.value} == {1}
    assert (newer.value, newer.version) == (2, 2)


def test_a_newer_version_is_measured_after_ten_times_the_measurement():
    now = 0.0

    def measure():
        nonlocal now
        now += 1.0
        return now

    async def main():
        nonlocal now
        kept = CachedMeasurement(measure, clock=lambda: now)
        found = [await kept.of("a"), await kept.of("b")]
        now += 9.0
        found.append(await kept.of("b"))
        now += 1.0
        return [*found, await kept.of("b")]

    versions = [(found.value, found.version) for found in asyncio.run(main())]
    assert versions == [(1.0, "a"), (1.0, "a"), (1.0, "a"), (12.0, "b")]


def test_a_measurement_goes_on_when_nobody_waits_any_more():
    measurement = Measurement()
    kept = CachedMeasurement(measurement)

    async def main():
        leaving = asyncio.create_task(kept.of(1))
        await asyncio.to_thread(measurement.has_begun.wait)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        waiting = asyncio.create_task(kept.of(1))
        measurement.may_end.set()
        return await waiting

    assert asyncio.run(main()).value == 1
    assert measurement.num_calls == 1


def test_a_measurement_is_given_up_at_the_end():
    measurement = Measurement()
    kept = CachedMeasurement(measurement)

    async def main():
        await kept.close()  # nothing is measured yet
        waiting = asyncio.create_task(kept.of(1))
        await asyncio.to_thread(measurement.has_begun.wait)
        await kept.close()
        measurement.may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not waiting.cancelling()

    asyncio.run(main())


def test_what_cannot_be_measured_is_tried_again_by_who_asks_next():
    answers = [UsageError("gone"), 7]

    def measure():
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    async def main():
        kept = CachedMeasurement(measure)
        with pytest.raises(UsageError, match="gone"):
            await kept.of(1)
        return await kept.of(1)

    assert asyncio.run(main()).value == 7
