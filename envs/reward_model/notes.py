"""Short notes: what they have to be like, whether they are, and one that is."""

import re
from random import Random

from pydantic import BaseModel, Field

__all__ = ["Note", "asked", "made_up", "written"]

SENTENCE_END = re.compile(r"[.!?](?=\s|$)")


class Note(BaseModel):
    """What a note has to be like."""

    topic: str
    mention: list[str] = Field(min_length=1)
    """Words that it has in it."""
    avoid: list[str] = []
    """Words that it does not."""
    max_words: int = Field(ge=1)
    num_sentences: int | None = Field(default=None, ge=1)
    opening: str = Field(min_length=1)
    """The first word."""
    ending: str = ""
    """The last sentence."""

    def fulfilled(self, text: str) -> list[bool]:
        """Say of each requirement whether a text fulfils it; one without words fulfils none."""
        words = re.findall(r"\w+", text.casefold())
        found = [word.casefold() in words for word in self.mention]
        found += [word.casefold() not in words for word in self.avoid]
        found.append(len(text.split()) <= self.max_words)
        found.append(words[:1] == [self.opening.casefold()])
        if self.num_sentences is not None:
            found.append(len(SENTENCE_END.findall(text)) == self.num_sentences)
        if self.ending:
            found.append(text.rstrip().endswith(self.ending))
        return [is_fulfilled and bool(words) for is_fulfilled in found]


def asked(note: Note) -> str:
    """Write what a note has to be like as a request."""
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


def written(note: Note) -> str:
    """Write a note that is as wanted, of those that `made_up` gives."""
    things = " and the ".join(note.mention)
    sentences = [f"{note.opening} there is news about {note.topic}, and about the {things}."]
    endings = [note.ending] if note.ending else []
    num_fillers = (note.num_sentences or 2) - len(endings) - 1
    return " ".join([*sentences, *FILLERS[:num_fillers], *endings])


def made_up(rng: Random, difficulty: str) -> Note:
    """Make up a note of three (easy), five (medium) or seven (hard) requirements."""
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
FILLERS = ("All are welcome.", "Bring a friend.", "It costs no money.")
