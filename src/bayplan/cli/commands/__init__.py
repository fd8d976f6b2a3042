"""One module for each command.

May import: any other package and every other folder of cli.
"""
