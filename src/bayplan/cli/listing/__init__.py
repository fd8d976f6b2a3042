"""The gangs of a cluster that a user asks for: filtered, sorted, with their users.

May import config, render, inputs and live.
"""
