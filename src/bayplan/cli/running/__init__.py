"""Parts of the commands that run a scheduler: options, examples, what they log.

May import config, render, inputs, live, listing and watching.
"""
