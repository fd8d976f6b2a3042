"""A real Kubernetes control plane on loopback, built from source: for development and end-to-end tests."""
