"""A Kubernetes API in memory: objects, watches, patches, validation, and an HTTP face for kubectl."""
