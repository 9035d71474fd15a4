"""A run as `gym collect` writes it, generated from a seed, for `bench/parsing.py`.

Half of its rollouts are single-turn, half are conversations with two tool calls; a line has 1 to
3 kB. The texts are cut from long passages of common words, since only their length and the
characters to escape matter to a parser.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import msgspec

from gymcli.environment.registry import Registration, Registry
from gymcli.store.manifest import MANIFEST, EnvironmentRecord, Manifest
from gymcli.store.rollout_files import ROLLOUTS
from gymcli.types import (
    SCHEMA_VERSION,
    FunctionCall,
    JSONObject,
    Message,
    Rollout,
    Timing,
    ToolCall,
    Usage,
    Verifier,
    digest,
)

__all__ = ["ENVIRONMENT", "write_run"]

ENVIRONMENT = f"{Path(__file__).with_name('trivial.py')}:Trivial"
"""The environment of all rollouts."""

_TEXT = (
    "the of to and a in is that for it as was with be by on not he his but at are this have from "
    "or had an they which one were all their there been if more when will would who so no said "
    "what up its about into than them can only other time new some could these two may first then "
    'do any like my now over such our man me even most made after also did many "quoted" path/to '
    "naïve 3.14 x=1 list[0]\n because\n\n therefore, suppose. Let computing reward"
)
_WORDS = _TEXT.split(" ")
_PASSAGE_WORDS = 2_000
_NUM_PASSAGES = 200

_TOOL: JSONObject = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look a word up and give what it means.",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string"}, "limit": {"type": "integer"}},
            "required": ["word"],
        },
    },
}


def write_run(folder: Path, *, num_tasks: int, num_attempts: int, seed: int = 0) -> Path:
    """Write a run directory whose attempts are all scored; return its rollout file."""
    folder.mkdir(parents=True)
    random = Random(seed)
    found = Registry((ENVIRONMENT,)).find(ENVIRONMENT)
    passages = _Passages(random)
    path = folder / ROLLOUTS
    with path.open("wb") as file:
        for number in range(num_tasks):
            for attempt in range(num_attempts):
                rollout = _rollout(f"task-{number:07}", attempt, random, passages)
                rollout.env, rollout.env_version = found.name, found.environment.version
                rollout.verifier = Verifier(found.environment.version, found.source_hash)
                file.write(msgspec.json.encode(rollout) + b"\n")
    manifest = _manifest(found, num_tasks * num_attempts)
    (folder / MANIFEST).write_bytes(msgspec.json.encode(manifest))
    return path


def _manifest(found: Registration, num_expected: int) -> Manifest:
    environment = found.environment
    record = EnvironmentRecord(
        version=environment.version,
        source_hash=found.source_hash,
        max_reward=environment.max_reward,
        pass_threshold=environment.pass_threshold,
        num_expected=num_expected,
    )
    return Manifest(model="mock", environments={found.name: record}, num_expected=num_expected)


class _Passages:
    """Cuts texts from a few long passages."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._passages = [
            " ".join(random.choices(_WORDS, k=_PASSAGE_WORDS)) for _ in range(_NUM_PASSAGES)
        ]

    def text(self, least: int, most: int) -> str:
        """Return a text of `least` to `most` characters."""
        passage = self._random.choice(self._passages)
        length = self._random.randint(least, most)
        start = self._random.randrange(len(passage) - length)
        return passage[start : start + length]


def _rollout(task_id: str, attempt: int, random: Random, passages: _Passages) -> Rollout:
    """Generate an attempt whose answer, a letter, is right in at least half of the cases."""
    task: JSONObject = {"question": passages.text(100, 400), "expected": random.choice("ABCD")}
    answer = str(task["expected"]) if random.random() < 0.5 else random.choice("ABCD")
    messages = [
        Message(role="system", content="Think step by step, then give the letter alone."),
        Message(role="user", content=str(task["question"])),
    ]
    num_prompt_messages = len(messages)
    uses_tools = random.random() < 0.5
    for number in range(2 if uses_tools else 0):
        call_id = f"call_{random.getrandbits(64):016x}"
        arguments = f'{{"word": "{random.choice(_WORDS[:50])}", "limit": {number}}}'
        call = ToolCall(call_id, FunctionCall("look_up", arguments))
        messages.append(Message(role="assistant", tool_calls=[call]))
        messages.append(Message(role="tool", tool_call_id=call_id, content=passages.text(100, 500)))
    reasoning = f"{passages.text(200, 800 if uses_tools else 1600)}\nAnswer: {answer}"
    messages.append(Message(role="assistant", content=reasoning))
    model_seconds = random.lognormvariate(0.0, 0.5)
    started_at = 1.7e9 + random.random() * 1e6
    return Rollout(
        schema_version=SCHEMA_VERSION,
        task_id=task_id,
        task_hash=digest(task),
        attempt=attempt,
        seed=random.getrandbits(53),
        task=task,
        messages=messages,
        tools=[_TOOL] if uses_tools else [],
        num_prompt_messages=num_prompt_messages,
        model="mock",
        sampling={"temperature": 0.7, "max_tokens": 1024},
        response_model="mock-1",
        stop_reason="done",
        tool_errors={"unknown_tool": 1} if random.random() < 0.02 else {},
        usage=Usage(
            prompt_tokens=random.randint(100, 900), completion_tokens=random.randint(50, 400)
        ),
        timing=Timing(
            started_at=started_at,
            model_seconds=model_seconds,
            verify_seconds=random.random() * 1e-4,
            total_seconds=model_seconds + random.random() * 0.01,
        ),
        retries={"RateLimitError": 1} if random.random() < 0.02 else {},
        reward=float(answer == task["expected"]),
        answer=answer,
    )
