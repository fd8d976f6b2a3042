"""A world of pods and gangs, and its checkers.

May import: simulator.core and what that may import.
"""
