"""Comparing a provider with a surface: signatures exactly, behavior by trial. The differences are gaps."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .answers import Answer, Finding, Gap, GapKind, Provider, Status, Trial
from .branches import BranchIndex
from .docstrings import as_documented, docstring_signature
from .signatures import Signature, changes, from_inspect, unbindable
from .surface import Api

DEVICE_PARAMETERS = frozenset({"device", "device_ids", "device_type", "map_location", "pin_memory"})
"""Parameters that show that an API has to do with devices."""
_OTHER_DEVICES = frozenset({"hpu", "ipu", "mtia", "xpu"})


def takes_device(api: Api) -> bool:
    """Whether an API has a device parameter (methods named after another device do not count)."""
    return bool(api.parameters() & DEVICE_PARAMETERS) and api.leaf not in _OTHER_DEVICES


@dataclass(frozen=True)
class Comparison:
    """The comparison of a provider with a surface; ``findings`` are by API name."""

    provider: str
    compared: str
    findings: Mapping[str, Finding]

    def gaps(self) -> list[Gap]:
        return [gap for finding in self.findings.values() for gap in finding.gaps]

    def count(self, status: Status, namespace: str = "") -> int:
        """Return how many APIs have this status: all, or those directly in ``namespace``."""
        return sum(
            finding.status is status and namespace in ("", finding.api.namespace)
            for finding in self.findings.values()
        )


def compare(
    provider: Provider, apis: Iterable[Api], branches: BranchIndex | None = None, *, run: bool = True
) -> Comparison:
    """Judge every API that ``provider`` has an answer for; ``run=False`` skips the trials.

    ``branches`` adds a refinement for each API whose source in PyTorch has conditions on the provider's
    watched device.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated names warn when they are accessed
        listed = list(apis)
        answers = provider.answers(listed)
    asked = [(api, answers[api.name]) for api in listed if api.name in answers]
    trials = provider.trials([api for api, answer in asked if _is_tried(answer)]) if run else {}

    def conditions(api: Api) -> int:
        return len(branches.of(api, provider.watched)) if branches and provider.watched else 0

    findings = {
        api.name: judge(
            api,
            answer,
            trials.get(api.name),
            conditions=conditions(api),
            unproven=run and provider.watched is not None and takes_device(api),
        )
        for api, answer in asked
    }
    return Comparison(provider.name, provider.compared, findings)


def _is_tried(answer: Answer) -> bool:
    """Whether a call could show more than the answer already says."""
    return answer.status not in (Status.ABSENT, Status.DELIBERATE) and not answer.loud


def judge(
    api: Api, answer: Answer, trial: Trial | None, *, conditions: int = 0, unproven: bool = False
) -> Finding:
    """Return the finding for one API.

    ``conditions`` is the number of conditions on the watched device in its source. ``unproven``: a match
    counts only if a trial has shown it.
    """
    gaps = [*_signature_gaps(api, answer), *_status_gaps(api, answer), *_trial_gaps(api, answer, trial)]
    if conditions and answer.status is Status.MATCH:
        text = f"runs unchanged, with {conditions} condition(s) on the device in its source"
        gaps.append(Gap(api, GapKind.REFINEMENT, text))
    if unproven and trial is None and answer.status is Status.MATCH:
        text = "takes a device and is not replaced; no call has shown where it goes"
        gaps.append(Gap(api, GapKind.UNPATCHED, text))
    differs = any(gap.kind is GapKind.BEHAVIOUR for gap in gaps) and answer.status is Status.MATCH
    return Finding(api, answer, trial, tuple(gaps), Status.PARTIAL if differs else answer.status)


def _status_gaps(api: Api, answer: Answer) -> Iterator[Gap]:
    match answer.status:
        case Status.ABSENT:
            text = "nothing stands in for it" if answer.loud else "it does what it does without the provider"
            yield Gap(api, GapKind.UNPATCHED, text, answer.loud, answer.note)
        case Status.DELIBERATE:
            yield Gap(api, GapKind.TARGET, "it is left as it is", answer.loud, answer.note)
        case Status.PARTIAL:
            text = f"missing: {', '.join(answer.missing) or 'parts'}"
            yield Gap(api, GapKind.TARGET, text, answer.loud, answer.note)
        case Status.STUB:
            text = "it raises" if answer.loud else "it does nothing, or answers with a constant"
            yield Gap(api, GapKind.TARGET, text, answer.loud, answer.note)
        case Status.MODIFIED:
            yield Gap(api, GapKind.BEHAVIOUR, "it does something else", answer.loud, answer.note)


def _trial_gaps(api: Api, answer: Answer, trial: Trial | None) -> Iterator[Gap]:
    if trial is not None and trial.differences:
        yield Gap(api, GapKind.BEHAVIOUR, "; ".join(trial.differences), not trial.silent)


def _signature_gaps(api: Api, answer: Answer) -> Iterator[Gap]:
    found = answer.signature or signature_differences(api.signatures, answer.original, answer.replacement)
    if found:
        yield Gap(api, GapKind.SIGNATURE, "; ".join(found), loud=True)


def signature_differences(
    documented: Iterable[Signature], original: Any, replacement: Any
) -> tuple[str, ...]:
    """Return the calls of ``original`` that ``replacement`` refuses or reads differently; empty if none.

    Calls that only the replacement accepts do not count, and neither does the signature of a function that it
    wraps (``follow_wrapped=False``). The original's signature is read with :mod:`inspect`; then each
    parameter is bound by position and by keyword. An original in C++ has no signature, only documented
    overloads: the replacement must accept the calls of one of them, or take ``(*args, **kwargs)`` as the
    original does. If the original's docstring gives a parameter another name or default, either one is
    correct.
    """
    if replacement is None or replacement is original or not callable(replacement):
        return ()
    own = _inspected(replacement, follow_wrapped=False)
    readable = [one for one in _signatures_of(original) if not one.opaque]
    wanted = readable or [one for one in documented if not one.opaque]
    if not wanted or (own is None and not readable):
        return ()
    if own is None:
        return ("its signature cannot be read",)
    data = from_inspect(own)
    if data.opaque:
        return ()
    if not readable:
        wanted = [as_documented(one, docstring_signature(original), data) for one in wanted]
    return min((_breaking(one, data, own) for one in wanted), key=len)


def _breaking(wanted: Signature, data: Signature, own: inspect.Signature) -> tuple[str, ...]:
    """Return how ``own`` breaks calls of ``wanted``; ``data`` is ``own`` converted to data."""
    found = tuple(one.text for one in changes(wanted, data, annotations=False) if one.breaking)
    return found or unbindable(wanted, own)


def _signatures_of(original: Any) -> Iterator[Signature]:
    """Yield the original's documented signature (of the function it wraps), then its own signature."""
    for follow in (True, False):
        if original is not None and (found := _inspected(original, follow_wrapped=follow)) is not None:
            yield from_inspect(found)


def _inspected(value: Any, *, follow_wrapped: bool) -> inspect.Signature | None:
    try:
        return inspect.signature(value, follow_wrapped=follow_wrapped)
    except (TypeError, ValueError):
        return None
