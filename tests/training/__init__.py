"""Tests of gymcli.training."""
