"""The simulation loop in virtual time, fault injection, recording, and the checkers that every play uses.

May import: model, state, scheduling, dialects, backends, runtime and assembly.
"""
