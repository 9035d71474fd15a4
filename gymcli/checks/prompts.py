"""Prompts do not give their answers away, and no two tasks ask the same."""

from __future__ import annotations

import re
from collections import defaultdict

from gymcli.checks.report import Finding, failed, not_applicable, passed
from gymcli.checks.subject import Episode, Subject
from gymcli.types import canonical_json

__all__ = ["duplicates", "leaks"]

_MIN_CHARACTERS = 4
"""Shorter answers stand in many a text by chance."""


async def leaks(subject: Subject) -> Finding:
    """Check that no prompt has the gold answer in it, word for word.

    Looked for are the answer that the verifier found in the oracle's episode, and the oracle's
    last text. Choices may stand in the prompt. Arguments of calls are not looked for: a request
    names what it wants done.
    """
    golds = await subject.golds()
    answers = [(episode, _gold_texts(subject, episode)) for episode in golds]
    searched = [(episode, texts) for episode, texts in answers if texts]
    if not searched:
        return not_applicable(f"no gold answers of {_MIN_CHARACTERS} characters or more")
    leaking = [(e, text) for e, texts in searched for text in texts if _stands_in(text, e)]
    if leaking:
        ids = [episode.row.id for episode, _ in leaking]
        return failed(f"the prompt has the gold answer in it: {leaking[0][1]!r}", ids)
    return passed(f"{len(searched)} gold answers, none in its prompt")


async def duplicates(subject: Subject) -> Finding:
    """Check that no two tasks have the same prompt, with all that `setup` adds to it."""
    by_prompt: defaultdict[bytes, list[str]] = defaultdict(list)
    for episode in await subject.oracles():
        by_prompt[canonical_json([episode.prompt, episode.record.tools])].append(episode.row.id)
    same = [ids for ids in by_prompt.values() if len(ids) > 1]
    if same:
        text = f"{sum(map(len, same))} tasks share {len(same)} prompts: {' = '.join(same[0][:4])}"
        return failed(text, [task_id for ids in same for task_id in ids])
    return passed(f"{len(by_prompt)} different prompts")


def _gold_texts(subject: Subject, episode: Episode) -> list[str]:
    choices = {choice.strip() for choice in subject.choices(episode.row)}
    texts = {episode.record.last_text.strip(), (episode.record.answer or "").strip()}
    return sorted(text for text in texts - choices if len(text) >= _MIN_CHARACTERS)


def _stands_in(text: str, episode: Episode) -> bool:
    """Say whether a prompt has the text in it, not as a part of longer words."""
    whole = re.compile(rf"(?<!\w){re.escape(text)}(?!\w)")
    return any(whole.search(message.text) for message in episode.prompt)
