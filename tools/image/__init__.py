"""The container image, made without a container engine: Debian's Python, the locked wheels, and Bayplan."""
