"""Tests of the models of roles that calls and commands resolve."""

import pytest

from gymcli.errors import UsageError
from gymcli.library.role_models import check_role_parameters, default_roles
from gymcli.models.endpoint import Endpoint


def test_check_role_parameters_refuses_numbers_and_secrets():
    judge = Endpoint(base_url="http://h", model="m", api_key="sk-secret")
    sources = {"judge": judge, "user": "oracle"}
    check_role_parameters({"judge": {"a": 1.5}, "user": {"b": "sk-secret"}}, sources)
    with pytest.raises(UsageError, match=r"^--role-param judge\.a: holds a secret") as raised:
        check_role_parameters({"judge": {"a": ["sk-secret"]}}, sources)
    assert "sk-secret" not in str(raised.value)
    with pytest.raises(UsageError, match=r"^--role-param user\.b inf: must be a finite number"):
        check_role_parameters({"user": {"b": float("inf")}}, sources)


def test_default_roles_remembers_why_a_role_has_no_model(
    tmp_path, working_folder, monkeypatch, capsys
):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    (tmp_path / "gym.toml").write_text('[roles]\njudge = "oracle"\nuser = "nobody"\n')
    sources, missing = default_roles()
    assert sources == {"judge": "oracle"}
    assert missing["user"].startswith("--role user=nobody: no endpoint for model nobody")
    assert capsys.readouterr().err == ""
    assert default_roles({"tool": "oracle"}) == ({"tool": "oracle"}, {})
