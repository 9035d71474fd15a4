"""The output in docs/verify.md is that of the commands, and the listed keys exist."""

import re

from gymcli.metrics.results import Effect
from gymcli.rescoring.run_rescoring import (
    Disagreement,
    EnvironmentAgreement,
    EnvironmentFlips,
    RepeatReport,
    RescoringReport,
)
from tests.docs.pages import check_commands, page, shown_commands, table_rows

TEXT = page("verify.md")


def keys_of(table: str) -> set[str]:
    rows = table_rows("key of `--json`", f"{table}\n\n")
    return {name for row in rows for name in re.findall(r"`([a-z_]+)`", " | ".join(row))}


def test_commands_print_what_is_shown(tmp_path, working_folder):
    check_commands(shown_commands(TEXT), tmp_path)


def test_keys_are_those_of_the_reports():
    flips, repeats, _ = TEXT.split("\n## ")[1:]
    expected = {*RescoringReport.__struct_fields__, *Effect.__struct_fields__, "num_others"}
    assert keys_of(flips) == expected | {"effects"}
    assert expected | {"effects"} >= set(EnvironmentFlips.__struct_fields__)
    named = keys_of(repeats) | set(re.findall(r"\(`([a-z_]+)`\)", repeats))
    assert named >= set(RepeatReport.__struct_fields__)
    assert named >= set(EnvironmentAgreement.__struct_fields__)
    assert named <= {
        *RepeatReport.__struct_fields__,
        *EnvironmentAgreement.__struct_fields__,
        *Disagreement.__struct_fields__,
    }
