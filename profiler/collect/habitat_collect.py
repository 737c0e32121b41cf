"""Times single operators on one device, row by row, into a CSV file (README.md has its columns).

`habitat-tui collect` passes this file to Python on standard input; it needs only PyTorch. The seed fixes the
list of operators, so an interrupted file can be continued.
"""
import sys

sys.path[:] = [place for place in sys.path if place]  # not the user's folder

import time

STARTED = time.monotonic()  # the import of torch counts against the budget

import argparse
import csv
import gc
import json
import math
import os
import random
import signal

FORMAT, VERSION = "habitat-operator-measurements", 1
LIST = 2  # version of the list of operators: another version numbers its rows differently
COLUMNS = ["number", "op", "pass", "dtype", "config", "status", "device", "latency_us", "low_us", "high_us",
           "regions", "calls", "sets", "l2", "queued", "note"]
ITEMS = 3000  # length of the whole list
END_S = 1.0  # of the budget, for the end
REGION_US = 3000.0  # target length of a timed region
MOST_SPIN_US = 40_000.0  # longest spin of the device before a region
MOST_FLOPS, MOST_BYTES = 4e12, 4e9  # most of one call
PRODUCTS = ("fp32", "tf32", "bf16", "fp16")
STREAMS = ("fp32", "bf16", "fp16")


def say(text):
    print(f"habitat-tui: {text}", file=sys.stderr, flush=True)


def stop(text, code=2):
    print(f"error: collect: {text}", file=sys.stderr, flush=True)
    sys.exit(code)


# ---------------------------------------------------------------- operators

class Sizes:
    """Random sizes of one operator; `tiny` keeps everything small enough for any machine."""

    def __init__(self, seed, op, tiny):
        self.random, self.tiny = random.Random(f"{seed}/{op}"), tiny

    def size(self, low, high, step=8):
        """Log-uniform; three in four are multiples of `step`, as most in real networks are."""
        high = max(low, min(high, 24)) if self.tiny else high
        value = round(math.exp(self.random.uniform(math.log(low), math.log(high))))
        if value > step and self.random.random() < 0.75:
            value -= value % step
        return max(low, min(high, value))

    def one(self, *choices):
        return self.random.choice(choices)


def linear(draw):
    # Layers of BERT-large, GPT-2 and the last of ResNet-50, else random ones.
    if draw.random.random() < 0.3:
        k, n = draw.one((1024, 1024), (1024, 4096), (4096, 1024), (1600, 4800), (1600, 6400), (2048, 1000),
                        (768, 3072), (3072, 768), (4096, 11008))
        if draw.tiny:
            k, n = k // 64, n // 64
        return {"b": draw.size(32, 16384, 64), "k": k, "n": n}
    return {"b": draw.size(1, 32768, 64), "k": draw.size(16, 16384, 64), "n": draw.size(16, 32768, 64)}


def bmm(draw):
    return {"b": draw.size(2, 1024), "m": draw.size(8, 2048, 16), "k": draw.size(8, 2048, 16),
            "n": draw.size(8, 2048, 16)}


def conv2d(draw):
    kernel, groups = draw.one(1, 1, 3, 3, 3, 5, 7), 1
    kind = draw.random.random()
    if kind < 0.25:  # from ResNet-50
        cin, cout, h, kernel, stride = draw.one(
            (3, 64, 224, 7, 2), (64, 64, 56, 3, 1), (64, 256, 56, 1, 1), (128, 128, 28, 3, 1), (256, 512, 56, 1, 2),
            (256, 256, 14, 3, 1), (512, 128, 28, 1, 1), (1024, 256, 14, 1, 1), (512, 512, 7, 3, 1))
        if draw.tiny:
            cin, cout, h = min(cin, 8), min(cout, 8), min(h, 14)
    elif kind < 0.6:
        cin, cout, h = draw.size(3, 1024), draw.size(16, 1024), draw.size(kernel, 224, 4)
        stride = draw.one(1, 1, 1, 2)
    else:  # depthwise, or in groups of a few channels
        kernel, stride, h = draw.one(3, 3, 5, 7), draw.one(1, 1, 1, 2), draw.size(7, 112, 4)
        if kind < 0.8:
            groups = cin = cout = draw.size(16, 1024)
        else:
            width, groups, kernel = draw.one(4, 8, 16, 24, 32, 40, 64), draw.one(2, 4, 8, 16, 32), draw.one(1, 3, 3)
            cin = cout = width * groups
    return {"b": draw.size(1, 512), "cin": cin, "h": h, "cout": cout, "kernel": kernel, "stride": stride,
            "pad": kernel // 2, "groups": groups, "layout": draw.one("nchw", "nhwc")}


def lstm(draw):
    return {"b": draw.size(1, 128), "input": draw.size(16, 1024, 64), "hidden": draw.size(16, 1024, 64),
            "seq": draw.size(2, 64)}


def sdpa(draw):
    length = draw.size(16, 4096, 64)
    return {"b": draw.size(1, 32), "heads": draw.one(4, 8, 12, 16, 32), "sq": length, "skv": length,
            "d": draw.one(32, 64, 64, 128), "causal": draw.one(0, 1)}


def rows(draw):
    return {"rows": draw.size(16, 1 << 18, 64), "cols": draw.size(16, 16384, 64)}


def image(draw):
    return {"n": draw.size(2, 512), "c": draw.one(32, 64, 128, 256, 512, 1024), "h": draw.size(4, 112, 4)}


def batch(draw):
    return dict(image(draw), layout=draw.one("nchw", "nhwc"))


def groups(draw):
    return dict(image(draw), groups=draw.one(8, 16, 32))


def classes(draw):
    """Inputs of a loss: scores for tokens or images."""
    return {"rows": draw.size(16, 16384, 64), "cols": draw.one(1000, 10_000, 30_522, 32_000, 50_257, 128_256)}


def table(draw):
    return {"rows": draw.size(64, 1 << 17, 64), "cols": draw.size(64, 4096, 64),
            "tokens": draw.size(64, 1 << 15, 64)}


def update(draw):
    return {"fn": draw.one("sgd", "adam", "adamw"), "impl": draw.one("fused", "foreach"),
            "tensors": draw.one(1, 16, 64), "n": draw.size(1 << 10, 1 << 24, 1024)}


def elements(draw):
    return {"fn": draw.one("add", "mul", "relu", "gelu", "silu", "tanh"), "n": draw.size(1 << 12, 1 << 28, 1024)}


# Sizes, types, and frequency in a round of the list.
OPS = {"linear": (linear, PRODUCTS, 4), "conv2d": (conv2d, PRODUCTS, 8), "bmm": (bmm, PRODUCTS, 2),
       "elementwise": (elements, STREAMS, 2), "sdpa": (sdpa, PRODUCTS, 2), "softmax": (rows, STREAMS, 1),
       "layer_norm": (rows, STREAMS, 1), "batch_norm": (batch, STREAMS, 2), "group_norm": (groups, STREAMS, 1),
       "log_softmax": (classes, ("fp32",), 1), "nll_loss": (classes, ("fp32",), 1), "embedding": (table, STREAMS, 1),
       "optimizer": (update, ("fp32",), 1), "lstm": (lstm, PRODUCTS, 1)}


def out(c):
    return (c["h"] + 2 * c["pad"] - c["kernel"]) // c["stride"] + 1


def cost(op, c):
    """Floating-point operations of the forward pass, and elements it reads and writes."""
    if op == "linear":
        return 2.0 * c["b"] * c["k"] * c["n"], c["b"] * c["k"] + c["k"] * c["n"] + c["b"] * c["n"]
    if op == "bmm":
        return (2.0 * c["b"] * c["m"] * c["k"] * c["n"],
                c["b"] * (c["m"] * c["k"] + c["k"] * c["n"] + c["m"] * c["n"]))
    if op == "conv2d":
        o = out(c)
        weights = c["cout"] * c["cin"] // c["groups"] * c["kernel"] ** 2
        return 2.0 * c["b"] * o * o * weights, c["b"] * (c["cin"] * c["h"] ** 2 + c["cout"] * o * o) + weights
    if op == "lstm":
        weights = 4 * c["hidden"] * (c["input"] + c["hidden"])
        return 2.0 * c["seq"] * c["b"] * weights, weights + c["seq"] * c["b"] * (c["input"] + 8 * c["hidden"])
    if op == "sdpa":
        square = c["b"] * c["heads"] * c["sq"] * c["skv"]
        # Without a fused kernel, the scores are written to memory.
        return 4.0 * square * c["d"], 4 * c["b"] * c["heads"] * c["sq"] * c["d"] + 3 * square
    if op == "elementwise":
        return float(c["n"]), 3 * c["n"]
    if op == "embedding":
        return 0.0, 2 * c["rows"] * c["cols"] + 2 * c["tokens"] * c["cols"]
    if op == "optimizer":
        return 10.0 * c["tensors"] * c["n"], 7 * c["tensors"] * c["n"]
    if op in ("softmax", "layer_norm", "log_softmax", "nll_loss"):
        return 5.0 * c["rows"] * c["cols"], 3 * c["rows"] * c["cols"]
    return 5.0 * c["n"] * c["c"] * c["h"] ** 2, 3 * c["n"] * c["c"] * c["h"] ** 2


def items(seed, tiny):
    """The whole list: (number, op, config, dtype); every round of it has all operators."""
    draws = {op: Sizes(seed, op, tiny) for op in OPS}
    turns = [op for op, (_, _, weight) in OPS.items() for _ in range(weight)]
    random.Random(seed).shuffle(turns)
    for number in range(200 if tiny else ITEMS):
        op = turns[number % len(turns)]
        sample, dtypes, _ = OPS[op]
        draw = draws[op]
        while True:
            config, dtype = sample(draw), draw.one(*dtypes)
            flops, moved = cost(op, config)
            if flops <= MOST_FLOPS and moved * 4 <= MOST_BYTES:
                break
        yield number, op, config, dtype


def passes(op, config):
    if op in ("linear", "conv2d"):
        return ["fwd", "dgrad", "wgrad"]
    if op == "bmm":
        return ["fwd"]
    if op == "optimizer":
        return ["step"]
    return ["fwd"] if config.get("fn") in ("add", "mul") else ["fwd", "bwd"]


# ---------------------------------------------------------------- running them

class Runner:
    def __init__(self, torch, device):
        self.torch, self.device = torch, device
        self.is_cuda = device.type == "cuda"
        self.spins = self.is_cuda and hasattr(torch.cuda, "_sleep")
        self.types = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
        self.l2 = 32 << 20
        if self.is_cuda:
            self.l2 = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0) or self.l2

    def tensor(self, *shape, dtype, grad=False):
        return self.torch.randn(shape, device=self.device, dtype=self.types[dtype]).requires_grad_(grad)

    def build(self, op, c, dtype):
        """Callables by pass, over fresh inputs."""
        torch = self.torch
        F = torch.nn.functional
        if op == "linear":
            x, w = self.tensor(c["b"], c["k"], dtype=dtype), self.tensor(c["n"], c["k"], dtype=dtype)
            g = self.tensor(c["b"], c["n"], dtype=dtype)
            return {"fwd": lambda: F.linear(x, w), "dgrad": lambda: g @ w, "wgrad": lambda: g.t() @ x}
        if op == "bmm":
            a = self.tensor(c["b"], c["m"], c["k"], dtype=dtype)
            b = self.tensor(c["b"], c["k"], c["n"], dtype=dtype)
            return {"fwd": lambda: torch.bmm(a, b)}
        order = torch.channels_last if c.get("layout") == "nhwc" else torch.contiguous_format
        if op == "conv2d":
            o, s, p = out(c), [c["stride"]] * 2, [c["pad"]] * 2
            shapes = ((c["b"], c["cin"], c["h"], c["h"]),
                      (c["cout"], c["cin"] // c["groups"], c["kernel"], c["kernel"]), (c["b"], c["cout"], o, o))
            x, w, g = (self.tensor(*shape, dtype=dtype).contiguous(memory_format=order) for shape in shapes)

            def gradient(mask):
                rest = ([1, 1], False, [0, 0], c["groups"], mask)
                return lambda: torch.ops.aten.convolution_backward(g, x, w, None, s, p, *rest)

            return {"fwd": lambda: F.conv2d(x, w, None, s, p, 1, c["groups"]), "dgrad": gradient([True, False, False]),
                    "wgrad": gradient([False, True, False])}
        if op == "embedding":
            w, g = (self.tensor(rows, c["cols"], dtype=dtype) for rows in (c["rows"], c["tokens"]))
            which = torch.randint(c["rows"], (c["tokens"],), device=self.device)
            return {"fwd": lambda: F.embedding(which, w),
                    "bwd": lambda: torch.ops.aten.embedding_dense_backward(g, which, c["rows"], -1, False)}
        if op == "optimizer":
            weights = [self.tensor(c["n"], dtype=dtype) for _ in range(c["tensors"])]
            for weight in weights:
                weight.grad = torch.randn_like(weight)
            kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[c["fn"]]
            more = {"momentum": 0.9} if c["fn"] == "sgd" else {}
            return {"step": kind(weights, lr=1e-6, **{c["impl"]: True}, **more).step}
        if op == "sdpa":
            wrt = [self.tensor(c["b"], c["heads"], c["sq"], c["d"], dtype=dtype, grad=True) for _ in range(3)]
            x, run = wrt[0], lambda _: F.scaled_dot_product_attention(*wrt, is_causal=bool(c["causal"]))
        elif op == "lstm":
            layer = torch.nn.LSTM(c["input"], c["hidden"]).to(self.device, self.types[dtype])
            x = self.tensor(c["seq"], c["b"], c["input"], dtype=dtype, grad=True)
            wrt, run = [x, *layer.parameters()], lambda x: layer(x)[0]
        elif op == "elementwise":
            x = self.tensor(c["n"], dtype=dtype, grad=True)
            if c["fn"] in ("add", "mul"):
                y, both = self.tensor(c["n"], dtype=dtype), getattr(torch, c["fn"])
                x = x.detach()
                return {"fwd": lambda: both(x, y)}
            run, wrt = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu, "tanh": torch.tanh}[c["fn"]], [x]
        elif op in ("log_softmax", "nll_loss"):
            x = self.tensor(c["rows"], c["cols"], dtype=dtype, grad=True)
            labels, wrt = torch.randint(c["cols"], (c["rows"],), device=self.device), [x]
            run = (lambda x: F.log_softmax(x, -1)) if op == "log_softmax" else (lambda x: F.nll_loss(x, labels))
        elif op in ("softmax", "layer_norm"):
            x = self.tensor(c["rows"], c["cols"], dtype=dtype, grad=True)
            scale, shift = (self.tensor(c["cols"], dtype=dtype, grad=True) for _ in range(2))
            wrt = [x] if op == "softmax" else [x, scale, shift]
            run = (lambda x: F.softmax(x, -1)) if op == "softmax" else (lambda x: F.layer_norm(x, (c["cols"],), scale, shift))
        else:
            x = self.tensor(c["n"], c["c"], c["h"], c["h"], dtype=dtype).contiguous(memory_format=order).requires_grad_()
            # Batch norm keeps its parameters in FP32 under autocast.
            kind = "fp32" if op == "batch_norm" else dtype
            scale, shift = (self.tensor(c["c"], dtype=kind, grad=True) for _ in range(2))
            wrt = [x, scale, shift]
            if op == "batch_norm":
                mean, variance = torch.zeros(c["c"], device=self.device), torch.ones(c["c"], device=self.device)
                run = lambda x: F.batch_norm(x, mean, variance, scale, shift, training=True)
            else:
                run = lambda x: F.group_norm(x, c["groups"], scale, shift)
        y = run(x)
        g = torch.randn_like(y)
        # The graph is kept, so that the same backward pass can run repeatedly.
        return {"fwd": lambda: run(x), "bwd": lambda: torch.autograd.grad(y, wrt, g, retain_graph=True)}

    def sync(self):
        if self.is_cuda:
            self.torch.cuda.synchronize(self.device)

    def region(self, calls, count, ahead_us):
        """Microseconds of `count` calls, by the device's clock. The device first spins for `ahead_us`, so that
        the host has queued the calls before the first one runs."""
        if not self.is_cuda:
            began = time.perf_counter()
            for i in range(count):
                calls[i % len(calls)]()
            return (time.perf_counter() - began) * 1e6
        torch = self.torch
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.sync()
        if self.spins:
            torch.cuda._sleep(int(ahead_us * 2000))  # cycles; the fastest clocks are about 2 GHz
        first.record()
        for i in range(count):
            calls[i % len(calls)]()
        last.record()
        self.sync()
        return first.elapsed_time(last) * 1e3

    def time(self, calls, left):
        """Median and 10th and 90th percentile of the time of one call, and how it was measured."""
        for call in (calls[0], calls[-1]):  # the first loads kernels and chooses algorithms
            began = time.perf_counter()
            call()
            host = [(time.perf_counter() - began) * 1e6]  # host time to issue one call
            self.sync()
            single = time.perf_counter() - began
        for i in range(2 if single < 0.1 else 0):
            began = time.perf_counter()
            calls[i % len(calls)]()
            host.append((time.perf_counter() - began) * 1e6)
            self.sync()
        host = sorted(host)[len(host) // 2]
        few = 5 if single < 0.1 else 1
        each = max(self.region(calls, few, few * host * 1.5 + 50) / few, 0.3)
        count = max(1, min(300, math.ceil(REGION_US / each)))
        # If the device is slower than the host, the host stays ahead; else all calls are queued first, which
        # means fewer calls if the host is slow.
        if each <= 1.5 * host and self.spins:
            count = max(1, min(count, int(MOST_SPIN_US / (1.5 * host))))
        ahead = min(3 * host + 50 if each > 1.5 * host else 1.4 * count * host + 50, MOST_SPIN_US)
        regions = max(1, min(9, int(left * 1e6 / (4 * (count * max(each, host) + ahead)))))
        regions = min(regions, 9 if each < 20_000 else 3)
        found = sorted(self.region(calls, count, ahead) / count for _ in range(regions))
        at = lambda share: found[round(share * (len(found) - 1))]
        queued = self.is_cuda and (each > 1.5 * host or self.spins and 1.2 * count * host < ahead)
        return {"latency_us": at(0.5), "low_us": at(0.1), "high_us": at(0.9), "regions": regions, "calls": count,
                "queued": int(queued)}

    def set_tf32(self, on):
        self.torch.backends.cuda.matmul.allow_tf32 = on
        self.torch.backends.cudnn.allow_tf32 = on

    def free(self):
        gc.collect()
        if self.is_cuda:
            self.torch.cuda.empty_cache()

    def free_bytes(self):
        if not self.is_cuda:
            return 2 << 30
        cuda = self.torch.cuda
        # Memory that PyTorch caches is free to it.
        return cuda.mem_get_info(self.device)[0] + cuda.memory_reserved(self.device) - cuda.memory_allocated(self.device)


def attention_kernel(result):
    """The kernel of an attention, from the name of its gradient."""
    name = type(result.grad_fn).__name__.lower()
    return next((kernel for kernel in ("flash", "efficient", "cudnn") if kernel in name), "math")


def why(torch, error):
    """Status and note of a failure; None if the device is lost."""
    text = " ".join(str(error).split())[:160].replace(os.path.expanduser("~"), "~")
    low = text.lower()
    if isinstance(error, (torch.OutOfMemoryError if hasattr(torch, "OutOfMemoryError") else MemoryError, MemoryError)) \
            or "out of memory" in low:
        return "out_of_memory", ""
    if any(sign in low for sign in ("illegal memory access", "device-side assert", "unspecified launch failure",
                                    "ecc error", "device lost", "launch timed out")):
        return None, text
    if isinstance(error, NotImplementedError) or "not implemented" in low or "not supported" in low:
        return "unsupported", text
    return "error", text


# ---------------------------------------------------------------- the file

def head(facts):
    return f"# {FORMAT} {VERSION} {json.dumps(facts, sort_keys=True)}\n"


def resume(path, facts):
    """Passes that the file already has; cuts off an incomplete last line. Creates the file."""
    same = ["device", "name", "seed", "tiny", "torch", "gpu", "list"]
    if not os.path.exists(path) or os.path.getsize(path) == 0:
        with open(path, "w", newline="") as file:
            file.write(head(facts) + ",".join(COLUMNS) + "\n")
        return set()
    with open(path, "rb") as file:
        content = file.read()
    whole = content[: content.rfind(b"\n") + 1]
    lines = whole.decode("utf-8", "replace").splitlines()
    words = lines[0].split(" ", 3) if lines else []
    if words[:3] != ["#", FORMAT, str(VERSION)] or len(lines) < 2 or lines[1] != ",".join(COLUMNS):
        stop(f"{path}: is there and is not a collection of version {VERSION}; -o names another file")
    before = json.loads(words[3])
    for key in same:
        if before.get(key) != facts.get(key):
            stop(f"{path}: begun with {key} {before.get(key)!r}, now it is {facts.get(key)!r}; -o names another file")
    if len(whole) < len(content):
        say(f"{path}: its last line was cut off and is measured again")
        with open(path, "r+b") as file:
            file.truncate(len(whole))
    return {(int(row["number"]), row["pass"]) for row in csv.DictReader(lines[1:])}


def options():
    parser = argparse.ArgumentParser(prog="habitat-tui collect")
    parser.add_argument("--out", required=True)
    parser.add_argument("--budget", type=float, required=True, help="seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--index", type=int, default=0)
    parser.add_argument("--gpu", help="the catalog's entry, if the name is ambiguous")
    parser.add_argument("--tiny", action="store_true")
    return parser.parse_args()


def main():
    args = options()
    # Treat a request to end like Ctrl-C: keep the rows, and report them.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        import torch
    except ImportError as error:
        stop(f"{sys.executable} cannot import torch ({error}); --python names one with PyTorch")
    facts = {"device": args.device, "name": "cpu", "seed": args.seed, "tiny": args.tiny, "torch": torch.__version__,
             "list": LIST}
    if args.gpu:
        facts["gpu"] = args.gpu
    if args.device == "cuda":
        if not torch.cuda.is_available():
            built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
            if getattr(torch.version, "hip", None):
                built = f"built for ROCm {torch.version.hip}"
            stop(f"PyTorch {torch.__version__} ({built}) finds no GPU here; nothing was measured. "
                 "--device cpu --tiny runs the same code on the processor, as a check of the program only")
        if args.index >= torch.cuda.device_count():
            stop(f"--device-number {args.index}: there are {torch.cuda.device_count()} GPUs, counted from 0")
        torch.cuda.set_device(args.index)
        p = torch.cuda.get_device_properties(args.index)
        facts.update(name=p.name, compute_capability=f"{p.major}.{p.minor}", sm_count=p.multi_processor_count,
                     memory_bytes=p.total_memory, cuda=torch.version.cuda, hip=getattr(torch.version, "hip", None))
    device = torch.device("cuda", args.index) if args.device == "cuda" else torch.device("cpu")
    torch.manual_seed(args.seed)
    torch.set_num_threads(min(torch.get_num_threads(), 4) if args.device == "cpu" else torch.get_num_threads())
    done = resume(args.out, facts)
    everything = [(item, name) for item in items(args.seed, args.tiny) for name in passes(item[1], item[2])]
    if done:
        say(f"{args.out}: going on after {len(done)} of {len(everything)} rows")
    counts, ended = collect(torch, Runner(torch, device), args, done)
    minutes = (time.monotonic() - STARTED) / 60
    new = sum(counts.values())
    good = counts.get("ok", 0)
    others = ", ".join(f"{number} {status.replace('_', ' ')}" for status, number in sorted(counts.items()) if status != "ok")
    say(f"{new} rows in {minutes:.1f} min ({new / max(minutes, 1e-9):.0f} a minute): {good} timed{', ' + others if others else ''}; "
        f"{len(done) + new} of the {len(everything)} rows of the sample ({100 * (len(done) + new) / len(everything):.0f} %) in {args.out}")
    if args.device == "cpu":
        say("measured on the processor: a check of the program, which no model is trained on")
    if ended == "interrupted":
        say("interrupted; the same command goes on from here")
        sys.exit(130)
    if ended:
        stop(ended)


def collect(torch, runner, args, done):
    """Rows by status, and why it ended if not at the end of the budget or the list."""
    counts, shown = {}, time.monotonic()
    end = STARTED + args.budget - END_S
    made = {}
    with open(args.out, "a", newline="") as file:
        def write(row):
            cells = [f"{row[k]:.6g}" if isinstance(row.get(k), float) else str(row.get(k, "")) for k in COLUMNS]
            quoted = [f'"{cell}"' if "," in cell else cell for cell in (cell.replace('"', "'") for cell in cells)]
            file.write(",".join(quoted) + "\n")  # one write a row: a kill loses at most this one
            file.flush()
            counts[row["status"]] = counts.get(row["status"], 0) + 1

        try:
            for number, op, config, dtype in items(args.seed, args.tiny):
                missing = [name for name in passes(op, config) if (number, name) not in done]
                if not missing:
                    continue
                if time.monotonic() > end:
                    break
                if time.monotonic() - shown > 5:
                    shown = time.monotonic()
                    rate = 60 * sum(counts.values()) / (shown - STARTED)
                    say(f"{sum(counts.values())} rows, {rate:.0f} a minute, {end - shown:.0f} s left; now {op} {dtype}")
                runner.set_tf32(dtype == "tf32")
                size = int(cost(op, config)[1] * (2 if dtype in ("bf16", "fp16") else 4))
                # Calls cycle through buffers, so that the L2 cache holds none of the next call's.
                sets = max(1, min(16, math.ceil(3 * runner.l2 / max(size, 1))))
                row = {"number": number, "op": op, "dtype": dtype, "device": args.device, "sets": sets,
                       "config": ";".join(f"{key}={value}" for key, value in config.items()),
                       "l2": "exceeds" if size > 3 * runner.l2 else "rotated" if sets * size >= 2 * runner.l2 else "may_hit"}
                if 3 * sets * size > runner.free_bytes():
                    for name in missing:
                        write({**row, "pass": name, "status": "skipped_memory", "sets": 0, "l2": ""})
                    continue
                try:
                    made = [runner.build(op, config, dtype) for _ in range(sets)]
                    if op == "sdpa":
                        row["config"] += ";kernel=" + attention_kernel(made[0]["fwd"]())
                except Exception as error:
                    status, note = why(torch, error)
                    made = {}
                    runner.free()
                    if status is None:
                        return counts, f"the GPU is lost: {note}; the rows before it are kept"
                    for name in missing:
                        write({**row, "pass": name, "status": status, "note": note})
                    continue
                for name in missing:
                    if time.monotonic() > end:
                        break
                    try:
                        timed = runner.time([one[name] for one in made], max(end - time.monotonic(), 0.5))
                        write({**row, "pass": name, "status": "ok", **timed})
                    except Exception as error:
                        status, note = why(torch, error)
                        if status is None:
                            return counts, f"the GPU is lost: {note}; the rows before it are kept"
                        runner.free()
                        write({**row, "pass": name, "status": status, "note": note})
                made = {}
        except KeyboardInterrupt:
            return counts, "interrupted"
        except OSError as error:
            return counts, f"{args.out}: {error.strerror}"
    return counts, None


if __name__ == "__main__":
    main()
