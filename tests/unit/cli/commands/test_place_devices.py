"""`bayplan place` with devices by claim: what it reads, which devices gangs get, and what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.api_objects import api_object, workload
from tests.support.manifests import FOUR, RACK, Write, data, gpu_job, place, shares, writer

API, DRIVER = "resource.k8s.io/v1", "gpu.example.com"
Object = dict[str, Any]


@pytest.fixture
def file(tmp_path: Path) -> Write:
    return writer(tmp_path)


def resource_slice(node: str, devices: int = 4, **attributes: Any) -> Object:
    listed = [{"name": f"gpu-{number}", "attributes": attributes} for number in range(devices)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": node, "devices": listed}
    return api_object(API, "ResourceSlice", f"{node}-gpus", spec=spec)


def device_class(name: str = "gpu") -> Object:
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    return api_object(API, "DeviceClass", name, spec={"selectors": [selector]})


def asked(count: int, constraints: Any = (), **exactly: Any) -> Object:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "count": count, **exactly}}
    return {"devices": {"requests": [request], **({"constraints": constraints} if constraints else {})}}


def template(name: str, count: int, **more: Any) -> Object:
    return api_object(API, "ResourceClaimTemplate", name, spec={"spec": asked(count, **more)})


def claim(name: str, count: int, *held: tuple[str, int]) -> Object:
    results = [{"request": "r", "driver": DRIVER, "pool": node, "device": f"gpu-{n}"} for node, n in held]
    made = api_object(API, "ResourceClaim", name, spec=asked(count))
    if results:
        made["status"] = {"allocation": {"devices": {"results": results}}}
    return made


def claiming(name: str, pods: int, **claims: str) -> Object:
    made = gpu_job(name, pods, 0, podset_required_topology=RACK)
    made["spec"]["template"]["spec"]["resourceClaims"] = [{"name": "own", **claims}]
    return made


SITE = [*FOUR, *(resource_slice(f"x{number}") for number in range(1, 5)), device_class()]
TWO = {"resourceClaimTemplateName": "two"}


def test_a_gang_is_placed_in_the_rack_that_has_devices_for_all_of_it(file: Write) -> None:
    held = claim("held", 3, ("x1", 0), ("x1", 1), ("x1", 2))
    result = place(file(*SITE, held, template("two", 2), claiming("train", 4, **TWO)), options=("-o", "json"))
    assert result.exit_code == 0
    assert shares(result) == {"x3": 2, "x4": 2}
    (pod_set,) = data(result)["gangs"][0]["podSets"]
    assert pod_set["devices"] == [
        {
            "node": node, "claim": "own", "request": "r", "deviceClass": "gpu",
            "devices": [f"{node}/gpu-{number}" for number in range(4)],
        }
        for node in ("x3", "x4")
    ]  # fmt: skip


def test_a_gang_gets_no_device_of_an_earlier_one(file: Write) -> None:
    jobs = [claiming(name, 4, **TWO) for name in ("a", "b", "c")]
    result = place(file(*SITE, template("two", 2), *jobs), options=("-o", "json"))
    assert result.exit_code == 1
    assert [gang["placed"] for gang in data(result)["gangs"]] == [True, True, False]
    taken = [
        device for gang in data(result)["gangs"][:2] for one in gang["podSets"][0]["devices"]
        for device in one["devices"]
    ]  # fmt: skip
    assert len(taken) == len(set(taken)) == 16


def test_a_drawing_shows_devices_by_class_and_a_refusal_names_claim_request_and_step(file: Write) -> None:
    held = claim("held", 1, ("x2", 0))
    result = place(
        file(*SITE, held, template("four", 4), claiming("train", 3, resourceClaimTemplateName="four"))
    )
    assert result.exit_code == 1
    lines = [line.strip() for line in result.stdout.splitlines()]
    assert "main: 3 pods, all in one rack; claim own: 4 x gpu" in lines
    assert any(
        "comes closest with room for 2 of 3 pods; the devices of its nodes do not suffice" in one
        for one in lines
    )
    assert "found: devices: claim own: 4 x gpu; enough for 3 pods, on 3 of 4 nodes" in lines
    assert "found: claim own, request r: on 1 node too few devices are free (asked for 4, at most 3)" in lines
    assert any("gpu free" in one for one in lines)
    assert any(one.startswith("host x3") and "4 of 4" in one for one in lines)


def test_a_drawing_shows_what_a_gang_takes_on_each_host(file: Write) -> None:
    result = place(file(*SITE, template("two", 2), claiming("train", 3, **TWO)), options=("--full",))
    assert result.exit_code == 0
    hosts = [line.split() for line in result.stdout.splitlines() if line.strip().startswith("host")]
    assert [one[:6] for one in hosts] == [
        ["host", "x1", "4", "of", "4", "4"],
        ["host", "x2", "4", "of", "4", "2"],
    ]


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (
            {"selectors": [{"cel": {"expression": 'device.driver == "other"'}}]},
            "the selectors of the request",
        ),
        ({"constraints": [{"matchAttribute": f"{DRIVER}/board"}]}, "no free devices satisfy the constraints"),
    ],
)
def test_a_refusal_names_selectors_and_constraints(file: Write, ask: Object, words: str) -> None:
    job = claiming("train", 2, resourceClaimTemplateName="picky")
    result = place(file(*SITE, template("picky", 2, **ask), job))
    assert result.exit_code == 1
    assert f"on 4 nodes {words}" in result.stdout


def test_pods_that_share_a_claim_are_placed_where_its_devices_are(file: Write) -> None:
    jobs = [claiming(name, 2, resourceClaimName="shared") for name in ("a", "b")]
    result = place(file(*SITE, claim("shared", 3), *jobs), options=("-o", "json"))
    assert result.exit_code == 0
    first, second = shares(result, 0), shares(result, 1)
    assert len(first) == 1
    assert first == second


def test_workloads_are_placed_by_their_claims(file: Write) -> None:
    spec = {"containers": [{"name": "c"}], "resourceClaims": [{"name": "own", **TWO}]}
    made = workload("w", {"name": "main", "count": 5, "template": {"spec": spec}})
    result = place(file(*SITE, template("two", 2), made), options=("-o", "json"))
    assert result.exit_code == 0
    assert max(shares(result).values()) <= 2


def test_what_claims_name_has_to_be_in_the_input(file: Write) -> None:
    nodes = [one for one in SITE if one["kind"] != "DeviceClass"]
    result = place(
        file(*nodes, template("two", 2), claiming("a", 1, **TWO), claiming("b", 1, resourceClaimName="mine"))
    )
    assert result.exit_code == 2
    path = "spec.template.spec.resourceClaims[0]"
    assert f"{path}: request r: there is no DeviceClass gpu in the input; add it" in result.stderr
    assert (
        f"{path}: there is no ResourceClaim mine in namespace default in the input; add it" in result.stderr
    )


def test_an_object_of_another_version_is_refused(file: Write) -> None:
    old = {**template("two", 2), "apiVersion": "resource.k8s.io/v1beta1"}
    result = place(file(*SITE, old, claiming("a", 1, **TWO)))
    assert result.exit_code == 2
    assert "is not understood for a ResourceClaimTemplate; give resource.k8s.io/v1" in result.stderr
