"""Fault simulation: several shipped control planes under all faults that can happen in reality."""
