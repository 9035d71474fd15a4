"""docs/export.md: the example rows are those of the commands, and every format has one."""

import re

import msgspec
import pytest

from gymcli.data.exporters import COLUMNS, EXPORTERS, JSON_COLUMNS
from tests.builders import gym
from tests.docs.pages import blocks, check_commands, page, shown_commands, table_names, table_rows

TEXT = page("export.md")

NAMED = re.compile(r"`([\w.-]+\.(?:jsonl|csv))`")


def shown_files():
    """Return the blocks that show files, by the file name before each."""
    found = {}
    for language in ("json", "csv"):
        for block in blocks(language, TEXT):
            found[NAMED.findall(TEXT[: block.start()])[-1]] = block[1]
    return found


@pytest.fixture
def folder(tmp_path, working_folder):
    for name in ("rollouts.jsonl", "tokens.jsonl"):
        (tmp_path / name).write_text(shown_files()[name], encoding="utf-8")
    return tmp_path


def without_ids(text):
    """Remove the id of a response, which is a digest."""
    return re.sub(r'"resp_\w+"', '"resp_"', text)


def test_rows_are_those_that_the_commands_write(folder):
    check_commands(shown_commands(TEXT), folder)
    files = shown_files()
    assert len(files) == 11
    for name, shown in files.items():
        written = (folder / name).read_text(encoding="utf-8")
        assert without_ids(written) == without_ids(shown), name
    assert msgspec.json.decode((folder / "nemo_aggregate_metrics.json").read_bytes())


def test_formats_are_all_described():
    assert [row[0].strip("`") for row in table_rows("FORMAT", TEXT)] == list(EXPORTERS)
    for name in EXPORTERS:
        assert re.search(rf"^## .*\b{name}\b", TEXT, re.MULTILINE)


def test_columns_are_all_described():
    names = table_names("column", TEXT)
    assert sorted(names) == sorted(
        [*COLUMNS, *JSON_COLUMNS, "components.NAME", "metrics.NAME", "task.FIELD"]
    )


def test_options_are_all_described():
    options = set(re.findall(r"--[a-z-]+", gym("export", "--help").stdout))
    assert options >= {"--to", "--where"}
    for option in options - {"--help", "--out"}:  # the page names -o instead
        assert option in TEXT
