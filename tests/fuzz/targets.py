"""All targets, and how a run is shared out among them."""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz.decoding_target import DecodingTarget
from tests.fuzz.engine_target import EngineTarget
from tests.fuzz.http_target import HttpTarget
from tests.fuzz.kubeconfig_target import KubeconfigTarget
from tests.fuzz.place_target import PlaceTarget
from tests.fuzz.reviews_target import ReviewsTarget
from tests.fuzz.roles_target import RolesTarget
from tests.fuzz.target import Target

TARGETS: dict[str, Callable[[], Target]] = {
    DecodingTarget.name: DecodingTarget,
    RolesTarget.name: RolesTarget,
    ReviewsTarget.name: ReviewsTarget,
    HttpTarget.name: HttpTarget,
    KubeconfigTarget.name: KubeconfigTarget,
    PlaceTarget.name: PlaceTarget,
    EngineTarget.name: EngineTarget,
}
SHARES = {"decoding": 6, "roles": 4, "reviews": 4, "http": 3, "kubeconfig": 2, "place": 1, "engine": 2}
