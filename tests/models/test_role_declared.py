"""The roles that are there, and those that environments declare."""

import pytest

from gymcli.environment.contract import Environment
from gymcli.environment.tool import Task
from gymcli.errors import UsageError
from gymcli.models.endpoint import Endpoint
from gymcli.models.roles import check_declared, check_missing

JUDGE = Endpoint(base_url="http://127.0.0.1:9/v1", model="j")


class Judged(Environment[Task]):
    """Needs a judge, and can do with a user."""

    required_roles = ("judge",)
    optional_roles = ("user",)


ENVIRONMENTS = {"judged": Judged}


def test_check_declared_takes_what_fits():
    check_declared({"judge": JUDGE, "user": "oracle"}, ["judge", "user"], ENVIRONMENTS)
    check_declared({"judge": "oracle"}, (), ENVIRONMENTS)


def test_check_declared_names_what_is_missing():
    with pytest.raises(UsageError, match="environment judged needs a model for the role judge"):
        check_declared({"user": JUDGE}, (), ENVIRONMENTS)


@pytest.mark.parametrize(
    ("role", "message"),
    [("jugde", 'did you mean "judge"'), ("x", r"this run has it \(roles: judge, user\)")],
)
def test_check_declared_refuses_roles_that_nobody_has(role, message):
    with pytest.raises(UsageError, match=message):
        check_declared({"judge": JUDGE}, [role], ENVIRONMENTS)


@pytest.mark.parametrize("name", ["gpt-4o", "", "http://user:hush@127.0.0.1:9/v1#j"])
def test_check_declared_refuses_a_mere_name(name):
    message = r"^the role judge: .* give a gymcli\.Endpoint, or local"
    with pytest.raises(UsageError, match=message) as caught:
        check_declared({"judge": name}, (), ENVIRONMENTS)
    assert "hush" not in str(caught.value)


def test_check_missing_speaks_of_roles_that_are_declared():
    assert check_missing({"tool": "no key"}, ENVIRONMENTS) == []
    assert check_missing({"user": "no key"}, {**ENVIRONMENTS, "again": Judged}) == [
        "no model for the role user: no key"
    ]
    with pytest.raises(UsageError, match=r"judged needs a model for the role judge: no key$"):
        check_missing({"judge": "no key"}, ENVIRONMENTS)
