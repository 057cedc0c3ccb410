"""Arguments that the server refuses before it does anything."""

from __future__ import annotations

from tuner.diagnosis.failure import Kind
from tuner.diagnosis.signature import Signature, param
from tuner.sglang.phases import Phase

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        name="argparse",
        kind=Kind.INVALID_ARGUMENTS,
        literals=(
            "error: unrecognized arguments",
            "error: argument ",
            "error: ambiguous option",
            "error: the following arguments",
            "error: one of the arguments",
        ),
        phase=Phase.ARGUMENTS,
        certainty=0.98,
    ),
    Signature(
        name="config file",
        kind=Kind.INVALID_ARGUMENTS,
        literals=(
            "unsupported config option",
            "config file must be",
            "failed to parse config",
            "error parsing config",
            "yaml.scanner",
            "yaml.parser",
        ),
        phase=Phase.ARGUMENTS,
        certainty=0.9,
    ),
    Signature(
        name="unknown name of an algorithm or a choice",
        kind=Kind.INVALID_ARGUMENTS,
        literals=(
            "unknown speculative algorithm",
            "invalid choice",
            "unknown attention backend",
            "invalid attention backend",
            "no such backend",
            "unknown load_format",
            "unknown dtype",
            "unrecognized",
        ),
        pattern=r"unknown speculative algorithm|invalid choice|(?:unknown|invalid"
        r"|unrecognized) (?:attention|sampling|grammar|moe|gemm)?"
        r" ?(?:backend|load_format|dtype|kv.cache.dtype)\b",
        phase=Phase.ARGUMENTS,
        certainty=0.88,
    ),
    Signature(
        name="context longer than the model's",
        kind=Kind.INVALID_ARGUMENTS,
        literals=("greater than the derived context_length",),
        unless=r"\bWarning:",
        phase=Phase.ARGUMENTS,
        hints=(param("context_length", "decrease"),),
        certainty=0.92,
    ),
    Signature(
        name="more ranks than visible devices",
        kind=Kind.INVALID_ARGUMENTS,
        literals=(
            "invalid device ordinal",
            "hiperrorinvaliddevice",
            "device_count",
            "gpus are available",
            "gpus available",
        ),
        pattern=r"invalid device ordinal|hipErrorInvalidDevice\b|(?:only|requires?"
        r"|need)\s.{0,40}\bgpus? (?:are )?available",
        hints=(param("tp_size", "decrease"),),
        certainty=0.9,
    ),
    Signature(
        name="unexpected keyword of the arguments",
        kind=Kind.INVALID_ARGUMENTS,
        literals=("got an unexpected keyword argument", "got multiple values for keyword argument"),
        pattern=r"(?:ServerArgs|Engine)\.?(?:__init__)?\(\) got (?:an unexpected|multiple values for) keyword"
        r"|__init__\(\) got an unexpected keyword argument '(?:tp|dp|ep|pp|mem|max|disable"
        r"|enable|speculative|cuda_graph|chunked|attention|moe)_",
        phase=Phase.ARGUMENTS,
        certainty=0.85,
    ),
    Signature(
        name="comparison with an unset value",
        kind=Kind.INVALID_ARGUMENTS,
        literals=("not supported between instances of 'nonetype'", "unsupported operand type(s)"),
        pattern=r"(?:not supported between instances of|unsupported operand type\(s\) for).*'NoneType'",
        phases=(Phase.ARGUMENTS, Phase.IMPORT),
        phase=Phase.ARGUMENTS,
        not_near=r"run_scheduler_process|hit an exception",
        certainty=0.7,
    ),
    Signature(
        name="LoRA target modules",
        kind=Kind.INVALID_ARGUMENTS,
        literals=("lora",),
        pattern=r"(?:ValueError|AssertionError).*\b(?:lora[-_](?:target[-_]modules|paths|rank)"
        r"|max[-_]lora|max[-_]loras|target modules?)\b",
        certainty=0.8,
    ),
)
