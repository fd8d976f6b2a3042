"""Bayplan: which gang of pods runs, and where in the data centre, all or nothing, and why."""

__version__ = "0.1.0"
