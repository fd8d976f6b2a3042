"""Pods that are promised a domain get hosts of it: pod by pod, and the same ones every time."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from bayplan.placement.domains.host_packing import HostDemand, pack_hosts


def hosts(*gpus: int) -> dict[str, dict[str, int]]:
    return {f"h{number}": {"gpu": amount} for number, amount in enumerate(gpus, 1)}


def need(name: str, gpus: int, count: int = 1, *, on: tuple[str, ...] = ()) -> HostDemand:
    return HostDemand(name, {"gpu": gpus}, count, dict.fromkeys(on, 100) if on else None)


def test_a_pod_is_not_split_over_two_hosts() -> None:
    assert pack_hosts(hosts(2, 2), [need("a", 4)]).missing == 1


def test_pods_fill_the_fullest_host_that_they_fit() -> None:
    assert pack_hosts(hosts(8, 2, 4), [need("a", 2)]).pods == ({"h2": 1},)


def test_the_largest_pods_go_first() -> None:
    found = pack_hosts(hosts(4, 2), [need("a", 1, 2), need("b", 4)])
    assert found.is_complete and found.pods[1] == {"h1": 1}


def test_a_pod_with_one_host_is_not_kept_from_it_by_one_with_two() -> None:
    found = pack_hosts(hosts(4, 4), [need("a", 4), need("b", 4, on=("h1",))])
    assert found.pods == ({"h2": 1}, {"h1": 1})


def test_a_way_is_found_that_filling_the_fullest_host_first_does_not_find() -> None:
    found = pack_hosts(hosts(6, 5), [need("a", 4), need("b", 3), need("c", 2, 2)])
    assert found.is_complete


def test_a_host_without_a_cap_takes_no_pod() -> None:
    assert pack_hosts(hosts(4, 4), [need("a", 1, 8, on=("h2",))]).missing == 4


def test_a_large_domain_is_not_searched() -> None:
    free = hosts(*([3] * 400))
    assert pack_hosts(free, [need("a", 2, 400), need("b", 1, 400)]).is_complete
    assert pack_hosts(free, [need("a", 2, 401)]).missing == 1


def fits_somehow(free: dict[str, dict[str, int]], pods: list[HostDemand]) -> bool:
    """Try every host for every pod."""
    single = [demand for demand in pods for _ in range(demand.count)]
    for choice in product(free, repeat=len(single)):
        used = dict.fromkeys(free, 0)
        for demand, host in zip(single, choice, strict=True):
            used[host] += demand.amounts["gpu"]
            if demand.caps is not None and host not in demand.caps:
                break
        else:
            if all(used[host] <= free[host]["gpu"] for host in free):
                return True
    return False


@pytest.mark.parametrize("chunk", range(5))
def test_pods_of_small_domains_are_packed_if_there_is_any_way(chunk: int) -> None:
    for seed in range(chunk * 100, chunk * 100 + 100):
        random = Random(seed)
        free = hosts(*(random.randint(0, 8) for _ in range(random.randint(1, 3))))
        demands = []
        for number in range(random.randint(1, 3)):
            allowed = tuple(host for host in free if random.random() < 0.7)
            demands.append(need(f"d{number}", random.randint(1, 5), random.randint(1, 2), on=allowed))
        found = pack_hosts(free, demands)
        assert found.is_complete == fits_somehow(free, demands), seed
        for demand, pods in zip(demands, found.pods, strict=True):
            assert sum(pods.values()) <= demand.count
        for host in free:
            used = sum(
                d.amounts["gpu"] * pods.get(host, 0) for d, pods in zip(demands, found.pods, strict=True)
            )
            assert used <= free[host]["gpu"], seed
