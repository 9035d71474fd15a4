"""Writes tasks: a short text to write, with instructions that can all be followed at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from gymcli import JSONObject

from .offers import FIRM, OTHERS, Offer

__all__ = ["rows"]


def rows(rng: Random, num: int) -> Iterator[JSONObject]:
    """Write tasks with one instruction, two, and four; one of them is never met by chance.

    A prompt that was there before gets more instructions, so that the words never run out.
    """
    subjects = [line.split(": ") for line in SUBJECTS.strip().splitlines()]
    prompts: set[str] = set()
    num_more = 0
    while (number := len(prompts)) < num:
        difficulty = list(NUM_INSTRUCTIONS)[number % len(NUM_INSTRUCTIONS)]
        subject, related = rng.choice(subjects)
        firm = FIRM[number // len(NUM_INSTRUCTIONS) % len(FIRM)]
        offers = _drawn(rng, firm, NUM_INSTRUCTIONS[difficulty] + num_more)
        words = rng.sample(related.split(), NUM_WORDS)
        arguments = [offer.draw(rng, words if offer is firm else words[3:]) for offer in offers]
        prompt = _prompt(rng.choice(KINDS.split(", ")), subject, offers, arguments)
        num_more = num_more + 1 if prompt in prompts else 0
        if num_more:
            continue
        prompts.add(prompt)
        yield {
            "id": f"instructions-{number}",
            "difficulty": difficulty,
            "prompt": prompt,
            "instruction_id_list": [offer.id for offer in offers],
            "kwargs": arguments,
            "grading_mode": "fraction" if number % 12 == 11 else "binary",
        }


def _drawn(rng: Random, firm: Offer, num: int) -> list[Offer]:
    """Draw instructions that go together, in any order."""
    drawn = [firm]
    for offer in rng.sample(OTHERS, len(OTHERS)):
        claimed = {claim for other in drawn for claim in other.claims.split()}
        if len(drawn) < num and not claimed & {*offer.claims.split()}:
            drawn.append(offer)
    return rng.sample(drawn, len(drawn))


def _prompt(
    kind: str, subject: str, offers: Sequence[Offer], arguments: Sequence[JSONObject]
) -> str:
    texts = [
        offer.text.format_map({name: _shown(value) for name, value in given.items()})
        for offer, given in zip(offers, arguments, strict=True)
    ]
    listing = "\n".join(f"{number}. {text}" for number, text in enumerate(texts, start=1))
    rule = "Keep to this rule" if len(texts) == 1 else "Keep to all of these rules"
    return f"Write {kind} about {subject}.\n\n{rule}:\n{listing}\n\nReply with the text alone."


def _shown(value: object) -> str:
    if isinstance(value, list):
        *first, last = (f'"{item}"' for item in value)
        return f"{', '.join(first)} and {last}"
    return str(value)


NUM_INSTRUCTIONS = {"easy": 1, "medium": 2, "hard": 4}
NUM_WORDS = 6
"""Of a subject; the first three are for the instruction that is never met by chance."""

KINDS = "a short note, a message to a friend, a diary entry, a letter to a neighbour, an advert"
SUBJECTS = """
an early morning at a bakery: oven flour crust queue apron dough
a walk along the harbour: gull anchor pier ferry salt lantern
moving to another flat: carton ladder keyhole stairs curtain radiator
a power cut in the evening: candle torch shadow fuse elevator blanket
the first day at school: satchel pencil corridor bell teacher locker
learning to ride a bicycle: pedal saddle helmet brake gravel chain
a market in the rain: umbrella stall puddle cabbage vendor awning
a night train: compartment whistle tunnel pillow conductor platform
planting a small garden: shovel seed hedge earthworm tulip compost
mending a broken chair: glue hammer splinter varnish clamp sandpaper
a choir rehearsal: soprano melody piano chord breath applause
a lost glove: mitten wool pavement pocket finder button
a visit to the dentist: molar drill mirror receptionist toothbrush filling
camping by a lake: tent campfire canoe mosquito backpack kettle
a library on a holiday: shelf novel librarian silence bookmark atlas
a neighbour's cat: whisker fence basket purr claw cushion
cooking soup for many guests: ladle carrot onion broth spoon recipe
a chess club: rook bishop gambit checkmate timer opponent
snow in the city: sledge scarf icicle boot shovel tram
an old family photograph: album frame grandmother moustache attic portrait
a swimming lesson: goggles towel lifeguard float splash chlorine
a day without a phone: battery signal notebook stranger map silence
a flea market: teapot bargain gramophone brooch haggle carpet
watching the stars: comet telescope rooftop planet moon meteor
"""
