"""The pod grouper: the PodGroup of each pod, by the kind of its owner.

May import: model, dialects.kube, dialects.jobs, api.
"""
