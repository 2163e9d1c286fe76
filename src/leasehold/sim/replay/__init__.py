"""Plays a recorded workload on a fleet and Budgets, on virtual time, through the shipped core.

`trace` and `past` read jobs, `player` plays them, `figures` computes what the report shows.
"""
