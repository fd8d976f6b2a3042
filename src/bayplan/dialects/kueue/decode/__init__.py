"""Decode watch events of Kueue objects and of queued jobs into changes of the model.

May import: model, dialects.kube, dialects.jobs and the folders named before.
"""
