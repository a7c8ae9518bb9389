"""Another engine behind HTTP: a small server that answers like vLLM or SGLang, on this machine."""

import contextlib
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from truedraft.bench.arms import Arm, Order
from truedraft.bench.endpoint import EndpointArm, counts_between, metrics_of, served_model
from truedraft.errors import ParameterError

VLLM = """# HELP vllm:spec_decode_num_drafts_total drafts
vllm:spec_decode_num_drafts_total{{engine="0",model_name="m"}} {drafts}
vllm:spec_decode_num_draft_tokens_total{{engine="0",model_name="m"}} {tokens}
vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="m"}} {accepted}
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="m",position="0"}} {first}
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="m",position="1"}} {second}
"""


class Engine(BaseHTTPRequestHandler):
    """Every completion adds ten drafts of two tokens: eight accepted at the first position, five at the second."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def _send(self, body, kind="application/json"):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        done = len(self.server.asked)
        if self.path == "/v1/models":
            self._send(json.dumps({"data": [{"id": "served"}]}).encode())
        elif self.path == "/metrics" and self.server.metrics:
            self._send(self.server.metrics(done).encode(), "text/plain")
        else:
            self.send_error(404)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)
        lines = [f"data: {json.dumps(event)}\n\n" for event in self.server.events]
        self._send("".join([*lines, "data: [DONE]\n\n"]).encode(), "text/event-stream")


EVENTS = [
    *({"choices": [{"text": text}]} for text in "abc"),
    {"choices": [], "usage": {"completion_tokens": 7}},
]


def vllm(done):
    return VLLM.format(drafts=5 + 10 * done, tokens=20 * done, accepted=13 * done, first=4 + 8 * done, second=5 * done)


def sglang(done):
    return 'sglang:spec_accept_length{model_name="m"} 2.25\n'


@pytest.fixture
def engine():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    server.asked, server.metrics, server.events = [], vllm, EVENTS
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    server.address = f"http://127.0.0.1:{server.server_address[1]}"
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


ORDER = Order(((5, 6), (7, 8)), (1, 2), tokens=7, temperature=0.5)


def test_texts_are_asked_for_and_rounds_are_read_from_the_counters(engine):
    arm = EndpointArm(engine.address, served_model(engine.address))
    assert isinstance(arm, Arm) and arm.name == "endpoint served"
    sample = arm.write(ORDER)
    assert sample.ids is None and sample.tokens == 14 and sample.decoded == 12
    assert 0 < sample.first <= sample.seconds
    assert sorted(body["prompt"] for body in engine.asked) == [[5, 6], [7, 8]]
    assert all(body["max_tokens"] == 7 and body["temperature"] == 0.5 for body in engine.asked)
    (counts,) = sample.counts
    assert counts.rounds == 20 and counts.acceptance_length == pytest.approx(1 + 26 / 20)
    assert counts.by_position == (0.8, 0.625) and counts.acceptance_rate == pytest.approx(26 / 40)


def test_no_rounds_are_made_up_from_a_mean(engine):
    """SGLang tells how many tokens a round brings on average: not how many rounds there were, nor what they drafted."""
    engine.metrics = sglang
    assert metrics_of(engine.address) == {"sglang:spec_accept_length": {'model_name="m"': 2.25}}
    sample = EndpointArm(engine.address, "m").write(ORDER)
    assert sample.tokens == 14 and sample.counts == () and sample.rounds == 0


def test_engines_without_metrics_have_no_counts(engine):
    arm = EndpointArm(engine.address, "m")
    engine.metrics = None
    assert metrics_of(engine.address) == {} and arm.write(ORDER).counts == ()
    assert counts_between({}, {"vllm:spec_decode_num_drafts_total": {"": 0.0}}) is None


def test_drafts_of_unlike_lengths_are_counted_as_they_were():
    """100 drafts with 149 tokens: not one each, or more would be accepted than drafted."""
    name = "vllm:spec_decode_num_"
    places = {f'position="{place}"': hits for place, hits in enumerate((80.0, 45.0))}
    counts = counts_between(
        {},
        {
            f"{name}drafts_total": {"": 100.0},
            f"{name}draft_tokens_total": {"": 149.0},
            f"{name}accepted_tokens_per_pos_total": places,
        },
    )
    assert counts.drafted_per_round == 1.49 and counts.acceptance_rate == 125 / 149


@pytest.mark.parametrize("reply", [b"SSH-2.0\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\ndata: {", b""])
def test_whoever_does_not_speak_http_is_named(reply):
    """Another service's port, an engine that dies in the middle of a text."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            with contextlib.suppress(OSError):  # whoever asked may have hung up, or the test be over
                for _ in range(4):
                    connection, _ = server.accept()
                    connection.recv(10_000)
                    connection.sendall(reply)
                    connection.close()

        threading.Thread(target=answer, daemon=True).start()
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ParameterError, match="base address"):
            served_model(address)
        with pytest.raises(ParameterError, match="did not answer"):
            EndpointArm(address, "m").write(Order(((5,),), (1,), tokens=3))


@pytest.mark.parametrize("address", ["http://127.0.0.1:port", "http://127.0.0.1:1 23", "http://[::1"])
def test_an_address_that_is_none_is_named(address):
    with pytest.raises(ParameterError, match="base address"):
        served_model(address)


def test_a_page_in_the_place_of_metrics_is_nothing(engine):
    engine.metrics = lambda done: "Not Found\nbody {color: red}\n"
    assert metrics_of(engine.address) == {}


def test_whoever_does_not_answer_is_named(engine):
    with pytest.raises(ParameterError, match="base address"):
        served_model("http://127.0.0.1:9")
    with pytest.raises(ParameterError, match="base address"):
        served_model("localhost")
    with pytest.raises(ParameterError, match="did not answer"):
        EndpointArm("http://127.0.0.1:9", "m").write(ORDER)


@pytest.mark.parametrize(
    "events",
    [
        [EVENTS[-1]],
        [{"choices": None}],
        [{"choices": [{"text": None}], "usage": None}],
        [EVENTS[0], {"choices": [], "usage": {"completion_tokens": 0}}],
    ],
)
def test_an_empty_text_is_named(engine, events):
    engine.events = events
    with pytest.raises(ParameterError, match="empty text") as raised:
        EndpointArm(engine.address, "m").write(ORDER)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "event",
    [
        None,
        7,
        "text",
        [EVENTS[0]],
        {"choices": 7},
        {"choices": "text"},
        {"choices": {"text": "a"}},
        {"choices": ["text"]},
        {"choices": [None]},
        {"choices": [], "usage": "much"},
        {"choices": [], "usage": [7]},
        {"choices": [], "usage": {"completion_tokens": "7"}},
        {"choices": [], "usage": {"completion_tokens": 7.5}},
        {"error": {"message": "out of memory\nat last"}},
    ],
    ids=json.dumps,
)
def test_events_of_another_shape_are_one_line(engine, event):
    """Also after the first tokens, which are no text then that could be timed."""
    engine.events = [EVENTS[0], event, EVENTS[-1]]
    with pytest.raises(ParameterError, match=r"did not answer a completion .*expected events") as raised:
        EndpointArm(engine.address, "m").write(ORDER)
    assert "\n" not in str(raised.value)


def test_what_is_null_says_nothing(engine):
    engine.events = [EVENTS[0], {"choices": None, "usage": None}, {"choices": [{"text": None}]}, *EVENTS[1:]]
    assert EndpointArm(engine.address, "m").write(ORDER).tokens == 14
    engine.events = [*EVENTS[:3], {"choices": None, "usage": {"completion_tokens": None}}]
    assert EndpointArm(engine.address, "m").write(ORDER).tokens == 6, "counted, where the engine does not tell"
