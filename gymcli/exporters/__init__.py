"""The rollouts of runs in the formats of others: to train on, to look through, to go on with."""
