"""The reference of the configuration, written from the table of options: a page, and a file to start from.

Write both again with: python -m bayplan.assembly.settings_reference docs/reference
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import Any

from bayplan.assembly.manifests import CONFIG_MAP
from bayplan.configuration.fields import FLAG, TRANSFORMATIONS, WEIGHTS
from bayplan.configuration.kueue_import import (
    ALWAYS_ON,
    BLOCK,
    FAIR,
    GATES,
    IGNORE,
    UNUSED,
    VERSIONS,
    WITHOUT_WAITING,
    FeatureGate,
)
from bayplan.configuration.settings import DEFAULTS, KIND, OPTIONS, VERSION, Option, sections

PAGE, EXAMPLE = "configuration.md", "configuration.yaml"
WIDTH = 110
UNUSED_BELOW = (
    "resources.deviceClassMappings",
    "waitForPodsReady.blockAdmission",
    "waitForPodsReady.requeuingStrategy.timestamp: Creation",
)

WRITTEN = "python -m bayplan.assembly.settings_reference docs/reference"
HEAD = f"""# The configuration

<!-- Written by `{WRITTEN}` from src/bayplan/configuration/settings.py. -->

`bayplan run --config FILE` takes a YAML (or JSON) file:

```yaml
apiVersion: {VERSION}
kind: {KIND}
scheduling:
  fairSharing:
    enabled: true
  reserve: true
```

What the file leaves out has its default; [{EXAMPLE}]({EXAMPLE}) has every option at its default, to copy
from. Everything that is wrong with a file is told at once, with its path, and nothing of such a file is used.
Options of the command line outrank the file.

The file is read when a replica starts, so a change takes effect with a restart. `bayplan install --config
FILE` (or `helm upgrade --set-file config=FILE`) puts the file into the ConfigMap `{CONFIG_MAP}`,
and replaces the replicas one after the other if it differs from before.

`bayplan up`, `place`, `list`, `explain`, `plan` and `replay` take `--config`, too. Give them the file that
the replicas run with, and they decide alike.
"""

TRANSFORMED = """
A transformation says what one unit of a resource counts as. `Retain` (the default) counts the resource itself
besides, `Replace` does not. With `multiplyBy`, and if pods ask for that resource as well, the outputs are
multiplied by how many. What is excluded by its prefix is not transformed.

```yaml
resources:
  transformations:
    - input: nvidia.com/mig-1g.5gb
      strategy: Replace
      outputs:
        example.com/gpu-memory: 5Gi
```
"""

KUEUE = f"""
## The configuration of a Kueue manager

A `Configuration` of {" or ".join(f"`{version}`" for version in VERSIONS)} is taken as it is.
What it does not name has our default, not Kueue's. These parts have a meaning here:

| in the file of Kueue | here |
|---|---|
"""
_AWAITED = "jobs.waitForPodsReady"
TAKEN = {
    "fairSharing": "`scheduling.fairSharing.enabled`; in v1beta1 only with `enable: true`",
    "fairSharing.preemptionStrategies": "`scheduling.fairSharing.rules`: "
    + ", ".join(f"`{name}` is `{rule}`" for name, rule in FAIR.items()),
    "waitForPodsReady": f"`{_AWAITED}.enabled`; in v1beta1 only with `enable: true`, and not with the gate "
    f"`{WITHOUT_WAITING}`",
    "waitForPodsReady.timeout": f"`{_AWAITED}.timeoutSeconds`; if not set 30m, in v1beta1 5m",
    "waitForPodsReady.recoveryTimeout": f"`{_AWAITED}.recoveryTimeoutSeconds`; if not set as `timeout`, and "
    "`0s` is `null`",
    "waitForPodsReady.requeuingStrategy": f"`{_AWAITED}.backoff` and `{_AWAITED}.retriesMax`",
    "resources.transformations": "the same",
    "resources.excludeResourcePrefixes": "`resources.excludePrefixes`",
    "resources.quotaCheckStrategy": f"`{IGNORE}` is `resources.ignoreUncovered: true`, `{BLOCK}` is `false`",
}


def page() -> str:
    """configuration.md."""
    parts = [HEAD]
    for section in sections():
        parts.append(f"\n## `{section}`\n\n| option | values | default | meaning |\n|---|---|---|---|\n")
        parts += [_row(option) for option in OPTIONS if option.keys[0] == section]
        parts += [TRANSFORMED] if section == "resources" else []
    parts.append(KUEUE)
    gates = {f"featureGates.{name}": _gate(gate) for name, gate in GATES.items()}
    parts += [f"| `{theirs}` | {ours} |\n" for theirs, ours in (TAKEN | gates).items()]
    always = _filled(f"Always there, whatever their gates say: {_names(ALWAYS_ON)}.")
    others = f"{_names(UNUSED)}, {_names(UNUSED_BELOW)}, and every other gate"
    unused = _filled(f"Not used: {others}. Such parts of a file are listed in one line when it is read.")
    return "".join(parts) + f"\n{always}\n\n{unused}\n"


def example() -> str:
    """configuration.yaml: every option with its default, and what it does as a comment above it."""
    head = _comment(f"Every option with its default; see {PAGE}. Written by `{WRITTEN}`.", 0)
    return "\n".join([*head, f"apiVersion: {VERSION}", f"kind: {KIND}", *_below(())]) + "\n"


def write(folder: Path) -> None:
    """Write both files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in ((PAGE, page()), (EXAMPLE, example())):
        (folder / name).write_text(text, encoding="utf-8")


def _below(above: tuple[str, ...]) -> Iterator[str]:
    depth = len(above)
    for key in sections(above):
        keys, indent = (*above, key), "  " * depth
        option = next((one for one in OPTIONS if one.keys == keys), None)
        if option is None:
            yield from [""] if depth == 0 else []
            yield f"{indent}{key}:"
            yield from _below(keys)
        else:
            plain = option.form in (FLAG, TRANSFORMATIONS)
            words = "" if plain else f" ({option.form.words.replace('`', '')})"
            yield from _comment(option.says + words, depth)
            yield f"{indent}{key}: {_default(option)}"


def _comment(text: str, depth: int) -> list[str]:
    lead = "  " * depth + "# "
    return [lead + line for line in wrap(text, WIDTH - len(lead))]


def _row(option: Option) -> str:
    default = _default(option)
    return f"| `{option.path}` | {option.form.words} | `{default}` | {option.says} |\n"


def _default(option: Option) -> str:
    value = option.of(DEFAULTS)
    return shown(dict(value) if option.form is WEIGHTS else value)


def shown(value: Any) -> str:
    """A value as the file has it."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case tuple():
            return f"[{', '.join(shown(one) for one in value)}]"
        case dict():
            return f"{{{', '.join(f'{key}: {shown(one)}' for key, one in value.items())}}}"
        case float():
            return f"{value:g}"
    return str(value)


def _gate(gate: FeatureGate) -> str:
    """What a gate sets, in our words."""
    if list(gate.on.values()) == [True]:
        (name,) = gate.on
        return f"`{_path(gate.part, name)}`"
    states = []
    for state, values in (("on", gate.on), ("off", gate.off)):
        told = [f"`{_path(gate.part, name)}: {shown(value)}`" for name, value in values.items()]
        states += [f"{state}: {', '.join(told)}"] if told else []
    return "; ".join(states)


def _path(part: str, name: str) -> str:
    return next(option.path for option in OPTIONS if (option.part, option.name) == (part, name))


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _filled(text: str) -> str:
    return "\n".join(wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
