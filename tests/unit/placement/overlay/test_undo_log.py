"""Steps of an overlay are undone in reverse order, back to a checkpoint."""

from __future__ import annotations

import pytest

from bayplan.placement.overlay.undo_log import UndoLog


class Amounts:
    """An overlay with one amount; a step of zero fails halfway."""

    def __init__(self) -> None:
        self.value, self.seen = 0, list[int]()
        self.log = UndoLog(self.change)

    def change(self, step: int, undone: bool) -> None:
        self.seen.append(-step if undone else step)
        if not step:
            raise ValueError("half")
        self.value += -step if undone else step

    def try_steps(self, *steps: int) -> None:
        with self.log.tentative():
            for step in steps:
                self.log.push(step)
            assert self.value < 9, "too much"


def test_rollback_undoes_the_last_step_first() -> None:
    amounts = Amounts()
    amounts.log.push(1)
    mark = amounts.log.checkpoint()
    amounts.log.push(2)
    amounts.log.push(3)
    amounts.log.rollback(mark)
    assert (amounts.value, amounts.seen) == (1, [1, 2, 3, -3, -2])


def test_a_tentative_change_is_undone_even_if_the_search_raises() -> None:
    amounts = Amounts()
    amounts.log.push(1)
    with pytest.raises(AssertionError, match="too much"):
        amounts.try_steps(2, 9)
    assert amounts.value == 1
    assert amounts.log.checkpoint() == 1


def test_after_a_step_that_failed_halfway_all_steps_stay_in_the_log() -> None:
    amounts = Amounts()
    with pytest.raises(ValueError, match="half"):
        amounts.try_steps(1, 0)
    assert amounts.log.failed
    assert amounts.log.steps == [1, 0]
