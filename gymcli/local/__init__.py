"""The embedded model: a small real model on loopback, gone when the command ends."""
