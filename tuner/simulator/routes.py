"""The HTTP endpoints of a simulated server."""

from __future__ import annotations

import asyncio
import json
import random
import time
import uuid
import zlib
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from tuner.simulator.box import Box
from tuner.simulator.engine import Engine
from tuner.simulator.memory import MemoryPlan
from tuner.simulator.request import Nowhere, Request, Sink
from tuner.simulator.settings import Settings
from tuner.simulator.streams import CompletionStream, GenerateStream
from tuner.simulator.texts import Corpus, tokenize
from tuner.simulator.wire import Call, Reply

_HEALTH_TIMEOUT_S = 20.0
_OPEN = ("/health", "/health_generate", "/ping", "/metrics")
_FLUSHED = (
    b"Cache flushed.\nPlease check backend logs for more details. "
    b"(When there are running or waiting requests, the operation will not be performed.)\n"
)


class BadRequestError(Exception):
    """The client asked for something that the server refuses with 400."""


class Routes:
    """Answers calls. `ready` turns true when the server has warmed up, `leaving` when it drains."""

    def __init__(
        self, box: Box, settings: Settings, plan: MemoryPlan, engine: Engine, corpus: Corpus
    ) -> None:
        self._box = box
        self._settings = settings
        self._plan = plan
        self._engine = engine
        self._corpus = corpus
        self._started_s = time.time()
        self._requests: dict[str, Request] = {}
        self.ready = False
        self.leaving = False
        self._paths: dict[str, tuple[str, Callable[[Call, Reply], None]]] = {
            "/health": ("GET", self._health),
            "/health_generate": ("GET", self._health),
            "/ping": ("GET", self._health),
            "/model_info": ("GET", self._model_info),
            "/get_model_info": ("GET", self._model_info),
            "/server_info": ("GET", self._server_info),
            "/get_server_info": ("GET", self._server_info),
            "/v1/models": ("GET", self._models),
            "/flush_cache": ("GET POST", self._flush),
            "/abort_request": ("POST", self._abort),
            "/generate": ("POST PUT", self._generate),
            "/v1/completions": ("POST", self._completions),
            "/v1/chat/completions": ("POST", self._chat),
        }

    def handle(self, call: Call, reply: Reply) -> None:
        """Answer one call, now or later."""
        path = call.path.split("?", 1)[0]
        methods, answer = self._paths.get(path, ("", None))
        if answer is None:
            reply.send_json(404, {"detail": "Not Found"})
        elif call.method not in methods.split():
            reply.send_json(405, {"detail": "Method Not Allowed"})
        elif self._settings.api_key and path not in _OPEN and not self._authorized(call):
            reply.send_json(401, {"error": "Unauthorized"})
        else:
            try:
                answer(call, reply)
            except (BadRequestError, TypeError, ValueError) as refusal:
                reply.send_json(400, {"error": {"message": str(refusal)}})

    def _authorized(self, call: Call) -> bool:
        return call.headers.get("authorization") == f"Bearer {self._settings.api_key}"

    # --- state ---------------------------------------------------------------------------------------------

    def _health(self, call: Call, reply: Reply) -> None:
        del call
        if not self.ready or self.leaving:
            reply.send(503, b"")
            return
        # The real check generates one token, looks for it once a second and gives up after twenty.
        loop = asyncio.get_running_loop()
        if self._engine.stalled:
            loop.call_later(_HEALTH_TIMEOUT_S, reply.send, 503, b"")
        else:
            loop.call_later(1.0 / self._box.time_scale, reply.send, 200, b"")

    def _model_info(self, call: Call, reply: Reply) -> None:
        del call
        model = self._box.model
        reply.send_json(
            200,
            {
                "model_path": self._settings.model_path,
                "tokenizer_path": self._settings.arguments["tokenizer_path"] or self._settings.model_path,
                "is_generation": True,
                "preferred_sampling_params": None,
                "weight_version": "default",
                "has_image_understanding": model.multimodal,
                "has_audio_understanding": False,
                "model_type": model.model_type,
                "architectures": [model.architecture],
            },
        )

    def _server_info(self, call: Call, reply: Reply) -> None:
        del call
        plan, engine = self._plan, self._engine
        graphs: Any = round(plan.graph_gib + plan.draft_graph_gib + plan.prefill_graph_gib, 2)
        if self._box.sglang_version.number >= 20:
            key = "target_verify" if self._settings.speculation else "decode"
            graphs = {"prefill": round(plan.prefill_graph_gib, 2), key: round(plan.graph_gib, 2)}
            graphs |= {"draft_decode": round(plan.draft_graph_gib, 2)}
        state = {
            **self._settings.arguments,
            "last_gen_throughput": engine.last_gen_tok_s,
            "memory_usage": {
                "weight": round(plan.weights_gib, 2),
                "kvcache": round(plan.kv_gib, 2),
                "token_capacity": plan.kv_tokens,
                "graph": graphs,
            },
            "effective_max_running_requests_per_dp": plan.max_running,
        }
        if engine.accept_length is not None:
            state["avg_spec_accept_length"] = engine.accept_length
        reply.send_json(
            200,
            {
                **self._settings.arguments,
                "status": "ready" if self.ready else "starting",
                "max_total_num_tokens": plan.kv_tokens,
                "max_req_input_len": engine.longest_request - 5,
                "internal_states": [state],
                "version": self._box.sglang_version.text,
            },
        )

    def _models(self, call: Call, reply: Reply) -> None:
        del call
        card = {
            "id": self._settings.model_name,
            "object": "model",
            "created": int(self._started_s),
            "owned_by": "sglang",
            "root": self._settings.model_name,
            "max_model_len": self._settings.context_length,
        }
        reply.send_json(200, {"object": "list", "data": [card]})

    def _flush(self, call: Call, reply: Reply) -> None:
        del call
        done = self._engine.flush_cache()
        reply.send(200 if done else 400, _FLUSHED, kind="text/plain; charset=utf-8")

    def _abort(self, call: Call, reply: Reply) -> None:
        body = _body(call)
        if body.get("abort_all"):
            self._engine.cancel_all()
        elif (request := self._requests.get(str(body.get("rid")))) is not None:
            request.finish_reason = "abort"
            request.sink.emit(request)
            self._engine.cancel(request)
        reply.send(200, b"")

    # --- generation ----------------------------------------------------------------------------------------

    def _generate(self, call: Call, reply: Reply) -> None:
        body = _body(call)
        sampling = body.get("sampling_params") or {}
        if not isinstance(sampling, dict):
            raise BadRequestError("sampling_params must be an object.")
        prompt = _prompt_of(body)
        wanted = sampling.get("max_new_tokens", 128)
        stream = bool(body.get("stream"))
        request = self._request(prompt, wanted, sampling, str(body.get("rid") or uuid.uuid4().hex))
        speculation = self._settings.speculation
        sink = GenerateStream(
            reply,
            self._corpus,
            stream=stream,
            interval=int(sampling.get("stream_interval") or self._settings.stream_interval),
            incremental=bool(self._settings.arguments.get("incremental_streaming_output")),
            drafts=speculation.draft_tokens - 1 if speculation else 0,
        )
        self._submit(request, sink, reply)

    def _completions(self, call: Call, reply: Reply) -> None:
        body = _body(call)
        prompt = body.get("prompt")
        if isinstance(prompt, str):
            tokens: Sequence[Hashable] = tokenize(prompt)
        elif isinstance(prompt, list) and all(isinstance(token, int) for token in prompt):
            tokens = tuple(prompt)
        else:
            raise BadRequestError("prompt must be a string or a list of token ids.")
        self._openai(body, tokens, reply, chat=False, wanted=body.get("max_tokens", 16))

    def _chat(self, call: Call, reply: Reply) -> None:
        body = _body(call)
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise BadRequestError("messages must be a list that is not empty.")
        text = "\n".join(
            f"{part.get('role')}: {part.get('content')}" for part in messages if isinstance(part, dict)
        )
        wanted = body.get("max_completion_tokens") or body.get("max_tokens") or 1024
        self._openai(body, tokenize(text), reply, chat=True, wanted=wanted)

    def _openai(
        self, body: dict[str, Any], prompt: Sequence[Hashable], reply: Reply, *, chat: bool, wanted: Any
    ) -> None:
        options = body.get("stream_options") or {}
        request = self._request(prompt, wanted, body, uuid.uuid4().hex)
        sink = CompletionStream(
            reply,
            self._corpus,
            model=str(body.get("model") or self._settings.model_name),
            chat=chat,
            stream=bool(body.get("stream")),
            interval=self._settings.stream_interval,
            usage=bool(options.get("include_usage")),
            running_usage=bool(options.get("continuous_usage_stats")),
        )
        self._submit(request, sink, reply)

    def _request(
        self, prompt: Sequence[Hashable], wanted: Any, sampling: dict[str, Any], rid: str
    ) -> Request:
        if isinstance(wanted, bool) or not isinstance(wanted, int):
            raise BadRequestError(f"max_new_tokens must be an integer, got {wanted!r}.")
        if wanted < 0:
            raise BadRequestError(f"max_new_tokens must be at least 0, got {wanted}.")
        temperature = sampling.get("temperature", 1.0)
        if isinstance(temperature, bool) or not isinstance(temperature, (int, float)) or temperature < 0:
            raise BadRequestError(f"temperature must be non-negative, got {temperature}.")
        if not prompt:
            raise BadRequestError("The prompt must not be empty.")
        longest = self._engine.longest_request
        if len(prompt) >= longest:
            raise BadRequestError(
                f"The input ({len(prompt)} tokens) is longer than the model's context length "
                f"({longest} tokens)."
            )
        key = "\x1f".join(str(token) for token in prompt)
        start = self._corpus.start_for(key if temperature == 0 else f"{key}{random.random()}")
        # Answers end by themselves somewhere between 200 and 2200 tokens, decided by the prompt.
        stop_after = (
            None if sampling.get("ignore_eos") else 200 + zlib.crc32(key.encode("utf-8", "replace")) % 2000
        )
        if stop_after is not None:
            stop_after = max(stop_after, int(sampling.get("min_new_tokens") or 0))
        return Request(
            rid=rid,
            prompt=prompt,
            wanted=max(1, min(wanted, longest - len(prompt))),
            stop_after=stop_after,
            start=start,
            sink=Nowhere(),
            received_s=asyncio.get_running_loop().time(),
        )

    def _submit(self, request: Request, sink: Sink, reply: Reply) -> None:
        request.sink = _Tracked(sink, self._requests)
        self._requests[request.rid] = request
        reply.on_lost = lambda: self._lost(request)
        self._engine.submit(request)

    def _lost(self, request: Request) -> None:
        self._requests.pop(request.rid, None)
        self._engine.cancel(request)


class _Tracked:
    """Forgets a request when it is finished."""

    def __init__(self, sink: Sink, requests: dict[str, Request]) -> None:
        self._sink = sink
        self._requests = requests

    def emit(self, request: Request) -> None:
        """Pass on, and forget at the end."""
        self._sink.emit(request)
        if request.finish_reason is not None:
            self._requests.pop(request.rid, None)


def _body(call: Call) -> dict[str, Any]:
    try:
        body = call.json()
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BadRequestError(f"Invalid JSON: {error}") from None
    if not isinstance(body, dict):
        raise BadRequestError("The body must be an object.")
    return body


def _prompt_of(body: dict[str, Any]) -> Sequence[Hashable]:
    text, ids = body.get("text"), body.get("input_ids")
    if (text is None) == (ids is None):
        raise BadRequestError("Either text, input_ids or input_embeds should be provided.")
    if isinstance(text, str):
        return tokenize(text)
    if isinstance(ids, list) and all(isinstance(token, int) for token in ids):
        return tuple(ids)
    raise BadRequestError("Batches are not supported here: give one text or one list of token ids.")
