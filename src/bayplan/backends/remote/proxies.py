"""Which proxy leads to a server when its kubeconfig names none: HTTPS_PROXY, HTTP_PROXY and NO_PROXY."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit


def proxy_for(server: str, environment: Mapping[str, str]) -> str:
    """The proxy's address, or nothing. Loopback is never asked for through a proxy."""
    parts = urlsplit(server)
    host = parts.hostname or ""
    name = f"{parts.scheme}_proxy"
    proxy = environment.get(name) or environment.get(name.upper()) or ""
    excepted = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    if not proxy or is_loopback(host) or any(_covers(entry.strip(), host) for entry in excepted.split(",")):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def is_loopback(host: str) -> bool:
    """Whether a host is this very machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _covers(entry: str, host: str) -> bool:
    """Whether an entry of NO_PROXY names the host: all, a domain, an address or a range of them."""
    if not entry:
        return False
    if entry == "*":
        return True
    entry = entry.rsplit(":", 1)[0] if entry.count(":") == 1 else entry  # a port is not told apart
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return host == entry.lstrip(".") or host.endswith(f".{entry.lstrip('.')}")
