"""Plants secrets in a run, lets every part leak them, and counts where they are found afterwards.

    python -m bench.planted [--keep FOLDER]

It runs `gym collect`, `verify`, `show`, `metrics` and more, each in its own process with --verbose
and a log file, against a mock server that is endpoint, judge and proxy. The table shows for each
secret how many texts contain it, in any encoding, where it must not be. A key in use must be in no
file, log or output; any other secret must not be in errors and logs, but may be in conversations
and scores. The script also prints the number of redactions; the exit code is 1 if a secret is
found.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import pty
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from gymcli.mock import MockAnswer, MockServer
from gymcli.mock.behaviours import num_turns, refusal_of
from gymcli.store.rollout_files import FAILURES
from gymcli.types import Request

__all__ = ["SECRETS", "Finding", "main", "planted_run"]

SECRETS = {
    "key of the policy (Authorization)": "sk-planted-policy-5f1e0c77",
    "key that gym.toml names": "planted-by-gym-toml-9Zq/4+w==",
    "custom header": "planted header 77 qrst-uvwx-1234",
    "query value": "planted&query=é-value-31",
    "password of the proxy": "planted-proxy-pw-8812",
    "key of the judge": "planted-judge-key-c0ffee",
    "environment variable": "planted\"variable\\with'quotes",
    "text of a row": "planted-row-5d5d5d",
    "output of a tool": "planted-tool-output-1a2b",
    "exception of a tool": "planted-tool-error-3c4d",
    "error of the provider": "planted-provider-5e6f",
    "text of the model": "planted-model-text-7a8b",
    "answer of the judge": "planted-judge-answer-9c0d",
    "details of the verifier": "planted-verifier-ab12",
    "bug of the environment": "planted-bug-cd34",
    "print, warning, log": "planted-print-ef56",
    "word as the password of an address": "planted:sunshine@",
    "key after a scheme": "planted+scheme/0a1b2c==",
    "line of a private key": "plantedMIIEvQIBADANBgkqhkiG9w0BAQEFAASC",
}
"""Secrets by the place where they are planted; other places leak several of them as well."""

KEYS = frozenset(
    (
        *("key of the policy (Authorization)", "key that gym.toml names", "custom header"),
        *("query value", "password of the proxy", "key of the judge"),
    )
)
"""Keys in use, which must be nowhere; the others may be in conversations and scores."""

_VARIABLES = {
    "OPENAI_API_KEY": "key of the policy (Authorization)",
    "WHAT_GYM_TOML_NAMES": "key that gym.toml names",
    "THE_JUDGES": "key of the judge",
    "SOME_SECRET": "environment variable",
    "ROW_TOKEN": "text of a row",
    "TOOL_OUTPUT_TOKEN": "output of a tool",
    "TOOL_ERROR_TOKEN": "exception of a tool",
    "PROVIDER_TOKEN": "error of the provider",
    "MODEL_TEXT_TOKEN": "text of the model",
    "JUDGE_ANSWER_TOKEN": "answer of the judge",
    "VERIFIER_PASSWORD": "details of the verifier",
    "SETUP_BUG_TOKEN": "bug of the environment",
    "PRINTED_TOKEN": "print, warning, log",
}
_WITHIN = {
    "DATABASE_URL": f"postgres://{SECRETS['word as the password of an address']}localhost/app",
    "UPSTREAM_AUTHORIZATION": f"Bearer {SECRETS['key after a scheme']}",
    "SSH_KEY": f"-----BEGIN KEY-----\n{SECRETS['line of a private key']}\n-----END KEY-----\n",
}
"""Variables that contain a secret among other text."""
_ERRORS = (": stderr", ": errors", ".log", ": terminal")
"""Suffixes of the names of texts with errors, logs and tracebacks."""
_CARELESS = Path(__file__).with_name("careless.py").resolve()
_GYM = [sys.executable, "-c", "from gymcli.cli import main; main()"]
_ALL = " ".join(SECRETS.values())
_OF_VARIABLES = " ".join(
    SECRETS[place]
    for name, place in _VARIABLES.items()
    if name.endswith(("KEY", "TOKEN", "SECRET"))
)
"""Secrets that every command finds in its environment, whichever endpoint it asks."""


class Finding(NamedTuple):
    """The texts in which a secret was found."""

    place: str
    """Where it was planted."""
    found_in: tuple[str, ...]
    """Names of files and outputs."""


class Searched(NamedTuple):
    """The files and outputs of a run, and the exit codes of its commands, by name."""

    texts: dict[str, str]
    num_redacted: int
    codes: dict[str, int]


def planted_run(folder: Path) -> Searched:
    """Run the commands in an empty folder; return everything that they wrote and printed."""
    written = folder / "written"
    written.mkdir()
    with _serving() as address:
        _write_inputs(folder, address)
        environ = {**os.environ, **{name: SECRETS[place] for name, place in _VARIABLES.items()}}
        environ |= _WITHIN
        environ["OPENAI_BASE_URL"] = address
        texts: dict[str, str] = {}
        codes: dict[str, int] = {}
        for name, arguments in _commands().items():
            command = [*_GYM, *arguments, "--verbose", "--log-file", str(written / f"{name}.log")]
            ended = subprocess.run(
                command, cwd=folder, env=environ, capture_output=True, check=False
            )
            codes[name] = ended.returncode
            texts[f"{name}: stdout"] = ended.stdout.decode()
            texts[f"{name}: stderr"] = ended.stderr.decode()
        live = [*_GYM, *_commands()["known-address"], "--fresh"]
        texts["live: terminal"], codes["live"] = _on_a_terminal(live, folder, environ)
    for file in sorted(written.rglob("*")):
        if file.is_file():
            texts[str(file.relative_to(folder))] = text = file.read_text(encoding="utf-8")
            if file.name == FAILURES:
                errors = [json.dumps(json.loads(line)["error"]) for line in text.splitlines()]
                texts[f"{file.relative_to(folder)}: errors"] = "\n".join(errors)
    return Searched(texts, sum(text.count("[redacted]") for text in texts.values()), codes)


def _commands() -> dict[str, list[str]]:
    tasks, run = "tasks.jsonl", "written/run"
    env = f"{_CARELESS}:Careless"
    collect = ["collect", tasks, "--env", env, "--role", "judge=judge", "--min-coverage", "0"]
    named = [*collect, "--model", "policy", "--out", run]
    return {
        "dry-run": [*named, "--dry-run"],
        "collect": named,
        "again": [*named, "--json"],
        "known-address": [
            *("collect", "known.jsonl", "--env", env, "--role", "judge=judge", "--model", "m"),
            *("--out", "written/other", "--min-coverage", "0"),
        ],
        "verify": ["verify", run, "--env", env],
        "verify-out": ["verify", run, "--env", env, "--out", "written/rescored", "--json"],
        "show": ["show", run, "good"],
        "show-json": ["show", run, "good", "--json"],
        "show-failure": ["show", run, "setup"],
        "show-nothing": ["show", run, SECRETS["environment variable"]],
        "metrics": ["metrics", run, "--by-task"],
        "metrics-json": ["metrics", run, "written/rescored", "--json", "--by-task"],
        "bad-import": ["collect", tasks, "--env", "broken.py:Careless", "--model", "policy"],
        "traceback": [
            "collect",
            "bug.jsonl",
            "--env",
            env,
            "--role",
            "judge=judge",
            "--model",
            "policy",
        ],
        "bad-id": ["collect", "secret_id.jsonl", "--env", env, "--model", "policy"],
        "bad-option": ["collect", tasks, f"--no-such-option={SECRETS['environment variable']}"],
        "data-stats": ["data", "stats", tasks],
        "data-validate": ["data", "validate", tasks, "--env", env],
        "data-render": ["data", "render", tasks],
    }


def _write_inputs(folder: Path, address: str) -> None:
    secrets = {place: json.dumps(secret) for place, secret in SECRETS.items()}
    proxy = address.removesuffix("/v1").replace(
        "http://", f"http://user:{SECRETS['password of the proxy']}@"
    )
    (folder / "gym.toml").write_text(
        f"""[models.policy]
base_url = "{address.replace("127.0.0.1", "localhost")}"
model = "m"
api_key_env = "WHAT_GYM_TOML_NAMES"
headers = {{ "X-Extra" = {secrets["custom header"]} }}
query = {{ "extra" = {secrets["query value"]} }}
proxy = "{proxy}"
max_attempts = 2

[models.judge]
base_url = "{address}"
model = "j"
api_key_env = "THE_JUDGES"
""",
        encoding="utf-8",
    )
    row = SECRETS["text of a row"]
    rows = [
        {"id": "good", "prompt": f"Look up {row}.", "note": {row: [row]}},
        {"id": "repeats", "prompt": f"Say what you know of {_OF_VARIABLES}."},
        *({"id": phase, "prompt": "Go.", "fails_in": phase} for phase in ("setup", "verify")),
        *({"id": f"refused-{status}", "prompt": f"status {status}"} for status in (400, 500)),
        {"id": "no-json", "prompt": "no json"},
    ]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "known.jsonl").write_text('{"id": "known", "prompt": "known address"}\n')
    (folder / "bug.jsonl").write_text('{"id": "a", "prompt": "Go.", "fails_in": "everything"}\n')
    key = SECRETS["key of the policy (Authorization)"]
    (folder / "secret_id.jsonl").write_text(json.dumps({"id": f"a-{key}", "prompt": "Go."}) + "\n")
    (folder / "broken.py").write_text(
        "import os\nraise RuntimeError('no ' + os.environ['SETUP_BUG_TOKEN'])\n"
    )


def _answer(request: Request) -> MockAnswer | str:
    """Answer as a model, a judge and a provider that leak every secret."""
    text = next(message.text for message in request.messages if message.role == "user")
    if text == "known address":
        return f"My keys: {SECRETS['key of the policy (Authorization)']}, {_OF_VARIABLES}"
    if "End with [[YES]]" in text:
        return f"{SECRETS['answer of the judge']} {SECRETS['key of the judge']} {_ALL} [[YES]]"
    for status in (400, 500):
        if text == f"status {status}":
            return refusal_of(status, f"wrong key: {_ALL}")
    if text == "no json":
        return MockAnswer(body=f"<html>{_ALL}</html>")
    if num_turns(request) == 0:
        arguments = json.dumps({"why": _ALL}, ensure_ascii=False)
        return MockAnswer(
            tool_calls=[("look_up", {}), ("pay", {}), (SECRETS["text of the model"], arguments)],
            reasoning=f"I know {_ALL}",
        )
    return f"It is {SECRETS['text of the model']}: {quote(_ALL)} {json.dumps(_ALL)} {_ALL}"


def _on_a_terminal(command: list[str], folder: Path, environ: dict[str, str]) -> tuple[str, int]:
    """Run a command on a terminal; return what it printed there and its exit code."""
    ours, theirs = pty.openpty()
    # On a narrow terminal, long lines are wrapped.
    environ = {**environ, "TERM": "xterm-256color", "COLUMNS": "40"}
    with subprocess.Popen(
        command, cwd=folder, env=environ, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        shown = bytearray()
        with contextlib.suppress(OSError):  # Linux raises EIO when the other end is closed
            while piece := os.read(ours, 1 << 16):
                shown += piece
    os.close(ours)
    return shown.decode(errors="replace"), process.returncode


@contextmanager
def _serving() -> Iterator[str]:
    """Serve in a thread during the block; yield the address."""
    # Waiting for the commands blocks this thread.
    loop = asyncio.new_event_loop()
    server = MockServer(_answer)
    is_open, is_over = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with server:
            is_open.set()
            await is_over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        is_open.wait()
        yield server.base_url
    finally:
        loop.call_soon_threadsafe(is_over.set)
        thread.join()
        loop.close()


def findings(texts: dict[str, str]) -> list[Finding]:
    """Search for every secret, in every encoding, where it must not occur."""
    errors = {name: text for name, text in texts.items() if name.endswith(_ERRORS)}
    found = []
    for place, secret in SECRETS.items():
        once = json.dumps(secret, ensure_ascii=False)[1:-1]
        forms = {secret, once, json.dumps(once, ensure_ascii=False)[1:-1], quote(secret, safe="")}
        # `once` is the secret in JSON; encoded twice, it is in JSON inside a JSON string.
        forms |= {json.dumps(secret)[1:-1], repr(secret)[1:-1], quote(secret)}
        pattern = re.compile("|".join(map(re.escape, forms)))
        searched = texts if place in KEYS else errors
        names = tuple(name for name, text in searched.items() if pattern.search(text))
        found.append(Finding(place, names))
    return found


def main(arguments: list[str] | None = None) -> int:
    """Print the table; return 1 if a secret is found."""
    parser = argparse.ArgumentParser(prog="python -m bench.planted", description=__doc__)
    parser.add_argument("--keep", type=Path, help="keep all files and outputs in this new folder")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) if options.keep is None else options.keep
        folder.mkdir(exist_ok=True)
        searched = planted_run(folder)
        if options.keep is not None:
            for name, text in searched.texts.items():
                if ": " in name:
                    (folder / f"{name.replace(': ', '.')}.txt").write_text(text, encoding="utf-8")
    print("exit codes:", ", ".join(f"{name} {code}" for name, code in searched.codes.items()))
    print(f"{len(searched.texts)} files and outputs, {searched.num_redacted} times [redacted]\n")
    print(f"{'secret':36}hits")
    table = findings(searched.texts)
    for finding in table:
        print(f"{finding.place:36}{len(finding.found_in):4}  {', '.join(finding.found_in)}")
    return int(any(finding.found_in for finding in table))


if __name__ == "__main__":
    raise SystemExit(main())
