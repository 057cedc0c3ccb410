"""Options that contradict each other, the model or a size."""

from __future__ import annotations

from tuner.diagnosis.failure import Kind
from tuner.diagnosis.signature import Signature, Weight, env, param
from tuner.sglang.phases import Phase

_RAISED = r"^(?:\w+\.)*(?:ValueError|AssertionError|NotImplementedError|RuntimeError|Exception|TypeError)\b"

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        name="chunk and page in the argument check",
        kind=Kind.ASSERTION,
        literals=("chunked_prefill_size must be divisible by page_size",),
        phase=Phase.ARGUMENTS,
        hints=(param("chunked_prefill_size", "change"), param("page_size", "change")),
        certainty=0.92,
    ),
    Signature(
        name="more ranks than places to put them",
        kind=Kind.INDIVISIBLE,
        literals=("number of numa node",),
        pattern=r"total number of ranks .*should be smaller than or equal to number of numa node",
        certainty=0.85,
        hints=(param("tp_size", "decrease"), env("SGLANG_CPU_OMP_THREADS_BIND", "set")),
    ),
    Signature(
        name="quantisation block does not divide the partition",
        kind=Kind.INDIVISIBLE,
        literals=(
            "is not divisible by weight quantization",
            "is not aligned with the quantized weight",
            "not aligned with the quantized weight shape",
            "block_n",
            "block_k",
            "group_size",
            "size_k = ",
            "size_n = ",
        ),
        pattern=r"not divisible by weight quantization|not aligned with the quantized weight"
        r"|(?:block_[nk]|group_size|(?:tile|thread|min_thread)_[nk]).{0,60}(?:divisible|divide|multiple)"
        r"|(?:divisible|divide|multiple).{0,60}(?:block_[nk]|group_size|(?:tile|thread|min_thread)_[nk])",
        hints=(param("tp_size", "decrease"),),
        phase=Phase.WEIGHT_LOAD,
        certainty=0.95,
    ),
    Signature(
        name="indivisible",
        kind=Kind.INDIVISIBLE,
        literals=("divisible", "must divide", "evenly", "should divide", "multiple of"),
        pattern=r"not (?:evenly )?divisible|(?:must|should|to) be (?:evenly )?divisible|(?:must"
        r"|should) (?:evenly )?divide"
        r"|cannot be (?:evenly )?(?:divided|split)|(?:tp|dp|ep|cp|heads?|experts?"
        r"|page)\w*\b.{0,60}(?:must|should) be a multiple of"
        r"|'?\bnum_\w+'? .{0,40}divisible",
        certainty=0.93,
        hints=(param("tp_size", "change"),),
    ),
    Signature(
        name="indivisible: the asserted source line",
        kind=Kind.INDIVISIBLE,
        literals=("assert ",),
        pattern=r"^\s*assert .*?\S+ % \S*.*== ?0",
        unless=r"chunked_prefill_size",
        in_source=True,
        certainty=0.9,
        hints=(param("tp_size", "change"),),
    ),
    Signature(
        name="expert parallelism against the number of experts or ranks",
        kind=Kind.INDIVISIBLE,
        literals=("expert parallel size", "num_experts", "ep_size", "world_size", "tensor parallel size"),
        pattern=r"expert parallel size must be|world_size \(?\d+\)? is not equal"
        r"|tensor parallel size.{0,40}(?:greater|larger|exceed)"
        r"|ep_size .{0,30}(?:must|should|greater|larger)|num_experts.{0,30}(?:less|fewer|smaller) than",
        certainty=0.8,
        hints=(param("ep_size", "change"), param("tp_size", "change")),
    ),
    Signature(
        name="data types meet that do not fit: FP8 in a Triton dot",
        kind=Kind.INCOMPATIBLE_OPTIONS,
        literals=(
            "unsupported rhs dtype",
            "unsupported lhs dtype",
            "mismatched type for",
            "both operands must be same dtype",
            "both operands must be same type",
        ),
        hints=(param("kv_cache_dtype", "set", "auto"), param("dtype", "set", "bfloat16")),
        certainty=0.87,
    ),
    Signature(
        name="data types meet that do not fit: torch",
        kind=Kind.INCOMPATIBLE_OPTIONS,
        literals=(
            "to have the same dtype",
            "to be the same dtype",
            "dtype mismatch",
            "must have the same dtype",
            "must have same dtype",
            "same data type",
            "dtypes",
            "self and mat2",
            "expected scalar type",
        ),
        pattern=r"(?:expected|mat1|query|self|both|all).{0,80}(?:same dtype|same data type)"
        r"|must have (?:the )?same (?:d?type|data type)|(?:Error)\b.*\bdtypes? (?:must|should|do not"
        r"|does not|don't) match|dtype mismatch|expected scalar type \w+ but (?:found|got)",
        hints=(param("dtype", "set", "bfloat16"), param("kv_cache_dtype", "set", "auto")),
        certainty=0.75,
    ),
    Signature(
        name="shapes meet that do not fit",
        kind=Kind.INCOMPATIBLE_OPTIONS,
        literals=(
            "shape mismatch",
            "size mismatch",
            "tensor match failed",
            "mismatched tensor",
            "must match the size of tensor",
            "cannot be broadcast",
            "shapes cannot be multiplied",
            "expand(",
            "invalid for input of size",
            "must match except in dimension",
            "but got size",
            "must have the same size",
            "same number of dimensions",
            "exceeds dimension size",
            "index out of range in self",
            "on the same device",
            "inconsistent tensor size",
            "given normalized_shape",
        ),
        pattern=r"shape mismatch|Size mismatch for shape|Tensor match failed"
        r"|must match the (?:existing )?size of tensor|must match except in dimension"
        r"|expected size .{0,30}but got size"
        r"|must have the same (?:size|number of dimensions)|exceeds dimension size|index out of range in self"
        r"|on the same device|inconsistent tensor size|given normalized_shape"
        r"|mismatched tensor|cannot be broadcast|shapes cannot be multiplied|is invalid for input of size",
        not_near=r"load_weights|weight_loader|load_state_dict|copying a param|default_weight_loader"
        r"|loaded_weight",
        weight=Weight.GENERIC,
        certainty=0.72,
        hints=(param("speculative_algorithm", "unset"),),
    ),
    Signature(
        name="a method lacks what another option needs",
        kind=Kind.INCOMPATIBLE_OPTIONS,
        literals=("object has no attribute",),
        pattern=r"AttributeError: '\w*(?:Method|Output|Dispatcher|Runner|Backend|Pool\w*|Cache"
        r"|Metadata|Allocator|Worker|Info|Input|Batch)' object has no attribute",
        weight=Weight.GENERIC,
        certainty=0.75,
        hints=(param("moe_runner_backend", "change"),),
    ),
    Signature(
        name="two options exclude each other",
        kind=Kind.INCOMPATIBLE_OPTIONS,
        literals=(
            "mutually exclusive",
            "incompatible",
            "not compatible",
            "cannot be used",
            "cannot be combined",
            "can not be used",
            "cannot be enabled",
            "conflict",
            "at the same time",
            "not allowed together",
            "cannot be set",
            "can't be used",
        ),
        pattern=_RAISED
        + r".*(?:mutually exclusive|incompatible|not compatible|can ?not be (?:used|combined|enabled|set)"
        r"|can't be used|conflicts?\b|at the same time|not allowed together)",
        unless=r"requirements|pip |driver|SGLang implementation|transformers|version conflict|ABI"
        r"|undefined symbol|CUDA version",
        certainty=0.9,
    ),
    Signature(
        name="an option is not supported with another",
        kind=Kind.INCOMPATIBLE_OPTIONS,
        literals=(
            "support",
            "requires",
            "required for",
            "must be used with",
            "only valid",
            "is required when",
            "only works",
            "needs to be",
        ),
        pattern=_RAISED
        + r".*(?:(?:not|n't|only|yet)\b.{0,20}\bsupport(?:ed|s)?\b.{0,120}(?:--\w|speculative|eagle"
        r"|pipeline|dp attention|data parallel|overlap"
        r"|radix|chunked|lora|hicache|hierarchical|two.batch|mixed.chunk|page.?size|topk"
        r"|deterministic|disaggregation|parallelism|cuda graph|pp_size|piecewise|torch.?compile)"
        r"|(?:--\w[\w-]*|speculative|eagle\d?|pipeline parallelism|dp attention|overlap"
        r"|radix cache|lora|hicache|hierarchical cache"
        r"|two.batch.overlap|mixed.chunk|page.?size|deterministic|cuda graph"
        r"|mtp)\b.{0,120}(?:(?:not|n't|only)\b.{0,20}\bsupport|requires?\b|must be used with"
        r"|only valid|is required|only works))",
        unless=r"architectures? \[|quantization method|compute capability|minimum capability",
        certainty=0.82,
    ),
    Signature(
        name="head_dim or layout that a backend cannot do",
        kind=Kind.BACKEND_UNSUPPORTED,
        literals=("head_dim", "head dim", "headdim", "head_size", "head size", "page_size", "page size"),
        pattern=r"(?:unsupported|invalid|not supported|only supports?"
        r"|not implemented).{0,60}(?:head.?dim|head.?size|page.?size)|(?:head.?dim|head.?size"
        r"|page.?size)\w*.{0,60}"
        r"(?:unsupported|not supported|is invalid|only supports?|must be one of|not implemented)",
        certainty=0.82,
        hints=(param("attention_backend", "change"), param("page_size", "change")),
    ),
    Signature(
        name="assertion of a communication library",
        kind=Kind.ASSERTION,
        literals=("failed: assertion error", "deepep", "deep_ep", "num_max_dispatch_tokens_per_rank"),
        unless=r"time-? ?out|timed out",
        pattern=r"Failed: Assertion error|assert\w* error.*deep_?ep|deep_?ep.*(?:assert|error"
        r"|exception)|CUDA driver exception.*deep_?ep|CUDA_ERROR_NOT_PERMITTED",
        certainty=0.83,
        hints=(
            param("deepep_mode", "change", "auto"),
            param("moe_a2a_backend", "unset"),
            param("chunked_prefill_size", "decrease"),
        ),
    ),
    Signature(
        name="sizes of a collective differ",
        kind=Kind.ASSERTION,
        literals=(
            "input tensor must be the same size as output size",
            "output tensor size must be equal to world_size",
            "split sizes",
        ),
        pattern=r"(?:input|output) tensor (?:must be the same size|size must be equal)"
        r"|split sizes.*(?:sum|match)",
        certainty=0.75,
        hints=(param("dp_size", "change"),),
    ),
    Signature(
        name="assertion",
        kind=Kind.ASSERTION,
        literals=("assertionerror",),
        pattern=r"^(?:[\w.]+\.)?AssertionError\b",
        not_near=r"_wait_and_warmup|warmup error|_execute_server_warmup|res\.status_code"
        r"|import deep_gemm|jit_kernels",
        weight=Weight.GENERIC,
        certainty=0.8,
    ),
    Signature(
        name="a value is refused",
        kind=Kind.INVALID_ARGUMENTS,
        literals=("must be", "should be", "expected one of", "is not a valid", "invalid value"),
        pattern=r"^(?:\w+\.)*(?:ValueError|TypeError|KeyError): .*(?:must be|should be|expected one of"
        r"|is not a valid|invalid value)",
        phases=(Phase.ARGUMENTS, Phase.IMPORT),
        phase=Phase.ARGUMENTS,
        not_near=r"run_scheduler_process|hit an exception",
        weight=Weight.GENERIC,
        certainty=0.72,
    ),
)
