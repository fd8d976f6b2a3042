"""How much of its capacities a request takes from a device, and whether the device has that much left."""

from __future__ import annotations

from collections.abc import Mapping

from bayplan.model.devices.inventory import UNIT, Amounts, Device, DeviceCapacity, RequestPolicy

INT64_MAX = 2**63 - 1
MILLI = UNIT // 1000
NOTHING: Mapping[str, int] = {}


class AmountError(Exception):
    """An amount that cannot be represented: the claim cannot be allocated on any device."""


def consumed(device: Device, request: Amounts | None, *, fractions: bool) -> dict[str, int] | None:
    """What a request takes of each capacity of a device; None if the device lacks a requested capacity."""
    asked = dict(request or ())
    known = dict(device.capacity)
    if any(name not in known for name in asked):
        return None
    taken = {}
    for name, capacity in known.items():
        try:
            taken[name] = _taken(asked.get(name), capacity, fractions)
        except AmountError as error:
            raise AmountError(f'capacity "{name}": {error}') from error
        if taken[name] < 0:
            raise AmountError(f'capacity "{name}": capacity value is negative')
    return taken


def fits(device: Device, taken: Mapping[str, int], used: Mapping[str, int], *, fractions: bool) -> bool:
    """Whether an amount may be requested of each capacity, and is left beside what is used."""
    for name, capacity in device.capacity:
        if capacity.policy is not None and _is_refused(taken[name], capacity.policy, fractions):
            return False
        if taken[name] + used.get(name, 0) > capacity.value:
            return False
    return True


def _taken(asked: int | None, capacity: DeviceCapacity, fractions: bool) -> int:
    policy = capacity.policy
    if asked is None:
        return capacity.value if policy is None or policy.default is None else policy.default
    if policy is None:
        return asked
    if policy.has_range and policy.minimum is not None:
        return _rounded_up(asked, policy, policy.minimum, fractions)
    if policy.values:
        return next((value for value in policy.values if asked <= value), asked)
    return asked


def _rounded_up(asked: int, policy: RequestPolicy, minimum: int, fractions: bool) -> int:
    """The amount rounded up to the next step, counted from the minimum; in thousandths where all fit."""
    if asked < minimum:
        return minimum
    if policy.step is None:
        return asked
    unit = _unit(policy, fractions)
    if unit == MILLI and asked % MILLI:
        raise AmountError(f"{NOT_REPRESENTABLE}: request {_text(asked)} is not a representable milli value")
    if unit == UNIT and asked > INT64_MAX * UNIT:
        raise AmountError(f"{NOT_REPRESENTABLE}: request {_text(asked)} exceeds MaxInt64")
    step, least = _ceil(policy.step, unit), _ceil(minimum, unit)
    steps = _ceil(_ceil(asked, unit) - least, step)
    if steps > (INT64_MAX - least) // step:
        bound = "MaxInt64" if unit == UNIT else "the milli-value range"
        raise AmountError(
            f"{NOT_REPRESENTABLE}: rounding request {_text(asked)} up to the next step passes {bound}"
        )
    return (least + step * steps) * unit


NOT_REPRESENTABLE = "capacity request cannot be represented in the device's range arithmetic"


def _is_refused(amount: int, policy: RequestPolicy, fractions: bool) -> bool:
    if policy.default is not None and amount == policy.default:
        return False
    if policy.has_range:
        if policy.maximum is not None and amount > policy.maximum:
            return True
        if policy.step is None:
            return False
        unit = _unit(policy, fractions)
        if unit == MILLI and amount % MILLI:
            return True
        return bool((_ceil(amount, unit) - _ceil(policy.minimum or 0, unit)) % _ceil(policy.step, unit))
    return bool(policy.values) and amount not in policy.values


def _unit(policy: RequestPolicy, fractions: bool) -> int:
    """The unit in which a range is counted: thousandths if all its bounds are whole thousandths."""
    bounds = [bound for bound in (policy.minimum, policy.maximum, policy.step) if bound is not None]
    whole = all(bound % MILLI == 0 and abs(bound // MILLI) <= INT64_MAX for bound in bounds)
    return MILLI if fractions and whole and (policy.step is None or policy.step >= MILLI) else UNIT


def _ceil(amount: int, unit: int) -> int:
    return -(-amount // unit)


def _text(amount: int) -> str:
    return str(amount // UNIT) if amount % UNIT == 0 else f"{_ceil(amount, MILLI)}m"
