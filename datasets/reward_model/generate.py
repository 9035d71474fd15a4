"""Generates requests for short notes."""

from collections.abc import Iterator
from random import Random

from gymcli import JSONObject
from gymcli.envs.reward_model import Note


def generate(rng: Random, num: int) -> Iterator[JSONObject]:
    """Yield requests for notes with three, five or seven requirements."""
    seen: set[str] = set()
    for number in range(num):
        difficulty = DIFFICULTIES[number % len(DIFFICULTIES)]
        wanted = made_up(rng, difficulty)
        while (prompt := asked(wanted)) in seen:
            wanted = made_up(rng, difficulty)
        seen.add(prompt)
        yield {
            "id": f"note-{number}",
            "difficulty": difficulty,
            "prompt": prompt,
            "wanted": wanted.model_dump(exclude_defaults=True),
        }


def asked(note: Note) -> str:
    """Return the request for such a note."""
    words = " and ".join(f'"{word}"' for word in note.mention)
    parts = [
        f"Write a short note about {note.topic}.",
        f'Begin with the word "{note.opening}".',
    ]
    if note.num_sentences is not None:
        parts.append(f"Write exactly {note.num_sentences} sentences.")
    parts.append(f"Use at most {note.max_words} words.")
    parts.append(f"Use the word{'s' if len(note.mention) > 1 else ''} {words}.")
    parts += [f'Do not use the word "{word}".' for word in note.avoid]
    if note.ending:
        parts.append(f'Let the last sentence be: "{note.ending}"')
    return " ".join(parts)


def made_up(rng: Random, difficulty: str) -> Note:
    """Draw a note with three (easy), five (medium) or seven (hard) requirements."""
    note = Note(
        topic=rng.choice(TOPICS),
        mention=rng.sample(THINGS, 1 if difficulty == "easy" else 2),
        max_words=rng.randint(35, 60),
        opening=rng.choice(OPENINGS),
    )
    if difficulty != "easy":
        note.ending = rng.choice(ENDINGS)
    if difficulty == "hard":
        note.avoid = [rng.choice(WORN_OUT)]
        note.num_sentences = rng.randint(3, 5)
    return note


TOPICS = (
    "a new bicycle shed",
    "the school garden",
    "a lost umbrella",
    "the choir's spring concert",
    "a repaired clock tower",
    "the flea market on Sunday",
    "an old map of the harbour",
    "a bakery that opens at five",
    "the night train to the coast",
    "a neighbour's greenhouse",
    "the library's reading hour",
    "a bridge under repair",
)
THINGS = (
    "key",
    "ladder",
    "bell",
    "lantern",
    "basket",
    "window",
    "ticket",
    "rope",
    "bench",
    "paint",
)
WORN_OUT = ("very", "really", "nice", "thing", "amazing", "actually")
OPENINGS = ("Today", "Finally", "Meanwhile", "Again", "Still", "Now")
ENDINGS = (
    "Please pass it on.",
    "Ask at the gate for more.",
    "We hope to see you there.",
    "Thank you for reading.",
    "More will follow next week.",
)

DIFFICULTIES = ("easy", "medium", "hard")
