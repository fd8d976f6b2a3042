"""The API we talk to: a real Kubernetes API server, or one in memory, behind one interface."""
