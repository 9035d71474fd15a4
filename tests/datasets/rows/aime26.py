"""Rows of math-ai/aime26, which look like those of the year before."""

from tests.datasets.rows.aime25 import rows

__all__ = ["rows"]
