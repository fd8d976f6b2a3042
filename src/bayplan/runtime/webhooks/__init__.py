"""HTTP servers: admission reviews, conversion, probes, and the certificates they serve with.

May import: dialects, runtime.core and telemetry.
"""
