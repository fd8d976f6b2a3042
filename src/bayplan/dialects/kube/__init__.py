"""The core API of Kubernetes and its gang scheduling API: fields, decoding, encoding."""
