"""Jobs that name queues, from submission to the last pod, and their checkers.

May import: simulator.core, queues and pods.
"""
