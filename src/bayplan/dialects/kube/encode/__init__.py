"""Writes and messages of the scheduler: binding, nomination, preemption, conditions.

May import: model and the other folders of dialects.kube.
"""
