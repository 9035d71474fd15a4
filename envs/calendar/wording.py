"""What user and assistant say in the talks that are made up, and what events are called."""

__all__ = ["ADDITIONS", "CHANGES", "CHATS", "OPENINGS", "SYSTEM", "THEMES", "WISHES"]

SYSTEM = """You keep the user's calendar for one day, which is empty when the talk begins.

Show the whole calendar in every answer, also where the user speaks of something else, as one JSON \
list: [{{"event_id": 7, "event_name": "...", "start_time": "HH:MM", "duration": 30}}, ...]. \
`event_id` is the user's number of the event, `start_time` is in 24 hours, `duration` in minutes.

- No event starts before {first} or ends after {last}, and no two overlap. One may start when \
another ends.
- What the user asks of an event's time holds to the end of the talk, unless the user changes it.
- Where events are in each other's way, move them; do not ask back, and leave none out.
- An event that is over by a time may end right then; one that starts at a time or later may start \
right then."""

ADDITIONS = (
    'Please put "{name}" on my calendar, {duration} minutes (event id: {id}).',
    'I need {duration} minutes for "{name}" (event id: {id}).',
    'Can you add "{name}"? It takes {duration} minutes (event id: {id}).',
)
WISHES = (
    '"{name}" (event id: {id}) has to {wish}.',
    'I forgot to say: "{name}" (event id: {id}) must {wish}.',
)
CHANGES = (
    'Forget what I said about the time of "{name}" (event id: {id}). Now it has to {wish}.',
    'Something came up. Instead of the earlier time, "{name}" (event id: {id}) must {wish}.',
)
OPENINGS = ("", "", "Here is your day:\n\n", "Done.\n\n")

CHATS = (
    ("It has been raining since dawn, my shoes are soaked.", "I hope they dry soon."),
    ("My sister just sent me a photo of her new puppy!", "How lovely, give it a pat from me."),
    ("What is a good name for a grey cat?", "Pebble would suit a grey cat."),
    ("The coffee machine is broken again.", "That is a sad start; tea may have to do."),
    ("I might learn to play the cello this year.", "A fine plan, it is a warm instrument."),
    ("Thanks, you are a great help.", "You are welcome."),
    ("How many legs does a lobster have?", "Ten, if you count the claws."),
    ("We won the quiz last night, by one point.", "Congratulations to the whole team."),
)

THEMES = [
    line.split(", ")
    for line in (
        "choir practice, piano tuning, costume fitting, stage rehearsal, "
        "ticket count, light check, press photos, set painting",
        "greenhouse round, seed order, beehive check, orchard walk, "
        "tool repair, market planning, compost turning, visitor tour",
        "rope inspection, boat cleaning, crew briefing, chart reading, "
        "engine test, harbour call, sail mending, safety drill",
        "book sorting, story hour, catalogue review, shelf moving, "
        "reading circle, map restoration, donor visit, archive tour",
    )
]
