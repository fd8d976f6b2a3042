"""The admission check that is satisfied by ProvisioningRequests.

May import: every other folder of dialects.kueue.
"""
