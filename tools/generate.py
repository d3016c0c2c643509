"""Generates the wire code from protos/ into clients/python: committed, and checked by CI.

Run through ``make generate``; ``--check`` writes nothing and fails where a file would change.
"""

from __future__ import annotations

import argparse
import filecmp
import shutil
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
TARGET = ROOT / "clients" / "python"
GENERATED = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")


def generate(out: Path) -> None:
    """Writes the generated modules of every proto below `out`."""
    sources = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.rglob("*.proto"))
    well_known = str(files("grpc_tools").joinpath("_proto"))
    plugin = shutil.which("protoc-gen-mypy", path=str(Path(sys.executable).parent))
    plugin_grpc = shutil.which("protoc-gen-mypy_grpc", path=str(Path(sys.executable).parent))
    if plugin is None or plugin_grpc is None:
        raise SystemExit("mypy-protobuf is not installed in this environment: run `make setup`")
    arguments = [
        "protoc",
        f"--proto_path={PROTOS}",
        f"--proto_path={well_known}",
        f"--plugin=protoc-gen-mypy={plugin}",
        f"--plugin=protoc-gen-mypy_grpc={plugin_grpc}",
        f"--python_out={out}",
        f"--grpc_python_out={out}",
        f"--mypy_out=quiet:{out}",
        f"--mypy_grpc_out=quiet:{out}",
        *sources,
    ]
    if protoc.main(arguments) != 0:
        raise SystemExit("protoc failed")
    for stub in (*out.rglob("*_pb2_grpc.py"), *out.rglob("*_pb2_grpc.pyi")):
        if "ServiceStub" not in stub.read_text():  # a proto without a service
            stub.unlink()


def generated_files(root: Path) -> set[Path]:
    """Lists the generated modules below `root`, relative to it."""
    return {path.relative_to(root) for glob in GENERATED for path in root.rglob(glob)}


def main() -> None:
    """Generates, or with --check compares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch)
        generate(fresh)
        wanted, present = generated_files(fresh), generated_files(TARGET)
        stale = sorted(
            path
            for path in wanted | present
            if path not in wanted
            or path not in present
            or not filecmp.cmp(fresh / path, TARGET / path, shallow=False)
        )
        if check:
            if stale:
                names = "\n  ".join(map(str, stale))
                raise SystemExit(f"generated code is not current; run `make generate`:\n  {names}")
            return
        for path in stale:
            (TARGET / path).unlink(missing_ok=True)
            if path in wanted:
                (TARGET / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(fresh / path, TARGET / path)


if __name__ == "__main__":
    main()
