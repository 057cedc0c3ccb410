"""Why a trial is run."""

from __future__ import annotations

from tuner.results import record

BASELINE = "baseline"
"""The engine's defaults, or the command the user runs today."""
KNOWN_GOOD = "known-good"
"""Named in the search space."""
SEARCH = "search"
"""Proposed by the sampler."""
REPAIR = "repair"
"""A failed trial with the exact cure that its failure named."""
REPEAT = "repeat"
"""A deliberate repeat of a measured trial."""
CONFIRM = "confirm"
"""A fresh launch of the default or a finalist, from which the verdict is made."""
LOOK = record.LOOK
"""A cheaper launch that compares choices before a full one."""
EXPLAIN = record.EXPLAIN
"""A launch that tells which of its values the best owes its speed to."""
