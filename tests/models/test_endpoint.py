"""Endpoints: what they accept, and what they never show."""

import pytest
from pydantic import ValidationError

from gymcli.models.endpoint import Endpoint
from gymcli.types import Usage

KEY = "sk-very-secret-key"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("http://localhost:8000/v1", "http://localhost:8000/v1"),
        (" https://host/v1// ", "https://host/v1"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_endpoint_takes_base_urls(given, kept):
    assert Endpoint(base_url=given, model="m").base_url == kept


@pytest.mark.parametrize(
    "base_url",
    [
        "",
        "localhost:8000",
        "ftp://host/v1",
        "http:///v1",
        "http://host:port/v1",
        "http://[::1/v1",
        "https://host/v1?api-version=1",
        "https://host/v1#top",
        f"https://user:{KEY}@host/v1",
        f"https://{KEY}@host/v1",
    ],
)
def test_endpoint_refuses_base_urls_and_shows_none(base_url):
    with pytest.raises(ValidationError) as raised:
        Endpoint(base_url=base_url, model="m")
    assert KEY not in str(raised.value)


@pytest.mark.parametrize(
    "options",
    [
        {"api_key": f"{KEY}\nX-Other: 1"},
        {"api_key": "schlüssel"},
        {"headers": {"X-Key": f"{KEY}\r\n"}},
        {"headers": {"X Key": "1"}},
        {"headers": {"": "1"}},
        {"proxy": "socks5://host:1"},
        {"model": ""},
        {"max_attempts": 0},
        {"total_timeout": 0},
        {"dialekt": "chat"},
    ],
)
def test_endpoint_refuses(options):
    with pytest.raises(ValidationError) as raised:
        Endpoint.model_validate({"base_url": "http://host", "model": "m", **options})
    assert KEY not in str(raised.value)


def test_endpoint_shows_no_secret():
    endpoint = Endpoint(
        base_url="http://host",
        model="m",
        api_key=KEY,
        headers={"X-Key": "header-secret"},
        query={"key": "query-secret"},
        proxy="http://user:proxy-secret@host:1",
    )
    for shown in (repr(endpoint), str(endpoint)):
        assert KEY not in shown
        assert "secret" not in shown
    assert {KEY, "header-secret", "query-secret", "proxy-secret"} <= set(endpoint.secrets)


def test_secrets_hold_the_credential_of_a_header_too():
    endpoint = Endpoint(
        base_url="http://host", model="m", headers={"Authorization": f"Basic {KEY}"}
    )
    assert endpoint.secrets == (f"Basic {KEY}", KEY)


def test_secrets_leave_switches_out():
    assert Endpoint(base_url="http://host", model="m", query={"beta": "1"}).secrets == ()


@pytest.mark.parametrize(
    "name",
    [
        "connect_timeout",
        "total_timeout",
        "idle_timeout",
        "retry_deadline",
        "max_retry_after",
        "outage_deadline",
    ],
)
@pytest.mark.parametrize("seconds", [float("inf"), float("nan")])
def test_endpoint_waits_for_nothing_for_ever(name, seconds):
    with pytest.raises(ValidationError, match=name):
        Endpoint(base_url="http://h", model="m", **{name: seconds})


@pytest.mark.parametrize(("cached", "cost"), [(0, 20.0), (4, 14.0), (10, 5.0), (1000, 520.0)])
def test_cost_is_never_negative(cached, cost):
    """Some endpoints leave the cached tokens out of those of the prompt."""
    prices = {"prompt": 2e6, "completion": 0.0, "cached": 0.5e6}
    endpoint = Endpoint(base_url="http://h", model="m", prices=prices)
    assert endpoint.cost(Usage(prompt_tokens=10, cached_tokens=cached)) == cost
