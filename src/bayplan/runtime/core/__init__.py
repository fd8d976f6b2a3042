"""The loop, the clock, the journal, containment of errors, and the controller interface.

May import: model, state, scheduling, dialects.
"""
