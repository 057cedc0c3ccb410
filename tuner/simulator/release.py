"""What differs between the releases of SGLang that a box can pretend to be."""

from __future__ import annotations

import re
from dataclasses import dataclass

OLDEST = 12
NEWEST = 23


@dataclass(frozen=True)
class Release:
    """SGLang 0.5.`number`, and the questions whose answers changed over the releases.

    `text` is the version as the server reports it (`0.5.12`, `0.5.12.post1`).
    """

    text: str
    number: int

    @staticmethod
    def parse(text: str) -> Release | None:
        """The release named by `text`, or None where no such release is modelled."""
        match = re.fullmatch(r"0\.5\.(\d+)(?:\.post\d+)?", text)
        if match is None or not OLDEST <= int(match.group(1)) <= NEWEST:
            return None
        return Release(text, int(match.group(1)))

    @property
    def loads_draft_early(self) -> bool:
        """0.5.14+: both models load, then come all pools, then all graphs. Before: model after model."""
        return self.number >= 14

    @property
    def reserves_for_draft(self) -> bool:
        """Before 0.5.14 the automatic memory fraction set a flat amount aside for a draft model."""
        return self.number < 14

    @property
    def captures_multimodal_prefill(self) -> bool:
        """0.5.14+: prefill graphs are on for allow-listed multimodal models, too."""
        return self.number >= 14

    @property
    def prints_resolved_dict(self) -> bool:
        """0.5.20+: `server_args={…}`; before, `server_args=ServerArgs(…)`."""
        return self.number >= 20

    @property
    def says_init_parallel(self) -> bool:
        """0.5.21+: `Init parallel begin.`; before, `Init torch distributed begin.`."""
        return self.number >= 21

    @property
    def prints_kv_dtype(self) -> bool:
        """0.5.15+: the KV line names its data type."""
        return self.number >= 15

    @property
    def has_pcie_ipc(self) -> bool:
        """0.5.21+: SGLANG_ENABLE_PCIE_IPC_ALLREDUCE is understood."""
        return self.number >= 21

    @property
    def hangs_on_busy_port(self) -> bool:
        """Seen in 0.5.23: the server stays after the bind error. Older ones exit with 1."""
        return self.number >= 20

    @property
    def exits_zero_on_sigterm(self) -> bool:
        """0.5.20+: 0 after draining; up to 0.5.19 the launcher SIGKILLed itself even then."""
        return self.number >= 20
