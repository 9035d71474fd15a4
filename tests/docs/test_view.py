"""docs/view.md: its statements about keys, kinds and limits hold."""

import re
from importlib.resources import files

from gymcli.reporting.viewer import KINDS, MAX_RECORD_BYTES
from tests.docs.pages import page, table_rows

PAGE = page("view.md")


def script(name):
    return files("gymcli.reporting").joinpath("viewer", name).read_text(encoding="utf-8")


def test_every_key_of_the_help_is_told():
    helped = re.findall(r'^  \["(.+?)", "', script("help.js"), re.MULTILINE)
    keys = [re.sub(r"or ↓, ↑", "arrows", key) for key in helped if " " not in key or "," in key]
    told = [
        re.sub("[`]", "", key).replace(", arrows", " arrows") for key, _ in table_rows("key", PAGE)
    ]
    assert told == [key for key in keys if len(key) < 16]


def test_every_kind_of_difference_is_told():
    told = ", ".join(kind for kind, _ in table_rows("kind", PAGE))
    assert told.replace(" ", "") == ",".join(KINDS).replace("_", "")


def test_the_limits_are_those_of_the_code():
    assert int(re.search(r"A record of more than (\d+) MB", PAGE)[1]) << 20 == MAX_RECORD_BYTES
    code = script("conversation.js")
    first, last = (int(re.search(rf"const {name} = (\d+);", code)[1]) for name in ("FIRST", "LAST"))
    assert f"the first {first} messages and the last {last}" in " ".join(PAGE.split())
