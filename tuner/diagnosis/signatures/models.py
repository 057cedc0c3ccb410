"""Models that cannot be had, read or served."""

from __future__ import annotations

from tuner.diagnosis.failure import Cause, Kind
from tuner.diagnosis.signature import Signature, Weight, action, param
from tuner.sglang.phases import Phase

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        name="gated or missing repository",
        kind=Kind.MODEL_ACCESS,
        literals=(
            "gated repo",
            "gatedrepoerror",
            "repositorynotfounderror",
            "revisionnotfounderror",
            "you must be authenticated",
            "401 client error",
            "403 client error",
            "404 client error",
            "access to model",
            "is restricted",
            "localentrynotfounderror",
            "is not a valid model identifier",
            "is not a local folder",
            "hfhubhttperror",
            "repo id must",
            "hfvalidationerror",
            "couldn't connect to 'https://huggingface",
            "can't load the configuration",
            "can't load the model",
            "can't load image processor",
            "can't load tokenizer",
            "can't load feature extractor",
            "invalid user token",
            "429 client error",
            "entrynotfounderror",
        ),
        pattern=r"gated repo|GatedRepoError|(?:Repository|Revision|LocalEntry|Entry)NotFoundError"
        r"|you must be authenticated|40[134] client error|429 client error"
        r"|access to model .* is restricted|not a valid model identifier|not a local folder"
        r"|HfHubHTTPError|HFValidationError|repo id must"
        r"|couldn't connect to 'https://huggingface|can't load (?:the )?(?:configuration|model"
        r"|image processor|tokenizer|feature extractor|processor)|invalid user token",
        unless=r"failed to load generation config",
        certainty=0.94,
    ),
    Signature(
        name="model files missing or broken",
        kind=Kind.MODEL_ACCESS,
        literals=(
            "does not appear to have a file named",
            "cannot find any model weights",
            "no such file or directory",
            "safetensorerror",
            "safetensors_rust",
            "error while deserializing header",
            "incomplete metadata",
            "file is not in safetensors format",
            "checksum",
            "git lfs",
            "headertoolarge",
            "invalid header",
            "couldn't instantiate the backend tokenizer",
            "permission denied",
            "unable to load vocabulary",
            "no safetensors",
            "metadataincompletebuffer",
            "consistency check failed",
            "unpicklingerror",
            "pytorchstreamreader failed",
        ),
        pattern=r"does not appear to have a file named|cannot find any model weights|SafetensorError"
        r"|error while deserializing header|HeaderTooLarge|MetadataIncompleteBuffer"
        r"|InvalidHeader|couldn't instantiate the backend tokenizer"
        r"|(?:Error|Errno \d+)\b.*no such file or directory: '?\S*(?:config\.json|\.safetensors"
        r"|tokenizer|model|\.bin|snapshots)|permission ?(?:denied|error).*(?:model|cache|hub"
        r"|safetensors|snapshots)|unable to load vocabulary|consistency check failed"
        r"|UnpicklingError|PytorchStreamReader failed",
        unless=r"failed to load generation config|proceeding without|nvcc|ninja",
        certainty=0.9,
    ),
    Signature(
        name="download failed",
        kind=Kind.MODEL_ACCESS,
        literals=(
            "cas service",
            "huggingface.co",
            "hf-mirror",
            "modelscope",
            "hf_hub",
            "cdn-lfs",
            "xethub",
            "hf.co",
        ),
        pattern=r"CAS service error|(?:Error|Exception|error|failed)\b.*(?:huggingface\.co|hf-mirror"
        r"|modelscope|cdn-lfs"
        r"|xethub|hf\.co)|(?:huggingface\.co|hf-mirror|modelscope|hf\.co).*(?:max retries"
        r"|timed out|connection (?:error|refused|reset)|read timeout)",
        unless=r"see https://huggingface|docs|failed to load generation config|check(?:out)? .?https",
        certainty=0.85,
    ),
    Signature(
        name="hub not reached",
        kind=Kind.MODEL_ACCESS,
        literals=(
            "unreachable",
            "connecterror",
            "connectionerror",
            "connecttimeout",
            "readtimeout",
            "name resolution",
            "max retries exceeded",
            "sslerror",
            "proxyerror",
        ),
        pattern=r"^(?:\w+\.)*\w*(?:Error|Timeout|Exception)\b",
        near=r"huggingface_hub|transformers/utils/hub|modelscope|hf_hub_download|snapshot_download",
        weight=Weight.GENERIC,
        certainty=0.75,
    ),
    Signature(
        name="remote code not trusted",
        kind=Kind.INVALID_ARGUMENTS,
        literals=("trust_remote_code=true", "trust-remote-code"),
        pattern=r"(?:requires you to execute|contains custom code|set the option"
        r"|please pass the argument).*trust_remote_code|use --trust-remote-code"
        r"|trust_remote_code=True.*(?:to remove this error|is required)",
        hints=(param("trust_remote_code", "set", True),),
        certainty=0.85,
    ),
    Signature(
        name="architecture not known",
        kind=Kind.UNSUPPORTED_MODEL,
        literals=(
            "no module or parameter named",
            "some weights are not initialized",
            "weights were not initialized",
            "are not supported for now",
            "unsupported architectures",
            "is not supported for now",
            "has no sglang implementation",
            "has no sglang",
            "does not recognize this architecture",
            "checkpoint you are trying to load has model type",
            "model type",
            "unrecognized model",
            "unrecognized configuration class",
            "no model class",
            "model architecture",
            "not implemented yet for",
            "not a supported model",
        ),
        pattern=r"no module or parameter named|weights (?:are|were) not initialized from checkpoint"
        r"|architectures?\b.{0,300}(?:are|is) not supported"
        r"|unsupported (?:model )?architectures?:|unsupported model|has no sglang"
        r"|does not recognize this architecture|has model type .* but transformers does not"
        r"|unrecognized (?:model|configuration class)|not a supported model"
        r"|model type .{0,60}(?:not|un)(?: ?)supported",
        unless=r"gpu arch|compute capability|ignore import error",
        certainty=0.93,
    ),
    Signature(
        name="quantisation not known or not for this model",
        kind=Kind.UNSUPPORTED_QUANTIZATION,
        literals=(
            " quant method",
            "weight_bits",
            "quantization",
            "quant_method",
            "quant_config",
            "quantized",
            "compressed-tensors",
            "compressed_tensors",
            "quantisation",
            "scheme",
            "gptq",
            "awq",
            "bitsandbytes",
            "modelopt",
            "fp4",
            "gguf",
        ),
        pattern=r"(?:Error|Exception)\b.*(?:unsupported (?:fused_?moe )?quant"
        r"|does not support (?:weight_bits|group_size))|(?:Error"
        r"|Exception)\b.*(?:not supported for quantization"
        r"|quantization method.{0,80}(?:not supported|does not match|is not|unknown|invalid)"
        r"|(?:unknown|invalid|unsupported|no) quantization|cannot find any of \[.*quant"
        r"|quantization .{0,80}(?:not (?:yet )?supported|does not match|is not supported"
        r"|unsupported|only support)"
        r"|quant_?(?:method|config)\w*.{0,80}(?:not|unsupported|missing|required)"
        r"|no compressed.?tensors (?:compatible )?scheme|(?:awq|gptq|marlin|bitsandbytes|gguf|fp8"
        r"|fp4|nvfp4|mxfp4|modelopt|w8a8|int8|int4)\b.{0,60}(?:quantiz\w+ )?(?:is|are"
        r"|does)? ?not (?:yet )?support"
        r"|unsupported (?:quant\w*|fused moe (?:quant\w*)?)|(?:does not"
        r"|doesn't) support .{0,40}quantiz|unsupported .{0,20}\b(?:bits|group_size|desc_act|sym)\b"
        r"|could not find .{0,30}quant)"
        r"|cannot find the config file for \w+|minimum capability: \d+",
        unless=r"backend is only|kv.?cache.?dtype|attention backend|not divisible|moe_runner_backend"
        r"|runner-backend|MOE supports only",
        certainty=0.88,
    ),
    Signature(
        name="weights of another shape",
        kind=Kind.UNSUPPORTED_MODEL,
        literals=(
            "shape mismatch",
            "size mismatch",
            "must match the size of tensor",
            "attempted to load weight",
            "loaded_weight",
            "narrow(",
            "start (",
            "exceeds dimension size",
            "but got size",
            "param_data.shape",
        ),
        pattern=r"(?:Error|assert)\b.*(?:attempted to load weight|param_data\.shape|size mismatch"
        r"|must match the size of tensor|exceeds dimension size|shape mismatch|but got size)"
        r"|assert param(?:_data)?\.(?:shape|size\(\)|data\.shape) == loaded_weight",
        in_source=True,
        near=r"load_weights|weight_loader|load_state_dict|copying a param|loaded_weight|load_model",
        phases=(Phase.WEIGHT_LOAD, Phase.DRAFT_MODEL),
        certainty=0.75,
        cause=Cause.CONFIG,
        hints=(param("quantization", "change"), action("check-the-checkpoint")),
    ),
    Signature(
        name="draft model does not fit the target",
        kind=Kind.INCOMPATIBLE_OPTIONS,
        literals=(
            "does not implement the embed-only",
            "set_embed",
            "draft vocab",
            "hot_token",
            "eagle3",
            "set_eagle3_layers_to_capture",
            "draft model",
            "draft_model",
        ),
        pattern=r"(?:Error|Exception)\b.*(?:draft (?:model|vocab).{0,80}(?:not|mismatch|differ|must)"
        r"|set_eagle3_layers|set_embed|get_embed_and_head|hot_token)"
        r"|does not implement the embed-only",
        certainty=0.8,
        hints=(param("speculative_draft_model_path", "change"), param("speculative_algorithm", "unset")),
    ),
    Signature(
        name="weight or setting that the model code does not know",
        kind=Kind.UNSUPPORTED_MODEL,
        literals=("keyerror", "attributeerror"),
        pattern=r"^(?:\w+\.)*(?:KeyError: '?[\w.\[\]]+'?|AttributeError: '\w*(?:Config|ForCausalLM"
        r"|ForConditionalGeneration|Model|Stub|Transformer|Tokenizer\w*|Processor|Attention"
        r"|DecoderLayer|MoE|MLP|Linear\w*|Embedding|Experts?)' object has no attribute)",
        near=r"/models?/|load_model|model_config|model_executor|configuration_|hf_transformers"
        r"|load_weights|model_runner|configs/|transformers_modules|ModelRunnerStub",
        weight=Weight.GENERIC,
        certainty=0.75,
    ),
    Signature(
        name="exception inside model code",
        kind=Kind.UNSUPPORTED_MODEL,
        literals=(
            "indexerror",
            "typeerror",
            "attributeerror",
            "valueerror",
            "notimplementederror",
            "keyerror",
            "runtimeerror",
            "zerodivisionerror",
            "nameerror",
            "unboundlocalerror",
        ),
        pattern=r"^(?:\w+\.)*(?:IndexError|TypeError|AttributeError|ValueError|NotImplementedError"
        r"|KeyError|RuntimeError|NameError|ZeroDivisionError|UnboundLocalError)\b",
        near=r"(?:sglang/srt/models|transformers/models|transformers_modules"
        r"|srt/configs)/[^\n]*\n(?:[^\n]*\n){0,2}\s*\w*(?:Index|Type|Attribute|Value"
        r"|NotImplemented|Key|Runtime|Name|ZeroDivision|UnboundLocal)Error",
        weight=Weight.GENERIC,
        certainty=0.55,
    ),
)
