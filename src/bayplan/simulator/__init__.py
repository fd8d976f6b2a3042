"""Deterministic simulation: the loop in virtual time, with injected faults and checks after every step."""
