"""Replays a recorded workload on a fleet and Budgets, in virtual time, with the shipped core.

`trace` and `past` read the jobs, `player` replays them, `figures` computes the report's numbers.
"""
