"""Queued jobs, groups with sub-groups, gangs of the gang API and plain pods on the same nodes.

May import: every other folder of simulator but plays.
"""
