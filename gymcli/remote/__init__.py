"""Environments that run on a server elsewhere, in NeMo Gym's resources-server protocol."""
