"""NeMo Gym's formats, without any I/O: rows, rollouts, Responses items, wire messages."""
