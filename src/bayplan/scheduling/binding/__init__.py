"""One binding cycle: every gang and pod of the cycle gets nodes, preempts other pods, or gets a rejection.

May import: model, placement, state and the other folders of scheduling but admission.
"""
