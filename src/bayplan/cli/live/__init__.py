"""What list and explain know of a live cluster.

May import: any other package, cli.config, render and inputs.
"""
