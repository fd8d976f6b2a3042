"""What a gang is told that could not be decided on: an error of ours, or it took too long."""

from __future__ import annotations

INTERNAL_ERROR = "InternalError"
OUT_OF_TIME = "DecisionBudgetExceeded"


def internal_error(gang: str, identity: str) -> str:
    """An error that is not the user's; the id leads to its traceback."""
    return (
        f"bayplan met an internal error while deciding on {gang} (error id {identity}). Other gangs are "
        f"not affected, and this one is tried again. Search the log of bayplan for {identity} and report it"
    )


def out_of_time(gang: str, seconds: str, so_far: str = "") -> str:
    """The search for a place was stopped; what it had found by then."""
    found = f" Found by then: {so_far}" if so_far else ""
    return (
        f"deciding on {gang} took longer than the {seconds} s that decisionSeconds allows, and was stopped; "
        f"it is tried again.{found}"
    )
