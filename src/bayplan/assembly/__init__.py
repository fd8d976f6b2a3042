"""What is wired to what: webhooks, the local cluster, RBAC, manifests, the Helm chart.

May import: any package but cli.
"""
