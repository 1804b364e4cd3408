"""The blocks of docs/hosts.md run, each as far as its host is installed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "hosts.md"
SECTIONS = {
    head.partition("\n")[0]: re.findall(r"^```(\w+)\n(.*?)^```", head, re.DOTALL | re.MULTILINE)
    for head in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]
}
NEEDS = {
    "Ray Serve": ("ray.serve",),
    "LiteLLM": ("litellm",),
    "SkyPilot": ("sky.serve.load_balancing_policies",),
    "A client": ("httpx", "openai"),
    "A gateway of my own": ("fastapi",),
}


@pytest.mark.parametrize("section", NEEDS)
def test_the_blocks_of_a_host_run(section: str) -> None:
    for module in NEEDS[section]:
        pytest.importorskip(module, reason=f"needs {module}, see `make hosts`", exc_type=ImportError)
    blocks = [text for language, text in SECTIONS[section] if language == "python"]
    assert blocks
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks:
        assert len(block.splitlines()) <= 20
        exec(compile(block, f"{PAGE}, {section}", "exec"), names)  # noqa: S102  # our own page
    if section == "LiteLLM":
        assert names["litellm"].callbacks == [names["adapter"]]
        names["litellm"].callbacks = []


def test_the_file_for_verl_makes_a_balancer() -> None:
    yaml = pytest.importorskip("yaml", reason="needs pyyaml")
    verl = pytest.importorskip("prefixroute.hosts.verl", reason="needs verl, see `make hosts`", exc_type=ImportError)
    [(_, text)] = SECTIONS["verl"]
    config = yaml.safe_load(text)
    assert config["router_class"] == f"{verl.__name__}.{verl.PrefixLoadBalancer.__name__}"
    assert verl.PrefixLoadBalancer({"s0": "h0"}, config).acquire_server("a", prompt_ids=[1, 2])[0] == "s0"
