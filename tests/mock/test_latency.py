"""How long the mock server waits, without waiting."""

import statistics

import pytest

from gymcli.errors import UsageError
from gymcli.mock.faults import Latency


def waits(spec: str, num: int = 4000, seed: int = 0) -> list[float]:
    latency = Latency.parse(spec)
    return [latency.seconds(seed=seed, body=str(n), occurrence=0) for n in range(num)]


def test_fixed_latency_is_not_drawn():
    assert waits("0.2", 3) == [0.2] * 3


@pytest.mark.parametrize(
    ("spec", "mean", "middle"),
    [
        ("uniform:0.1:0.5", 0.3, 0.3),
        ("lognormal:0.2:0.5", 0.2 * 2.718281828 ** (0.5**2 / 2), 0.2),
        ("exponential:0.3", 0.3, 0.3 * 0.6931),
    ],
)
def test_latency_follows_its_distribution(spec, mean, middle):
    found = waits(spec)
    assert statistics.mean(found) == pytest.approx(mean, rel=0.05)
    assert statistics.median(found) == pytest.approx(middle, rel=0.06)
    assert min(found) >= (0.1 if spec.startswith("uniform") else 0)


def test_latency_is_the_same_by_seed():
    spec = "exponential:1"
    assert waits(spec, 50) == waits(spec, 50)
    assert waits(spec, 50) != waits(spec, 50, seed=1)


def test_latency_of_a_retry_is_drawn_anew():
    latency = Latency.parse("uniform:0:1")
    found = {latency.seconds(seed=0, body="a", occurrence=n) for n in range(5)}
    assert len(found) == 5


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        (
            "unifrom:1:2",
            r'--latency unifrom:1:2: no distribution "unifrom"; did you mean "uniform"\?',
        ),
        ("pareto:1", "use SECONDS, uniform:LOW:HIGH, lognormal:MEDIAN:SIGMA, exponential:MEAN"),
        ("fast", '"fast" is no number'),
        ("uniform:1", "expected uniform:LOW:HIGH"),
        ("uniform:2:1", "LOW is above HIGH"),
        ("lognormal:0.2:500", "SIGMA is above 10"),
        ("-1", "a number of seconds cannot be -1"),
        ("exponential:inf", "cannot be inf"),
    ],
)
def test_latency_names_what_is_wrong(spec, complaint):
    with pytest.raises(UsageError, match=complaint):
        Latency.parse(spec)
