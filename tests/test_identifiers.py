"""The check of identifiers finds names wherever they are assigned, and takes exceptions."""

import pytest

from tests.identifiers import main, problems

BANNED = ("found", "given")
SOURCE = """\
found = 1
_found: int = 2
def f(given, *, found=None): ...
for found in []: ...
[found for found in []]
with f() as found: ...
class C:
    given: str
    def __init__(self):
        self._given = self.found.name = 3
(found := 4)
try: ...
except ValueError as found: ...
match 5:
    case {"a": found, **given}: ...
    case [given, *found]: ...
of_task, f.of_task = 6, 7
"""
LINES = [1, 2, 3, 3, 4, 5, 6, 8, 10, 11, 13, 15, 15, 16, 16, 17]


def test_every_way_to_assign_a_name_is_seen():
    lines = [int(problem.split(":")[0]) for problem in problems(SOURCE, BANNED, ("of_",))]
    assert lines == LINES


@pytest.mark.parametrize(
    "source",
    [
        "task = found.given",
        "f(found=1)",
        "def found(): ...",
        "founder = get_found = off = 1",
        "given = 1  # noqa: GYM001  # the wire's word",
        "given = 1  # noqa: A001, GYM001  # the wire's word",
    ],
)
def test_uses_calls_and_exceptions_with_a_reason_are_allowed(source):
    assert problems(source, BANNED, ("of_",)) == []


@pytest.mark.parametrize("comment", ["# noqa: GYM001", "# noqa", "# GYM001  # the wire's word"])
def test_an_exception_needs_its_code_and_a_reason(comment):
    assert len(problems(f"given = 1  {comment}", BANNED, ())) == 1


def test_main_prints_the_place(tmp_path, capsys):
    (tmp_path / "gymcli" / "data").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(
        '[tool.gymcli.identifiers]\nbanned = ["found"]\nbanned-prefixes = []\n'
    )
    (tmp_path / "gymcli" / "data" / "maps.py").write_text("\nfound = 1\n")
    assert main(tmp_path) == 1
    assert capsys.readouterr().out.startswith("gymcli/data/maps.py:2: GYM001 found names nothing; ")
    (tmp_path / "gymcli" / "data" / "maps.py").write_text("task = 1\n")
    assert main(tmp_path) == 0
