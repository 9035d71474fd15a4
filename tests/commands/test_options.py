"""Option texts that several commands read the same way."""

import pytest

from gymcli.client import Endpoint
from gymcli.commands.options import check_parameters, key_values, parameters
from gymcli.errors import UsageError


def test_key_values():
    assert key_values("--x", ["a=1", "b=c=d", "e="]) == {"a": "1", "b": "c=d", "e": ""}


@pytest.mark.parametrize("text", ["a", "=1", ""])
def test_key_values_refuses(text):
    with pytest.raises(UsageError, match=r"--x .*: expected key=value"):
        key_values("--x", [text])


def test_parameters_are_json_or_text():
    given = ["a=1", "b=true", "c=null", 'd={"x": [1]}', "e=text", "g=", "h=1.0e3", 'i="nan"']
    assert parameters(given) == {
        "a": 1,
        "b": True,
        "c": None,
        "d": {"x": [1]},
        "e": "text",
        "g": "",
        "h": 1000.0,
        "i": "nan",
    }


def test_key_values_refuses_what_is_no_unicode():
    with pytest.raises(UsageError, match=r"--x .*: is not UTF-8"):
        key_values("--x", ["a=\udcff"])


@pytest.mark.parametrize("text", ["NaN", "nan", "Infinity", "-inf", "1e999", "-1e999"])
def test_parameters_refuse_numbers_that_are_not_finite(text):
    with pytest.raises(UsageError, match="--param k: must be a finite number"):
        parameters([f"k={text}"])


@pytest.mark.parametrize("text", ["[1", '{"a": NaN}', "[1e999]", ' {"a"}', "[" * 100_000])
def test_parameters_refuse_what_looks_like_json_and_is_not(text):
    with pytest.raises(UsageError, match="--param k: is not JSON"):
        parameters([f"k={text}"])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_check_parameters_refuses_options_that_are_not_finite(value):
    with pytest.raises(UsageError, match=r"--top-p .*: must be a finite number"):
        check_parameters({"temperature": 0.5, "top_p": value}, None)


@pytest.mark.parametrize("secret", ["my-key", 'quo"ted\\key'])
@pytest.mark.parametrize(
    "wrapped", [lambda x: x, lambda x: {"a": [f"Bearer {x}"]}, lambda x: {x: 1}]
)
def test_check_parameters_refuses_secrets_of_the_endpoint(secret, wrapped):
    """They would be written to run.json; the message does not say them either."""
    endpoint = Endpoint(base_url="http://h", model="m", api_key=secret)
    with pytest.raises(UsageError) as raised:
        check_parameters({"ok": 1, "user": wrapped(secret)}, endpoint)
    assert str(raised.value).startswith("--param user: holds a secret of the endpoint")
    assert secret not in str(raised.value)
    check_parameters({"ok": 1, "user": "somebody"}, endpoint)
