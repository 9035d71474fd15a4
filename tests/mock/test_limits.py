"""The token bucket, by a clock that only the test moves."""

from gymcli.mock.server import TokenBucket


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_bucket_holds_one_second():
    clock = Clock()
    bucket = TokenBucket(300, clock=clock)
    assert [bucket.take() for _ in range(6)] == [True] * 5 + [False]
    clock.now += 0.2
    assert [bucket.take() for _ in range(2)] == [True, False]
    clock.now += 3600
    assert sum(bucket.take() for _ in range(100)) == 5


def test_bucket_of_few_holds_one():
    clock = Clock()
    bucket = TokenBucket(6, clock=clock)
    assert [bucket.take(), bucket.take()] == [True, False]
    clock.now += 9.5
    assert not bucket.take()
    clock.now += 1
    assert bucket.take()
