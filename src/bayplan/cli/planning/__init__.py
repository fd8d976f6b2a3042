"""Submissions that were not made: manifests and changes of the cluster, and what would happen then.

May import: any other package, cli.config, render, inputs and live.
"""
