"""One attempt to place one gang of pods, and why it failed.

May import: model, placement, state.
"""
