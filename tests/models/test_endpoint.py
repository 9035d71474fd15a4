"""Tests of what an endpoint's request parameters may hold."""

import math

import pytest

from gymcli.errors import UsageError
from gymcli.models.endpoint import Endpoint, check_parameters


def test_check_parameters_refuses_numbers_that_are_not_finite():
    for value in (math.nan, math.inf, -math.inf):
        with pytest.raises(UsageError, match=r"--top-p .*: must be a finite number"):
            check_parameters({"temperature": 0.5, "top_p": value}, None)


@pytest.mark.parametrize("secret", ["my-key", 'quo"ted\\key'])
@pytest.mark.parametrize(
    "wrapped", [lambda x: x, lambda x: {"a": [f"Bearer {x}"]}, lambda x: {x: 1}]
)
def test_check_parameters_refuses_secrets_of_the_endpoint(secret, wrapped):
    """They would be written to run.json; the message does not contain them either."""
    endpoint = Endpoint(base_url="http://h", model="m", api_key=secret)
    with pytest.raises(UsageError) as raised:
        check_parameters({"ok": 1, "user": wrapped(secret)}, endpoint)
    assert str(raised.value).startswith("--param user: holds a secret of the endpoint")
    assert secret not in str(raised.value)
    check_parameters({"ok": 1, "user": "somebody"}, endpoint)
