"""One admission cycle: order, flavors, quota, place, preemption, plan.

May import: model, placement, state.
"""
