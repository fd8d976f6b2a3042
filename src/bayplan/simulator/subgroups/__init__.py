"""Trees of sub-groups and fair queues, and their checkers.

May import: simulator.core, queues and pods.
"""
