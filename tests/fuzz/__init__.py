"""Fuzzing: valid inputs changed at random, run through the real code, with contracts that must hold."""
