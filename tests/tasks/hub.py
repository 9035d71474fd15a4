"""A Hugging Face Hub on loopback with a few data sets, which records the requests.

Other data sets and files can be added to it.
"""

import http.server
import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote, urlsplit

import yaml

SHA = "c0ffee00" * 5

CARD = b"""---
license: mit
configs:
- config_name: main
  data_files:
  - {split: test, path: test.jsonl}
  - {split: train, path: train-*.jsonl}
- config_name: other
  data_files: [{split: train, path: other.jsonl}]
---
"""


NO_CARD = b"---\n{}\n---\n"


def lines(*numbers: int) -> bytes:
    rows = ({"question": f"{n} + 1?", "answer": f"So: #### {n + 1}"} for n in numbers)
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


REPOSITORIES = {
    "org/sums": {
        "README.md": CARD,
        "test.jsonl": lines(1, 2),
        "train-0.jsonl": lines(3, 4),
        "train-1.jsonl": lines(5, 6),
        "other.jsonl": b'{"question": "7 + 1?", "answer": "unknown"}\n',
    },
    "org/single": {"README.md": b"---\nlicense: [mit, gpl]\n---\n", "data.jsonl": lines(1)},
    "org/ragged": {"README.md": NO_CARD, "data.csv": b"a,b\n1,2\n3,4,5\n"},
    "org/damaged": {"README.md": NO_CARD, "data.jsonl": lines(1) + b"{\n"},
    "org/nothing": {"README.md": NO_CARD},
    "org/no_rows": {"README.md": NO_CARD, "data.jsonl": b""},
    "org/cut": {"README.md": NO_CARD, "data.jsonl": lines(*range(1000))},
    "org/stalled": {"README.md": NO_CARD, "data.jsonl": lines(*range(1000))},
}
"""Files by data set and name."""

_NAME = r"[\w.-]+/[\w.-]+"


class _Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, format, *arguments):  # noqa: A002 - the name is the base class's
        pass

    def do_GET(self):
        path = urlsplit(self.path).path
        self.server.asked.append(path)
        if self.server.status is not None:
            self.sha = SHA
            self._refuse("", self.server.status)
            return
        repositories = self.server.repositories
        named = re.match(rf"(?:/api)?/datasets/({_NAME})", path)
        self.sha = self.server.revisions.get(named[1], SHA) if named else SHA
        if found := re.fullmatch(rf"/api/datasets/({_NAME})(/.*)?", path):
            self._answer_about(found[1], found[2] or "")
        elif found := re.fullmatch(rf"/datasets/({_NAME})/resolve/\w+/(.*)", path):
            if found[1] in self.server.gated and found[2] != "README.md":
                self._refuse("GatedRepo", 403)
                return
            stops = found[1] in ("org/cut", "org/stalled") and found[2] == "data.jsonl"
            stops = stops and self.command == "GET"
            self._send_file(repositories.get(found[1], {}), unquote(found[2]), stops=stops)
            if stops and found[1] == "org/stalled":
                self.wfile.flush()
                self.server.is_over.wait(60)
        else:
            stops = path in self.server.stopping
            self._send_file(self.server.files, path, stops=stops)

    def do_HEAD(self):
        self.do_GET()

    def _answer_about(self, name, rest):
        files = self.server.repositories.get(name)
        if name == "org/gated":
            self._refuse("GatedRepo", 403)
        elif name == "org/broken":
            self._refuse("", 400)
        elif files is None:
            self._refuse("RepoNotFound")
        elif rest.startswith("/revision/") and rest != f"/revision/{self.sha}":
            self._refuse("RevisionNotFound")
        elif rest.startswith("/tree/"):
            in_root = rest == f"/tree/{self.sha}"
            tree = [
                {"type": "file", "oid": "0" * 40, "size": len(data), "path": path}
                for path, data in files.items()
            ]
            self._send(json.dumps(tree if in_root else []).encode())
        else:
            card = yaml.safe_load(files["README.md"].strip(b"-\n")) or None
            about = {"id": name, "sha": self.sha, "cardData": card, "siblings": []}
            self._send(json.dumps(about).encode())

    def _send_file(self, files, name, *, stops=False):
        if name not in files:
            self._refuse("EntryNotFound")
            return
        data = files[name]
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        if wanted:
            data = data[int(wanted[1]) : int(wanted[2]) + 1]
        self._send(data, 206 if wanted else 200, stops=stops)

    def _send(self, data, status=200, *, stops=False):
        self.send_response(status)
        self.send_header("X-Repo-Commit", self.sha)
        self.send_header("ETag", f'"{"1" * 40}"')
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data[: len(data) // 2] if stops else data)

    def _refuse(self, code, status=404):
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Repo-Commit", self.sha)
        self.send_header("Content-Length", "0")
        self.end_headers()


class Hub(http.server.ThreadingHTTPServer):
    """The server; `asked` are the paths of its requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, dict[str, bytes]] = dict(REPOSITORIES)
        """Files by data set and name."""
        self.revisions: dict[str, str] = {}
        """The commit of each data set, if it is not SHA."""
        self.gated: set[str] = set()
        """Data sets that are described, but whose files are refused."""
        self.files: dict[str, bytes] = {}
        """Files that belong to no data set, by the path of their address."""
        self.stopping: set[str] = set()
        """Those of which only the first half is sent."""
        self.status: int | None = None
        """The status of every answer, if it is not to serve."""
        self.asked: list[str] = []
        self.is_over = threading.Event()
        """Ends answers that stall."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def running_hub() -> Iterator[Hub]:
    """Run a hub for the duration of the block."""
    with Hub() as hub:
        thread = threading.Thread(target=hub.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield hub
        finally:
            hub.is_over.set()
            hub.shutdown()
            thread.join()


def certified_environment():
    """Return the environment with the system's certificates, without which its client fails.

    The fixture `no_certificates` takes them from all processes.
    """
    return {name: value for name, value in os.environ.items() if name != "SSL_CERT_FILE"}
