"""Virtual time, faults, recording, and checkers that every play uses.

May import: model, state, scheduling, dialects, backends, runtime.
"""
