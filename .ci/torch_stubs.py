"""Stubs of the NVIDIA libraries that PyTorch's wheel links to but does not use without a GPU.

Run with the interpreter that has the wheel. Creates every missing library that `torch/lib` needs: each function
that PyTorch imports from it, with the version that it names, returns 100 ("no device"). Removes the
requirements of NVIDIA's packages from the wheel's metadata, so that pip does not download them.

    python torch_stubs.py --requirements    first, once: print those that are needed anyway
    python torch_stubs.py                   make the others
"""

import collections
import importlib.metadata
import pathlib
import re
import subprocess
import sys
import tempfile

# From the system, or from the wheel itself.
GIVEN = re.compile(r"(ld-linux|lib(c|m|dl|rt|pthread|util|z|gcc_s|stdc\+\+|gomp|gfortran|quadmath|cuda|torch|c10|shm|caffe2|aoti|python)(?![a-z]))")
# Names that PyTorch imports without a library version.
UNVERSIONED = re.compile(r"(cu[A-Z]|cu(blas|dnn|fft|rand|solver|sparse|pti|da[A-Z])|nv(rtc|Jit|shmem|toolsext)|nccl)")


def requirements():
    """Only the runtime and the profiling library, in the versions that the wheel requires."""
    for text in importlib.metadata.requires("torch") or []:
        requirement = text.split(";")[0].replace(" ", "").replace("(", "").replace(")", "")
        if toolkit := re.fullmatch(r"cuda-toolkit\[.*\](==.*)", requirement):
            print("cuda-toolkit[cudart,cupti]" + toolkit[1])
        elif re.match(r"nvidia-cuda-(runtime|cupti)(-cu\d+)?==", requirement):
            print(requirement)


def readelf(*arguments):
    return subprocess.run(["readelf", "-W", *arguments], check=True, capture_output=True, text=True).stdout


def forget():
    """Removes the requirements that the stubs meet from the wheel's metadata."""
    (metadata,) = (file.locate() for file in importlib.metadata.files("torch") if file.name == "METADATA")
    text = metadata.read_text()
    metadata.write_text(re.sub(r"^Requires-Dist: (nvidia|cuda|triton).*\n", "", text, flags=re.M))


def main():
    site = pathlib.Path(importlib.metadata.distribution("torch").locate_file(""))
    folder = site / "torch" / "lib"
    objects = [*folder.glob("lib*.so*"), *(site / "torch").glob("_C*.so")]
    present = {path.name for path in folder.iterdir()} | {path.name for path in site.glob("nvidia/**/lib/*")}
    needed, symbols, unversioned, defined = set(), collections.defaultdict(set), set(), set()
    for path in objects:
        text = readelf("-d", "-V", "--dyn-syms", path)
        needed.update(re.findall(r"\(NEEDED\).*\[(.*)\]", text))
        library = None
        owner = {}
        for line in text.splitlines():
            if found := re.search(r"Version: \d+\s+File: (\S+)", line):
                library = found[1]
            elif found := re.search(r"Name: (\S+)\s+Flags:", line):
                owner[found[1]] = library
        # Number, value, size, type, binding, visibility, section, name.
        for section, name in re.findall(r"^\s*\d+: \w+ +\S+ +\w+ +\w+ +\w+ +(\S+) +(\S+)", text, re.M):
            bare, _, version = name.replace("@@", "@").partition("@")
            if section != "UND":
                defined.add(bare)
            elif version:
                symbols[owner.get(version)].add((bare, version))
            else:
                unversioned.add(bare)
    missing = sorted(name for name in needed - present if not GIVEN.match(name))
    if not missing:
        return
    loose = sorted(name for name in unversioned - defined if UNVERSIONED.match(name))
    for name in missing:
        make(folder / name, symbols[name], loose if name == missing[0] else [])
    print("stand-ins:", " ".join(missing))


def make(path, versioned, loose):
    names = sorted({name for name, _ in versioned} | set(loose))
    source = "\n".join(f"int {name}(void) {{ return 100; }}" for name in names) or "typedef int nothing;"
    versions = collections.defaultdict(list)
    for name, version in sorted(versioned):
        versions[version].append(name)
    script = "\n".join(f"{version} {{ global: {'; '.join(names)}; }};" for version, names in versions.items())
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        (place / "stub.c").write_text(source)
        (place / "versions").write_text(script)
        options = [f"-Wl,--version-script={place / 'versions'}"] if script else []
        command = ["gcc", "-shared", "-fPIC", "-w", "-fno-builtin", f"-Wl,-soname,{path.name}", *options]
        subprocess.run([*command, "-o", path, place / "stub.c"], check=True)


if sys.argv[1:] == ["--requirements"]:
    requirements()
    forget()
else:
    main()
