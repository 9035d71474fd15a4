"""Plays a hand of blackjack against a dealer who draws to 17.

Source: the resources server blackjack of NVIDIA NeMo Gym 0.7 (Apache-2.0), reimplemented
independently. The first `<action>hit</action>` or `<action>stand</action>` of a message, in upper
or lower case, is the action. More than 21 loses at once; after a stand the dealer draws to 17 or
more. The reward is 1 for a win, 0 for a draw, -1 for a loss. Differences from the reference:

- The cards are those of one deck; the reference draws each from all ranks.
- A row's `deck_seed` fixes the deal, so that all attempts at it play the same hand. A row without
  one, as the reference's are, is dealt from the attempt's seed; the reference has no seed.
- A message without an action is answered with a reminder of the format; in the reference it means
  stand. The third such message in a row forfeits the hand, with reward -1: silence must not pay
  better than bad luck.
- A hand that ends early, for example at a token limit, is forfeited, with reward -1: running on
  must not pay better than losing.
- An episode has 32 turns instead of 10: enough for the ten actions that a hand can take, each after
  two messages without one.
- A rollout of the reference without `deck_seed` stays unscored: its deck is unknown.

One row (its system message shortened):
{"id": "blackjack-0", "difficulty": "hard", "messages": [{"role": "system", "content": "Hit or
stand?"}, {"role": "user", "content": "Your hand: A♠ 6♥ (17). The dealer shows 10♣."}],
"deck_seed": 84}
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from random import Random
from typing import Literal

from gymcli import (
    Context,
    Environment,
    JSONObject,
    Message,
    Properties,
    Rollout,
    Score,
    Step,
    Task,
    VerifierError,
)

__all__ = ["Blackjack", "Deal"]

Result = Literal["win", "draw", "loss", "bust", "forfeit", "unfinished"]

# ASCII, because "\u017f", the long s, matches "s" if case is ignored, but is its own lower case.
ACTION = re.compile(r"<action>\s*(hit|stand)\s*</action>", re.IGNORECASE | re.ASCII)
RANKS = ("A", *map(str, range(2, 11)), "J", "Q", "K")
DECK = tuple(f"{rank}{suit}" for suit in "♠♥♦♣" for rank in RANKS)
# An ace counts 1 here; `total` adds 10 where that fits.
POINTS = {rank: min(number, 10) for number, rank in enumerate(RANKS, start=1)}
REWARDS: dict[Result, float] = {
    "win": 1.0,
    "draw": 0.0,
    "loss": -1.0,
    "bust": -1.0,
    "forfeit": -1.0,
    "unfinished": 0.0,
}
"""The reward of each result; that of `unfinished` is for a step that does not end the hand."""
MAX_UNREADABLE = 3
"""Consecutive messages without an action that forfeit the hand."""


class Deal(Task):
    """The order of the deck."""

    deck_seed: int | None = None
    """Shuffles the deck; without it, the attempt's seed does."""


class Blackjack(Environment[Deal]):
    """Hit or stand: come closer to 21 than a dealer who draws to 17."""

    # Not every deal can be won.
    max_reward = None
    pass_threshold = 1.0
    # The longest hand takes ten actions, each after at most two messages without one.
    max_turns = 32
    properties = Properties("multi-turn", "decisions", "games", "card game", "replayed rewards")

    hand: list[str]
    dealer: list[str]
    deck: list[str]
    """The cards left, the next one first."""
    result: Result
    num_unreadable: int
    """Messages without an action since the last one with an action."""

    async def setup(self) -> list[Message]:
        """Shuffle and deal two cards each; show them unless the prompt does."""
        deck = shuffled(self.rng if self.task.deck_seed is None else Random(self.task.deck_seed))
        self.hand, self.dealer, self.deck = deck[:2], deck[2:4], deck[4:]
        self.result, self.num_unreadable = "unfinished", 0
        shown = table(self.hand, self.dealer)
        # Our rows show the deal; the reference's cannot, since it deals without a seed.
        if any(shown in message.text for message in self.rollout.messages):
            return []
        return [Message(role="user", content=f"{shown}\n\n{EXPECTED}")]

    async def step(self, message: Message) -> Step:
        """Play the message's action and show the table; the last step has the reward."""
        if self._is_over():
            return Step([], stop_reason="env_done")
        # There are no tools: a call is refused, but the text of its message still counts.
        refused = await self.call_tools(message.tool_calls)
        found = ACTION.search(message.text)
        text = self._played(found[1].lower()) if found else self._asked_again()
        answers = [*refused, Message(role="user", content=text)]
        return Step(answers, REWARDS[self.result], "env_done" if self._is_over() else None)

    def _is_over(self) -> bool:
        return self.result != "unfinished"

    def _played(self, action: str) -> str:
        self.num_unreadable = 0
        if action == "stand":
            self.dealer, self.result = stood(self.hand, self.dealer, self.deck)
            hands = f"Your hand: {described(self.hand)}. The dealer's: {described(self.dealer)}."
            return f"{hands} {ENDINGS[self.result]}"
        self.hand = [*self.hand, self.deck.pop(0)]
        shown = f"You draw {self.hand[-1]}. {table(self.hand, self.dealer)}"
        if total(self.hand) > 21:
            self.result = "bust"
            return f"{shown} {ENDINGS[self.result]}"
        return f"{shown}\n\n{EXPECTED}"

    def _asked_again(self) -> str:
        self.num_unreadable += 1
        if self.num_unreadable == MAX_UNREADABLE:
            self.result = "forfeit"
            return ENDINGS[self.result]
        return f"I found no action. {EXPECTED}\n\n{table(self.hand, self.dealer)}"

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Replay the record and score the hand; an unfinished one is lost."""
        # A record without a version is another program's; only a seed in the row tells its deck.
        if not rollout.env_version and cls.parse_task(rollout.task).deck_seed is None:
            raise VerifierError('the deck of this record is unknown: its row has no "deck_seed"')
        world = await context.replay(rollout)
        assert isinstance(world, cls)
        ended = "forfeit" if world.result == "unfinished" else world.result
        return Score(
            REWARDS[ended],
            metrics={result: float(ended == result) for result in ENDINGS},
            details={
                "reason": "no_answer" if world.num_unreadable == MAX_UNREADABLE else ended,
                "hand": described(world.hand),
                "dealer": described(world.dealer),
            },
        )

    async def oracle(self, rollout: Rollout) -> Message:
        """Play the best possible hand; only the oracle may look into the deck."""
        _, num_hits = best_play(self.hand, self.dealer, self.deck)
        return Message(role="assistant", content=HIT if num_hits else STAND)

    @classmethod
    def choices(cls, task: Deal) -> list[str]:
        """Return the two actions; a guesser picks one of them each turn."""
        return [HIT, STAND]

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Yield hands that can be won, as many of each difficulty."""
        rows: dict[str, JSONObject] = {}
        while (number := len(rows)) < num:
            deck_seed = rng.randrange(10**6)
            deck = shuffled(Random(deck_seed))
            hand, dealer, rest = deck[:2], deck[2:4], deck[4:]
            level = DIFFICULTIES[number % len(DIFFICULTIES)]
            result, _ = best_play(hand, dealer, rest)
            shown = table(hand, dealer)
            # Another seed may deal the same three cards that the prompt shows.
            if (result, difficulty(hand)) != ("win", level) or shown in rows:
                continue
            rows[shown] = {
                "id": f"blackjack-{number}",
                "difficulty": level,
                "messages": [
                    {"role": "system", "content": RULES},
                    {"role": "user", "content": shown},
                ],
                "deck_seed": deck_seed,
            }
        yield from rows.values()


def shuffled(rng: Random) -> list[str]:
    """Return the 52 cards in a random order."""
    return rng.sample(DECK, len(DECK))


def lowest_total(cards: Sequence[str]) -> int:
    """Count a hand with every ace as 1."""
    return sum(POINTS[card[:-1]] for card in cards)


def is_soft(cards: Sequence[str]) -> bool:
    """Return whether an ace of the hand counts 11."""
    return any(card[:-1] == "A" for card in cards) and lowest_total(cards) <= 11


def total(cards: Sequence[str]) -> int:
    """Count a hand; one ace counts 11 if that does not exceed 21."""
    return lowest_total(cards) + (10 if is_soft(cards) else 0)


def described(cards: Sequence[str]) -> str:
    """Name the cards of a hand and their total."""
    return f"{' '.join(cards)} ({total(cards)})"


def table(hand: Sequence[str], dealer: Sequence[str]) -> str:
    """Describe what the player sees: their hand and the dealer's first card."""
    return f"Your hand: {described(hand)}. The dealer shows {dealer[0]}."


def stood(
    hand: Sequence[str], dealer: Sequence[str], deck: Sequence[str]
) -> tuple[list[str], Result]:
    """Let the dealer draw to 17; return the dealer's hand and the player's result."""
    drawn, rest = list(dealer), iter(deck)
    while total(drawn) < 17:
        drawn.append(next(rest))
    mine, theirs = total(hand), total(drawn)
    if theirs > 21 or mine > theirs:
        return drawn, "win"
    return drawn, "draw" if mine == theirs else "loss"


def best_play(
    hand: Sequence[str], dealer: Sequence[str], deck: Sequence[str]
) -> tuple[Result, int]:
    """Return the best possible result, and the fewest hits that lead to it."""
    grown = ([*hand, *deck[:num_hits]] for num_hits in range(len(deck)))
    playable = itertools.takewhile(lambda cards: total(cards) <= 21, grown)
    plays = [
        (stood(cards, dealer, deck[num_hits:])[1], num_hits)
        for num_hits, cards in enumerate(playable)
    ]
    # `max` returns the first of equal plays, the one with the fewest hits.
    return max(plays, key=lambda play: REWARDS[play[0]])


def difficulty(hand: Sequence[str]) -> str:
    """Return the difficulty of the first choice: no risk, a risk, or an ace with two values."""
    if total(hand) <= 11 or total(hand) >= 19:
        return "easy"
    return "hard" if is_soft(hand) else "medium"


DIFFICULTIES = ("easy", "medium", "hard")

HIT, STAND = "<action>hit</action>", "<action>stand</action>"

EXPECTED = f"Reply with {HIT} or {STAND}."

ENDINGS: dict[Result, str] = {
    "win": "You win.",
    "draw": "It is a draw.",
    "loss": "You lose.",
    "bust": "That is more than 21: you lose.",
    "forfeit": f"I found no action {MAX_UNREADABLE} times in a row: you forfeit the hand and lose.",
}

RULES = (
    "You play one hand of blackjack against the dealer, from a single deck of 52 cards. You want a "
    "total closer to 21 than the dealer's, and not above it. Number cards count their number; "
    "jack, queen and king count 10; an ace counts 11, or 1 where 11 would take the hand above 21. "
    "Hit to draw a card: with more than 21 you lose at once. Stand to end your turn: then the "
    "dealer draws until the total is 17 or more, and loses with more than 21. The higher total "
    "wins, and equal totals are a draw. There is no other choice and no extra pay. A hand that you "
    "do not finish is lost.\n\n"
    f"Think as long as you need, with one choice a message. {EXPECTED}"
)
