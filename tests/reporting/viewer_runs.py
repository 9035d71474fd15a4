"""Writes runs to view, and serves them on a free port of 127.0.0.1."""

from pathlib import Path

import aiohttp
import msgspec
from aiohttp import web
from yarl import URL

from gymcli.reporting.viewer import ViewedRun, viewer_runner
from gymcli.secrets import NOTHING_SECRET

TOKEN = "a-token-that-nobody-knows"


def said(role, content, **more):
    return {"role": role, "content": content, **more}


def rollout(task="t", attempt=0, reward=1.0, /, **more):
    """Return a scored attempt with one question and one answer."""
    key = {"schema_version": 1, "task_id": task, "attempt": attempt, "env": "arithmetic"}
    talk = [said("user", f"What is {task}?"), said("assistant", f"It is {reward}.")]
    rest = {"num_prompt_messages": 1, "stop_reason": "done", "model": "m", "reward": reward}
    return {**key, "messages": talk, **rest, **more}


def failure(task="t", attempt=0, error="ServerError", /, **more):
    """Return an attempt that could not be scored."""
    key = {"schema_version": 1, "task_id": task, "attempt": attempt, "env": "arithmetic"}
    told = {"class": error, "phase": "model", "message": f"the endpoint said {error}"}
    return {**key, "error": told, "messages": [said("user", f"What is {task}?")], **more}


def lines(records):
    return b"".join(msgspec.json.encode(record) + b"\n" for record in records)


def write_run(folder, rollouts=(), *, failures=(), generations=(), environments=("arithmetic",)):
    """Write a run directory in which a reward of 1 passes."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    facts = {name: {"max_reward": 1.0, "num_expected": 4} for name in environments}
    manifest = {"schema_version": 1, "model": "m", "environments": facts}
    (folder / "run.json").write_bytes(msgspec.json.encode(manifest))
    for name, records in (
        ("rollouts.jsonl", rollouts),
        ("failures.jsonl", failures),
        ("generations.jsonl", generations),
    ):
        if records:
            (folder / name).write_bytes(lines(records))
    return folder


class Shown:
    """An async context manager that serves the page for one run or two."""

    def __init__(self, *paths, scrubber=NOTHING_SECRET, env=None):
        self._paths = paths
        self._scrubber = scrubber
        self._env = env

    async def __aenter__(self):
        runs = [ViewedRun(path, self._env) for path in self._paths]
        self._runner = viewer_runner(runs, TOKEN, scrubber=self._scrubber)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.root = f"http://127.0.0.1:{self._runner.addresses[0][1]}/"
        self.address = f"{self.root}{TOKEN}/"
        self._client = aiohttp.ClientSession()
        return self

    async def __aexit__(self, *_):
        await self._client.close()
        await self._runner.cleanup()

    async def ask(self, name, *, status=200, **given):
        """Return the answer to a question, and check its status."""
        params = {key: str(value) for key, value in given.items()}
        async with self._client.get(f"{self.address}api/{name}", params=params) as answer:
            text = await answer.text()
            assert answer.status == status, (answer.status, text)
            return msgspec.json.decode(text)

    async def get(self, url, **options):
        """Request an address exactly as written; return the status, headers and text."""
        method = options.pop("method", "GET")
        async with self._client.request(
            method, URL(url, encoded=True), allow_redirects=False, **options
        ) as answer:
            return answer.status, answer.headers, await answer.text()
