"""How long the program of a pod would run: a few well-known ones end by themselves, all others never."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from bayplan.backends.fake_controllers.objects import Object

NEVER = float("inf")
SHELLS = ("sh", "bash", "/bin/sh", "/bin/bash")
AT_ONCE = ("true", "false", "echo", "printf", "date", "entrypoint-tester")
_SLEEP = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)([smhd]?)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_BETWEEN = (";", "&&")


def seconds_of(pod: Object) -> float:
    """When the last container of a pod ends; pods that are started again and again never do."""
    if pod["spec"].get("restartPolicy", "Always") == "Always":
        return NEVER
    return max((_seconds(_words(one)) for one in pod["spec"].get("containers") or ()), default=NEVER)


def fails(pod: Object) -> bool:
    """Whether a container ends with an error."""
    return any(_words(one)[-1:] == ["false"] for one in pod["spec"].get("containers") or ())


def _words(container: Object) -> list[str]:
    """The command line of a container; that of a shell is the script it is given."""
    words = [str(one) for one in (*(container.get("command") or ()), *(container.get("args") or ()))]
    if len(words) == 3 and words[0] in SHELLS and words[1] == "-c":
        try:
            return list(shlex.shlex(words[2], posix=True, punctuation_chars=True))
        except ValueError:  # quotes that do not end
            return []
    return words


def _seconds(words: Sequence[str]) -> float:
    """The time that a list of commands takes, if all of them are known."""
    total, command = 0.0, list[str]()
    for word in [*words, ";"]:
        if word not in _BETWEEN:
            command.append(word)
            continue
        total += _one(command)
        command = []
    return total if words else NEVER


def _one(command: Sequence[str]) -> float:
    name = command[0].rpartition("/")[2] if command else ""
    if name == "sleep" and len(command) == 2 and (match := _SLEEP.fullmatch(command[1])):
        return float(match[1]) * _UNITS[match[2]]
    return 0.0 if name in AT_ONCE else NEVER
