"""When the endpoint dies, as options say it."""

import pytest

from gymcli.errors import UsageError
from gymcli.mock.faults import Outage


@pytest.mark.parametrize(
    ("texts", "outage"),
    [
        (("5s", "20s"), Outage(after_seconds=5, seconds=20)),
        (("0.5",), Outage(after_seconds=0.5)),
        (("100r", "for-ever"), Outage(after_requests=100)),
        ((None,), Outage()),
    ],
)
def test_parse(texts, outage):
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
def test_parse_names_what_is_wrong(texts, complaint):
    with pytest.raises(UsageError, match=complaint):
        Outage.parse(*texts)
