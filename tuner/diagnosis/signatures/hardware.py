"""GPUs, drivers, and backends that have nothing for them."""

from __future__ import annotations

from tuner.diagnosis.failure import Cause, Kind
from tuner.diagnosis.signature import Signature, action, param
from tuner.sglang.phases import Phase

_BACKEND_HINTS = (param("attention_backend", "change"), param("moe_runner_backend", "change"))

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        name="GPU lost",
        kind=Kind.GPU_LOST,
        literals=(
            "fallen off the bus",
            "gpu is lost",
            "gpu_is_lost",
            "uncorrectable ecc",
            "ecc error",
            "nvrm: xid",
            "xid (",
            "probably locked",
            "unspecified launch failure",
            "device unavailable",
            "cudaerrordevicesunavailable",
            "hardware exception",
            "gpu hang",
            "gpu reset",
            "nvlink error",
            "uncorrectable nvlink",
            "cudaerrorcontained",
            "contained error",
            "cudaerroreccuncorrectable",
            "hipdevice reset",
            "cuda_error_system_not_ready",
        ),
        pattern=r"fallen off the bus|gpu(?:_| )is(?:_| )lost|uncorrectable (?:ecc|nvlink)|\becc error"
        r"|Xid (?:\(PCI:[\w:.]+\): )?(?:48|6[1-4]|74|79|8|9[2-5]|109|1[12]\d)\b"
        r"|gpu is probably locked|cudaErrorDevicesUnavailable"
        r"|\bgpu (?:hang|reset)\b|nvlink error|cudaErrorContained|uncorrectable contained"
        r"|eccUncorrectable|SYSTEM_NOT_READY",
        certainty=0.92,
    ),
    Signature(
        name="NVIDIA driver missing",
        kind=Kind.DRIVER_MISMATCH,
        literals=(
            "cuda driver initialization failed",
            "cuda unknown error",
            "system not yet initialized",
            "could not select device driver",
            "nvidia-container-cli",
            "unsatisfied condition: cuda",
            "found no nvidia driver",
            "no nvidia driver",
            "libcuda.so",
            "nvml: driver not loaded",
            "driver/library version mismatch",
            "couldn't communicate with the nvidia driver",
            "no nvidia gpu",
            "nvidia-smi: command not found",
            "no accelerator",
            "failed to initialize nvml",
            "no cuda-capable device",
            "initialization error",
            "no cuda gpus are available",
            "no hip gpus are available",
            "cuda_error_no_device",
            "torch not compiled with cuda enabled",
            "forward compatibility was attempted",
            "system has unsupported display driver",
            "cuda is not available",
        ),
        pattern=r"cuda driver initialization failed|cuda unknown error|system not yet initialized"
        r"|could not select device driver|nvidia-container-cli:|unsatisfied condition: cuda"
        r"|no nvidia driver|libcuda\.so(?:\.1)?: cannot open|driver not loaded"
        r"|version mismatch"
        r"|couldn't communicate with the nvidia driver"
        r"|failed to initialize nvml|CUDA error: initialization error|no cuda-capable device|no (?:cuda"
        r"|hip) gpus are available"
        r"|CUDA_ERROR_NO_DEVICE|not compiled with cuda enabled"
        r"|forward compatibility was attempted|unsupported display driver"
        r"|RuntimeError: No accelerator|(?:Error|Exception): .*cuda is not available"
        r"|no nvidia gpu.*(?:found|detected)|nvidia-smi: command not found",
        certainty=0.94,
    ),
    Signature(
        name="NVIDIA driver too old",
        kind=Kind.DRIVER_MISMATCH,
        literals=(
            "driver on your system is too old",
            "driver version is insufficient",
            "unsupported toolchain",
            "unsupported ptx version",
            "cuda_error_unsupported_ptx_version",
            "provided ptx was compiled with",
            "cuda initialization: ",
        ),
        pattern=r"driver on your system is too old|driver version is insufficient"
        r"|compiled with an unsupported toolchain|unsupported_?ptx_?version"
        r"|CUDA initialization: (?:unexpected|cuda unknown)",
        warns=True,
        certainty=0.93,
    ),
    Signature(
        name="no kernel image",
        kind=Kind.ARCH_UNSUPPORTED,
        literals=(
            "kernel image is invalid",
            "no kernel image is available",
            "invalid device function",
            "cudaerrornokernelimagefordevice",
            "hiperrornobinaryforgpu",
            "no binary for gpu",
            "not compatible with the current pytorch installation",
        ),
        warns=True,
        unless=r"invalid device function' ?\(ignored",
        certainty=0.93,
    ),
    Signature(
        name="compute capability too low",
        kind=Kind.ARCH_UNSUPPORTED,
        literals=(
            "sglang only supports sm",
            "compute capability",
            "requires sm",
            "gpu architecture",
            "gpu arch",
            "sm_",
            "gfx",
            "unknown recipe",
            "unknown sf transformation",
            "unsupported architecture",
        ),
        pattern=r"sglang only supports sm\d+|unsupported (?:gpu )?arch(?:itecture)?\b"
        r"|gpu arch\w* .{0,30}not supported|value '?(?:sm|compute)_\d+\w*'? is not defined"
        r"|(?:requires|needs)(?: a)? (?:gpu with )?compute capability"
        r"|compute capability .{0,40}(?:not supported|too low|unsupported|is required)"
        r"|unknown (?:recipe|sf transformation)|(?:sm_?\d{2,3}a?|gfx\w+)\b.{0,40}(?:is not"
        r"|not) (?:supported|recognized|a recognized)|no sm_?\d+\w*/ directory",
        unless=r"architectures \[|quantization method|backend is only|fmha|trtllm",
        certainty=0.87,
    ),
    Signature(
        name="PTX that the GPU lacks",
        kind=Kind.ARCH_UNSUPPORTED,
        literals=("ptxas", "feature '", "not supported on .target", "requires .target"),
        pattern=r"feature '.*not supported on \.t|requires \.target|ptxas.*(?:not supported"
        r"|unsupported gpu|not defined for option 'gpu-name')|Value 'sm_\w+' is not defined",
        certainty=0.92,
    ),
    Signature(
        name="kernel library without this GPU",
        kind=Kind.ARCH_UNSUPPORTED,
        literals=("could not load any common_ops library", "common_ops library"),
        near=r"no sm_?\d+\w*/? directory|no (?:matching|compatible) (?:kernel|architecture)",
        certainty=0.9,
        phase=Phase.IMPORT,
        since="0.5.2",
    ),
    Signature(
        name="kernel library without this GPU: nothing found",
        kind=Kind.ARCH_UNSUPPORTED,
        literals=("could not load any common_ops library",),
        near=r"sm_?\d+\w*/common_ops\.\* - found files: \[\]",
        not_near=r"undefined symbol|cannot open shared object|abi mismatch",
        certainty=0.8,
        phase=Phase.IMPORT,
        since="0.5.2",
    ),
    Signature(
        name="a compiler's table lacks the GPU",
        kind=Kind.ARCH_UNSUPPORTED,
        literals=("keyerror",),
        pattern=r"^KeyError: '?(?:sm_?|compute_)?\d{2,3}[af]?'?$",
        frame=r"deep_gemm|jit|compil|nvcc|arch",
        certainty=0.75,
    ),
    Signature(
        name="a number format that the GPU lacks",
        kind=Kind.ARCH_UNSUPPORTED,
        literals=(
            "fp8e4nv not supported",
            "type fp8e4nv",
            "fp8e4b8",
            "bfloat16 is not supported",
            "bf16 is not supported",
            "bfloat16 is only supported",
        ),
        pattern=r"type fp8\w+ not supported in this architecture|b(?:float|f)16 is (?:not|only) supported",
        kinds={Phase.SERVING: Kind.BACKEND_UNSUPPORTED, Phase.GRAPH_CAPTURE: Kind.BACKEND_UNSUPPORTED},
        unless=r"quantization method",
        cause=Cause.CONFIG,
        hints=(param("kv_cache_dtype", "set", "auto"), param("dtype", "set", "float16")),
        certainty=0.72,
    ),
    Signature(
        name="backend and GPU",
        kind=Kind.BACKEND_UNSUPPORTED,
        literals=(
            "backend",
            "expected sm",
            "only support",
            "are supported",
            "is supported",
            "is required for",
            "requires",
            "flashattention",
            "fmha",
            "flashmla",
            "deepgemm",
            "deep_gemm",
            "trtllm",
            "cutlass",
            "marlin",
            "fa3",
            "fa4",
            "mxfp4",
            "nvfp4",
        ),
        pattern=r"(?:Error|Exception|Failed|failed|Assert\w*)\b.*(?:"
        r"(?:only|not)\b.{0,30}\bsupport\w*\b.{0,60}(?:sm ?_?\d|blackwell|hopper|ampere|gpus?\b"
        r"|cuda|rocm|hip|device|hardware|architecture)"
        r"|(?:fa3|fa4|triton|flashinfer|trtllm_m\w+).{0,80} is required for \w+ model"
        r"|expected sm ?_?\d+|only sm ?[\d.x]+.{0,40}supported"
        r"|only supports? .{0,40}(?:data type|dtype|fp16|bf16|head)"
        r"|requires? .{0,60}(?:sm ?_?\d\d|blackwell|hopper|sm90|compute capability)"
        r"|only (?:sm ?\d|\{.*\} backends?|\(.*\) backends?).{0,60}support"
        r"|on (?:ampere|ada|hopper|blackwell|turing|volta)\b.{0,40}(?:only|not) support"
        r"|(?:one of|only) .{0,160}attention backends?\b.{0,120}(?:support|required|but got|got)"
        r"|backends? .{0,100}(?:not|only|n't)\b.{0,20}\bsupport"
        r"|does not support .{0,60}\bbackend"
        r"|attention backend.{0,60}(?:not available|is not registered|unavailable)"
        r"|(?:TllmGenFmhaRunner|FmhaRunner|fmha).*unsupported"
        r"|requires? (?:one of )?.{0,80}\b(?:attention|moe|runner|gemm)[_ ]?\w* ?backend"
        r"|backend .{0,40}requires"
        r"|supports? only: .*(?:fp4|fp8|bfloat16))",
        unless=r"weight_bits|group_size|architectures \[|quantization method|NCCL|custom all.?reduce"
        r"|all-?reduce fusion"
        r"|--speculative-algorithm|distributed backend|FlashInfer allreduce",
        certainty=0.85,
        hints=_BACKEND_HINTS,
    ),
    Signature(
        name="no configuration in a kernel's dispatch",
        kind=Kind.BACKEND_UNSUPPORTED,
        literals=(
            "no operator found for",
            "invalid configuration",
            "dispatch",
            "unsupported configuration",
            "no valid tactic",
            "no algorithm",
            "no implementation",
            "not implemented for",
            "unsupported dtype",
            "no supported",
            "missing trtllm",
            "batch_size_m",
            "no valid config",
            "could not run '",
            "unsupported data type",
            "unsupported kv_cache_dtype",
            "unsupported max_mma",
            "cublas_status_not_supported",
            "cudnn",
        ),
        pattern=r"no operator found for|(?:Error|Exception|failed)\b.*(?:invalid configuration"
        r"|unsupported configuration"
        r"|failed to dispatch|no valid (?:tactic|config)"
        r"|no (?:supported|suitable) (?:kernel|algorithm|backend|tactic)|no implementation"
        r"|not implemented for '|unsupported (?:dtype|data type|kv_cache_dtype|max_mma)"
        r"|could not run '.*' with arguments from"
        r"|missing trtllm|CUBLAS_STATUS_NOT_SUPPORTED|cudnn.{0,60}not support|CUDNN_STATUS_NOT_SUPPORTED)",
        unless=r"invalid configuration argument|mismatched type|version (?:mismatch|conflict)",
        certainty=0.77,
        hints=_BACKEND_HINTS,
    ),
    Signature(
        name="Triton finds no driver",
        kind=Kind.BACKEND_UNSUPPORTED,
        literals=("active drivers ([]). there should only be one",),
        certainty=0.8,
    ),
    Signature(
        name="CPU lacks a feature",
        kind=Kind.UNSUPPORTED_QUANTIZATION,
        literals=("amx support",),
        pattern=r"on CPU requires that CPU has AMX support",
        certainty=0.75,
    ),
    Signature(
        name="AMD hardware exception",
        kind=Kind.KERNEL_FAULT,
        literals=(
            "hsa_status_error",
            "memory access fault by gpu",
            "vm_l2_protection_fault",
            "gpu core dump",
            "hsail operation",
        ),
        certainty=0.9,
        hints=(action("clear-leftovers-and-retry"), param("attention_backend", "change")),
    ),
)
