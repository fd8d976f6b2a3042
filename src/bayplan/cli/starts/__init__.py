"""Expected starts of the gangs of a cluster, and the past runs that they are learnt from.

May import: any other package, cli.config, render, inputs and live.
"""
