"""The version of gymcli."""

__version__ = "0.1.0"
