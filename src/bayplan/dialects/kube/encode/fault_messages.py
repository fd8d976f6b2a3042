"""Messages for gangs without a decision: an internal error, no time, a taken node, an unsupported field."""

from __future__ import annotations

from bayplan.model.pod import PodKey
from bayplan.model.rejection import Rejection, RejectionReason

INTERNAL_ERROR = "InternalError"
OUT_OF_TIME = "DecisionBudgetExceeded"


def internal_error(gang: str, error_id: str) -> str:
    """An internal error; the error id is in the log with its traceback."""
    return (
        f"bayplan met an internal error while deciding on {gang} (error id {error_id}). Other gangs are "
        f"not affected, and this one is tried again. Search the log of bayplan for {error_id} and report it"
    )


def out_of_time(gang: str, seconds: str, so_far: str = "") -> str:
    """The search was stopped; `so_far` is what it had found."""
    partial = f" Found by then: {so_far}" if so_far else ""
    return (
        f"deciding on {gang} took longer than the {seconds} s that decisionSeconds allows, and was stopped; "
        f"it is tried again.{partial}"
    )


def because_of_others(why: Rejection) -> str:
    """Why a gang is not tried although it might fit."""
    if why.reason is RejectionReason.HELD_BACK:
        return (
            f"{why.about}, of higher priority, waits for preempted pods to end, and its pod affinity or "
            "topology spread counts pods like these: they are tried once it has started, or cannot start"
        )
    return _node_taken(why.about)


def _node_taken(node: str) -> str:
    """Why no pod of an admitted gang may start. A domain is given as its level and its name."""
    if " " in node:
        return (
            f"other pods were bound to nodes of {node}, to which its Workload was admitted, and too little "
            "is left for its pods: no pod of the Workload starts until it is admitted elsewhere"
        )
    return (
        f"other pods were bound to node {node}, on which its Workload was admitted: no pod of the Workload "
        "starts until it is admitted on other nodes"
    )


def unsupported(pod: PodKey | None, what: str) -> str:
    """Why a gang is not scheduled: one of its pods asks for what we cannot give."""
    what = what or "asks for what bayplan does not support"
    if pod is None or what.startswith(f'pod "{pod}"'):
        return what
    return f'pod "{pod}": {what}'
