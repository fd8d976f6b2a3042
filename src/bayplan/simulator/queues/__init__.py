"""A world of queues and Workloads, and its checkers.

May import: simulator.core and what that may import.
"""
