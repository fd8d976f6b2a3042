"""The reference of events and reasons: what each means, and what to do about it."""

from __future__ import annotations

from tools.reference.markdown import code, generated, table
from tools.reference.reason_table import GROUPED

HEAD = f"""# Events and reasons

{generated("tools/reference/reason_table.py")}

Bayplan says on the objects themselves what becomes of them: in conditions (`kubectl describe`, `kubectl get -o yaml`) and in events
(`kubectl get events`). The reason is one of the words below; the message has the facts. Reasons are stable, messages may be
reworded. Start with the command that needs none of these words: `bayplan explain NAMESPACE/NAME`.
"""


def page() -> str:
    """The page."""
    parts = [HEAD]
    for group in GROUPED:
        rows = ((code(one.name), one.meaning, one.action) for one in group.reasons)
        parts.append(f"\n## {group.title}\n\n{group.where}\n\n")
        parts.append(table(("reason", "meaning", "what to do"), rows))
    return "".join(parts)
