"""The environment blackjack: the rules, rewards, replays of records, and the generated deals."""

import asyncio
import itertools
import math
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymcli.environment.registry import shipped_tasks
from gymcli.envs.blackjack import (
    DECK,
    ENDINGS,
    RANKS,
    REWARDS,
    Blackjack,
    Deal,
    best_play,
    difficulty,
    shuffled,
    stood,
    table,
    total,
)
from gymcli.errors import ReplayDivergedError, VerifierError
from gymcli.types import Message
from tests.envs.episodes import calls, cut, played, row_of_file, says, scored, task_row

HIT, STAND = says("<action>hit</action>"), says("<action>stand</action>")


def cards(text):
    """Return cards of one suit with these ranks."""
    return [f"{rank}♠" for rank in text.split()]


def steps(hand, dealer, deck, *messages):
    """Play messages on a table with these cards; return the environment and its step results."""

    async def play():
        environment = Blackjack(Deal(deck_seed=0))
        await environment.setup()
        environment.hand, environment.dealer = cards(hand), cards(dealer)
        environment.deck = cards(deck)
        return environment, [await environment.step(message) for message in messages]

    return asyncio.run(play())


def deal_where(is_wanted):
    """Return a row whose deal (hand, dealer's hand, rest of the deck) satisfies `is_wanted`."""
    decks = ((seed, shuffled(Random(seed))) for seed in itertools.count())
    seed = next(seed for seed, deck in decks if is_wanted(deck[:2], deck[2:4], deck[4:]))
    return task_row("blackjack", {"deck_seed": seed})


def stands_to(result):
    return deal_where(lambda hand, dealer, deck: stood(hand, dealer, deck)[1] == result)


def test_total_counts_one_ace_as_11_where_it_fits(subtests):
    cases = [
        ("2 3", 5),
        ("10 J", 20),
        ("Q K 2", 22),
        ("A", 11),
        ("A K", 21),
        ("A A", 12),
        ("A 6", 17),
        ("A 6 K", 17),
        ("A 5 5", 21),
        ("A A 9", 21),
        ("A A 10", 12),
        ("A A A A", 14),
        ("5 A 5 A", 12),
    ]
    for hand, points in cases:
        with subtests.test(hand=hand, points=points):
            assert total(cards(hand)) == points


@given(st.lists(st.sampled_from(DECK), min_size=1, max_size=12))
def test_total_is_the_best_count_of_the_aces(hand):
    """Try every ace as 1 and as 11; the order of the cards does not matter."""
    plain = sum(min(RANKS.index(card[:-1]) + 1, 10) for card in hand)
    counts = [plain + 10 * more for more in range(1 + sum(c.startswith("A") for c in hand))]

    assert total(hand) == max((n for n in counts if n <= 21), default=plain)
    assert total(hand[::-1]) == total(hand)


@pytest.mark.parametrize(
    ("hand", "dealer", "deck", "end", "result"),
    [
        pytest.param("10 9", "10 8", "2", "10 8", "win", id="higher"),
        pytest.param("10 7", "10 8", "2", "10 8", "loss", id="lower"),
        pytest.param("10 8", "10 8", "2", "10 8", "draw", id="equal"),
        pytest.param("10 2", "10 6", "K 2", "10 6 K", "win", id="dealer draws to 16 and busts"),
        pytest.param("10 9", "2 3", "4 5 6", "2 3 4 5 6", "loss", id="dealer draws on and on"),
        pytest.param("10 8", "10 7", "A", "10 7", "win", id="dealer stands at 17"),
        pytest.param("10 8", "A 6", "4", "A 6", "win", id="dealer stands at 17 with an ace"),
        pytest.param("10 8", "A 5", "K 2", "A 5 K 2", "draw", id="the dealer's ace becomes 1"),
        pytest.param("A K", "7 7", "7", "7 7 7", "draw", id="21 is 21"),
    ],
)
def test_step_lets_the_dealer_draw_to_17_after_a_stand(hand, dealer, deck, end, result):
    environment, [step] = steps(hand, dealer, deck, STAND)

    assert (environment.dealer, environment.result) == (cards(end), result)
    assert (step.reward, step.stop_reason) == (REWARDS[result], "env_done")
    assert f"The dealer's: {' '.join(cards(end))} ({total(cards(end))})." in step.messages[0].text


@given(st.integers(0, 10**6))
def test_stood_ends_between_17_and_26(seed):
    deck = shuffled(Random(seed))
    drawn, result = stood(deck[:2], deck[2:4], deck[4:])

    assert 17 <= total(drawn) <= 26
    assert total(drawn[:-1]) < 17 or drawn == deck[2:4]
    assert result in ("win", "draw", "loss")


def test_step_draws_the_next_card():
    environment, [step] = steps("2 3", "10 6", "4 9", HIT)

    assert (environment.hand, environment.deck) == (cards("2 3 4"), cards("9"))
    assert (step.reward, step.stop_reason) == (0.0, None)
    [answer] = step.messages
    assert answer.role == "user"
    assert "You draw 4♠. Your hand: 2♠ 3♠ 4♠ (9). The dealer shows 10♠." in answer.text
    assert "6♠" not in answer.text, "the dealer's second card is hidden"


def test_step_ends_the_hand_above_21():
    environment, [first, second] = steps("10 6", "10 6", "5 K", HIT, HIT)

    assert (first.reward, first.stop_reason) == (0.0, None), "21 is not above 21"
    assert (second.reward, second.stop_reason) == (-1.0, "env_done")
    assert environment.result == "bust"


def test_step_answers_nothing_after_the_end():
    _, [_, *late] = steps("10 9", "10 8", "2 3", STAND, STAND, HIT, says(""))

    assert late == [([], None, "env_done")] * 3


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("<action>stand</action>", "win"),
        ("I will <ACTION> Stand\n</Action>, surely.", "win"),
        ("<action>hit</action> or <action>stand</action>", "bust"),
        ("<action>wait</action> <action>stand</action>", "win"),
        ("stand", "unfinished"),
        ("<action>stand", "unfinished"),
        ("<action>\u017ftand</action>", "unfinished"),
        ("<action>stand hit</action>", "unfinished"),
        ("", "unfinished"),
    ],
)
def test_step_takes_the_first_action_in_a_tag(text, result):
    environment, _ = steps("10 9", "10 8", "3", says(text))

    assert environment.result == result


def test_step_asks_again_where_there_is_no_action():
    environment, [step] = steps("10 9", "10 8", "3", says("I think I should stand."))

    assert (step.reward, step.stop_reason) == (0.0, None)
    assert "<action>hit</action> or <action>stand</action>" in step.messages[0].text
    assert table(environment.hand, environment.dealer) in step.messages[0].text


def test_step_ends_the_hand_at_the_third_message_in_a_row_without_an_action():
    environment, answers = steps("10 9", "10 8", "3", says("?"), says("?"), says("?"))

    assert [step.reward for step in answers] == [0.0, 0.0, -1.0]
    assert (environment.result, answers[2].stop_reason) == ("forfeit", "env_done")


def test_step_counts_messages_without_an_action_anew_after_an_action():
    messages = [says("?"), says("?"), HIT, says("?"), says("?"), STAND]
    environment, _ = steps("2 3", "10 8", "4 5", *messages)

    assert environment.result == "loss"


def test_step_refuses_tool_calls_and_still_reads_the_text():
    call = calls(("hit", "{}"))
    call.content = "<action>stand</action>"
    environment, [first, second] = steps("10 9", "10 8", "3", calls(("hit", "{}")), call)

    assert [message.role for message in first.messages] == ["tool", "user"]
    assert [message.role for message in second.messages] == ["tool", "user"]
    assert environment.tool_errors["unknown_tool"] == 2
    assert environment.result == "win"


@settings(max_examples=50)
@given(
    st.lists(
        st.one_of(
            st.text(max_size=40),
            st.sampled_from(["<action>hit</action>", "<action>stand</action>", "<action>"]),
        ),
        min_size=1,
        max_size=6,
    ),
    st.integers(0, 200),
)
def test_any_text_can_be_played_and_scored(texts, seed):
    """Nothing raises; the replay yields the recorded rewards, and they add up to the reward."""
    row = task_row("blackjack", {"deck_seed": seed})
    rollout = scored(played(row, *map(says, texts)))

    assert rollout.stop_reason == "env_done", "every hand ends"
    assert rollout.reward == math.fsum(rollout.step_rewards)
    reason = rollout.details["reason"]
    ended = "forfeit" if reason == "no_answer" else reason
    assert rollout.reward == REWARDS[ended]
    assert rollout.metrics == {result: float(result == ended) for result in ENDINGS}


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        pytest.param(["Hit me!"] * 3, "no_answer", id="no action"),
        pytest.param(["<action>hit</action>", *["Hit me!"] * 3], "no_answer", id="after one"),
        pytest.param(["Hit me!", "<action>stand</action>"], None, id="one in time"),
    ],
)
def test_verify_says_where_no_action_could_be_read(texts, reason):
    row = deal_where(lambda hand, dealer, deck: total([*hand, deck[0]]) <= 21)
    rollout = scored(played(row, *map(says, texts)))

    assert (rollout.details["reason"] == "no_answer") == (reason is not None)
    assert rollout.metrics["forfeit"] == float(reason is not None)


@pytest.mark.parametrize(("result", "reward"), [("win", 1.0), ("draw", 0.0), ("loss", -1.0)])
def test_verify_gives_what_the_hand_was_worth(result, reward):
    rollout = scored(played(stands_to(result), STAND))

    assert (rollout.reward, rollout.details["reason"]) == (reward, result)
    assert rollout.step_rewards == [reward]


@pytest.mark.parametrize(
    ("messages", "stop_reason"),
    [
        pytest.param([HIT, HIT], "max_turns", id="turns"),
        pytest.param([HIT, cut(STAND)], "length", id="an action at the token limit"),
        pytest.param([cut(says("Hm, let me see"))], "length", id="token limit"),
        pytest.param([Message(role="assistant", reasoning="Hm.")], "no_answer", id="only thought"),
        pytest.param([Message(role="assistant", refusal="No.")], "refusal", id="refusal"),
    ],
)
def test_verify_takes_a_hand_that_ends_early_for_forfeited(messages, stop_reason):
    """Leaving the game early must not pay more than losing it."""
    row = deal_where(lambda hand, dealer, deck: total([*hand, *deck[:2]]) <= 21)
    rollout = scored(played(row, *messages, max_turns=2))

    assert rollout.stop_reason == stop_reason
    assert (rollout.reward, rollout.details["reason"]) == (-1.0, "forfeit")
    assert rollout.metrics == {result: float(result == "forfeit") for result in ENDINGS}


def test_episode_has_turns_for_the_longest_hand():
    """All aces, all twos and three threes make 21 with eleven cards; the reference has 10 turns."""
    deck = cards("A A A A 2 2 2 2 3 3 3 9")
    num_actions = next(n for n in itertools.count() if total(deck[: 2 + n]) > 21)

    assert num_actions == 10
    assert 3 * num_actions <= Blackjack.max_turns == 32


def test_choices_are_the_actions():
    assert [says(choice) for choice in Blackjack.choices(Deal())] == [HIT, STAND]


@pytest.mark.parametrize("position", [-1, 3, 1])
def test_verify_leaves_a_doctored_record_unscored(position):
    row = deal_where(lambda hand, dealer, deck: total([*hand, deck[0]]) <= 21)
    rollout = played(row, HIT, STAND)
    messages = list(rollout.messages)
    messages[position] = Message(role="user", content="Your hand: A♠ K♠ (21). You win.")

    with pytest.raises(ReplayDivergedError):
        scored(msgspec.structs.replace(rollout, messages=messages))


def test_verify_leaves_a_record_with_another_action_unscored():
    row = deal_where(lambda hand, dealer, deck: total([*hand, deck[0]]) > 21)
    rollout = played(row, HIT)
    messages = [STAND if m.role == "assistant" else m for m in rollout.messages]

    with pytest.raises(ReplayDivergedError):
        scored(msgspec.structs.replace(rollout, messages=messages))


def test_verify_knows_the_deck_of_another_programs_record_only_by_its_seed():
    seeded = msgspec.structs.replace(played(stands_to("win"), STAND), env_version="")
    unseeded = msgspec.structs.replace(played(task_row("blackjack", {}), STAND), env_version="")

    assert scored(seeded).reward == 1.0
    with pytest.raises(VerifierError, match="deck_seed"):
        scored(unseeded)


def test_row_of_the_reference_is_dealt_from_the_attempts_seed(tmp_path):
    prompt = {"input": [{"role": "user", "content": "Deal me in."}]}
    row = row_of_file(tmp_path, "blackjack", {"responses_create_params": prompt})
    rollout = played(row, STAND)
    deck = shuffled(Random(rollout.seed))

    assert table(deck[:2], deck[2:4]) in rollout.messages[1].text
    assert rollout.num_prompt_messages == 2
    assert scored(rollout).step_rewards == [scored(rollout).reward]


def test_setup_says_the_hand_once():
    [row, *_] = shipped_rows()
    prompt = [Message(**message) for message in row["messages"]]
    row = task_row("blackjack", {"deck_seed": row["deck_seed"]})

    assert played(msgspec.structs.replace(row, messages=prompt)).num_prompt_messages == 2
    assert played(row).num_prompt_messages == 2, "only the row's prompt and the opening"


def shipped_rows():
    lines = shipped_tasks("blackjack").read_bytes().splitlines()
    return [msgspec.json.decode(line) for line in lines]


def test_tasks_state_the_deal_and_can_be_won():
    for row in shipped_rows():
        deck = shuffled(Random(row["deck_seed"]))
        hand, dealer, rest = deck[:2], deck[2:4], deck[4:]

        assert row["messages"][1]["content"] == table(hand, dealer)
        assert row["difficulty"] == difficulty(hand)
        assert best_play(hand, dealer, rest)[0] == "win"


@pytest.mark.slow
@settings(max_examples=30)
@given(st.integers(0, 10**6))
def test_oracle_plays_as_well_as_the_cards_allow(seed):
    """No other number of hits before standing wins more."""
    row = task_row("blackjack", {"deck_seed": seed})
    plays = [scored(played(row, *[HIT] * hits, STAND)).reward for hits in range(12)]

    assert scored(played(row)).reward == max(plays)


@pytest.mark.parametrize(
    ("hand", "level"),
    [
        ("2 9", "easy"),
        ("10 9", "easy"),
        ("A 8", "easy"),
        ("10 2", "medium"),
        ("10 8", "medium"),
        ("A A", "hard"),
        ("A 7", "hard"),
    ],
)
def test_difficulty_is_that_of_the_first_choice(hand, level):
    assert difficulty(cards(hand)) == level
