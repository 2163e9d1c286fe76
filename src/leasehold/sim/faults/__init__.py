"""Fault simulation: several shipped control planes under every fault that can really occur."""
