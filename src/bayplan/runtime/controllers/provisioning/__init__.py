"""ProvisioningRequests for admission checks.

May import: model, dialects, runtime.core.
"""
