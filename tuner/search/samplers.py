"""The samplers that a study can be searched with, by the names of `tuner.study.definition.SAMPLERS`."""

from __future__ import annotations

import importlib.util
import warnings

import optuna
from optuna.samplers import BaseSampler

from tuner.errors import InputError
from tuner.search.surrogate import SurrogateSampler


def check_sampler(name: str) -> None:
    """Raises `InputError` where `gp` is asked for without PyTorch and SciPy, on which it stands."""
    lacking = [module for module in ("torch", "scipy") if importlib.util.find_spec(module) is None]
    if name == "gp" and lacking:
        raise InputError(
            f"sampler: 'gp' needs PyTorch and SciPy, and {' and '.join(lacking)} cannot be imported",
            hint=f"python -m pip install {' '.join(lacking)}, or another sampler: surrogate, tpe or random",
        )


def sampler_of(name: str, seed: int) -> BaseSampler:
    """The program's own sampler (`surrogate`), or one as Optuna ships it. Raises as `check_sampler` does."""
    check_sampler(name)
    if name == "tpe":
        return optuna.samplers.TPESampler(seed=seed)
    if name == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    if name == "gp":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return optuna.samplers.GPSampler(seed=seed)
    return SurrogateSampler(seed)
