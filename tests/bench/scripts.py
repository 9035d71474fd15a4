"""Runs a script of bench/ as a user would, from the root of the checkout."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_script(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m bench.NAME`."""
    command = [sys.executable, "-m", f"bench.{name}", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
