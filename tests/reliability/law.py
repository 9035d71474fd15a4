"""What must hold of a run directory, whatever happened to the commands that wrote it."""

from pathlib import Path

import msgspec

CIRCUMSTANCES = ("timing", "calls", "retries", "role_usage")
"""Keys of a line that say how it went and not what came of it."""
APPENDED = ("rollouts.jsonl", "failures.jsonl", "generations.jsonl", "verdicts.jsonl")

Key = tuple[str, str, int]


def whole_lines(path: Path) -> bytes:
    """Give the lines of a file without a torn last one; nothing where the file is not there."""
    data = path.read_bytes() if path.is_file() else b""
    end = data.rfind(b"\n") + 1
    # Of a line that was cut off by its newline alone nothing is missing.
    return data + b"\n" if is_json(data[end:]) else data[:end]


def is_json(data: bytes) -> bool:
    """Say whether a line is whole."""
    try:
        msgspec.json.decode(data)
    except msgspec.DecodeError:
        return False
    return True


def records(path: Path) -> list[dict]:
    """Decode every whole line of a file; one that is no object fails."""
    return [msgspec.json.decode(line, type=dict) for line in whole_lines(path).splitlines()]


def key_of(record: dict) -> Key:
    """Give what names an attempt."""
    return record["env"], record["task_id"], record["attempt"]


def final_set(run: Path) -> dict[Key, dict]:
    """Give every scored rollout without its circumstances; a duplicate fails."""
    found: dict[Key, dict] = {}
    for record in records(run / "rollouts.jsonl"):
        assert isinstance(record["reward"], float), "only what has a score is there"
        assert key_of(record) not in found, f"{key_of(record)} is there twice"
        found[key_of(record)] = {k: v for k, v in record.items() if k not in CIRCUMSTANCES}
    return found


def finished(run: Path) -> set[tuple[str, int]]:
    """Give task and seed of every attempt whose conversation is on disk whole."""
    names = ("rollouts.jsonl", "generations.jsonl")
    lines = (record for name in names for record in records(run / name))
    return {(line["task_id"], line["seed"]) for line in lines}


def check_whole(run: Path, expected: dict[Key, dict]) -> None:
    """Check a run after its last command: complete, without duplicates, every line valid JSON."""
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
    """The lines that were on disk at one moment; what is there later begins with them."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._lines = {name: whole_lines(run / name) for name in APPENDED}

    def check(self) -> None:
        """Check that no line was lost or altered since."""
        for name, before in self._lines.items():
            now = whole_lines(self._run / name)
            assert now.startswith(before), f"{name}: a line that was on disk is another now"
