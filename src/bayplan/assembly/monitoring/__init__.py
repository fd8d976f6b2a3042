"""Alert rules for Prometheus and dashboards for Grafana, as data, files and objects of a cluster.

It may import the settings of an installation, and nothing else of the assembly.
"""
