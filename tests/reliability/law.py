"""What must hold of a run directory, whatever happened to the commands that wrote it."""

from pathlib import Path

import msgspec

CIRCUMSTANCES = ("timing", "calls", "retries", "role_usage")
"""Keys of a line that describe how an attempt ran, not its result."""
APPENDED = ("rollouts.jsonl", "failures.jsonl", "generations.jsonl", "verdicts.jsonl")

Key = tuple[str, str, int]


def whole_lines(path: Path) -> bytes:
    """Return the lines of a file without a torn last one; none if the file does not exist."""
    data = path.read_bytes() if path.is_file() else b""
    end = data.rfind(b"\n") + 1
    # A line that lacks nothing but its newline is whole.
    return data + b"\n" if is_json(data[end:]) else data[:end]


def is_json(data: bytes) -> bool:
    """Return whether a line is whole."""
    try:
        msgspec.json.decode(data)
    except msgspec.DecodeError:
        return False
    return True


def records(path: Path) -> list[dict]:
    """Decode every whole line of a file; fail if one is not an object."""
    return [msgspec.json.decode(line, type=dict) for line in whole_lines(path).splitlines()]


def key_of(record: dict) -> Key:
    """Return the key of an attempt."""
    return record["env"], record["task_id"], record["attempt"]


def final_set(run: Path) -> dict[Key, dict]:
    """Return every scored rollout without its circumstances; fail on duplicates."""
    found: dict[Key, dict] = {}
    for record in records(run / "rollouts.jsonl"):
        assert isinstance(record["reward"], float), "only scored attempts have a line"
        assert key_of(record) not in found, f"{key_of(record)} has two lines"
        found[key_of(record)] = {k: v for k, v in record.items() if k not in CIRCUMSTANCES}
    return found


def finished(run: Path) -> set[tuple[str, int]]:
    """Return task and seed of every attempt whose whole conversation is on disk."""
    # generations.jsonl has the conversations that were saved before they were scored.
    names = ("rollouts.jsonl", "generations.jsonl")
    lines = (record for name in names for record in records(run / name))
    return {(line["task_id"], line["seed"]) for line in lines}


def check_whole(run: Path, expected: dict[Key, dict]) -> None:
    """Check a run after its last command: complete, no duplicates, every line valid JSON."""
    for name in APPENDED:
        path = run / name
        if path.is_file():
            assert path.read_bytes() == whole_lines(path), f"{name} has a torn tail"
            records(path)
    assert final_set(run) == expected
    manifest = msgspec.json.decode((run / "run.json").read_bytes())
    metrics = msgspec.json.decode((run / "metrics.json").read_bytes())
    assert manifest["num_expected"] == len(expected)
    assert (metrics["num_expected"], metrics["num_scored"]) == (len(expected), len(expected))
    assert manifest["ended_at"] >= manifest["started_at"]


class Kept:
    """The lines that are on disk at one moment, to be compared with later ones."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._lines = {name: whole_lines(run / name) for name in APPENDED}

    def check(self) -> None:
        """Check that no line was lost or altered since."""
        for name, before in self._lines.items():
            now = whole_lines(self._run / name)
            assert now.startswith(before), f"{name}: a line on disk was altered"
