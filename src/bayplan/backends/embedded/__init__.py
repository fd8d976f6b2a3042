"""A Kubernetes API in memory: objects, watches, patches, validation, and an HTTP API server for kubectl."""
