"""Exports runs of a few attempts into memory."""

import io
from contextlib import ExitStack
from pathlib import Path

import msgspec

from gymcli.data.export_source import ExportSource
from gymcli.data.exporters import EXPORTERS
from gymcli.secrets import NOTHING_SECRET
from gymcli.store.filters import parse_filter
from gymcli.store.run_index import RunIndex


class Exported:
    """What an exporter wrote and reported."""

    def __init__(self, contents, num_rows, source):
        self.data = contents[0]
        self.second = contents[-1]
        self.num_rows = num_rows
        self.left_out = dict(source.left_out)
        self.warnings = source.warnings
        self.num_redacted = source.num_redacted
        self.num_skipped_calls = source.num_skipped_calls

    @property
    def rows(self):
        """Return the rows of a file of JSON lines."""
        return [msgspec.json.decode(line) for line in self.data.splitlines()]


def export(to, *runs: Path, where=None, scrubber=NOTHING_SECRET, form=None, **options):
    """Export runs in a format; `form` is the value of the format's own option."""
    exporter = EXPORTERS[to]
    wanted = None if where is None else parse_filter(where)
    with ExitStack() as stack:
        indices = [stack.enter_context(RunIndex(run, **options)) for run in runs]
        selected = [(index, index.select(wanted)) for index in indices]
        source = stack.enter_context(ExportSource(selected, scrubber))
        files = [io.BytesIO(), io.BytesIO()]
        second = [lambda: files[1]] if exporter.second_file else []
        own = {exporter.option: form} if form else {}
        num_rows = exporter.write(source, files[0], *second, **own)
    return Exported([file.getvalue() for file in files], num_rows, source)
