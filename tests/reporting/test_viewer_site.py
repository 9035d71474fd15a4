"""Who is let in, and what stands on every answer."""

import asyncio

import pytest

from gymcli.secrets import Scrubber
from tests.reporting.viewer_runs import TOKEN, Shown, rollout, write_run


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run", [rollout("a"), rollout("b", reward=0.0)])


def visit(run, *asked, **options):
    """Ask for addresses below the root, each with its own headers and method."""

    async def main():
        async with Shown(run, **options) as shown:
            return [await shown.get(shown.root + path, **more) for path, more in asked]

    return asyncio.run(main())


def test_the_page_and_its_files_are_there(run):
    names = ["", "main.js", "list.js", "text.js", "style.css"]
    found = visit(run, *((f"{TOKEN}/{name}", {}) for name in names))
    assert [status for status, _, _ in found] == [200] * 5
    assert [headers["Content-Type"].split(";")[0] for _, headers, _ in found] == [
        *("text/html", "text/javascript", "text/javascript", "text/javascript", "text/css")
    ]
    assert "<main" in found[0][2]


def test_every_answer_has_the_headers_that_keep_text_from_scripting(run):
    paths = [f"{TOKEN}/", f"{TOKEN}/api/list", f"{TOKEN}/none", "", f"{TOKEN}/api/list?where=1+"]
    for status, headers, _ in visit(run, *((path, {}) for path in paths)):
        policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
        assert policy["default-src"] == "'none'", status
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["img-src"] == "data:"
        assert policy["base-uri"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] == "no-store"
        assert "Set-Cookie" not in headers
        assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize(
    "path",
    [
        *("", "api/list", "main.js", "favicon.ico", TOKEN[:-1] + "/", TOKEN + "x/", f"x/{TOKEN}/"),
        *(
            TOKEN.upper() + "/",
            f"?token={TOKEN}",
            "%00/",
            "%ff%fe/api/list",
            "\u00e9/".encode().hex(),
        ),
    ],
)
def test_without_the_token_nothing_is_told(run, path):
    [(status, _, text)] = visit(run, (path, {}))
    assert status == 403
    assert "What is" not in text
    assert TOKEN not in text


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *(("evil.example", 403), ("evil.example:80", 403), ("127.0.0.1.evil.example", 403)),
        *(("127.0.0.2", 403), ("0.0.0.0", 403), ("", 403), ("127.0.0.1:80@evil.example", 403)),
        *(("localhost:9", 200), ("LOCALHOST", 200), ("127.0.0.1", 200), ("[::1]:80", 200)),
    ],
)
def test_a_name_of_others_is_refused(run, host, status):
    [(found, _, text)] = visit(run, (f"{TOKEN}/api/list", {"headers": {"Host": host}}))
    assert found == status
    assert ("What is" in text) is False


@pytest.mark.parametrize(
    "name",
    [
        *("../__init__.py", "..%2f__init__.py", "%2e%2e/__init__.py", "page/main.js", "index.html"),
        *("/etc/passwd", "//etc/passwd", "main.js/", "main.js%00", "api", "api/", "api/__init__"),
        *("api/../main.js", "style.css%2f..", "\\..\\__init__.py", "api/_runs", "api/answer"),
    ],
)
def test_a_path_leads_to_no_other_file(run, name):
    [(status, _, text)] = visit(run, (f"{TOKEN}/{name}", {}))
    # A client may shorten a path by itself before it asks; what it then asks for is ours.
    assert status in (403, 404) or "// Which page is shown" in text
    assert "import annotations" not in text


def test_nothing_can_be_changed(run):
    methods = ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"]
    found = visit(run, *((f"{TOKEN}/api/list", {"method": method}) for method in methods))
    assert [status for status, _, _ in found] == [405] * 5
    [(status, headers, text)] = visit(run, (f"{TOKEN}/", {"method": "HEAD"}))
    assert (status, text) == (200, "")
    assert int(headers["Content-Length"]) > 100


def test_an_address_without_its_slash_says_so(run):
    [(status, _, text)] = visit(run, (TOKEN, {}))
    assert status == 404
    assert "ends with a slash" in text


def test_secrets_are_taken_out_of_rollouts_and_errors(tmp_path):
    secret = "sk-4f9a8b7c6d5e4f3a"
    talk = [{"role": "assistant", "content": f"The key is {secret}."}]
    run = write_run(tmp_path / "run", [rollout("a", messages=talk, details={"reason": secret})])
    record = "api/rollout?env=arithmetic&task=a&attempt=0"
    wrong = f"api/list?where={secret}"
    asked = ((f"{TOKEN}/{path}", {}) for path in (record, wrong))
    [(status, _, text), (refused, _, error)] = visit(run, *asked, scrubber=Scrubber([secret]))
    assert (status, refused) == (200, 400)
    assert secret not in text + error
    assert text.count("[redacted]") == 2
