"""A pod fits a node if it does with the nominated pods on their nodes, and without them."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bayplan.model.pod import PodKey
from bayplan.placement.overlay.node_overlay import NodeOverlay
from tests.properties.filter_inputs import index_of, scene_of, shape_of
from tests.properties.fit_worlds import random_pod, world


@given(st.integers(0, 2**32))
def test_a_pod_fits_with_nominated_pods_and_without(seed: int) -> None:
    objects, random = world(seed), Random(seed)
    shape = shape_of(objects, random_pod(random, objects, "new"))
    pods = [pod for pod in objects["pods"] if not pod["metadata"].get("deletionTimestamp")]
    nominated = random.sample(pods, min(len(pods), 3))
    others = [pod for pod in objects["pods"] if pod not in nominated]
    objects["pods"] = others  # of the free amounts, too
    with NodeOverlay(scene_of(objects, index_of(objects))) as overlay:
        without = overlay.run_filters(shape).fits.copy()
        steps = [
            (PodKey(pod["metadata"]["namespace"], pod["metadata"]["name"]), shape_of(objects, pod),
             overlay.row(pod["spec"]["nodeName"]))
            for pod in nominated
        ]  # fmt: skip
        with overlay.tentative():
            for key, its_shape, row in steps:
                overlay.add_pod(key, its_shape, row)
            together = overlay.run_filters(shape).fits.copy()
        for key, its_shape, row in steps:
            overlay.add_pod(key, its_shape, row, nominated=True)
        assert np.array_equal(overlay.run_filters(shape).fits, together & without)
        overlay.remove_pods(key for key, *_ in steps[:2])
        overlay.restore_pods(key for key, *_ in steps[:2])
        assert np.array_equal(overlay.run_filters(shape).fits, together & without)
        overlay.remove_pods(key for key, *_ in steps)
        assert np.array_equal(overlay.run_filters(shape).fits, without)
        assert not overlay.filter_input.index.nominated
