"""The shapes of tests/bench/bench_kernels.c in PyTorch, the same lines.

    bench_kernels_torch.py [--threads N] [--runs N] [--cpu-time] [PART OF A NAME]
    bench_kernels_torch.py --against build/tests/bench_kernels [--rounds N] ...   both in turns, least time of all, ratios
"""
import argparse
import re
import subprocess
import sys
import time

SHAPES = [line for line in """
linear bf16 2850x1024->3072
linear bf16 2850x1024->5632
linear bf16 2850x2816->1024
linear bf16 2850x1024->1024
linear bf16 77x1024->3072
linear bf16 2x384->18432
linear bf16 1x4096->4096
linear f32 1797x512->1536
linear f32 1797x512->4096
linear f32 1797x2048->512
linear f32 1797x512->512
linear f32 12579x2048->6144
attention bf16 2850 8x128
attention f32 1797 32x64
attention f32 1797 8x64
conv 2048->1024 k7 207
convT 1024->512 k9 u5 207
conv 512->512 k3 1035
conv 512->512 k11 1035 d5
convT 512->256 k9 u5 1035
conv 256->256 k7 5175 d3
conv 128->128 k7 10350 d3
conv 64->64 k7 20700 d3
convT 64->32 k4 u2 20700
conv 32->32 k7 41400 d3
conv 16->16 k11 82800 d5
convT 16->8 k4 u2 82800
conv 8->8 k3 165600
conv 8->8 k11 165600 d5
conv 8->1 k7 165600
snake 512 1035
snake 64 20700
snake 8 165600
conv3d 3->32 k3 17x256 s1,1
conv3d 32->32 k3 17x256 s1,1
conv3d 32->32 k3 17x256 s1,2
conv3d 32->64 k3 17x128 s1,1
conv3d 64->64 k3 17x128 s1,1
conv3d 64->64 k3 17x128 s2,2
conv3d 64->64 k3 9x64 s1,1
conv3d 64->64 k3 9x64 s2,2
conv3d 64->128 k3 5x32 s1,1
conv3d 128->128 k3 5x32 s1,1
conv3d 128->128 k3 5x32 s1,2
conv3d 128->128 k3 5x16 s1,1
conv3d 512->512 k3 5x32 s1,1
conv3d 1024->1024 k3 5x16 s1,1
conv3d 128->128 k3 1x32 s1,1
conv3d 32->64 k1 17x128 s1,1
norm 32 17x256
norm 64 17x128
norm 128 5x32
norm 1024 5x16
""".splitlines() if line]


def snake(torch, x, alpha, beta, up, down):
    """The alias-free activation as the reference writes it."""
    channels = x.shape[1]
    pad = torch.nn.functional.pad
    u = pad(x, (5, 5), mode="replicate")
    u = 2 * torch.nn.functional.conv_transpose1d(u, up.expand(channels, -1, -1), stride=2, groups=channels)
    u = u[..., 15:-15]
    u = u + (1.0 / (beta.exp() + 1e-9)) * torch.sin(u * alpha.exp()).pow(2)
    return torch.nn.functional.conv1d(pad(u, (5, 6), mode="replicate"), down.expand(channels, -1, -1), stride=2, groups=channels)


def conv3d(torch, ci, co, k, t, side, frames, rows):
    """Mirrored rows and columns, zero frames in front, as diffusers pads."""
    f = torch.nn.functional
    x, w, b = torch.rand(1, ci, t, side, side), torch.rand(co, ci, k, k, k), torch.rand(co)
    out = ((t - 1) // frames + 1) * (side // rows) ** 2
    edges = (1, 1, 1, 1, 0, 0) if rows == 1 else (0, 1, 0, 1, 0, 0)

    def run():
        y = x
        if k > 1:
            y = f.pad(f.pad(y, edges, mode="reflect"), (0, 0, 0, 0, k - 1, 0))
        return f.conv3d(y, w, b, stride=(frames, rows, rows))

    return run, 2 * ci * co * k**3 * out


def norm(f, x, w, b):
    """Frames apart, as diffusers does."""
    c, t, side = x.shape[1], x.shape[2], x.shape[3]
    y = x.permute(0, 2, 1, 3, 4).contiguous().view(t, c, side, side)
    y = f.group_norm(y, 32, w, b, 1e-6).view(1, t, c, side, side).permute(0, 2, 1, 3, 4).contiguous()
    return f.silu(y)


def prepare(torch, name):
    """A function that runs the shape once, and its floating-point operations."""
    words = name.split()
    n = [int(v) for v in re.findall(r"\d+", " ".join(words[2:] if words[0] in ("linear", "attention") else words[1:]))]
    dtype = torch.bfloat16 if "bf16" in words else torch.float32
    f = torch.nn.functional
    if words[0] == "linear":
        x, w = torch.rand(n[0], n[1]).to(dtype), torch.rand(n[2], n[1]).to(dtype)
        return lambda: f.linear(x, w), 2 * n[0] * n[1] * n[2]
    if words[0] == "attention":
        tokens, heads, d = n
        q, k, v = (torch.rand(1, tokens, heads, d).to(dtype).transpose(1, 2) for _ in range(3))
        return lambda: f.scaled_dot_product_attention(q, k, v), 4 * tokens * tokens * heads * d
    if words[0] == "conv":
        ci, co, kernel, length = n[:4]
        dilation = n[4] if len(n) > 4 else 1
        x, w, b = torch.rand(1, ci, length), torch.rand(co, ci, kernel), torch.rand(co)
        return lambda: f.conv1d(x, w, b, 1, (kernel - 1) * dilation // 2, dilation), 2 * ci * co * kernel * length
    if words[0] == "convT":
        ci, co, kernel, stride, length = n
        x, w, b = torch.rand(1, ci, length), torch.rand(ci, co, kernel), torch.rand(co)
        return lambda: f.conv_transpose1d(x, w, b, stride, (kernel - stride) // 2), 2 * ci * co * kernel * length
    if words[0] == "conv3d":
        return conv3d(torch, *[int(v) for v in re.findall(r"\d+", name)[1:]])
    if words[0] == "norm":
        channels, t, side = n
        x, w, b = torch.rand(1, channels, t, side, side), torch.rand(channels), torch.rand(channels)
        return lambda: norm(f, x, w, b), 8 * channels * t * side * side
    channels, length = n
    x, alpha, beta = torch.rand(1, channels, length), torch.rand(1, channels, 1), torch.rand(1, channels, 1)
    up, down = torch.rand(1, 1, 12), torch.rand(1, 1, 12)
    return lambda: snake(torch, x, alpha, beta, up, down), 2 * channels * length * 24


def measure(torch, options, name):
    """The least seconds of some runs, and the operations."""
    clock = time.process_time if options.cpu_time else time.perf_counter
    run, flop = prepare(torch, name)
    best = float("inf")
    with torch.inference_mode():
        run()
        for _ in range(options.runs):
            start = clock()
            run()
            best = min(best, clock() - start)
    return best, flop


def alone(torch, options, names):
    for name in names:
        best, flop = measure(torch, options, name)
        print(f"{name:30} {best * 1e3:9.3f} ms {flop / best * 1e-9:8.1f} GFLOP/s", flush=True)


def compare(torch, options, names):
    """Both programs in turns, shape by shape, round by round: a shared machine's noise hits both."""
    command = [options.against, "--serve", "--threads", str(options.threads), "--runs", str(options.runs)]
    command += ["--cpu-time"] if options.cpu_time else []
    best = {name: [float("inf"), float("inf"), 0] for name in names}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as ours:
        for _ in range(options.rounds):
            for name in names:
                ours.stdin.write(name + "\n")
                ours.stdin.flush()
                figures = ours.stdout.readline()[30:].split()
                seconds, flop = measure(torch, options, name)
                best[name] = [min(best[name][0], float(figures[0]) * 1e-3), min(best[name][1], seconds), flop]
                time.sleep(0.05)  # PyTorch's threads spin for a while after their work
        ours.stdin.close()
    print(f"{'shape':30} {'ours ms':>9} {'GFLOP/s':>8} {'torch ms':>9} {'GFLOP/s':>8} {'ratio':>6}")
    for name, (us, them, flop) in best.items():
        print(f"{name:30} {us * 1e3:9.3f} {flop / us * 1e-9:8.1f} {them * 1e3:9.3f} {flop / them * 1e-9:8.1f} {us / them:6.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cpu-time", action="store_true", help="processor time of all threads instead of the clock's")
    parser.add_argument("--against", help="the bench_kernels program")
    parser.add_argument("only", nargs="?", default="")
    options = parser.parse_args()
    import torch
    torch.set_num_threads(options.threads)
    names = [name for name in SHAPES if options.only in name]
    (compare if options.against else alone)(torch, options, names)


main()
