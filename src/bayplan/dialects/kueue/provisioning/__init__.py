"""Admission checks answered by ProvisioningRequests.

May import: every other folder of dialects.kueue.
"""
