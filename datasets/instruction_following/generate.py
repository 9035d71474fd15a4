"""Generates requests for a short text with instructions that can all be followed together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import NamedTuple

from gymcli import JSONObject

Draw = Callable[[Random, Sequence[str]], JSONObject]
"""Draws the arguments of an instruction, using at most the first three of the words."""

END_PHRASES = """
That is all about the {0}
More about the {0} another time
So much for the {0} and the {1}
Now back to the {0}
And the {0} is still there
"""
PHRASES = """
every {0} needs its own patient {1}
behind one {0} waits another curious {1}
between the {0} and that quiet {1}
"""
USUAL_WORDS = "because very really always never great maybe perhaps however simply beautiful nice"


def nothing(rng: Random, words: Sequence[str]) -> JSONObject:
    """Draw nothing, for an instruction without arguments."""
    return {}


def count(name: str, low: int, high: int) -> Draw:
    """Return a function that draws a number."""
    return lambda rng, words: {name: rng.randint(low, high)}


def length(name: str, least: tuple[int, int], less: tuple[int, int]) -> Draw:
    """Return a function that draws a lower or an upper bound for a number."""

    def draw(rng: Random, words: Sequence[str]) -> JSONObject:
        if rng.random() < 0.5:
            return {name: rng.randint(*least), "relation": "at least"}
        return {name: rng.randint(*less), "relation": "less than"}

    return draw


def keyword(rng: Random, words: Sequence[str]) -> JSONObject:
    """Return a word."""
    return {"keyword": words[0]}


def keywords(rng: Random, words: Sequence[str]) -> JSONObject:
    """Return two or three words."""
    return {"keywords": list(words[: rng.randint(2, 3)])}


def frequency(rng: Random, words: Sequence[str]) -> JSONObject:
    """Draw how often a word must occur: more often than in the prompt."""
    return {"keyword": words[0], "frequency": rng.randint(3, 6), "relation": "at least"}


def one_and_two(rng: Random, words: Sequence[str]) -> JSONObject:
    """Return two words."""
    return {"keyword1": words[0], "keyword2": words[1]}


def first_word(rng: Random, words: Sequence[str]) -> JSONObject:
    """Return a word to begin with."""
    return {"first_word": words[0]}


def last_word(rng: Random, words: Sequence[str]) -> JSONObject:
    """Return a word to end with."""
    return {"last_word": words[0]}


def paragraph_word(rng: Random, words: Sequence[str]) -> JSONObject:
    """Draw the number of paragraphs, and which of them begins with a word."""
    num = rng.randint(2, 5)
    return {"num_paragraphs": num, "nth_paragraph": rng.randint(1, num), "first_word": words[0]}


def phrase(rng: Random, words: Sequence[str]) -> JSONObject:
    """Draw a phrase and how often it must occur."""
    text = rng.choice(PHRASES.strip().splitlines()).format(*words)
    return {"phrase": text, "small_n": rng.randint(2, 4)}


def end_phrase(rng: Random, words: Sequence[str]) -> JSONObject:
    """Draw a phrase to end with."""
    return {"end_phrase": rng.choice(END_PHRASES.strip().splitlines()).format(*words)}


def letter(rng: Random, words: Sequence[str]) -> JSONObject:
    """Draw an upper bound for a rare letter, or a lower one for a common one."""
    if rng.random() < 0.5:
        number = rng.randint(2, 3)
        return {"letter": rng.choice("jxz"), "let_frequency": number, "let_relation": "less than"}
    number = rng.randint(20, 40)
    return {"letter": rng.choice("aeinorst"), "let_frequency": number, "let_relation": "at least"}


def forbidden(rng: Random, words: Sequence[str]) -> JSONObject:
    """Draw common words."""
    return {"forbidden_words": rng.sample(USUAL_WORDS.split(), rng.randint(2, 4))}


def excluded(rng: Random, words: Sequence[str]) -> JSONObject:
    """Draw a common word."""
    return {"keyword": rng.choice(USUAL_WORDS.split())}


def capitals(rng: Random, words: Sequence[str]) -> JSONObject:
    """Draw the number of words in capitals."""
    return {"capital_frequency": rng.randint(2, 6), "capital_relation": "at least"}


def sections(rng: Random, words: Sequence[str]) -> JSONObject:
    """Draw the number of sections and the word that heads them."""
    splitter = rng.choice(["Section", "Part", "Day"])
    return {"section_spliter": splitter, "num_sections": rng.randint(2, 4)}


def marker(rng: Random, words: Sequence[str]) -> JSONObject:
    """Draw the beginning of a postscript."""
    return {"postscript_marker": rng.choice(["P.S.", "P.P.S"])}


class Offer(NamedTuple):
    """An instruction that a task may have."""

    id: str
    claims: str
    """Aspects of the text that it fixes; instructions that share one are never combined."""
    text: str
    """The instruction in the prompt, with placeholders for its arguments."""
    draw: Draw = nothing


FIRM = (
    Offer(
        "keywords:frequency",
        "words",
        'Use the word "{keyword}" {relation} {frequency} times.',
        frequency,
    ),
    Offer(
        "startend:end_checker",
        "edges case",
        'Let the text end with "{end_phrase}", and put nothing after it, not even a full stop.',
        end_phrase,
    ),
    Offer(
        "first_word:first_word_sent",
        "edges sentences",
        'Begin every single sentence with the word "{first_word}", with nothing before it, and '
        "with a space and no punctuation after it.",
        first_word,
    ),
    Offer(
        "length_constraints:nth_paragraph_first_word",
        "structure edges",
        "Write {num_paragraphs} paragraphs with one blank line between them, and let paragraph "
        '{nth_paragraph} begin with the word "{first_word}", with a space and no punctuation after '
        "it.",
        paragraph_word,
    ),
    Offer(
        "count:count_increment_word",
        "words",
        'Use the word "{keyword1}" exactly once and the word "{keyword2}" exactly twice, both '
        "counted inside longer words too.",
        one_and_two,
    ),
    Offer(
        "last_word:last_word_answer",
        "edges",
        'Let "{last_word}" be the very last word of the text.',
        last_word,
    ),
    Offer(
        "copy:repeat_phrase",
        "words case",
        'Use the phrase "{phrase}" exactly {small_n} times, and each time replace one word in the '
        "middle of it by one that it does not have. Keep its first and its last word as they are, "
        "in small letters even at the start of a sentence, and use its first word nowhere else.",
        phrase,
    ),
    Offer(
        "first_word:first_word_answer",
        "edges",
        'Let "{first_word}" be the very first word of the text, with nothing before it, and with a '
        "space and no punctuation after it.",
        first_word,
    ),
    Offer(
        "keywords:word_count_different_numbers",
        "words",
        'The word "{keyword}" has to come {relation} {frequency} times.',
        frequency,
    ),
    Offer(
        "last_word:last_word_sent",
        "edges sentences",
        'End every single sentence with the word "{last_word}", followed by its punctuation.',
        last_word,
    ),
)
"""Instructions that an empty answer, an echo of the prompt or another task's answer never
follows."""

OTHERS = (
    Offer(
        "keywords:existence",
        "words",
        "Mention each of these words: {keywords}.",
        keywords,
    ),
    Offer(
        "keywords:word_once",
        "words",
        'Use the word "{keyword}" once and only once, counted inside longer words too.',
        keyword,
    ),
    Offer(
        "keywords:letter_frequency",
        "letters",
        'The letter "{letter}" has to come {let_relation} {let_frequency} times.',
        letter,
    ),
    Offer(
        "letters:letter_counting2",
        "letters",
        'Use the letter "{letter}" {let_relation} {let_frequency} times.',
        letter,
    ),
    Offer(
        "letters:letter_counting",
        "length",
        "Use {relation} {N} letters in all.",
        length("N", (200, 400), (900, 1200)),
    ),
    Offer(
        "length_constraints:number_words",
        "length",
        'Write {relation} {num_words} words; "don\'t" and "well-lit" count as two each.',
        length("num_words", (80, 160), (180, 240)),
    ),
    Offer(
        "length_constraints:number_sentences",
        "length",
        "Write {relation} {num_sentences} sentences.",
        length("num_sentences", (6, 12), (20, 25)),
    ),
    Offer(
        "keywords:palindrome",
        "palindrome",
        "Use at least one word of three letters or more that reads the same backwards; let it "
        "stand between two spaces, all in capitals or all in small letters.",
    ),
    Offer(
        "length_constraints:number_paragraphs",
        "structure sentences",
        "Write {num_paragraphs} paragraphs, with a line that holds only *** between them.",
        count("num_paragraphs", 3, 5),
    ),
    Offer(
        "paragraphs:paragraphs",
        "structure sentences",
        "Write two paragraphs, with a line that holds only *** between them.",
    ),
    Offer(
        "paragraphs:paragraphs2",
        "structure",
        "Write two paragraphs with one blank line between them and none elsewhere.",
    ),
    Offer(
        "combination:two_responses",
        "structure sentences",
        "Write two different versions, with a line that holds only ****** between them.",
    ),
    Offer(
        "detectable_format:number_bullet_lists",
        "ornament structure sentences",
        "Have a list of exactly {num_bullets} bullet points, each on a line that begins with a "
        "hyphen, and no other line that begins with a hyphen or a star.",
        count("num_bullets", 2, 6),
    ),
    Offer(
        "detectable_format:multiple_sections",
        "structure sentences case",
        'Write {num_sections} sections or more, which begin with "{section_spliter} 1", '
        '"{section_spliter} 2" and so on.',
        sections,
    ),
    Offer(
        "detectable_format:json_format",
        "structure sentences edges",
        "Give all of it as one JSON object, with the text as the value of a key.",
    ),
    Offer(
        "detectable_format:title",
        "ornament structure sentences edges",
        "Give it a title, written <<like this>>.",
    ),
    Offer(
        "detectable_content:number_placeholders",
        "ornament",
        "Leave {num_placeholders} things or more open as placeholders in square brackets, such as "
        "[name].",
        count("num_placeholders", 2, 5),
    ),
    Offer(
        "detectable_format:number_highlighted_sections",
        "ornament",
        "Highlight {num_highlights} places or more in Markdown, *like this*.",
        count("num_highlights", 2, 5),
    ),
    Offer(
        "detectable_content:postscript",
        "ornament structure sentences stop case",
        'Add a postscript that begins with "{postscript_marker}".',
        marker,
    ),
    Offer(
        "keywords:forbidden_words",
        "avoidance",
        "Avoid each of these words: {forbidden_words}.",
        forbidden,
    ),
    Offer("keywords:exclude_word_harder", "avoidance", 'Avoid the word "{keyword}".', excluded),
    Offer("punctuation:no_comma", "comma", "Use no commas."),
    Offer("punctuation:punctuation_dot", "stop", "Use no full stops, and no other dots."),
    Offer("punctuation:punctuation_exclamation", "stop", "Use no exclamation marks."),
    Offer("change_case:english_capital", "case", "Write in capital letters only."),
    Offer("change_case:english_lowercase", "case", "Write in small letters only."),
    Offer(
        "count:lowercase_counting",
        "case",
        "Have at most {N} words that are written in small letters alone; what follows an "
        "apostrophe or a hyphen is a word of its own.",
        count("N", 2, 5),
    ),
    Offer(
        "change_case:capital_word_frequency",
        "case",
        "Write {capital_relation} {capital_frequency} words in capital letters.",
        capitals,
    ),
    Offer(
        "startend:quotation",
        "edges",
        'Put the whole text in straight double quotation marks, "like this".',
    ),
    Offer(
        "keywords:start_end",
        "edges",
        "Begin and end the text with the same word, with nothing before or after it, not even a "
        "full stop.",
    ),
)
"""Further instructions; an empty answer or an echo of the prompt follows some of them."""


def generate(rng: Random, num: int) -> Iterator[JSONObject]:
    """Yield tasks with one, two or four instructions, one of which is never followed by chance.

    A prompt that is not new is drawn again with more instructions, so the generator never runs out.
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
        # The firm instruction has its own words, so that no other one asks for them or counts them.
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
    """Draw compatible instructions, in any order."""
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
"""Words of a subject; the first three are for the instruction of `FIRM`."""

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
