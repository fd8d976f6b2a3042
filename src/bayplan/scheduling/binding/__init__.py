"""One binding cycle: every gang and pod whose turn it is gets nodes, preempts, or a reason.

May import: model, placement, state and the other folders of scheduling but admission.
"""
