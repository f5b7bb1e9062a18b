"""Prints the constants of tests/device/test_conv.c: small convolutions as PyTorch computes them.

The inputs are multiples of 1/8 that the test makes by the same formula, so that sums are exact and the order in which
PyTorch adds does not matter.  Made with PyTorch 2.15.0.
"""
import torch


def numbers(count, seed):
    """(7 i^2 + 3 i + seed) mod 17, minus 8, in eighths."""
    return torch.tensor([((7 * i * i + 3 * i + seed) % 17 - 8) / 8 for i in range(count)], dtype=torch.float32)


def show(name, y):
    rows = ", ".join(f"{v!r}f" for v in y.flatten().tolist())
    print(f"// {name}: {list(y.shape)}\n{{ {rows} }},")


def main():
    for ci, co, kernel, stride, padding, dilation, length in [(3, 2, 3, 1, 1, 1, 7), (2, 3, 4, 2, 1, 1, 8), (2, 2, 3, 1, 5, 5, 9),
                                                              (2, 2, 10, 5, 3, 1, 15)]:
        x, w, b = numbers(ci * length, 1).view(1, ci, length), numbers(co * ci * kernel, 2).view(co, ci, kernel), numbers(co, 3)
        y = torch.nn.functional.conv1d(x, w, b, stride, padding, dilation)
        show(f"conv1d ci {ci} co {co} kernel {kernel} stride {stride} padding {padding} dilation {dilation} length {length}", y[0])
    for ci, co, kernel, stride, padding, length in [(3, 2, 4, 2, 1, 4), (2, 2, 9, 5, 2, 3), (2, 2, 2, 3, 0, 3)]:
        x, w, b = numbers(ci * length, 1).view(1, ci, length), numbers(co * ci * kernel, 2).view(ci, co, kernel), numbers(co, 3)
        y = torch.nn.functional.conv_transpose1d(x, w, b, stride, padding)
        show(f"conv_transpose1d ci {ci} co {co} kernel {kernel} stride {stride} padding {padding} length {length}", y[0])


main()
