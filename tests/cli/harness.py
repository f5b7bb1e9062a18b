"""What the tests of the command line share: running the program, one small model a test program, safetensors by hand.

A test program is run as `python3 tests/cli/test_X.py PATH_OF_VORTEX`; more arguments are unittest's. Long loops run with
VORTEX_SLOW=1; what needs the reference's data runs with VORTEX_GOLDEN_DATA; what needs faults, with VORTEX_FAULT_LIBRARY.
"""
import atexit
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

VORTEX = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else "vortex"
SLOW = os.environ.get("VORTEX_SLOW") == "1"
GOLDEN = os.environ.get("VORTEX_GOLDEN_DATA")
FAULTS = os.environ.get("VORTEX_FAULT_LIBRARY")
SMALL = ["--size", "96x64", "--frames", "22", "--steps", "2", "--seed", "1", "-p", "A lighthouse at dawn."]
with open(VORTEX, "rb") as _program:
    SANITIZED = b"__asan_init" in _program.read()  # address space and memory then mean something else
TIMEOUT = 120  # seconds: a hang is a failure, a busy machine is not

_scratch = tempfile.mkdtemp(prefix="vortex-cli-")
os.chmod(_scratch, 0o755)
atexit.register(shutil.rmtree, _scratch, ignore_errors=True)
_model = None


class Result:
    def __init__(self, command, code, out, err):
        self.command, self.code, self.out, self.err = command, code, out, err

    @property
    def json(self):
        return json.loads(self.out)

    def __str__(self):
        return f"{' '.join(repr(c) for c in self.command)}\nexit {self.code}\nstdout: {self.out[-2000:]!r}\nstderr: {self.err[-2000:]!r}"


def defaults():
    """In the child: what a terminal would have set, whatever the test runner inherited."""
    for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(s, signal.SIG_DFL)


def environment(extra=None):
    env = {k: v for k, v in os.environ.items() if not k.startswith("VORTEX_FAULT") and k != "VORTEX_MODEL"}
    env.update(extra or {})
    return env


def run(*args, env=None, stdin=b"", cwd=None, timeout=TIMEOUT, before=None, stdout=None, **more):
    """Runs the program to its end. `before` runs in the child, after the signals are as usual."""
    def prepare():
        defaults()
        if before:
            before()
    command = [VORTEX, *map(os.fsencode, map(str_or_bytes, args))]
    p = subprocess.run(command, env=environment(env), cwd=cwd, timeout=timeout, preexec_fn=prepare,
                       stdout=stdout or subprocess.PIPE, stderr=subprocess.PIPE, **({"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin}), **more)
    return Result(command, p.returncode, (p.stdout or b"").decode("utf-8", "surrogateescape"), p.stderr.decode("utf-8", "surrogateescape"))


def str_or_bytes(a):
    return a if isinstance(a, (str, bytes)) else str(a)


def start(*args, env=None, cwd=None, **more):
    """Starts the program; progress as JSON lines on its stderr pipe."""
    return subprocess.Popen([VORTEX, *args], env=environment(env), cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, preexec_fn=defaults, **more)


def model():
    """A complete small partition, written once for this program; beside it lies the other one, which has a transformer only.
    Leave it as it is; copy_model gives one to break."""
    global _model
    if _model is None:
        path = os.path.join(_scratch, "model")
        done = run("demo-model", path, "--random", "-q")
        if done.code:
            raise RuntimeError(str(done))
        _model = os.path.join(path, "FL2VA")
    return _model


def tree(folder):
    """Every path below a folder with its size."""
    found = {}
    for root, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(root, name)
            found[os.path.relpath(path, folder)] = os.lstat(path).st_size if name in files else None
    return found


SIZES = {"F32": 4, "BF16": 2, "F16": 2, "I32": 4, "I64": 8, "U8": 1, "F64": 8}


def read_tensors(path):
    """({name: (dtype, shape, bytes)} in file order, metadata)."""
    with open(path, "rb") as f:
        data = f.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    metadata = header.pop("__metadata__", {})
    body = memoryview(data)[8 + size:]
    return {n: (e["dtype"], e["shape"], bytes(body[slice(*e["data_offsets"])])) for n, e in header.items()}, metadata


def write_raw(path, header, body):
    """A header as it stands (dict or bytes), and the data."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body)


def write_tensors(path, tensors, metadata=None):
    header, body = ({"__metadata__": metadata} if metadata else {}), b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    write_raw(path, header, body)


def floats(values):
    return struct.pack(f"<{len(values)}f", *values)


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.tmp = tempfile.mkdtemp(prefix="case-", dir=_scratch)
        os.chmod(self.tmp, 0o755)
        self.addCleanup(shutil.rmtree, self.tmp, ignore_errors=True)

    def path(self, *parts):
        return os.path.join(self.tmp, *parts)

    def copy_model(self, name="broken"):
        return shutil.copytree(model(), self.path(name))

    def ok(self, *args, **kw):
        r = run(*args, **kw)
        self.assertEqual(r.code, 0, str(r))
        self.assertNotIn("vortex: error", r.err, str(r))
        return r

    def generate(self, *args, **kw):
        return self.ok("generate", "-m", model(), *SMALL, "-q", "--json", *args, **kw)

    def error_of(self, r, code=None, exit_status=None):
        """The one error line of a run, held to the contract's form; its code."""
        lines = [line for line in r.err.splitlines() if line.startswith("vortex: error")]
        self.assertEqual(len(lines), 1, str(r))
        found = re.match(r"vortex: error (VX-\d{4}): .+\.", lines[0])
        self.assertTrue(found, str(r))
        number = int(found[1][3:])
        want = 130 if number == 8001 else number // 1000
        self.assertEqual(r.code, want, f"exit status and class differ: {r}")
        if r.code in (5, 6):  # memory and devices: the remedy follows, which has no full stop
            self.assertNotEqual(lines[0][-1], ".", str(r))
        if isinstance(code, str):
            self.assertEqual(found[1], code, str(r))
        elif code:
            self.assertIn(found[1], code, str(r))
        if exit_status is not None:
            self.assertEqual(r.code, exit_status, str(r))
        return found[1]

    def refused(self, code, *args, **kw):
        """A run that must end in this error, alike on stderr and, with --json, on stdout; and leave the folder as it was."""
        before = tree(self.tmp)
        r = run(args[0], "--json", *args[1:], **kw)
        found = self.error_of(r, code)
        error = json.loads(r.out.splitlines()[-1])["error"]
        self.assertEqual(error["code"], found, str(r))
        self.assertEqual(set(error), {"code", "message", "remedy", "field"}, str(r))
        self.assertTrue(error["message"], str(r))
        self.assertEqual(tree(self.tmp), before, f"something was left behind: {r}")
        return r


def main():
    unittest.main(argv=[sys.argv[0]] + sys.argv[2:])
