"""Replays recorded or drawn workloads on a cluster in virtual time, and reports how policies compare."""
