"""Replays a recorded workload on a fleet and Budgets, in virtual time, with the shipped core.

`trace` and `past` read jobs, `player` plays them, `figures` computes the report's numbers.
"""
