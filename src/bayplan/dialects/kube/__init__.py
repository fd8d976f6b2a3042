"""Core Kubernetes objects: nodes, pods and their quantities."""
