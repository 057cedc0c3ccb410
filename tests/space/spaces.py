"""Search spaces that the tests of this room share."""

from __future__ import annotations

import textwrap

from tuner.document import parse_document
from tuner.space.reading import parse_space
from tuner.space.space import SearchSpace

TEXT = """
description: a little of everything
parameters:
  cuda_graph_max_bs: {type: integer, low: 8, high: 512, log: true, default: 512, auto: true, about: graphs}
  mem_fraction_static: {type: float, low: 0.80, high: 0.94, step: 0.01, auto: true}
  schedule_conservativeness: {type: float, low: 0.1, high: 2.0, default: 1.0}
  decode_log_interval: {type: integer, low: 10, high: 40, step: 10}
  all_reduce: {type: composite, choices: [nccl, custom, pcie-ipc], default: custom}
  numa: {type: composite, choices: {off: {}, bind: {flags: {numa_node: [0, 1]}, env: {NUMA_STRICT: 1}}}}
  kv_cache_dtype: {type: choice, choices: [auto, fp8_e4m3]}
  ep_size: {type: choice, choices: [1, 8], ordered: true}
  enable_mixed_chunk: {type: boolean}
  NCCL_PROTO: {type: choice, choices: [auto, LL128, "LL,LL128,Simple"]}
  speculative: {type: composite, choices: [off, eagle3]}
  speculative_num_steps: {type: integer, low: 1, high: 5, when: speculative != off}
  speculative_adaptive: {type: boolean, when: speculative_num_steps > 2}
rules:
  - {forbid: "cuda_graph_max_bs > 256 and mem_fraction_static > 0.9", because: no room for the graphs}
known_good:
  - {name: by hand, about: it ran, values: {speculative: eagle3, mem_fraction_static: 0.88, all_reduce: nccl}}
  - {name: ipc, values: {all_reduce: pcie-ipc}}
"""


def space(text: str = TEXT, *, file: str = "box.yaml") -> SearchSpace:
    return parse_space(parse_document(textwrap.dedent(text), file), "box")
