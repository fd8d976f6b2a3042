"""The cluster in memory and the real kube-apiserver say the same."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
import yaml

from bayplan.backends.embedded.schema import cel
from tests.conversations.holding import Server
from tests.conversations.recording import FOLDER, KNOWN, KUBE, answers, compared, known, recorded
from tests.conversations.script import Talk, talks

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

TALKS = list(talks())
NEEDS_CEL = {
    talk.name
    for talk in TALKS
    if any("x-kubernetes-validations" in str(kind) for kind in talk.kinds) and "kept" not in talk.name
}

each_talk = pytest.mark.parametrize("talk", TALKS, ids=lambda talk: talk.slug)


@each_talk
def test_the_cluster_in_memory_answers_like_kube_apiserver(embedded: Server, talk: Talk) -> None:
    if talk.name in NEEDS_CEL and not cel.available():
        pytest.skip("CEL rules are not checked without the extra `cel`")
    found = compared(answers(embedded, talk), recorded(talk))
    meant = known(talk)
    surprises = [told for place, told in found.items() if place not in meant]
    assert not surprises, "\n".join(surprises)
    gone = [place for place in meant if place not in found]
    assert not gone, f"strike these off known_differences.yaml, they differ no more: {gone}"


@each_talk
def test_kube_apiserver_still_answers_as_recorded(real: Server, cluster: Cluster, talk: Talk) -> None:
    if cluster.kube != KUBE:
        pytest.skip(f"answers are recorded from {KUBE}, this is {cluster.kube}")
    found = compared(answers(real, talk), recorded(talk))
    assert not found, "\n".join(found.values())


def test_conversations_are_told_apart_and_all_recorded() -> None:
    assert not [slug for slug, count in Counter(talk.slug for talk in TALKS).items() if count > 1]
    assert {path.stem for path in FOLDER.glob("*.json")} == {talk.slug for talk in TALKS}


def test_there_are_enough_of_them() -> None:
    assert len(TALKS) >= 40
    assert sum(len(talk.steps) for talk in TALKS) >= 350


def test_every_known_difference_belongs_to_a_conversation_and_has_a_reason() -> None:
    names = {talk.name for talk in TALKS}
    for entry in yaml.load(KNOWN.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader):
        assert entry["talk"] in names
        assert len(entry["reason"]) > 20
