"""Calls that are a little or quite wrong: what scripts/refusals.py and scripts/stress.py are made of."""
