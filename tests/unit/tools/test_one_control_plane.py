"""However many folders of tests want a real control plane, a run starts one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
WANTING = ("tests/conversations/test_conversations.py", "tests/end_to_end/test_election.py")


def test_conversations_and_end_to_end_tests_share_one_control_plane() -> None:
    command = [sys.executable, "-m", "pytest", "--setup-plan", "-p", "no:cacheprovider", *WANTING]
    plan = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    users = set(re.findall(r"(tests/\w+/\w+\.py)::\w+.*\(fixtures used: .*\bcluster\b", plan))
    assert users == set(WANTING)
    assert len(re.findall(r"SETUP +S cluster\b", plan)) == 1
