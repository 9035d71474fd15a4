"""Shows with py-spy where the processes of a measurement spend their time."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from gymcli.commands.console import print_table

__all__ = ["Profile", "print_profile", "profile_of"]

ROOT = Path(__file__).resolve().parents[1]
NUM_SHOWN = 25
_PROCESS = re.compile(r'process \d+:"(.*?)";')
"""A process and its command line. With --subprocesses a stack begins with all its ancestors."""

_CLIENT = re.compile(r'main\(\) (?!mock)|"contestant":"gym"')
"""The command line of a gym command other than the mock server, or of the contestant for one."""

_IMPORT = "_find_and_load "
"""Part of a stack that imports a module, which `bench/startup.py` measures."""


class Profile(NamedTuple):
    """Samples of clients, by function."""

    num_samples: int
    own: Counter[str]
    """Samples in which the function was the innermost."""
    within: Counter[str]
    """Samples in which it was anywhere on the stack."""


def profile_of(lines: Iterable[str]) -> Profile:
    """Read py-spy's raw format, `outer;…;inner COUNT`, and count the stacks of clients."""
    total, own, within = 0, Counter[str](), Counter[str]()
    for line in lines:
        stack, _, count = line.rpartition(" ")
        processes = list(_PROCESS.finditer(stack))
        if not processes or not _CLIENT.search(processes[-1][1]) or _IMPORT in stack:
            continue
        frames = [_shown(frame) for frame in stack[processes[-1].end() :].split(";")]
        total += int(count)
        own[frames[-1]] += int(count)
        # A recursive function counts once per sample.
        for frame in set(frames):
            within[frame] += int(count)
    return Profile(total, own, within)


def _shown(frame: str) -> str:
    """Return a frame without its line number and installation folder."""
    function = re.sub(r":\d+\)$", ")", frame)
    return re.sub(r"\(.*?(?:site-packages/|python3\.\d+/)", "(", function)


def print_profile(name: str, scale: float) -> None:
    """Run a measurement again under py-spy, and print where its clients spent their time.

    Raises:
        SystemExit: py-spy is not installed.
    """
    if shutil.which("py-spy") is None:
        raise SystemExit("--profile: needs py-spy: pip install py-spy")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "stacks"
        command = ["py-spy", "record", "--subprocesses", "--rate", "200", "--format", "raw"]
        command += ["--output", str(file), "--", sys.executable, "-m", f"bench.{name}"]
        subprocess.run(
            [*command, "--scale", str(scale)],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        found = profile_of(file.read_text().splitlines() if file.is_file() else [])
    print(f"\n# profile of {name}: {found.num_samples} samples of the client")
    for title, counter in (("self", found.own), ("with what it calls", found.within)):
        rows = [
            (what, f"{n / found.num_samples:.1%}") for what, n in counter.most_common(NUM_SHOWN)
        ]
        print_table(("function", title), rows)
