"""Calls to NVML (`pynvml` of nvidia-ml-py), of which each GPU and each driver answers only some."""

from __future__ import annotations

from typing import Any

from tuner.errors import BrokenEnvironment

_SILENT = ("NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "NO_PERMISSION", "ARGUMENT_VERSION_MISMATCH")
"""Codes that say that there is no answer here; every other one says that something is broken."""


class Nvml:
    """NVML, initialised. `module` stands in for pynvml.

    Raises `BrokenEnvironment` where NVML cannot be used.
    """

    def __init__(self, module: Any = None) -> None:
        if module is None:
            try:
                # Imported here so that the tuner runs where the distribution is broken or absent.
                import pynvml  # noqa: PLC0415
            except ImportError as error:
                raise BrokenEnvironment(f"pynvml cannot be imported: {error}") from error
            module = pynvml
        self.module = module
        self.call("nvmlInit")

    def call(self, name: str, *arguments: object) -> Any:
        """What the function of that name answers. Raises `BrokenEnvironment` for any error of the driver."""
        try:
            return getattr(self.module, name)(*arguments)
        except self.module.NVMLError as error:
            raise _driver_error(error) from error

    def optional(self, name: str, *arguments: object) -> Any:
        """The answer, or None where this GPU, driver or version of pynvml does not have one.

        Raises `BrokenEnvironment` for an error of another kind, such as a GPU that fell off the bus.
        """
        function = getattr(self.module, name, None)
        if function is None:
            return None
        silent = tuple(
            code for word in _SILENT if (code := getattr(self.module, f"NVML_ERROR_{word}", None)) is not None
        )
        try:
            return function(*arguments)
        except self.module.NVMLError as error:
            if getattr(error, "value", None) in silent:
                return None
            raise _driver_error(error) from error

    def device(self, gpu: int) -> Any:
        """The handle of a GPU."""
        return self.call("nvmlDeviceGetHandleByIndex", gpu)

    def count(self) -> int:
        """How many GPUs there are."""
        return int(self.call("nvmlDeviceGetCount"))

    def memory(self, device: Any) -> Any:
        """`total` and `used` bytes of a GPU, or None.

        The first version of this call counts what the driver keeps for itself, hundreds of MiB, as used.
        """
        version = getattr(self.module, "nvmlMemory_v2", None)
        memory = self.optional("nvmlDeviceGetMemoryInfo", device, version) if version else None
        return memory if memory is not None else self.optional("nvmlDeviceGetMemoryInfo", device)


def as_text(value: str | bytes) -> str:
    """Text that older distributions give as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _driver_error(error: Exception) -> BrokenEnvironment:
    return BrokenEnvironment(
        f"the GPU driver answers NVML with: {error}",
        hint="see whether `nvidia-smi` works; a lost GPU or a mismatched driver needs a reset or a reboot",
    )
