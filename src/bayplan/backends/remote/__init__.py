"""A real Kubernetes API server, reached through a kubeconfig or from inside the cluster."""
