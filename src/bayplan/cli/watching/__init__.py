"""A cluster that is watched and drawn for the dashboard.

May import: any other package, cli.config, render, inputs, live and starts.
"""
