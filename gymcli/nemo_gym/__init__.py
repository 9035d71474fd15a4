"""Reads and writes NeMo Gym's formats, without I/O: rows, rollouts, Responses items, messages."""
