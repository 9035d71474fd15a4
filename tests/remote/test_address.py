import pytest

from gymcli.errors import UsageError
from gymcli.remote.address import checked_address


def test_checked_address_ends_without_a_slash():
    assert checked_address(" https://host/a/ ") == "https://host/a"


def test_checked_address_does_not_show_a_password():
    with pytest.raises(UsageError) as raised:
        checked_address("http://user:secret@host")
    assert "secret" not in str(raised.value)
