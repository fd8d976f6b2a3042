"""Found by simulation: gangs that are tried again and again come to rest."""

from __future__ import annotations

from bayplan.model.plan import Again, Decline
from bayplan.model.refusal import Refusal, Token
from bayplan.state.lines import Lines, Place, Standing
from tests.unit.admission_worlds import demand


def test_a_search_for_flavors_that_goes_in_a_circle_ends_there() -> None:
    lines = Lines()
    waiting = Standing(demand("two-pod-sets"), "q", "shape")
    lines.move(waiting, Place.WAITING)
    ends = (
        ({"cpu": 1}, {"cpu": -1}),
        ({"cpu": -1}, {"cpu": 1}),
    )  # each pod set begins anew when the other goes on
    refusal = Refusal(Token.NO_PLACE)
    for turn in (0, 1):
        lines.decline(waiting, Decline(waiting.demand, refusal, Again.AT_ONCE, ends[turn]), 0.0)
        assert lines.line("q").is_ready()
    lines.decline(waiting, Decline(waiting.demand, refusal, Again.AT_ONCE, ends[0]), 0.0)
    assert not lines.line("q").is_ready()
    lines.wake("q")
    assert lines.line("q").is_ready()
