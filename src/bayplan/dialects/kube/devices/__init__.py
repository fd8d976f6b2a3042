"""Devices by claim (resource.k8s.io): decoding of claims, device classes and resource slices."""
