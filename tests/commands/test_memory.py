"""Large blocks go back to the system when they are freed."""

import subprocess
import sys

import pytest

FREED = """
import re
from pathlib import Path
from gymcli.commands.collect import give_back_large_blocks

def held():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024

give_back_large_blocks()
bytes(16 << 20)  # the first one that is freed would raise the threshold
before = held()
blocks = [b"x" * (1 << 20) for _ in range(32)]
kept = blocks[-1]
full = held()
del blocks
print(full - before, held() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other allocators have no such threshold")
def test_large_blocks_are_given_back_where_a_later_one_stays():
    command = [sys.executable, "-c", FREED]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    full, left = map(int, output.split())
    assert full >= 31
    assert left < 8
