"""What is known of failures, as tables: each module one family, each entry one way of dying."""

from __future__ import annotations

from tuner.diagnosis.signature import Signature
from tuner.diagnosis.signatures import (
    arguments,
    collectives,
    hardware,
    kernels,
    memory,
    models,
    options,
    places,
    process,
    serving,
    software,
)

ALL: tuple[Signature, ...] = (
    *memory.SIGNATURES,
    *arguments.SIGNATURES,
    *options.SIGNATURES,
    *hardware.SIGNATURES,
    *kernels.SIGNATURES,
    *collectives.SIGNATURES,
    *software.SIGNATURES,
    *models.SIGNATURES,
    *serving.SIGNATURES,
    *places.SIGNATURES,
    *process.SIGNATURES,
)
"""Every signature. Among signatures that fit the same line the first in this order wins."""
