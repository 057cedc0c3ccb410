"""The environment a server gets: a short list of what it needs, and nothing that changes what it does.

A variable that changes how SGLang, NCCL, PyTorch or CUDA behave belongs into the launch plan, where it is
recorded, searched and exported. Inherited from somebody's shell it would change every result of a study
without a trace, and the exported configuration would not repeat them: an `NCCL_P2P_DISABLE=1` forgotten in a
profile slows every trial down, and no log line says so.
"""

from __future__ import annotations

from collections.abc import Mapping

from tuner.redact import redact_environment

MARKER = "TUNER_LAUNCH"
"""The variable by which every process of a launch is known, wherever it went: `<scope>:<nonce>`."""

_INHERITED = frozenset(
    {
        # Who runs it, where programs and temporary files are, and in which language messages come.
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"),
        # Which Python it is. The command line alone does not tell where its packages are.
        *("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH"),
        # Where libraries, headers and compilers are: without them JIT compilation fails on many boxes.
        *("LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"),
        *("CUDA_HOME", "CUDA_PATH", "CC", "CXX", "CUDACXX", "CUDAHOSTCXX"),
        # How many compilers may run at once: a limit of the box, it does not change what is compiled.
        "MAX_JOBS",
        # Where caches are. A cache in an unexpected place costs minutes of compilation in every trial.
        *("TRITON_CACHE_DIR", "TRITON_HOME", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "TORCH_HOME"),
        *("FLASHINFER_WORKSPACE_BASE", "SGLANG_DG_CACHE_DIR", "DG_JIT_CACHE_DIR", "CUDA_CACHE_PATH"),
        *("NUMBA_CACHE_DIR", "TVM_FFI_CACHE_DIR"),
        # What the container runtime gave; CUDA in a container reads them.
        *("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"),
    }
)
_INHERITED_PREFIXES = (
    "LC_",
    "XDG_",
    # Where models come from, and the token for gated ones.
    *("HF_", "HUGGING_FACE_", "HUGGINGFACE_", "TRANSFORMERS_", "MODELSCOPE_"),
    # Certificates for downloads.
    "SSL_CERT_",
)

# Not inherited, and the user is told: each of these changes what the server does.
_BEHAVIOUR = frozenset(
    {
        # The lease decides which GPUs are used, and counts them in PCI order.
        *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"),
        # Thread counts, allocators and preloaded libraries change the speed.
        *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "LD_PRELOAD", "MALLOC_CONF"),
        # A proxy sends the server's own warm-up request to 127.0.0.1 out of the machine. Who needs one to
        # download a model names it in the plan, or downloads the model before.
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "FTP_PROXY", "NO_PROXY"),
    }
)
_BEHAVIOUR_PREFIXES = (
    *("NCCL_", "SGLANG_", "SGL_", "GLOO_", "UCX_", "NVSHMEM_", "MSCCLPP_", "MSCCL_"),
    *("TORCH", "PYTORCH_", "CUDA_", "CUBLAS_", "CUDNN_", "TRITON_", "FLASHINFER_", "DG_", "NVCC_"),
    *("KMP_", "OMP_", "TOKENIZERS_", "PYTHON"),
)

_HARMLESS = frozenset({"PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"})


def clean_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """What a server inherits of `inherited`: paths, caches, language and access to models."""
    return {name: value for name, value in inherited.items() if _is_inherited(name)}


def dropped(inherited: Mapping[str, str]) -> list[str]:
    """The names that `clean_environment` leaves out and that would have changed what the server does.

    Show them to the user: what is meant to count has to be set in the study. Sorted; names only, since
    the values may be secret.
    """
    return sorted(name for name in inherited if not _is_inherited(name) and _is_behaviour(name))


def child_environment(
    base: Mapping[str, str], variables: Mapping[str, str], *, marker: str, gpus: tuple[int, ...]
) -> dict[str, str]:
    """The whole environment of a launch: `base`, then the plan's `variables`, then what we must rely on."""
    environment = {
        # Python holds back what it prints into a file; the start could not be followed.
        "PYTHONUNBUFFERED": "1",
        **base,
        **variables,
        # SGLang names its processes with setproctitle, which overwrites the environment that others can
        # read, and our marker with it. Told so, it keeps to the space of the command line.
        "SPT_NOENV": "1",
        MARKER: marker,
    }
    if gpus:
        # The lease counts GPUs as NVML does, by PCI bus. CUDA would count the fastest first.
        environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    return environment


def recorded(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for a record: sorted, secrets replaced."""
    return dict(sorted(redact_environment(environment).items()))


def _is_inherited(name: str) -> bool:
    return name in _INHERITED or name.startswith(_INHERITED_PREFIXES)


def _is_behaviour(name: str) -> bool:
    upper = name.upper()  # proxies are written in both cases
    return upper not in _HARMLESS and (upper in _BEHAVIOUR or upper.startswith(_BEHAVIOUR_PREFIXES))
