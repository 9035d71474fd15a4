"""The address of a remote environment."""

import pytest

from gymcli.environment.remote import checked_server_address as checked_address
from gymcli.errors import UsageError


def test_checked_address_ends_without_a_slash():
    assert checked_address(" https://host/a/ ") == "https://host/a"


@pytest.mark.parametrize(
    "address", ["http://user:secret@host", "http://host:secret", "http://host?key=secret", "secret"]
)
def test_checked_address_shows_no_secret(address):
    with pytest.raises(UsageError, match="the address of a remote environment") as raised:
        checked_address(address)
    assert "secret" not in str(raised.value)
