"""What Bayplan makes of the objects of other schedulers in a cluster.

May import config, render, inputs and live.
"""
