"""How answers look on the wire: SGLang's `/generate` and the OpenAI endpoints, as chunks or as a whole."""

from __future__ import annotations

import json
import time

from tuner.simulator.request import Request
from tuner.simulator.texts import Corpus
from tuner.simulator.wire import Reply

_STOP_ID = 163586


class GenerateStream:
    """`/generate`: every chunk holds the whole text so far, or only what is new with `incremental`."""

    def __init__(
        self, reply: Reply, corpus: Corpus, *, stream: bool, interval: int, incremental: bool, drafts: int
    ) -> None:
        self._reply = reply
        self._corpus = corpus
        self._stream = stream
        self._interval = interval
        self._incremental = incremental
        self._drafts = drafts
        self._sent = 0
        if stream:
            reply.open_stream()

    def emit(self, request: Request) -> None:
        """Send a chunk when one is due; a client that does not stream gets everything at the end."""
        if self._reply.done:
            return
        finished = request.finish_reason is not None
        if not finished and (
            not self._stream or (self._sent and request.emitted - self._sent < self._interval)
        ):
            return
        body = self._body(request)
        self._sent = request.emitted
        if not self._stream:
            self._reply.send(200, body)
        elif finished:
            self._reply.end(b"data: " + body + b"\n\ndata: [DONE]\n\n")
        else:
            self._reply.chunk(b"data: " + body + b"\n\n")

    def _body(self, request: Request) -> bytes:
        first = self._sent if self._incremental and self._stream else 0
        text = self._corpus.text(request.start, first, request.emitted)
        ids = self._corpus.ids(request.start, first, request.emitted)
        return b'{"text":"%b","output_ids":[%b],"meta_info":%b}' % (text, ids, self._meta(request))

    def _meta(self, request: Request) -> bytes:
        reason = b"null" if request.finish_reason is None else json.dumps(_reason(request)).encode()
        tail = b""
        if self._drafts:
            tail = b',"spec_verify_ct":%d' % request.verified
        if request.finish_reason is not None:
            tail += _final_meta(request, self._drafts)
        return (
            b'{"id":"%b","finish_reason":%b,"prompt_tokens":%d,"weight_version":"default","num_retractions":%d,'
            b'"completion_tokens":%d,"cached_tokens":%d%b}'
            % (
                request.rid.encode(),
                reason,
                len(request.prompt),
                request.retractions,
                request.emitted,
                request.cached,
                tail,
            )
        )


class CompletionStream:
    """`/v1/completions` and `/v1/chat/completions`: every chunk holds only what is new."""

    def __init__(
        self,
        reply: Reply,
        corpus: Corpus,
        *,
        model: str,
        chat: bool,
        stream: bool,
        interval: int,
        usage: bool,
        running_usage: bool,
    ) -> None:
        self._reply = reply
        self._corpus = corpus
        self._model = json.dumps(model).encode()
        self._chat = chat
        self._stream = stream
        self._interval = interval
        self._usage = usage
        self._running_usage = running_usage
        self._created = int(time.time())
        self._sent = 0
        if stream:
            reply.open_stream()

    def emit(self, request: Request) -> None:
        """Send a chunk when one is due; a client that does not stream gets everything at the end."""
        if self._reply.done:
            return
        finished = request.finish_reason is not None
        if not finished and (
            not self._stream or (self._sent and request.emitted - self._sent < self._interval)
        ):
            return
        text = self._corpus.text(request.start, self._sent, request.emitted)
        if not self._stream:
            self._reply.send(200, self._envelope(request, self._whole(request, text), _usage(request)))
            return
        usage = _usage(request) if self._running_usage else b"null"
        data = b"data: %b\n\n" % self._envelope(request, self._delta(request, text), usage)
        self._sent = request.emitted
        if not finished:
            self._reply.chunk(data)
            return
        if self._usage:
            data += b"data: %b\n\n" % self._envelope(request, b"", _usage(request))
        self._reply.end(data + b"data: [DONE]\n\n")

    def _delta(self, request: Request, text: bytes) -> bytes:
        reason = _openai_reason(request)
        if self._chat:
            role = b"" if self._sent else b'"role":"assistant",'
            return b'{"index":0,"delta":{%b"content":"%b"},"logprobs":null,"finish_reason":%b}' % (
                role,
                text,
                reason,
            )
        return b'{"index":0,"text":"%b","logprobs":null,"finish_reason":%b,"matched_stop":null}' % (
            text,
            reason,
        )

    def _whole(self, request: Request, text: bytes) -> bytes:
        if self._chat:
            return (
                b'{"index":0,"message":{"role":"assistant","content":"%b"},"logprobs":null,"finish_reason":%b}'
                % (
                    text,
                    _openai_reason(request),
                )
            )
        return self._delta(request, text)

    def _envelope(self, request: Request, choice: bytes, usage: bytes) -> bytes:
        name = b"chat.completion" if self._chat else b"text_completion"
        if self._chat and self._stream:
            name += b".chunk"
        return b'{"id":"%b","object":"%b","created":%d,"model":%b,"choices":[%b],"usage":%b}' % (
            request.rid.encode(),
            name,
            self._created,
            self._model,
            choice,
            usage,
        )


def _reason(request: Request) -> dict[str, object]:
    if request.finish_reason == "length":
        return {"type": "length", "length": request.emitted}
    if request.finish_reason == "stop":
        return {"type": "stop", "matched": _STOP_ID}
    return {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}


def _openai_reason(request: Request) -> bytes:
    return b"null" if request.finish_reason is None else b'"%b"' % request.finish_reason.encode()


def _final_meta(request: Request, drafts: int) -> bytes:
    ended_s = request.finished_s or request.received_s
    facts: dict[str, float] = {"e2e_latency": ended_s - request.received_s}
    if request.first_token_s is not None and ended_s > request.first_token_s:
        facts["decode_throughput"] = (request.emitted - 1) / (ended_s - request.first_token_s)
    if drafts and request.verified:
        length = request.emitted / request.verified
        facts["spec_accept_length"] = length
        facts["spec_accept_rate"] = (length - 1) / drafts
    return b"," + json.dumps(facts, separators=(",", ":")).encode()[1:-1]


def _usage(request: Request) -> bytes:
    prompt, written = len(request.prompt), request.emitted
    return (
        b'{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}}'
        % (
            prompt,
            prompt + written,
            written,
            request.cached,
        )
    )
