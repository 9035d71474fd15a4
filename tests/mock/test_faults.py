"""Tests of drawing faults, latencies and outages, without a server."""

import statistics
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.errors import UsageError
from gymcli.mock.faults import (
    CONTENT_FAULTS,
    DELIVERY_FAULTS,
    STATUS_FAULTS,
    FaultKind,
    FaultRule,
    Faults,
    Latency,
    Outage,
    body_hash,
    draw,
)

KINDS = typing.get_args(FaultKind)


def drawn(faults: Faults, num_bodies: int, *, seed: int = 0, occurrence: int = 0) -> list:
    return [
        faults.draw(seed=seed, body=str(n), occurrence=occurrence, text="hello")
        for n in range(num_bodies)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_of_one_sort(kind):
    assert [*STATUS_FAULTS, *DELIVERY_FAULTS, *CONTENT_FAULTS].count(kind) == 1
    assert FaultRule.parse(kind) == FaultRule(kind)


@pytest.mark.parametrize(
    ("spec", "rule"),
    [
        ("500=0.25", FaultRule("500", 0.25)),
        ("stall@task 17", FaultRule("stall", 1.0, "task 17")),
        ("429-after=0.5@a=b@c", FaultRule("429-after", 0.5, "a=b@c")),
    ],
)
def test_parse_rule(spec, rule):
    assert FaultRule.parse(spec) == rule


@pytest.mark.parametrize(
    ("specs", "complaint"),
    [
        (["stal"], r'--fault stal: no fault "stal"; did you mean "stall"\?'),
        (["xyzzy"], "use one of 429, 429-after, "),
        (["500=2"], "--fault 500=2: the rate must be a number from 0 to 1"),
        (["500=nan"], "must be a number from 0 to 1"),
        (["500="], "must be a number from 0 to 1"),
        (["500@"], "--fault 500@: the text after @ is missing"),
        (["500=0.6", "502=0.6"], "the rates add up to 1.2, which is more than 1"),
    ],
)
def test_parse_names_what_is_wrong(specs, complaint):
    with pytest.raises(UsageError, match=complaint):
        Faults.parse(specs)


@given(
    st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 3)), unique=True),
    st.randoms(use_true_random=False),
    st.integers(),
)
def test_draw_does_not_depend_on_the_order(requests, random, seed):
    faults = Faults.parse(["500=0.3", "reset=0.3", "500-once=0.2"])

    def draw(body: str, occurrence: int):
        return faults.draw(seed=seed, body=body, occurrence=occurrence, text="")

    first = {request: draw(*request) for request in requests}
    random.shuffle(requests)
    assert {request: draw(*request) for request in requests} == first


def test_draw_takes_as_many_as_the_rates_say():
    found = drawn(Faults.parse(["500=0.2", "stall=0.1"]), 10_000)
    assert 1800 < found.count("500") < 2200
    assert 850 < found.count("stall") < 1150
    assert found.count(None) == 10_000 - found.count("500") - found.count("stall")


def test_draw_is_another_for_a_retry_and_for_another_seed():
    faults = Faults.parse(["500=0.5"])
    first = drawn(faults, 100)
    assert first != drawn(faults, 100, occurrence=1)
    assert first != drawn(faults, 100, seed=1)


def test_draw_heeds_the_text():
    faults = Faults.parse(["500=0.5", "500-always@task 17"])
    rules = [rule.kind for rule in faults.rules]
    assert rules == ["500-always", "500"], "what names a text comes first"
    for occurrence in range(20):
        found = faults.draw(seed=0, body="a", occurrence=occurrence, text="this is task 17")
        assert found == "500-always"


def test_draw_of_500_once_is_for_the_first_request_of_a_body():
    faults = Faults.parse(["500-once=0.5"])
    assert 0 < drawn(faults, 100).count("500-once") < 100
    assert set(drawn(faults, 100, occurrence=1)) == {None}


def test_draw_of_500_always_is_for_a_body_and_not_for_a_request():
    faults = Faults.parse(["500-always=0.5"])
    first = drawn(faults, 100)
    assert 0 < first.count("500-always") < 100
    assert first == drawn(faults, 100, occurrence=7)


@pytest.mark.parametrize("occurrence", [0, 1])
def test_draw_keeps_the_shares_of_kinds_of_both_sorts(occurrence):
    """500-once does not apply to a second try, and no other kind gets its share."""
    specs = ["500-always=0.2", "500-once=0.2", "reset=0.2", "502=0.3"]
    found = drawn(Faults.parse(specs), 10_000, occurrence=occurrence)
    shares = [found.count(spec.partition("=")[0]) / 10_000 for spec in specs]
    once = 0 if occurrence else 0.2
    # More than four standard deviations of a share of 10,000 draws.
    assert shares == pytest.approx([0.2, once, 0.2, 0.3], abs=0.02)


@pytest.mark.parametrize("first", ["null-content=0.3", "500-once=0.3", "500=0.8"])
def test_500_always_is_every_request_of_a_body_beside_other_kinds(first):
    faults = Faults.parse([first, "500-always=0.2"])
    tries = zip(*(drawn(faults, 300, occurrence=n) for n in range(6)), strict=True)
    always = [set(kinds) for kinds in tries if "500-always" in kinds]
    assert len(always) > 30
    assert always == [{"500-always"}] * len(always)


def test_rates_that_add_up_to_one_leave_nothing_out():
    faults = Faults.parse(["500-always=0.7", "500=0.1", "502=0.1", "503=0.1"])
    assert None not in drawn(faults, 10_000, occurrence=1)


def test_no_rules_no_fault():
    assert drawn(Faults(), 10) == [None] * 10


@given(st.integers(), st.text(), st.binary(), st.integers(min_value=0))
def test_draw_is_a_number_between_0_and_1_and_the_same_again(seed, purpose, body, occurrence):
    number = draw(seed, purpose, body_hash(body), occurrence)
    assert 0 < number < 1
    assert number == draw(seed, purpose, body_hash(body), occurrence)


def test_draw_is_even():
    """Of 10,000 draws a tenth is in each tenth, within five standard deviations."""
    numbers = [draw(0, "fault", str(n), 0) for n in range(10_000)]
    for tenth in range(10):
        assert 850 < sum(tenth <= number * 10 < tenth + 1 for number in numbers) < 1150


def test_draw_differs_by_every_argument():
    first = draw(0, "fault", "a", 0)
    others = [draw(1, "fault", "a", 0), draw(0, "latency", "a", 0), draw(0, "fault", "b", 0)]
    assert len({first, *others, draw(0, "fault", "a", 1)}) == 5


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
        ("fast", '"fast" is not a number of seconds'),
        ("uniform:1", "expected uniform:LOW:HIGH"),
        ("uniform:2:1", "LOW is above HIGH"),
        ("lognormal:0.2:500", "SIGMA is above 10"),
        ("-1", '"-1" is not a number of seconds'),
        ("exponential:inf", '"inf" is not a number of seconds'),
    ],
)
def test_latency_names_what_is_wrong(spec, complaint):
    with pytest.raises(UsageError, match=complaint):
        Latency.parse(spec)


@pytest.mark.parametrize(
    ("texts", "outage"),
    [
        (("5s", "20s"), Outage(after_seconds=5, seconds=20)),
        (("0.5",), Outage(after_seconds=0.5)),
        (("100r", "for-ever"), Outage(after_requests=100)),
        ((None,), Outage()),
    ],
)
def test_parse_outage(texts, outage):
    assert Outage.parse(*texts) == outage


@pytest.mark.parametrize(
    ("texts", "complaint"),
    [
        ((None, "5s"), "--down-for 5s: needs --down-after"),
        (("soon",), "--down-after soon: expected 5s or 100r"),
        (("-1r",), "--down-after -1r: expected 5s or 100r"),
        (("5s", "ever"), "--down-for ever: expected 20s or for-ever"),
        (("5s", "-2s"), "--down-for -2s: expected 20s or for-ever"),
    ],
)
def test_outage_names_what_is_wrong(texts, complaint):
    with pytest.raises(UsageError, match=complaint):
        Outage.parse(*texts)
