"""What the built-in composites `all_reduce` and `speculative` mean for the installed version."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tuner.errors import InputError, did_you_mean
from tuner.sglang.flags import Flag
from tuner.sglang.installation import Installation
from tuner.space.parameters import Effect

ALL_REDUCE = "all_reduce"
SPECULATIVE = "speculative"
OFF = "off"

PCIE_IPC_VARIABLE = "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE"
_CUSTOM_OFF = "disable_custom_all_reduce"
_FUSION_OFF = "enforce_disable_flashinfer_allreduce_fusion"

_ALGORITHM_SINCE = {
    "eagle": "0.4.6",
    "eagle3": "0.4.6",
    "nextn": "0.4.6",
    "standalone": "0.5.2",
    "ngram": "0.5.3",
    "dflash": "0.5.11",
    "dspark": "0.5.16",
    "uno": "0.5.20",
}
NEEDS_DRAFT_MODEL = ("eagle", "eagle3", "standalone", "dflash")
"""Algorithms that want `speculative_draft_model_path`, unless the checkpoint carries its own draft layers."""


@dataclass(frozen=True)
class Unavailable:
    """Why this version cannot do what a choice stands for."""

    reason: str


def is_built_in(name: str) -> bool:
    """Whether this room knows what the composite's choices mean."""
    return name in (ALL_REDUCE, SPECULATIVE)


def choices_of(name: str) -> tuple[str, ...]:
    """The choices that a built-in composite has in some version."""
    return tuple(_ALL_REDUCE) if name == ALL_REDUCE else (OFF, *_ALGORITHM_SINCE)


def effect_of(composite_name: str, choice: str, installation: Installation) -> Effect | Unavailable:
    """The flags and variables behind a choice of a built-in composite.

    Raises `InputError` for a choice that no known version has, and for a composite that is not built in.
    """
    if composite_name == ALL_REDUCE:
        backend = _ALL_REDUCE.get(choice)
        if backend is None:
            raise _no_such_choice(composite_name, choice, _ALL_REDUCE)
        return backend(installation)
    if composite_name == SPECULATIVE:
        return Effect() if choice == OFF else _speculative(choice, installation)
    raise InputError(
        f"'{composite_name}' is no built-in composite, so its choice '{choice}' needs to say what it sets",
        hint=f"built in are {ALL_REDUCE} and {SPECULATIVE}; spell out the flags and variables of others",
    )


def sets_of(name: str) -> tuple[str, ...]:
    """The canonical flags and the variables that a built-in composite may set, whatever its choice."""
    if name == SPECULATIVE:
        return ("speculative_algorithm",)
    return (
        _CUSTOM_OFF,
        _FUSION_OFF,
        "enable_torch_symm_mem",
        "enable_symm_mem",
        "enable_mscclpp",
        "enable_flashinfer_allreduce_fusion",
        "flashinfer_allreduce_fusion_backend",
        PCIE_IPC_VARIABLE,
    )


# --- all_reduce ------------------------------------------------------------------------------------------
#
# SGLang asks its communicators in turn: mscclpp, custom, pcie-ipc, torch-symm-mem, NCCL; the first that takes
# a tensor gets it. So a choice below `custom` in that order also switches `custom` off, which else would win
# wherever it works (NVLink, or two GPUs). From 0.5.10 FlashInfer's fusion switches itself on where GPUs can
# do it and then replaces the plain all-reduce, so choices that name another backend switch it off; `custom`
# does not, as it stands for what the engine does by itself.


def _alone(installation: Installation, *switches: str, variables: tuple[tuple[str, str], ...] = ()) -> Effect:
    """These switches, and FlashInfer's fusion off where this version can switch it off."""
    chosen = (*switches, *_if_there(_FUSION_OFF, installation))
    return Effect(flags=tuple((switch, True) for switch in chosen), variables=variables)


def _if_there(switch: str, installation: Installation) -> tuple[str, ...]:
    return (switch,) if installation.flags.flag(switch) is not None else ()


def _nccl(installation: Installation) -> Effect | Unavailable:
    if installation.flags.flag(_CUSTOM_OFF) is None:
        return _lacking(_CUSTOM_OFF, "0.4.6", installation)
    return _alone(installation, _CUSTOM_OFF)


def _custom(_: Installation) -> Effect | Unavailable:
    return Effect()


def _pcie_ipc(installation: Installation) -> Effect | Unavailable:
    if not installation.can_be("0.5.21"):
        return Unavailable(f"the PCIe-IPC all-reduce came with SGLang 0.5.21; this is {installation.shown()}")
    others_off = _if_there(_CUSTOM_OFF, installation)
    return _alone(installation, *others_off, variables=((PCIE_IPC_VARIABLE, "1"),))


def _torch_symm_mem(installation: Installation) -> Effect | Unavailable:
    if installation.flags.flag("enable_torch_symm_mem") is None:
        return _lacking("enable_torch_symm_mem", "0.5.3", installation)
    return _alone(installation, "enable_torch_symm_mem", *_if_there(_CUSTOM_OFF, installation))


def _nccl_symm_mem(installation: Installation) -> Effect | Unavailable:
    # Tensors in NCCL's symmetric pool go to NCCL at once; the others would still meet the custom kernel.
    if installation.flags.flag("enable_symm_mem") is None:
        return _lacking("enable_symm_mem", "0.5.0", installation)
    return _alone(installation, "enable_symm_mem", *_if_there(_CUSTOM_OFF, installation))


def _mscclpp(installation: Installation) -> Effect | Unavailable:
    if installation.flags.flag("enable_mscclpp") is None:
        return _lacking("enable_mscclpp", "0.4.8", installation)
    return _alone(installation, "enable_mscclpp")


def _flashinfer_fusion(installation: Installation) -> Effect | Unavailable:
    if installation.flags.flag("flashinfer_allreduce_fusion_backend") is not None:
        return Effect(flags=(("flashinfer_allreduce_fusion_backend", "auto"),))
    if installation.flags.flag("enable_flashinfer_allreduce_fusion") is None:
        return _lacking("enable_flashinfer_allreduce_fusion", "0.4.9", installation)
    return Effect(flags=(("enable_flashinfer_allreduce_fusion", True),))


_ALL_REDUCE: dict[str, Callable[[Installation], Effect | Unavailable]] = {
    "nccl": _nccl,
    "custom": _custom,
    "pcie-ipc": _pcie_ipc,
    "torch-symm-mem": _torch_symm_mem,
    "nccl-symm-mem": _nccl_symm_mem,
    "mscclpp": _mscclpp,
    "flashinfer-fusion": _flashinfer_fusion,
}


# --- speculative -----------------------------------------------------------------------------------------


def _speculative(choice: str, installation: Installation) -> Effect | Unavailable:
    flag = installation.flags.flag("speculative_algorithm")
    if flag is None:
        return _lacking("speculative_algorithm", "0.4.6", installation)
    algorithm = choice.upper()
    listed = _listed_algorithms(flag)
    if algorithm in listed:
        return Effect(flags=(("speculative_algorithm", algorithm),))
    since = _ALGORITHM_SINCE.get(choice)
    if since is None:
        raise _no_such_choice(
            SPECULATIVE, choice, [OFF, *_ALGORITHM_SINCE, *(word.lower() for word in listed)]
        )
    if listed or not installation.can_be(since):
        return Unavailable(f"{algorithm} came with SGLang {since}; {installation.shown()} does not have it")
    return Effect(flags=(("speculative_algorithm", algorithm),))


def _listed_algorithms(flag: Flag) -> tuple[str, ...]:
    """The algorithms that `--help` lists: as choices, or in words ("Builtins: EAGLE, EAGLE3, …")."""
    if flag.choices:
        return flag.choices
    named = re.search(r"[Bb]uiltins?: ([A-Z0-9_, ]+)", flag.help)
    return tuple(word.strip() for word in named[1].split(",") if word.strip()) if named else ()


# --- refusals --------------------------------------------------------------------------------------------


def _lacking(canonical: str, since: str, installation: Installation) -> Unavailable:
    word = "--" + canonical.replace("_", "-")
    return Unavailable(f"{installation.shown()} has no {word} (SGLang {since} and newer have it)")


def _no_such_choice(name: str, choice: str, known: Iterable[str]) -> InputError:
    return InputError(f"{name} has no choice '{choice}'", hint=did_you_mean(choice, known))
