"""The Kubernetes API behind one interface: a remote API server, or one in memory."""
