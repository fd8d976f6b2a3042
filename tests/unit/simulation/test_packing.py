"""Packing without time: shares stay on one device, and each strategy chooses as its name says."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from bayplan.model.node import HOSTNAME, Node
from bayplan.simulation.packing.arrival_only import PackingStrategy, arrivals, pack
from bayplan.simulation.packing.baselines import FGD, BestFit, FirstFit, RandomFit, Spread
from bayplan.simulation.packing.device_board import DeviceBoard, PodShape, shape_of
from bayplan.simulation.packing.priced_fit import PricedFit
from bayplan.simulation.packing.share_prices import share_prices, values_of_parts
from bayplan.simulation.traces.workload import CPU, GPU, GPU_MODEL, MEMORY, TraceJob

STRATEGIES = (FirstFit, BestFit, Spread, RandomFit, FGD, PricedFit)


def machine(name: str, gpus: int, model: str = "T4", cpu: int = 96) -> Node:
    amounts = {CPU: cpu * 1000, MEMORY: 512 << 30, GPU: gpus}
    return Node(name, {HOSTNAME: name, GPU_MODEL: model}, amounts)


def request(name: str, gpus: int = 0, share: int = 0, cpu: int = 4, models: tuple[str, ...] = ()) -> TraceJob:
    requests = {CPU: cpu * 1000, MEMORY: 1 << 30} | ({GPU: gpus} if gpus else {})
    return TraceJob(name, 0.0, 1.0, requests, gpu_share=share, gpu_models=models)


def chosen(
    strategy: PackingStrategy, board: DeviceBoard, wanted: TraceJob, mix: Sequence[TraceJob] = ()
) -> str:
    shape = shape_of(wanted)
    rows = np.arange(len(board.names))
    strategy.start(board, [shape_of(one) for one in (*mix, wanted)], 1)
    fits = board.fits(shape, rows)
    scores = np.full(len(rows), -np.inf)
    scores[fits] = strategy.scores(board, shape, rows[fits])
    return board.names[strategy.choose(scores, fits)]


def test_a_share_needs_one_device_with_enough_left() -> None:
    board = DeviceBoard([machine("a", 2)])
    share = PodShape(1000, 1, 1, 600)
    board.bind(share, 0, [0])
    board.bind(share, 0, [1])
    assert board.parts.tolist() == [[400, 400]]
    assert not board.fits(share, np.array([0])).any()
    assert board.fits(PodShape(1000, 1, 1, 400), np.array([0])).all()


def test_several_gpus_are_whole_devices_of_an_allowed_model() -> None:
    board = DeviceBoard([machine("a", 4), machine("b", 4, "V100"), machine("c", 1, "V100")])
    pair = PodShape(1000, 1, 2, 1000, ("V100",))
    assert board.fits(pair, np.arange(3)).tolist() == [False, True, False]
    board.bind(PodShape(1000, 1, 1, 100), 1, [2])
    board.bind(pair, 1, board.whole_devices(1, 2))
    assert board.parts[1].tolist() == [0, 0, 900, 1000]


def test_strategies_choose_as_they_are_named() -> None:
    board = DeviceBoard([machine("a", 8), machine("b", 2), machine("c", 8)])
    board.bind(PodShape(1000, 1, 1, 1000), 0, [0])
    one = request("one", gpus=1)
    assert chosen(FirstFit(), board, one) == "a"
    assert chosen(BestFit(), board, one) == "b"
    assert chosen(Spread(), board, one) == "c"


def test_fgd_keeps_the_device_that_the_usual_pod_can_use() -> None:
    board = DeviceBoard([machine("a", 1), machine("b", 1)])
    board.bind(PodShape(1000, 1, 1, 500), 1, [0])
    mix = [request(f"w{at}", gpus=1) for at in range(9)]
    assert chosen(FGD(), board, request("s", share=500), mix) == "b"


def test_priced_fit_keeps_unused_nodes_for_pods_that_need_all_of_one() -> None:
    board = DeviceBoard([machine("a", 8), machine("b", 8)])
    board.bind(PodShape(1000, 1, 1, 1000), 1, [0])
    assert chosen(PricedFit(), board, request("s", gpus=1), [request("w", gpus=8)]) == "b"


def test_priced_fit_leaves_a_scarce_model_to_pods_that_must_have_it() -> None:
    board = DeviceBoard([machine("a", 2, "A10"), machine("b", 2, "T4")])
    mix = [request("w", gpus=2, models=("A10",))]
    assert chosen(PricedFit(), board, request("s", gpus=1), mix) == "b"


def test_priced_fit_keeps_cpu_beside_gpus() -> None:
    board = DeviceBoard([machine("a", 8, cpu=96), machine("b", 2, cpu=104), machine("c", 8, cpu=96)])
    assert chosen(PricedFit(), board, request("cpu", cpu=64), [request("w", gpus=1, cpu=12)]) == "b"


def test_prices_tell_which_shares_combine() -> None:
    prices = share_prices({800: 10, 500: 10, 100: 1})
    assert prices[800] == pytest.approx(1)
    assert prices[500] == pytest.approx(0.5)
    assert prices[100] == pytest.approx(0)
    values = values_of_parts({800: 10, 500: 10, 100: 1})
    assert (values[1000], values[500], values[200], values[0]) == (1, pytest.approx(0.5), 0, 0)
    assert all(one <= two for one, two in pairwise(values.tolist()))


def test_prices_of_very_many_sizes_are_found_on_a_coarser_grid() -> None:
    counts = dict.fromkeys(range(11, 1000, 7), 1)
    prices = share_prices(counts)
    assert prices.keys() == counts.keys()
    assert all(0 <= price <= 1 for price in prices.values())


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_packing_is_the_same_for_one_seed_and_never_over_capacity(strategy: type[FirstFit]) -> None:
    nodes = [machine(f"n{at}", 8 if at % 2 else 2) for at in range(6)]
    jobs = [request(f"j{at:03d}", gpus=at % 3, share=0 if at % 3 else 470, cpu=at % 7) for at in range(60)]
    first, second = pack(nodes, jobs, strategy(), 42), pack(nodes, jobs, strategy(), 42)
    assert first == second
    assert 50 < first.allocated <= 100
    assert first.dropped > 0


def test_arrivals_are_all_pods_shuffled_and_then_draws() -> None:
    order = arrivals([0, 1, 2, 3], np.array([100, 100, 100, 100]), 1000, 42)
    assert sorted(order[:4].tolist()) == [0, 1, 2, 3]
    assert len(order) > 10
