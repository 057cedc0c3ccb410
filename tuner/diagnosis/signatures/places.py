"""Exceptions that nobody listed, by where they were raised and how they are worded.

The innermost frames tell whose code refused, the wording whether it lacks support or met a wrong value. Named
causes in the other families are heavier.
"""

from __future__ import annotations

from tuner.diagnosis.failure import Kind
from tuner.diagnosis.signature import Signature, Weight, param
from tuner.sglang.phases import Phase

_TYPES = ("valueerror", "runtimeerror", "notimplementederror", "typeerror", "keyerror", "exception")
_RAISED = r"^(?:\w+\.)*(?:Value|Runtime|NotImplemented|Type|Key)?(?:Error|Exception): "
_LACKS = (
    r".*?(?:\bnot\b.{0,40}(?:support|implement|validat|compatib|allow|available|consum)|n't (?:yet )?support"
    r"|unsupported|\bonly\b.{0,60}(?:support|works?\b|valid|accept|implement|available|allowed|used)"
    r"|supports? (?:only|')|\brequires?\b|\bexpects?\b|\bexpected\b|incompatible|\binvalid\b|\bunknown\b"
    r"|unrecogni[sz]ed|\bmust\b"
    r"|\bshould\b|\bcannot\b|can't|\bmissing\b|\bhas no\b|no .{0,40}(?:kernel|handler|implementation|scheme)"
    r"|not a supported)"
)

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        name="an error in an all-reduce of its own",
        kind=Kind.ALLREDUCE_UNSUPPORTED,
        literals=("error", "exception"),
        pattern=r"^(?:\w+\.)*\w*(?:Error|Exception)\b",
        frame=r"device_communicators/(?!pynccl|shm_)|flashinfer/comm|flashinfer_comm|all_reduce",
        unless=r"NCCL|out of memory|illegal|No module|import|launch fail",
        weight=Weight.SYMPTOM,
        phase=Phase.DISTRIBUTED_INIT,
        certainty=0.75,
    ),
    Signature(
        name="options that need or exclude each other",
        kind=Kind.INCOMPATIBLE_OPTIONS,
        literals=_TYPES,
        pattern=_RAISED
        + r".*?(?:\b(?:requires?|needs)\b|\bnot\b.{0,30}(?:support|compatib|validat|allow|combin|appl)"
        r"|n't (?:yet )?support|\bonly\b.{0,40}(?:support|appl|work|valid|affect|available|allowed|used|take)"
        r"|supports? (?:only|at most)|unsupported|\bboth\b|\btogether\b|conflict|exclusive|\bdiffer\b"
        r"|supports? .{0,60}\bonly\b|\bonly compatible\b|is required\b|without --|when (?:using|used"
        r"|enabling|--)|(?:are|is) required (?:for|when|with|by)|has no effect"
        r"|must (?:match|equal|differ|also)|not both|\bto use \w"
        r"|\b(?:use|set|pass|remove|disable|enable|unset) (?:--\w|[A-Z]+_[A-Z_]{3,}))",
        unless=r"can't be empty|not supported between instances",
        phases=(Phase.ARGUMENTS,),
        phase=Phase.ARGUMENTS,
        frame=r"arg_groups/|server_args\.py|arg_utils",
        weight=Weight.GENERIC,
        certainty=0.78,
    ),
    Signature(
        name="a value of an option is refused",
        kind=Kind.INVALID_ARGUMENTS,
        literals=_TYPES,
        pattern=_RAISED,
        frame=r"arg_groups/|server_args\.py|arg_utils|argparse",
        phase=Phase.ARGUMENTS,
        weight=Weight.GENERIC,
        certainty=0.7,
    ),
    Signature(
        name="a value of an environment variable is refused",
        kind=Kind.INVALID_ARGUMENTS,
        literals=("sglang_", "sgl_"),
        pattern=_RAISED
        + r"(?:Invalid |Unknown |Unsupported )?(?:value for )?'?\$?(?:SGLANG|SGL)_\w+'?\b.{0,80}"
        r"(?:expected|must|should|invalid|unknown|not (?:a )?valid|unsupported)",
        weight=Weight.GENERIC,
        certainty=0.72,
    ),
    Signature(
        name="an object is missing where the speculation needs it",
        kind=Kind.INCOMPATIBLE_OPTIONS,
        literals=_TYPES,
        pattern=_RAISED + _LACKS,
        frame=r"sglang/srt/speculative/",
        hints=(param("speculative_algorithm", "unset"),),
        weight=Weight.GENERIC,
        certainty=0.68,
    ),
    Signature(
        name="adapters refused",
        kind=Kind.INCOMPATIBLE_OPTIONS,
        literals=_TYPES,
        pattern=_RAISED + _LACKS,
        frame=r"sglang/srt/lora/",
        weight=Weight.GENERIC,
        certainty=0.62,
    ),
    Signature(
        name="a quantisation's own backend",
        kind=Kind.BACKEND_UNSUPPORTED,
        literals=("backend", "runner", "kernel"),
        pattern=_RAISED + _LACKS,
        frame=r"layers/quantization/",
        unless=r"group_size|quant_method|quantization method|checkpoint|scheme",
        weight=Weight.GENERIC,
        hints=(param("moe_runner_backend", "change"),),
        certainty=0.66,
    ),
    Signature(
        name="a quantisation refuses",
        kind=Kind.UNSUPPORTED_QUANTIZATION,
        literals=_TYPES,
        pattern=_RAISED + r".*?(?:\w{3}|$)",
        frame=r"layers/quantization/|quantization_utils|hf_quantizer|compressed_tensors",
        unless=r"CUDA|cuda error|operator|No module|out of memory|cutlass|flashinfer|must match the|shape",
        weight=Weight.GENERIC,
        certainty=0.68,
    ),
    Signature(
        name="a kernel refuses",
        kind=Kind.BACKEND_UNSUPPORTED,
        literals=_TYPES,
        pattern=_RAISED + _LACKS,
        frame=r"layers/(?:attention|moe|linear|rotary|deep_gemm)|/flashinfer/|/sgl_kernel/|/deep_gemm|/aiter/"
        r"|/flash_attn|jit_kernel|sglang/kernels|flash_mla|/cutlass|/triton_kernels|kernel_api",
        unless=r"CUDA error|No module|out of memory|dtype|same device",
        weight=Weight.GENERIC,
        hints=(param("attention_backend", "change"), param("moe_runner_backend", "change")),
        certainty=0.68,
    ),
    Signature(
        name="native kernel failed to run",
        kind=Kind.BACKEND_UNSUPPORTED,
        literals=(
            "error in function",
            "error occurred when running",
            "cutlass",
            "runtime check failed",
            "check failed",
            "failed to initialize the tma",
            "failed to run",
            "cutensormapencode",
            "error internal",
        ),
        pattern=r"(?:Error|Exception)\b.*(?:error in function|error occurred when running"
        r"|cutlass.{0,40}(?:error|fail"
        r"|cannot|implement|initializ)|error internal|failed to initialize the tma"
        r"|failed to run .{0,60}(?:gemm|kernel"
        r"|cutlass|moe)|cuTensorMapEncode|runtime check failed|check failed)"
        r"|^\s*Error occurred when running",
        unless=r"match failed|mismatch|CUDA error: (?:out of|an illegal)|all_?reduce|shape",
        weight=Weight.GENERIC,
        hints=(param("attention_backend", "change"), param("moe_runner_backend", "change")),
        certainty=0.66,
    ),
    Signature(
        name="slots of a pool cannot be had",
        kind=Kind.KV_POOL_EXHAUSTED,
        literals=("alloc", "slots", "pages", "exhausted", "pool"),
        pattern=r"^(?:\w+\.)*\w*(?:Error|Exception): .*?(?:(?:can ?not|can't|failed to|unable to"
        r"|could not) alloc(?:ate)?\b"
        r".{0,60}(?:slot|token|page|block|mamba|\bkv\b|pool|req)|no (?:free|available) (?:\w+ )?(?:slots?"
        r"|pages?|blocks?)"
        r"|(?:pool|allocator)\b.{0,20}exhausted|ran out of (?:kv|slots|pages|tokens))",
        frame=r"mem_cache|schedule|managers/|disaggregation",
        weight=Weight.GENERIC,
        phase=Phase.SERVING,
        certainty=0.75,
    ),
    Signature(
        name="caches and schedulers refuse a combination",
        kind=Kind.INCOMPATIBLE_OPTIONS,
        literals=_TYPES,
        pattern=_RAISED + _LACKS,
        frame=r"sglang/srt/(?:mem_cache|managers|model_executor|disaggregation|eplb|dllm|batch_overlap"
        r"|distributed)|sglang/srt/utils/(?!hf_)",
        unless=r"CUDA error|NCCL|No module|out of memory|timed? ?out|memory",
        phases=(
            Phase.IMPORT,
            Phase.DISTRIBUTED_INIT,
            Phase.KV_CACHE_ALLOC,
            Phase.GRAPH_CAPTURE,
            Phase.DRAFT_MODEL,
            Phase.WEIGHT_LOAD,
        ),
        weight=Weight.GENERIC,
        certainty=0.58,
    ),
    Signature(
        name="the capture of graphs in pieces failed",
        kind=Kind.INCOMPATIBLE_OPTIONS,
        literals=("cuda graph failed with error", "cuda graph capture failed"),
        pattern=r"(?:piecewise|breakable) cuda graph failed with error|cuda graph capture failed",
        phase=Phase.GRAPH_CAPTURE,
        weight=Weight.GENERIC,
        hints=(param("disable_piecewise_cuda_graph", "set", True),),
        certainty=0.66,
    ),
    Signature(
        name="code of a model or of its settings refuses",
        kind=Kind.UNSUPPORTED_MODEL,
        literals=("error: ", "exception: "),
        pattern=r"^(?:\w+\.)*\w*(?:Error|Exception): ",
        frame=r"sglang/srt/(?:models|configs|model_loader|multimodal)/|transformers/|hf_transformers"
        r"|transformers_modules"
        r"|tokenizer|processing_",
        unless=r"AssertionError|CUDA|NCCL|No module|ImportError|cannot import|out of memory|Connection|HTTP"
        r"|Errno"
        r"|[Ss]izes? |shapes? |dtype|stream is capturing|OSError|FileNotFound|keyword argument"
        r"|didn't finish|[Tt]imed out",
        weight=Weight.GENERIC,
        certainty=0.6,
    ),
    Signature(
        name="sizes that options made unequal",
        kind=Kind.INCOMPATIBLE_OPTIONS,
        literals=("mismatch", "match", "unequal", "inconsistent", "unexpected", "differ", "diverge"),
        pattern=_RAISED
        + r".*?(?:\bmismatch|(?:does|do|did) not match|must match|unequal|inconsistent|\bdiffers? from"
        r"|diverged|unexpected .{0,30}"
        r"(?:shape|size|dtype|length))",
        unless=r"NCCL|version|checksum|driver",
        not_near=r"load_weights|weight_loader|loaded_weight",
        weight=Weight.GENERIC,
        certainty=0.6,
    ),
    Signature(
        name="an optional package is not there",
        kind=Kind.DEPENDENCY_MISMATCH,
        literals=("unavailable", "not available", "not installed", "is missing", "rebuild"),
        pattern=_RAISED
        + r".*?(?:is (?:unavailable|not available|missing)\b.{0,80}(?:install|build|package|$)|rebuild \w)",
        unless=r"\bport\b|backend|GPU|device",
        weight=Weight.GENERIC,
        certainty=0.6,
    ),
    Signature(
        name="a path that nobody wrote",
        kind=Kind.BACKEND_UNSUPPORTED,
        literals=("notimplementederror",),
        pattern=r"^(?:\w+\.)*NotImplementedError\b",
        weight=Weight.GENERIC,
        hints=(param("attention_backend", "change"), param("moe_runner_backend", "change")),
        certainty=0.55,
    ),
    Signature(
        name="torch's own assertion",
        kind=Kind.ASSERTION,
        literals=("internal assert failed",),
        unless=r"NVML_SUCCESS",
        weight=Weight.GENERIC,
        certainty=0.55,
    ),
)
