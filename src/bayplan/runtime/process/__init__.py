"""The loop as a process: leader election, signals, orderly shutdown.

May import: every other folder of runtime.
"""
