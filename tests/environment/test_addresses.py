"""Addresses: what is accepted as one, and that no message contains one."""

import pytest

from gymcli.environment.addresses import checked_address, is_loopback

SECRET = "sk-never-to-be-seen"


def checked(value):
    return checked_address(value, name="the address", example="http://host")


def test_checked_address_ends_without_a_slash():
    assert checked(" https://host:1/v1// ") == "https://host:1/v1"


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (f"http://host:{SECRET}", "the address cannot be read; it looks like http://host"),
        (f"http://[{SECRET}", "cannot be read"),
        (f"ftp://{SECRET}@host", "must look like http://host"),
        (f"http:///{SECRET}", "must look like"),
        (SECRET, "must look like"),
        (f"http://user:{SECRET}@host", "must not carry a user or password"),
        (f"http://host?key={SECRET}", "without a query or a fragment"),
        (f"http://host#{SECRET}", "without a query or a fragment"),
        (" ", "the address is empty; it looks like http://host"),
    ],
)
def test_checked_address_refuses_without_showing(value, complaint):
    with pytest.raises(ValueError, match=complaint) as raised:
        checked(value)
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None


def test_checked_address_shows_an_option_that_took_the_place_of_one():
    with pytest.raises(ValueError, match='the address is "--model", an option: its own value is'):
        checked("--model")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1", "localhost"])
def test_is_loopback(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "::ffff:10.0.0.1", "192.0.2.1", "host", ""])
def test_is_not_loopback(host):
    assert not is_loopback(host)
