"""Writes runs to report on and their pages, and parses the pages."""

import base64
import hashlib
import json
from html.parser import HTMLParser
from pathlib import Path

import msgspec

from gymcli.reporting.html_page import html_report
from gymcli.reporting.html_run import read_run
from gymcli.store.manifest import EnvironmentRecord, Manifest
from gymcli.types import Timing, Usage
from tests.builders import failed, lines, scored

HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;{{7*7}}"
    "<a href='javascript:alert(3)'>x</a>\u2028\u202e"
)
"""Text of a model that tries to break out of an element, an attribute, a script or a line."""

_EMPTY_ELEMENTS = frozenset(("br", "img", "input", "link", "meta"))


def attempts(task_id, rewards, *, env="quiz", **fields):
    """Return the records of a task's attempts; a reward of None makes a failure."""
    return [
        failed(task_id, number, env=env)
        if reward is None
        else scored(
            task_id,
            number,
            reward,
            env,
            answer=f"{reward:g}",
            usage=Usage(prompt_tokens=7, completion_tokens=3 + 2 * number + len(task_id)),
            timing=Timing(total_seconds=1.0 + number, model_seconds=0.5 + number),
            **fields,
        )
        for number, reward in enumerate(rewards)
    ]


def write_run(path, *records, num_expected=None, max_reward=1.0, model="m"):
    """Write a run directory with these records; by default none is missing."""
    path.mkdir()
    told = {}
    for env in sorted({record.env for record in records} or {"quiz"}):
        num = sum(record.env == env for record in records)
        told[env] = EnvironmentRecord(
            version="1", max_reward=max_reward, num_expected=num_expected or num
        )
    manifest = Manifest(
        gymcli_version="0.1.0",
        identity={"params": {"temperature": 0.5}},
        environments=told,
        model=model,
        started_at=1_700_000_000.0,
        seconds=12.0,
    )
    (path / "run.json").write_bytes(msgspec.json.encode(manifest))
    is_scored = [record for record in records if hasattr(record, "reward")]
    is_failed = [record for record in records if not hasattr(record, "reward")]
    for name, own in (("rollouts", is_scored), ("failures", is_failed)):
        if own:
            (path / f"{name}.jsonl").write_bytes(lines(*own))
    return path


def usual_run(path):
    """Write a run with two environments, flaky tasks, failures and components."""
    return write_run(
        path,
        *attempts("easy", [1.0, 1.0, 1.0, 1.0], components={"format": 1.0}),
        *attempts("middling", [1.0, 0.0, 1.0, 0.0], components={"format": 0.5}),
        *attempts("hard", [0.0, 0.0, None, 0.0], components={"format": 0.0}),
        *attempts("lost", [None, None]),
        *attempts("sum", [0.0, 1.0], env="sums", metrics={"digits": 2.0}),
    )


def page_of(*runs, clean=lambda text: text, **options):
    """Return the page of these runs."""
    return html_report([read_run(Path(run), **options) for run in runs], clean=clean)


class Page(HTMLParser):
    """A parsed page: elements as (tag, attributes), texts and scripts; nesting is checked."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements = []
        self.text = ""
        self.numbers = []
        """The values of `data` elements, in order."""
        self.rows = []
        """The texts of the cells of each row of a table."""
        self.scripts = []
        """Attributes and content of each."""
        self._open = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        if tag == "data":
            self.numbers.append(float(attributes["value"]))
        if tag == "script":
            self.scripts.append((attributes, ""))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in _EMPTY_ELEMENTS:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] == "script":
            attributes, content = self.scripts[-1]
            self.scripts[-1] = (attributes, content + data)
        elif not self._open or self._open[-1] != "style":
            self.text += data
            if {"td", "th"} & set(self._open):
                self.rows[-1][-1] += data

    def all(self, tag):
        """Return the attributes of all elements of a kind."""
        return [attributes for name, attributes in self.elements if name == tag]

    def has_row(self, head, *cells):
        """Return whether a table has a row with this head and all these cells."""
        return any(row[0] == head and set(cells) <= set(row) for row in self.rows)

    def embedded(self, name):
        """Return the data of a script element."""
        return json.loads(next(text for attrs, text in self.scripts if attrs.get("id") == name))

    def policy(self):
        """Return the content security policy."""
        return next(a["content"] for a in self.all("meta") if a.get("http-equiv"))


def script_hash(text):
    """Return the hash of a script as a content security policy writes it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
