#!/usr/bin/env python3
"""Turns a trace file into the sample of the round viewer: scripts/sample_trace.py TRACE

A page opened from the file system cannot read another file, so the sample is a script. Numbers are rounded, and of the
header only what the page shows is kept.
"""

import json
import sys
from pathlib import Path
from typing import Any

SAMPLE = Path(__file__).parent.parent / "src" / "truedraft" / "web" / "samples" / "sample.js"
SHOWN = ("trace", "model", "drafter", "rule", "prompt", "parameters")


def rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return {key: rounded(item) for key, item in value.items()} if isinstance(value, dict) else value


def main() -> None:
    header, *rounds = map(json.loads, Path(sys.argv[1]).read_text("utf-8").splitlines())
    kept = {key: header[key] for key in SHOWN if key in header}
    kept["model"] = Path(str(kept["model"])).name
    lines = [json.dumps(rounded(entry), ensure_ascii=False, separators=(",", ":")) for entry in (kept, *rounds)]
    text = json.dumps("\n".join(lines) + "\n", ensure_ascii=False)
    head = "// @ts-check\n/** A trace that ships with the page. */\nconst SampleTrace ="
    SAMPLE.write_text(f"{head}\n  {text};\n", "utf-8")


if __name__ == "__main__":
    main()
